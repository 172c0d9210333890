// What the system says about pages of this process.
#ifndef TESTS_RUNTIME_PAGE_FLAGS_H_
#define TESTS_RUNTIME_PAGE_FLAGS_H_

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace tfaot {

// Returns the line of /proc/self/smaps with the flags of an address's mapping.
inline std::string FlagsOf(const void* data) {
  std::ifstream file("/proc/self/smaps");
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      here = begin <= address && address < end;
    }
    if (here && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return "";
}

inline bool Huge(const void* data) {
  return FlagsOf(data).find(" hg ") != std::string::npos;
}

}  // namespace tfaot

#endif  // TESTS_RUNTIME_PAGE_FLAGS_H_
