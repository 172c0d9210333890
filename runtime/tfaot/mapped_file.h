// A safetensors file that is mapped, and was found to be one.
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

// Owns the mapping, and what was read of the header. Values are in the data,
// which is private: writing to it does not write to the file.
struct MappedFile {
  struct stat status;
  std::string header;
  files::Block mapping;
  const unsigned char* data = nullptr;
  std::uint64_t data_bytes = 0;
  std::deque<safetensors::Tensor> tensors;  // as the header has them
  std::string_view metadata;                // JSON, in the header; maybe empty
  std::vector<const safetensors::Tensor*> by_name;

  // The tensor of this name, or nullptr.
  const safetensors::Tensor* Find(std::string_view name) const;
};

// Why a file is opened: errors say it.
enum class Purpose { kLoad, kSaveOver };

// Maps a file, parses its header, and checks what that says. Returns nullptr,
// and sets `error`, if something is wrong.
std::unique_ptr<MappedFile> OpenFile(const char* path, Purpose purpose,
                                     std::string* error);

}  // namespace tfaot

#endif  // TFAOT_MAPPED_FILE_H_
