// Breaks the exchange of replicas in a generated test, which must then fail.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <vector>

// Whatever the generated test includes afterwards is the broken one.
#define ThreadReplicas SoundReplicas
#include "tfaot/thread_replicas.h"
#undef ThreadReplicas

namespace tfaot {

enum class Fault {
  kNone,
  kDropped,        // one replica skips a reduction
  kAveragedTwice,  // a sum is divided once more
  kWrongRank,      // a replica gets what another one had
};

inline Fault fault = Fault::kNone;
inline int faulty = 0;               // the number of the reduction
constexpr std::uint64_t kApart = 1;  // a call for each reduction

// As the sound ones, but one reduction of each run goes wrong for rank 1.
class ThreadReplicas {
 public:
  explicit ThreadReplicas(int size)
      : sound_(size, std::chrono::minutes(5), kApart) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(
          {sound_.collectives(rank), {}, *sound_.collectives(rank)});
    }
    for (Rank& rank : ranks_) {
      rank.broken.context = &rank;
      rank.broken.start = [](void* context, const tfaot_collective* call) {
        auto& own = *static_cast<Rank*>(context);
        const auto* const data = static_cast<const float*>(call->data);
        if (call->id == faulty) own.before.assign(data, data + call->count);
        return own.sound->start(own.sound->context, call);
      };
      rank.broken.wait = [](void* context, const tfaot_collective* call) {
        auto& own = *static_cast<Rank*>(context);
        const int status = own.sound->wait(own.sound->context, call);
        if (call->id != faulty || own.sound->rank != 1) return status;
        auto* const data = static_cast<float*>(call->data);
        for (std::size_t i = 0; i < call->count; ++i) {
          if (fault == Fault::kDropped) data[i] = own.before[i];
          if (fault == Fault::kAveragedTwice) data[i] /= 2;
          if (fault == Fault::kWrongRank)
            data[i] = 2 * (data[i] - own.before[i]);
        }
        return status;
      };
      rank.broken.abort = [](void* context) {
        auto& own = *static_cast<Rank*>(context);
        own.sound->abort(own.sound->context);
      };
      rank.broken.error = [](void* context) {
        auto& own = *static_cast<Rank*>(context);
        return own.sound->error(own.sound->context);
      };
    }
  }

  const tfaot_collectives* collectives(int rank) const noexcept {
    return &ranks_[static_cast<std::size_t>(rank)].broken;
  }

 private:
  struct Rank {
    const tfaot_collectives* sound;
    std::vector<float> before;
    tfaot_collectives broken;
  };

  SoundReplicas sound_;
  std::vector<Rank> ranks_;
};

}  // namespace tfaot

#define main generated_main
#include "tests/models/distributed/step_2_aot_test.cc"
#undef main

int main(int argc, char** argv) {
  int failed = 0;
  // Two gradients and the loss.
  for (tfaot::faulty = 0; tfaot::faulty < 3; ++tfaot::faulty) {
    for (const auto fault :
         {tfaot::Fault::kNone, tfaot::Fault::kDropped,
          tfaot::Fault::kAveragedTwice, tfaot::Fault::kWrongRank}) {
      tfaot::fault = fault;
      const bool passed = generated_main(argc, argv) == 0;
      if (passed == (fault == tfaot::Fault::kNone)) continue;
      std::printf(
          "reduction %d, fault %d: the generated test %s\n", tfaot::faulty,
          static_cast<int>(fault),
          passed ? "doesn't notice it  FAILED" : "fails without one  FAILED");
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}
