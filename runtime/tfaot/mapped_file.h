// A mapped and validated safetensors file.
#ifndef TFAOT_MAPPED_FILE_H_
#define TFAOT_MAPPED_FILE_H_

#include <sys/stat.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tfaot/files.h"
#include "tfaot/safetensors.h"

namespace tfaot {

// Owns the mapping and what was parsed from the header. The values are in the
// data. The mapping is private: writing to it doesn't write to the file.
struct MappedFile {
  struct stat status;
  std::string header;
  files::Block mapping;
  const unsigned char* data = nullptr;
  std::uint64_t data_bytes = 0;
  std::deque<safetensors::Tensor> tensors;  // in the header's order
  std::string_view metadata;                // JSON in the header; can be empty
  std::vector<const safetensors::Tensor*> by_name;

  // Returns the tensor with this name, or nullptr.
  const safetensors::Tensor* Find(std::string_view name) const;
};

// Why a file is opened, for errors.
enum class Purpose { kLoad, kSaveOver };

// Maps a file, parses its header, and validates it. On failure, returns nullptr
// and sets `error`.
std::unique_ptr<MappedFile> OpenFile(const char* path, Purpose purpose,
                                     std::string* error);

}  // namespace tfaot

#endif  // TFAOT_MAPPED_FILE_H_
