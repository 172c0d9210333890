#include "tfaot/variables.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tfaot/files.h"
#include "tfaot/mapped_file.h"
#include "tfaot/message.h"
#include "tfaot/safetensors.h"

namespace tfaot {
namespace {

using files::Allocate;
using files::Block;
using files::Descriptor;
using files::kAlignment;
using files::Map;
using files::NewFile;
using files::RoundUp;
using files::SystemError;
using files::TakeAccess;
using files::Write;
using safetensors::Member;
using safetensors::Piece;
using safetensors::Shown;
using safetensors::Tensor;

// How many tensors an error shows.
constexpr std::size_t kMaxShownTensors = 20;

// The address of empty values.
alignas(kAlignment) unsigned char nothing[kAlignment];

// A variable's dimensions, as a range.
struct Dims {
  const VariableInfo& info;
  const std::int64_t* begin() const { return info.dims; }
  const std::int64_t* end() const { return info.dims + info.rank; }
};

std::string Signature(const VariableInfo& info) {
  return safetensors::Signature(info.dtype, Dims{info});
}

bool Matches(const Tensor& tensor, const VariableInfo& info) {
  const Dims dims{info};
  return tensor.dtype == info.dtype &&
         std::equal(tensor.shape.begin(), tensor.shape.end(), dims.begin(),
                    dims.end(), [](std::uint64_t a, std::int64_t b) {
                      return a == static_cast<std::uint64_t>(b);
                    });
}

// Returns one line of an error about variables that don't fit.
std::string Mismatch(const Tensor& tensor, const VariableInfo& info) {
  return std::string(info.name) + ": " +
         safetensors::Signature(tensor.dtype, tensor.shape) +
         "; the model has " + Signature(info);
}

// Finds the tensor of each variable, or nullptr for an optional one that the
// file lacks. If one doesn't match the model, returns false and sets `error`.
bool Match(const char* path, const MappedFile& file, const VariableInfo* infos,
           std::size_t count, std::vector<const Tensor*>* matched,
           std::string* error) {
  std::vector<std::string> wrong;
  std::set<std::string_view> names;
  bool missing = false;
  for (std::size_t i = 0; i < count; ++i) {
    const VariableInfo& info = infos[i];
    names.insert(info.name);
    const Tensor* const found = file.Find(info.name);
    matched->push_back(found);
    if (found == nullptr && !info.optional) {
      wrong.push_back(std::string(info.name) + ": missing; the model has " +
                      Signature(info));
      missing = true;
    }
    if (found != nullptr && !Matches(*found, info)) {
      wrong.push_back(Mismatch(*found, info));
    }
  }
  if (wrong.empty()) return true;
  // List what could have been meant.
  std::string also;
  std::size_t others = 0;
  for (const Tensor& tensor : file.tensors) {
    if (!missing || names.count(tensor.name) > 0) continue;
    if (++others > kMaxShownTensors) continue;
    also += (also.empty() ? "also in the file: " : ", ") + Shown(tensor.name) +
            " " + safetensors::Signature(tensor.dtype, tensor.shape);
  }
  if (others > kMaxShownTensors) {
    also += ", and " + std::to_string(others - kMaxShownTensors) + " more";
  }
  *error = Message(
      path + std::string(" doesn't fit the model: ") +
          std::to_string(wrong.size()) + " of " + std::to_string(count) +
          " variable(s)",
      also,
      "write a file with every variable of the model, under its name and with "
      "its dtype and shape",
      wrong);
  return false;
}

// Runs `work`, which returns whether it succeeded. If the program has
// exceptions, running out of memory is an error like any other.
template <typename Work>
bool WithinMemory(const char* path, const char* what, std::string* error,
                  Work work) {
#if defined(__cpp_exceptions)
  try {
    return work();
  } catch (const std::bad_alloc&) {
    *error = Message(path + std::string(what), "out of memory",
                     "free memory, or raise the limit of this process");
    return false;
  }
#else
  static_cast<void>(path);
  static_cast<void>(what);
  static_cast<void>(error);
  return work();
#endif
}

}  // namespace

// The addresses of the values, and all memory that this instance owns.
struct Variables::Memory {
  struct Value {
    const unsigned char* data;
    bool ours;  // writable
  };
  std::vector<Value> values;
  std::vector<Block> blocks;
};

Variables::Variables(const VariableInfo* infos, std::size_t count,
                     const unsigned char* embedded)
    : infos_(infos),
      count_(count),
      memory_(new Memory),
      loaded_(embedded != nullptr) {
  std::uint64_t header = 0;
  if (embedded != nullptr) std::memcpy(&header, embedded, sizeof(header));
  // Returns the address where a value can be used in place, or nullptr.
  const auto in_place = [&](const VariableInfo& info) -> const unsigned char* {
    if (info.bytes == 0) return nothing;
    if (embedded == nullptr || info.written) return nullptr;
    const unsigned char* value =
        embedded + sizeof(header) + header + info.offset;
    return reinterpret_cast<std::uintptr_t>(value) % kAlignment == 0 ? value
                                                                     : nullptr;
  };
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (in_place(infos[i]) == nullptr) bytes += RoundUp(infos[i].bytes);
  }
  unsigned char* next = nullptr;
  if (bytes > 0) {
    Block block = embedded != nullptr ? nullptr : Map(bytes, -1);
    if (!block) {
      block = Allocate(bytes);  // or throws
      if (embedded == nullptr) std::memset(block.get(), 0, bytes);
    }
    next = block.get();
    memory_->blocks.push_back(std::move(block));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const VariableInfo& info = infos[i];
    const unsigned char* value = in_place(info);
    if (value != nullptr) {
      memory_->values.push_back({value, info.bytes == 0});
      continue;
    }
    if (embedded != nullptr) {
      std::memcpy(next, embedded + sizeof(header) + header + info.offset,
                  info.bytes);
    }
    memory_->values.push_back({next, true});
    next += RoundUp(info.bytes);
  }
}

