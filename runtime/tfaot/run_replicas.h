// The replicas of a model, as threads. Generated tests use it.
#ifndef TFAOT_RUN_REPLICAS_H_
#define TFAOT_RUN_REPLICAS_H_

#include <string>
#include <thread>
#include <vector>

#include "tfaot/thread_replicas.h"

namespace tfaot {

// `kSize` instances that exchange values.
template <typename Model, int kSize>
class Replicas {
 public:
  // `verifier` notes what fails.
  template <typename Verifier>
  Replicas(const char* isa, Verifier& verifier) : exchange_(kSize) {
    for (int rank = 0; rank < kSize; ++rank) {
      models_.emplace_back(isa);
      Model& model = models_.back();
      const bool ok = model.set_collectives(exchange_.collectives(rank));
      verifier.Ran(-1, ok, model.error());
    }
  }

  Model& operator[](int rank) {
    return models_[static_cast<std::size_t>(rank)];
  }

  template <typename Verifier>
  void Load(Verifier& verifier, const char* path) {
    for (Model& model : models_) {
      const bool ok = model.Load(path);
      verifier.Ran(-1, ok, model.error());
    }
  }

  // Calls `run` for each instance at the same time.
  template <typename Verifier, typename Function>
  void Run(Verifier& verifier, int step, Function run) {
    bool ran[kSize] = {};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kSize; ++rank) {
      threads.emplace_back([&, rank] { ran[rank] = run((*this)[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < kSize; ++rank) {
      verifier.Ran(step, ran[rank], (*this)[rank].error());
    }
  }

 private:
  ThreadReplicas exchange_;
  std::vector<Model> models_;
};

}  // namespace tfaot

#endif  // TFAOT_RUN_REPLICAS_H_
