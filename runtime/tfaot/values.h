// Writes values to a safetensors file, in the order in which they are added.
// Generated tests use it for --values.
#ifndef TFAOT_VALUES_H_
#define TFAOT_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tfaot/drawn.h"
#include "tfaot/half.h"

namespace tfaot {

// The format's code of a C++ type (py/tfaot/core/dtypes.py).
template <typename T>
constexpr const char* ValueCode() {
  if constexpr (std::is_same_v<T, float>) return "F32";
  if constexpr (std::is_same_v<T, double>) return "F64";
  if constexpr (std::is_same_v<T, Float16>) return "F16";
  if constexpr (std::is_same_v<T, BFloat16>) return "BF16";
  if constexpr (IsComplex<T>::value) return sizeof(T) == 8 ? "C64" : "C128";
  if constexpr (std::is_same_v<T, bool>) return "BOOL";
  if constexpr (std::is_same_v<T, std::int8_t>) return "I8";
  if constexpr (std::is_same_v<T, std::int16_t>) return "I16";
  if constexpr (std::is_same_v<T, std::int32_t>) return "I32";
  if constexpr (std::is_same_v<T, std::int64_t>) return "I64";
  if constexpr (std::is_same_v<T, std::uint8_t>) return "U8";
  if constexpr (std::is_same_v<T, std::uint16_t>) return "U16";
  if constexpr (std::is_same_v<T, std::uint32_t>) return "U32";
  if constexpr (std::is_same_v<T, std::uint64_t>) return "U64";
}

// Copies values, and writes all of them at the end.
class ValuesFile {
 public:
  // Returns the path in `--values=PATH`, or "" if no argument has it.
  static std::string Path(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      if (std::strncmp(argv[i], "--values=", 9) == 0) return argv[i] + 9;
    }
    return "";
  }

  explicit ValuesFile(std::string path) : path_(std::move(path)) {}

  bool wanted() const { return !path_.empty(); }

  // Adds a tensor, whose name is new.
  template <typename T>
  void Add(const std::string& name, const std::vector<std::int64_t>& shape,
           const T* values, std::size_t size) {
    if (!wanted()) return;
    std::string text = "{\"dtype\":\"" +
                       std::string(ValueCode<std::remove_const_t<T>>()) +
                       "\",\"shape\":[";
    const char* separator = "";
    for (const std::int64_t dim : shape) {
      text += separator + std::to_string(dim);
      separator = ",";
    }
    const std::size_t begin = data_.size();
    const auto* const bytes = reinterpret_cast<const char*>(values);
    data_.insert(data_.end(), bytes, bytes + size * sizeof(T));
    text += "],\"data_offsets\":[" + std::to_string(begin) + "," +
            std::to_string(data_.size()) + "]}";
    members_.push_back(Quoted(name) + ":" + text);
  }

  // Writes the file. Returns whether that succeeded, or wasn't wanted.
  bool Write(const char* model, const char* isa) const {
    if (!wanted()) return true;
    std::string header = "{\"__metadata__\":{\"model\":" + Quoted(model) +
                         ",\"isa\":" + Quoted(isa) + "}";
    for (const std::string& member : members_) header += "," + member;
    header += "}";
    header.append((64 - (8 + header.size()) % 64) % 64, ' ');
    std::FILE* const file = std::fopen(path_.c_str(), "wb");
    if (file == nullptr) return false;
    const std::uint64_t length = header.size();
    bool ok = std::fwrite(&length, sizeof(length), 1, file) == 1;
    ok = std::fwrite(header.data(), 1, header.size(), file) == header.size() &&
         ok;
    ok = std::fwrite(data_.data(), 1, data_.size(), file) == data_.size() && ok;
    return std::fclose(file) == 0 && ok;
  }

  const std::string& path() const { return path_; }

 private:
  static std::string Quoted(const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    }
    return quoted + "\"";
  }

  std::string path_;
  std::vector<std::string> members_;
  std::vector<char> data_;
};

}  // namespace tfaot

#endif  // TFAOT_VALUES_H_