Variables::~Variables() = default;
Variables::Variables(Variables&&) noexcept = default;
Variables& Variables::operator=(Variables&&) noexcept = default;

const void* Variables::data(std::size_t index) const noexcept {
  return memory_->values[index].data;
}

void* Variables::mutable_data(std::size_t index) {
  Memory::Value& value = memory_->values[index];
  if (!value.ours) {
    Block copy = Allocate(infos_[index].bytes);
    std::memcpy(copy.get(), value.data, infos_[index].bytes);
    memory_->blocks.push_back(std::move(copy));
    value = {memory_->blocks.back().get(), true};
  }
  return const_cast<unsigned char*>(value.data);
}

bool Variables::Load(const char* path) {
  error_.clear();
  return WithinMemory(path, " can't be loaded", &error_,
                      [&] { return TakeFrom(path); });
}

bool Variables::TakeFrom(const char* path) {
  const std::unique_ptr<MappedFile> file =
      OpenFile(path, Purpose::kLoad, &error_);
  if (file == nullptr) return false;
  std::vector<const Tensor*> tensors;
  if (!Match(path, *file, infos_, count_, &tensors, &error_)) return false;

  auto memory = std::make_unique<Memory>();
  std::uint64_t copied = 0;
  bool mapped = false;
  for (std::size_t i = 0; i < count_; ++i) {
    const unsigned char* value =
        tensors[i] ? file->data + tensors[i]->begin : memory_->values[i].data;
    if (infos_[i].bytes == 0) {
      value = nothing;
    } else if (std::strcmp(infos_[i].dtype, "BOOL") == 0 &&
               std::any_of(value, value + infos_[i].bytes,
                           [](unsigned char byte) { return byte > 1; })) {
      // A C++ bool has no other values.
      error_ = Message(path + std::string(" contradicts itself"),
                       std::string(infos_[i].name) +
                           " is bool, with values other than 0 and 1",
                       "write it again");
      return false;
    }
    const bool in_file =
        infos_[i].bytes > 0 && tensors[i] != nullptr &&
        reinterpret_cast<std::uintptr_t>(value) % kAlignment == 0;
    memory->values.push_back({value, in_file || infos_[i].bytes == 0});
    if (in_file) mapped = true;
    if (!memory->values.back().ours) copied += RoundUp(infos_[i].bytes);
  }
  if (copied > 0) {
    Block copies = Map(copied, -1);
    if (!copies) {
      error_ = Message(
          path + std::string(" can't be loaded"), SystemError(),
          "free " + std::to_string(copied) +
              " bytes of memory, or align the file's tensors to 64 bytes, so "
              "that they aren't copied");
      return false;
    }
    unsigned char* next = copies.get();
    for (std::size_t i = 0; i < count_; ++i) {
      Memory::Value& value = memory->values[i];
      if (value.ours) continue;
      std::memcpy(next, value.data, infos_[i].bytes);
      value = {next, true};
      next += RoundUp(infos_[i].bytes);
    }
    memory->blocks.push_back(std::move(copies));
  }
  if (mapped) memory->blocks.push_back(std::move(file->mapping));
  memory_ = std::move(memory);
  loaded_ = true;
  return true;
}

