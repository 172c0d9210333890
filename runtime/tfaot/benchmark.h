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

// What `--help` prints after the program's name.
inline constexpr char kBenchmarkHelp[] =
    R"([GOLDENS] [VARIABLES] [--steps=N]

Times the runs of a compiled model: prints the CPU level, and the minimum,
median, and maximum of all steps in microseconds.

  GOLDENS    the file with the inputs, which Bazel passes
  VARIABLES  the file with the variables of a target that doesn't embed them,
             which Bazel passes
  --steps=N  how many steps to time, after a tenth as many untimed ones; 1000
             by default, and 2 in the target's own arguments. The last one wins.
  --help     print this text

To time optimized code: bazel run -c opt TARGET -- --steps=1000
The environment variable TFAOT_ISA names the CPU level to run.
)";

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
    } else if (argv[i][0] == '-') {
      std::fprintf(stderr, "unknown flag %s; --help lists all flags\n",
                   argv[i]);
      return 2;
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
