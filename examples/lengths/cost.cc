// Prints the time of a run for several lengths, compiled open and fixed.
//
//   ./bazelw run -c opt //examples/lengths:cost
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "examples/lengths/lengths_aot.h"

namespace {

// Returns the shortest mean of 1,000 runs in microseconds.
template <typename Run>
double Microseconds(Run run) {
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i) {
      if (!run()) std::exit(1);
    }
    const std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return best;
}

}  // namespace

int main() {
  examples::Lengths model;
  const auto fill = [](auto tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(i % 100);
    }
  };
  fill(model.any_length_tokens());
  fill(model.of_16_tokens());
  fill(model.of_64_tokens());
  for (const std::int32_t n : {1, 16, 37, 64}) {
    *model.any_length_n() = n;
    std::printf("%2d tokens of 64, open: %7.2f us\n", n,
                Microseconds([&] { return model.any_length(); }));
  }
  std::printf("16 tokens, fixed:      %7.2f us\n",
              Microseconds([&] { return model.of_16(); }));
  std::printf("64 tokens, fixed:      %7.2f us\n",
              Microseconds([&] { return model.of_64(); }));
}
