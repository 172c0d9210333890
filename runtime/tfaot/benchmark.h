// Times a compiled model's runs. Generated benchmarks use it.
#ifndef TFAOT_BENCHMARK_H_
#define TFAOT_BENCHMARK_H_

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace tfaot {

// Calls `run` for `--steps=N` timed steps (1000 by default), after a tenth as
// many untimed ones. Prints the CPU level and the minimum, median, and maximum
// in microseconds. Returns the process's exit status.
template <typename Model, typename Run>
int Benchmark(const char* name, const Model& model, Run run, int argc,
              char** argv) {
  int steps = 1000;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--steps=", 8) == 0) {
      steps = std::atoi(argv[i] + 8);
    }
  }
  if (steps < 1) {
    std::fprintf(stderr, "--steps must be at least 1\n");
    return 2;
  }
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(steps));
  for (int step = -(steps / 10); step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    if (!run()) {
      std::fprintf(stderr, "%s: a run failed: %s\n", name, model.error());
      return 1;
    }
    const std::chrono::duration<double, std::micro> time =
        std::chrono::steady_clock::now() - begin;
    if (step >= 0) times.push_back(time.count());
  }
  std::sort(times.begin(), times.end());
  std::printf("%s, %s: %d steps, min %.2f us, median %.2f us, max %.2f us\n",
              name, model.isa(), steps, times.front(), times[times.size() / 2],
              times.back());
  return 0;
}

}  // namespace tfaot

#endif  // TFAOT_BENCHMARK_H_
