// Shared by tests of variables: where values are in memory, and files.
#ifndef TFAOT_TESTS_MODELS_VARIABLES_MAPS_H_
#define TFAOT_TESTS_MODELS_VARIABLES_MAPS_H_

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

// Finds the line of /proc/self/maps that contains an address: its access, such
// as "r--p", and the file that is mapped there, if any.
struct Mapping {
  std::string access;
  std::string file;
};

inline Mapping MappingOf(const void* data) {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string offset, device, node;
    Mapping mapping;
    fields >> std::hex >> begin >> dash >> end >> mapping.access >> offset >>
        device >> node >> std::ws;
    std::getline(fields, mapping.file);
    if (at >= begin && at < end) return mapping;
  }
  return {};
}

// A file for this test, which the test runner removes.
inline std::string Scratch(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder ? folder : "/tmp") + "/" + name;
}

#endif  // TFAOT_TESTS_MODELS_VARIABLES_MAPS_H_
