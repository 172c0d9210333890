// Shared by tests of variables: processes that end, or lack a resource.
#ifndef TFAOT_TESTS_RUNTIME_LIMITS_H_
#define TFAOT_TESTS_RUNTIME_LIMITS_H_

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/runtime/expect.h"

// Bytes of this process: in all its mappings, or in memory.
inline std::uint64_t Size(bool resident) {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t all = 0, in_memory = 0;
  statm >> all >> in_memory;
  return (resident ? in_memory : all) *
         static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// Returns how a process that does `work` ends: its exit status, 0 if none of
// its checks fails, or minus the signal that ends it.
template <typename Work>
int InChild(Work work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    failed = 0;
    work();
    std::fflush(nullptr);
    std::_Exit(failed == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// The same, under a limit.
template <typename Work>
int Limited(int resource, std::uint64_t limit, Work work) {
  return InChild([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limits = {limit, limit};
    setrlimit(static_cast<__rlimit_resource>(resource), &limits);
    work();
  });
}

// Whether limits of address space apply. Emulators of other machines ignore
// them.
inline bool LimitsMemory() {
  constexpr std::size_t kMore = std::size_t{1} << 26;
  return Limited(RLIMIT_AS, Size(false), [] {
           std::_Exit(mmap(nullptr, kMore, PROT_READ,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
                          ? 0
                          : 1);
         }) == 0;
}

// More memory than a process needs to load a file in place. An emulator also
// keeps what it knows of each page, however large the mapping is.
inline std::uint64_t Little() {
  return LimitsMemory() ? std::uint64_t{8} << 20 : UINT64_MAX;
}

#endif  // TFAOT_TESTS_RUNTIME_LIMITS_H_
