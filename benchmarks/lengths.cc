// Answers lines of standard input, `MODEL LENGTH CALLS`, with the shortest
// nanoseconds of a run of that length in several batches of so many runs.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "benchmarks/lengths.encoder_aot.h"
#include "benchmarks/lengths.tagger_aot.h"

namespace {

constexpr int kBatches = 5;

template <typename Run>
double Best(int calls, const Run& run) {
  double best = 1e300;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      if (!run()) std::exit(1);
    }
    const std::chrono::duration<double, std::nano> time =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / calls);
  }
  return best;
}

}  // namespace

int main() {
  benchmarks::LengthsEncoder encoder;
  benchmarks::LengthsTagger tagger;
  for (std::size_t i = 0; i < encoder.tokens().size(); ++i) {
    encoder.tokens()[i] = static_cast<std::int32_t>(i % 100);
    encoder.mask()[i] = 1;
  }
  for (std::size_t i = 0; i < tagger.words().size(); ++i) {
    tagger.words()[i] = static_cast<std::int32_t>(i % 100);
  }
  char model[16];
  long length = 0;
  int calls = 0;
  while (std::scanf("%15s %ld %d", model, &length, &calls) == 3) {
    const double best =
        std::strcmp(model, "encoder") == 0
            ? Best(calls, [&] { return encoder.Run(1, length); })
            : Best(calls, [&] { return tagger.Run(length); });
    std::printf("%f\n", best);
    std::fflush(stdout);
  }
}