bool Variables::Save(const char* path) {
  error_.clear();
  return WithinMemory(path, " can't be saved", &error_,
                      [&] { return WriteTo(path); });
}

bool Variables::WriteTo(const char* path) {
  const auto fail = [&](const std::string& found, const std::string& to_do,
                        const std::vector<std::string>& details = {}) {
    error_ =
        Message(path + std::string(" can't be saved"), found, to_do, details);
    return false;
  };
  if (!loaded_) {
    return fail("the variables have no values", "call Load() first");
  }

  // Find what exists and must stay next to the model's own tensors.
  struct stat status;
  const bool replaces = stat(path, &status) == 0;
  if (replaces && !S_ISREG(status.st_mode)) {
    return fail(
        "the path exists but isn't a regular file",
        "pass the path of a regular file, or one that doesn't exist yet");
  }
  std::unique_ptr<MappedFile> old;
  if (replaces && status.st_size > 0) {
    old = OpenFile(path, Purpose::kSaveOver, &error_);
    if (old == nullptr) return false;
    status = old->status;
  }

  std::vector<Piece> pieces;
  std::set<std::string_view> names;
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i < count_; ++i) {
    const VariableInfo& info = infos_[i];
    names.insert(info.name);
    pieces.push_back({Member(info.name, info.dtype, Dims{info}),
                      memory_->values[i].data, info.bytes});
    const Tensor* const there = old ? old->Find(info.name) : nullptr;
    if (there != nullptr && !Matches(*there, info)) {
      wrong.push_back(Mismatch(*there, info));
    }
  }
  if (!wrong.empty()) {
    return fail("an existing file that doesn't fit the model",
                "save to another path, or remove that file", wrong);
  }
  if (old != nullptr) {
    for (const Tensor& tensor : old->tensors) {
      if (names.count(tensor.name) > 0) continue;
      pieces.push_back({Member(tensor.name, tensor.dtype, tensor.shape),
                        old->data + tensor.begin, tensor.end - tensor.begin});
    }
  }
  const std::string start = safetensors::Start(
      old ? old->metadata : std::string_view(), kAlignment, &pieces);
  std::uint64_t size = start.size();
  for (const Piece& piece : pieces) size += piece.bytes;

  const std::string_view name(path);
  const std::string folder(name.substr(0, name.rfind('/') + 1));
  NewFile file(folder, replaces ? 0600 : 0666);
  bool saved = file.fd() >= 0 && Write(file.fd(), start.data(), start.size());
  for (const Piece& piece : pieces) {
    saved = saved && Write(file.fd(), piece.data, piece.bytes);
  }
  saved = saved && (!replaces || TakeAccess(file.fd(), status)) &&
          fsync(file.fd()) == 0 && file.Replace(path);
  if (!saved) {
    return fail(
        SystemError(),
        "pass a path in a folder that exists, that this process can write to, "
        "and that has space for " +
            std::to_string(size) + " bytes");
  }
  // The new name should also survive a power failure.
  const Descriptor synced(open(folder.empty() ? "." : folder.c_str(),
                               O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (synced.get() >= 0) fsync(synced.get());
  return true;
}

}  // namespace tfaot
