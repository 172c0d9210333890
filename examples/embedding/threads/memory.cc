// Prints the memory of 1 and of 64 instances that share their weights.
//
//   ./bazelw run -c opt //examples/embedding/threads:memory
//
// Each instance runs once, so all of its pages are in memory.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "examples/embedding/threads/scorer_aot.h"

namespace {

// A number of kB in /proc/self/status.
long Memory(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) {
      return std::atol(line.c_str() + key.size() + 1);
    }
  }
  return 0;
}

class Counter final : public tfaot::Allocator {
 public:
  void* Allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    held += bytes;
    return std::aligned_alloc(alignment, bytes);
  }
  void Free(void* memory, std::size_t bytes) noexcept override {
    held -= bytes;
    std::free(memory);
  }
  std::size_t held = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[argc - 1], "--help") == 0) {
    std::puts("usage: memory");
    return 0;
  }
  Counter counter;
  tfaot::Options options;
  options.allocator = &counter;
  std::vector<examples::Scorer> models;
  for (const std::size_t count : {1u, 64u}) {
    while (models.size() < count) {
      models.emplace_back(options);
      if (!models.back().Run()) {
        std::fprintf(stderr, "%s\n", models.back().error());
        return 1;
      }
    }
    std::printf(
        "%zu instance(s): %zu bytes of their own; the process has %ld kB, of "
        "which %ld kB are anonymous\n",
        count, counter.held, Memory("VmRSS"), Memory("RssAnon"));
  }
  return 0;
}
