// Prints the time of a run for several lengths.
//
//   ./bazelw run -c opt //examples/lengths:cost
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "examples/lengths/lengths_aot.h"

int main() {
  examples::Encoder model;
  for (std::size_t i = 0; i < model.tokens().size(); ++i) {
    model.tokens()[i] = static_cast<std::int32_t>(i % 100);
    model.mask()[i] = 1;
  }
  for (const std::int64_t length : {1, 8, 16, 17, 32, 64}) {
    double best = 1e9;
    for (int round = 0; round < 50; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 100; ++i) {
        if (!model.Run(1, length)) std::exit(1);
      }
      const std::chrono::duration<double, std::micro> time =
          std::chrono::steady_clock::now() - start;
      best = std::min(best, time.count() / 100);
    }
    std::printf("%2d tokens: %8.1f us\n", static_cast<int>(length), best);
  }
}
