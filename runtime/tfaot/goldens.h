// Reads a goldens file in the order in which the verify stage wrote it.
//
// The file is safetensors. The generated code knows the order of its contents,
// so only the header's length matters here.
#ifndef TFAOT_GOLDENS_H_
#define TFAOT_GOLDENS_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tfaot/drawn.h"
#include "tfaot/sizes.h"
#include "tfaot/view.h"

namespace tfaot {

// If an argument asks for help, prints the program's name and `text`. Returns
// whether it did.
inline bool Help(int argc, char** argv, const char* text) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--help") == 0 ||
        std::strcmp(argv[i], "-h") == 0) {
      const char* const slash = std::strrchr(argv[0], '/');
      std::printf("usage: %s %s", slash != nullptr ? slash + 1 : argv[0], text);
      return true;
    }
  }
  return false;
}

// Owns the file's bytes. If there are none, ends the process with a
// one-sentence error.
class Goldens {
 public:
  explicit Goldens(const char* path) : path_(path) {
    // At once, because inputs can be hundreds of megabytes.
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
        std::fopen(path, "rb"), std::fclose);
    std::uint64_t header = 0;
    if (!file || std::fseek(file.get(), 0, SEEK_END) != 0) {
      Fail("can't be read");
    }
    const long size = std::ftell(file.get());
    if (size < long{sizeof(header)}) Fail("can't be read");
    std::rewind(file.get());
    bytes_.resize(static_cast<std::size_t>(size));
    if (std::fread(bytes_.data(), 1, bytes_.size(), file.get()) !=
        bytes_.size()) {
      Fail("can't be read");
    }
    std::memcpy(&header, bytes_.data(), sizeof(header));
    if (header > bytes_.size() - sizeof(header)) Fail("is truncated");
    position_ = sizeof(header) + static_cast<std::size_t>(header);
  }

  // Sets an input or a variable, or its first `rows` rows: copies the values
  // from the file, or draws them if the file has a seed in their place.
  template <typename T, std::int64_t... kDims>
  void Feed(View<T, kDims...> target) {
    Feed(target.data(), target.size());
  }
  template <typename T, std::int64_t... kDims>
  void Feed(View<T, kDims...> target, std::int64_t rows) {
    Feed(target.data(), target.size() /
                            static_cast<std::size_t>(target.dim(0)) *
                            static_cast<std::size_t>(rows));
  }

  // The same where a run uses a part of each dimension: the first `used`
  // values.
  template <typename T, std::int64_t... kDims>
  void FeedUsed(View<T, kDims...> target,
                const std::int64_t (&used)[sizeof...(kDims)]) {
    constexpr std::int64_t dims[] = {kDims...};
    std::size_t size = 1;
    for (const std::int64_t length : used) {
      size *= static_cast<std::size_t>(length);
    }
    const auto values = std::make_unique<T[]>(size);
    Feed(values.get(), size);
    internal::CopyUsed(reinterpret_cast<unsigned char*>(target.data()), dims,
                       reinterpret_cast<const unsigned char*>(values.get()),
                       used, used, sizeof...(kDims), sizeof(T));
  }

  template <typename T>
  T Read() {
    T value;
    Read(&value, sizeof(value));
    return value;
  }

  void Read(void* target, std::size_t size) {
    if (size > bytes_.size() - position_) Fail("is truncated");
    if (size > 0) std::memcpy(target, bytes_.data() + position_, size);
    position_ += size;
  }

  // Fails if anything is left in the file.
  void End() const {
    if (position_ != bytes_.size()) Fail("contains more than the test expects");
  }

 private:
  template <typename T>
  void Feed(T* target, std::size_t size) {
    const auto seed = Read<std::uint64_t>();
    const auto limit = Read<std::uint64_t>();
    if (seed == 0) {
      Read(target, size * sizeof(T));
    } else {
      Draw(seed, limit, target, size);
    }
  }

  [[noreturn]] void Fail(const char* what) const {
    std::fprintf(
        stderr,
        "%s %s: build the target's goldens again, or pass their path as "
        "the first argument\n",
        path_.c_str(), what);
    std::exit(2);
  }

  std::string path_;
  std::vector<char> bytes_;
  std::size_t position_ = 0;
};

}  // namespace tfaot

#endif  // TFAOT_GOLDENS_H_
