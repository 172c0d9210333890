// A validated safetensors file: mapped, in memory, or open for reading.
#ifndef TFAOT_MAPPED_FILE_H_
#define TFAOT_MAPPED_FILE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tfaot/files.h"
#include "tfaot/safetensors.h"
#include "tfaot/status.h"
#include "tfaot/weights.h"

namespace tfaot {

// What errors call it.
std::string Name(const Source& source);

// Owns the mapping and what was parsed from the header. A mapping is private
// and read-only.
struct MappedFile {
  std::string name;               // for errors
  files::FileStatus status = {};  // of a path or a descriptor
  std::string header;
  files::Block mapping;      // empty if the values are copied, or in memory
  files::Descriptor fd{-1};  // if the values are copied from a path
  int copied_from = -1;      // the descriptor to copy values from
  const unsigned char* data = nullptr;  // null if there is such a descriptor
  std::uint64_t data_bytes = 0;
  std::deque<safetensors::Tensor> tensors;  // in the header's order
  std::string_view metadata;                // JSON in the header; can be empty
  std::vector<const safetensors::Tensor*> by_name;

  // Returns the tensor with this name, or nullptr.
  const safetensors::Tensor* Find(std::string_view wanted) const;

  // Copies a tensor's values.
  Status Copy(const safetensors::Tensor& tensor, unsigned char* to) const;
};

// Why a file is opened, for errors.
enum class Purpose { kLoad, kSaveOver };

// Maps or opens a file, parses its header, and validates it. On failure,
// returns nullptr and sets `status`.
std::unique_ptr<MappedFile> OpenFile(const Source& source, Purpose purpose,
                                     Status* status);

}  // namespace tfaot

#endif  // TFAOT_MAPPED_FILE_H_
