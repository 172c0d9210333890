// The process of a compiled model in the benchmark, with the same commands and
// answers as workers/worker.py, over the same pipe.
//
//   driver [--threads=N] INPUT...
//
// INPUT: files of raw values, one for each input, in order. N: the number of
// threads per call, if the driver is built with TFAOT_BENCHMARKS_THREADS.
#ifndef TFAOT_BENCHMARKS_DRIVER_H_
#define TFAOT_BENCHMARKS_DRIVER_H_

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#ifdef TFAOT_BENCHMARKS_THREADS
#include "tfaot/threads.h"
#endif

namespace tfaot::benchmarks {

// Prints an answer that says what went wrong. Returns the exit status.
inline int Fail(const char* what, const char* why) {
  std::printf("{\"error\": \"%s %s\"}\n", what, why);
  std::fflush(stdout);
  return 1;
}

// Serves commands on standard input with a `Bound`. It has Run(), error(), and
// Inputs(visit) and Outputs(visit), which call `visit` with each tensor's view
// in order: data(), size_bytes(), size(), and operator[].
template <typename Bound>
int Serve(int argc, char** argv) {
  auto bound = std::make_unique<Bound>();
  int next = 1;
#ifdef TFAOT_BENCHMARKS_THREADS
  std::unique_ptr<Threads> threads;
  if (argc > 1 && std::strncmp(argv[1], "--threads=", 10) == 0) {
    threads = std::make_unique<Threads>(std::atoi(argv[next++] + 10));
    bound->model.set_thread_pool(threads.get());
  }
#endif
  bool read = true;
  bound->Inputs([&](auto view) {
    std::FILE* file = next < argc ? std::fopen(argv[next], "rb") : nullptr;
    ++next;
    read &= file != nullptr && std::fread(view.data(), 1, view.size_bytes(),
                                          file) == view.size_bytes();
    if (file != nullptr) std::fclose(file);
  });
  if (!read || next != argc) return Fail("inputs", "don't fit the model");
  if (!bound->Run()) return Fail("Run():", bound->error());
  std::printf("{\"ready\": true, \"version\": \"\"}\n");
  std::fflush(stdout);

  char line[4096];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    line[std::strcspn(line, "\n")] = 0;
    long batches = 0, calls = 0;
    if (std::strcmp(line, "run") == 0) {
      if (!bound->Run()) return Fail("Run():", bound->error());
      std::printf("{}\n");
    } else if (std::strncmp(line, "outputs ", 8) == 0) {
      std::FILE* file = std::fopen(line + 8, "wb");
      if (file == nullptr) return Fail("outputs", "can't be written");
      bound->Outputs([&](auto view) {
        for (std::size_t i = 0; i < view.size(); ++i) {
          const float value = static_cast<float>(view[i]);
          std::fwrite(&value, sizeof value, 1, file);
        }
      });
      if (std::fclose(file) != 0) return Fail("outputs", "can't be written");
      std::printf("{}\n");
    } else if (std::sscanf(line, "time %ld %ld", &batches, &calls) == 2) {
      // Print only after the last batch, so printing doesn't affect timings.
      const auto times = std::make_unique<long long[]>(batches);
      for (long batch = 0; batch < batches; ++batch) {
        const auto begin = std::chrono::steady_clock::now();
        for (long call = 0; call < calls; ++call) {
          if (!bound->Run()) return Fail("Run():", bound->error());
        }
        times[batch] =
            std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin)
                .count();
      }
      std::printf("{\"ns\": [");
      for (long batch = 0; batch < batches; ++batch) {
        std::printf("%s%lld", batch ? ", " : "", times[batch]);
      }
      std::printf("]}\n");
    } else {
      return Fail("unknown command:", line);
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace tfaot::benchmarks

#endif  // TFAOT_BENCHMARKS_DRIVER_H_
