// Times a compiled model's runs. Generated benchmarks use it.
#ifndef TFAOT_BENCHMARK_H_
#define TFAOT_BENCHMARK_H_

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tfaot/hooks.h"

namespace tfaot {

// What `--help` prints after the program's name.
inline constexpr char kBenchmarkHelp[] =
    R"([GOLDENS] [VARIABLES] [--steps=N] [--profile=FILE]

Times the runs of a compiled model: prints the CPU level, and the minimum,
median, and maximum of all steps in microseconds.

  GOLDENS    the file with the inputs, which Bazel passes
  VARIABLES  the file with the variables of a target that doesn't embed them,
             which Bazel passes
  --steps=N  how many steps to time, after a tenth as many untimed ones; 1000
             by default, and 2 in the target's own arguments. The last one wins.
  --profile=FILE  also run as many steps with a clock around each kernel, and
             write the times to FILE, as a line of JSON for each entry point
  --help     print this text

To time optimized code: bazel run -c opt TARGET -- --steps=1000
The environment variable TFAOT_ISA names the CPU level to run.
)";

// Sums the time of each kernel, in the order in which they first run.
class Profile final : public Hooks {
 public:
  struct Kernel {
    const char* name;
    long calls;
    double microseconds;
  };

  bool Before(const char* /*kernel*/) noexcept override {
    begin_ = std::chrono::steady_clock::now();
    return true;
  }

  void After(const char* kernel) noexcept override {
    const std::chrono::duration<double, std::micro> time =
        std::chrono::steady_clock::now() - begin_;
    // Runs call the same kernels in the same order, except after a branch.
    if (next_ >= kernels_.size() || kernels_[next_].name != kernel) {
      next_ = 0;
      while (next_ < kernels_.size() && kernels_[next_].name != kernel) ++next_;
      if (next_ == kernels_.size()) kernels_.push_back({kernel, 0, 0});
    }
    ++kernels_[next_].calls;
    kernels_[next_].microseconds += time.count();
    ++next_;
  }

  const std::vector<Kernel>& kernels() const { return kernels_; }

 private:
  std::vector<Kernel> kernels_;
  std::size_t next_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

// Appends a profile to a file, as one line of JSON. Names of kernels and
// classes are identifiers and sizes. Returns whether that succeeded.
inline bool Append(const std::string& path, const char* name, const char* isa,
                   int steps, double median, const Profile& profile) {
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (file == nullptr) return false;
  std::fprintf(file,
               "{\"function\": \"%s\", \"isa\": \"%s\", \"steps\": %d, "
               "\"microseconds\": %.3f, \"kernels\": [",
               name, isa, steps, median);
  const char* separator = "";
  for (const Profile::Kernel& kernel : profile.kernels()) {
    std::fprintf(file,
                 "%s{\"name\": \"%s\", \"calls\": %.6g, \"microseconds\": "
                 "%.4f}",
                 separator, kernel.name,
                 static_cast<double>(kernel.calls) / steps,
                 kernel.microseconds / steps);
    separator = ", ";
  }
  std::fprintf(file, "]}\n");
  return std::fclose(file) == 0;
}

// Calls `run` for `--steps=N` timed steps (1000 by default), after a tenth as
// many untimed ones. Prints the CPU level and the minimum, median, and maximum
// in microseconds. With `--profile=FILE`, runs as many steps again, with hooks.
// Returns the process's exit status.
template <typename Model, typename Run>
int Benchmark(const char* name, Model& model, Run run, int argc, char** argv) {
  int steps = 1000;
  const char* path = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--steps=", 8) == 0) {
      steps = std::atoi(argv[i] + 8);
    } else if (std::strncmp(argv[i], "--profile=", 10) == 0) {
      path = argv[i] + 10;
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
  if (path == nullptr) return 0;
  Profile profile;
  model.set_hooks(&profile);
  bool ok = true;
  for (int step = 0; step < steps && ok; ++step) ok = run();
  model.set_hooks(nullptr);
  if (!ok) {
    std::fprintf(stderr, "%s: a run failed: %s\n", name, model.error());
    return 1;
  }
  if (!Append(path, name, model.isa(), steps, times[times.size() / 2],
              profile)) {
    std::fprintf(stderr, "%s can't be written\n", path);
    return 1;
  }
  return 0;
}

}  // namespace tfaot

#endif  // TFAOT_BENCHMARK_H_
