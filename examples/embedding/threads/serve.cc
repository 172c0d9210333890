// Serves a model on three threads while its weights change.
//
//   ./bazelw run //examples/embedding/threads:serve -- [VERSIONS]     # 1000
//
// In version v, all weights are v, so each score of 1024 ones is 1025 v. A
// thread that mixed versions would count other scores.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "examples/embedding/threads/scorer_aot.h"

namespace {

using examples::Scorer;

struct Served {
  long runs = 0;
  long mixed = 0;
  float last = 0;
};

// A request's thread: it has an instance, and shares the weights.
void Serve(const tfaot::LiveWeights& live, const std::atomic<bool>& done,
           Served* served) {
  tfaot::Status status;
  Scorer model = Scorer::Create(tfaot::Options(), &status);
  if (!model || !model.Follow(&live)) {
    std::fprintf(stderr, "%s\n", model ? model.error() : status.message());
    std::exit(1);
  }
  std::fill(model.x().begin(), model.x().end(), 1.0f);
  for (bool last = false; !last;) {
    last = done.load();
    if (!model.Run()) std::exit(1);
    ++served->runs;
    served->last = model.bias()[0];  // of the weights that the run used
    const float want = 1025 * served->last;
    const bool whole = std::count(model.score().begin(), model.score().end(),
                                  want) == model.score().dim(0);
    if (!whole) ++served->mixed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[argc - 1], "--help") == 0) {
    std::puts("usage: serve [VERSIONS]");
    return 0;
  }
  const int versions = argc > 1 ? std::atoi(argv[1]) : 1000;
  tfaot::LiveWeights live(Scorer::InitialWeights());
  std::atomic<bool> done{false};
  std::vector<Served> served(3);
  std::vector<std::thread> threads;
  for (Served& each : served) {
    threads.emplace_back([&] { Serve(live, done, &each); });
  }

  // Another thread publishes. Nobody waits for it, and it waits for nobody.
  // With a file, this is live.Load(tfaot::Source::Path("weights.safetensors")).
  for (int version = 1; version <= versions; ++version) {
    const std::vector<float> values(1024 * 1024, static_cast<float>(version));
    const tfaot::Status status = live.Update({
        {"kernel", values.data(), values.size() * sizeof(float)},
        {"bias", values.data(), 1024 * sizeof(float)},
    });
    if (!status) {
      std::fprintf(stderr, "%s\n", status.message());
      return 1;
    }
  }
  done = true;
  for (std::thread& thread : threads) thread.join();

  bool whole = true;
  for (const Served& each : served) {
    std::printf("%ld runs, %ld of them with mixed weights, last version %.0f\n",
                each.runs, each.mixed, each.last);
    whole = whole && each.mixed == 0 && each.last == versions;
  }
  return whole ? 0 : 1;
}
