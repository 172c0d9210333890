// Shared by tests of variables: safetensors files, byte by byte.
#ifndef TFAOT_TESTS_RUNTIME_FILES_H_
#define TFAOT_TESTS_RUNTIME_FILES_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

// A folder for this process, which is removed at the end.
inline const std::string& Folder() {
  static const struct Made {
    Made() {
      const char* parent = std::getenv("TEST_TMPDIR");
      path = std::string(parent ? parent : "/tmp") + "/variables-XXXXXX";
      if (mkdtemp(path.data()) == nullptr) std::abort();
    }
    ~Made() { std::filesystem::remove_all(path); }
    std::string path;
  } made;
  return made.path;
}

inline std::string Path(const std::string& name) {
  return Folder() + "/" + name;
}

inline std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The names in a folder, in order.
inline std::vector<std::string> Names(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string Written(const std::string& name, const std::string& bytes) {
  std::ofstream(Path(name), std::ios::binary) << bytes;
  return Path(name);
}

template <typename T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Length, header, data.
inline std::string File(const std::string& header, const std::string& data) {
  return Bytes(std::uint64_t{header.size()}) + header + data;
}

// The same, with spaces so that the data starts at a multiple of 64.
inline std::string AlignedFile(std::string header, const std::string& data) {
  while ((header.size() + 8) % 64 != 0) header += ' ';
  return File(header, data);
}

// One member of a header.
inline std::string Member(const std::string& name, const std::string& dtype,
                          const std::string& shape, std::uint64_t begin,
                          std::uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + std::to_string(begin) + "," +
         std::to_string(end) + "]}";
}

#endif  // TFAOT_TESTS_RUNTIME_FILES_H_
