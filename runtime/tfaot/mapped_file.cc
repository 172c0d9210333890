#include "tfaot/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tfaot/message.h"

namespace tfaot {

using files::SystemError;
using safetensors::Contradiction;
using safetensors::kMaxHeader;
using safetensors::Tensor;

std::string Name(const Source& source) {
  switch (source.kind) {
    case Source::Kind::kPath:
      return source.path != nullptr ? source.path : "the file";
    case Source::Kind::kDescriptor:
      return "file descriptor " + std::to_string(source.fd);
    case Source::Kind::kMemory:
      break;
  }
  return "the file in memory";
}

Status MappedFile::Copy(const Tensor& tensor, unsigned char* to) const {
  const std::uint64_t bytes = tensor.end - tensor.begin;
  if (data != nullptr) {
    std::memcpy(to, data + tensor.begin, bytes);
    return Status();
  }
  if (files::Read(copied_from, to, bytes,
                  sizeof(std::uint64_t) + header.size() + tensor.begin)) {
    return Status();
  }
  return Status(Code::kFileAccess,
                Message(name + " can't be read",
                        errno == 0 ? "the file became shorter" : SystemError(),
                        "pass a safetensors file that this process may read"));
}

const Tensor* MappedFile::Find(std::string_view wanted) const {
  const auto at =
      std::lower_bound(by_name.begin(), by_name.end(), wanted,
                       [](const Tensor* tensor, std::string_view other) {
                         return tensor->name < other;
                       });
  return at != by_name.end() && (*at)->name == wanted ? *at : nullptr;
}

std::unique_ptr<MappedFile> OpenFile(const Source& source, Purpose purpose,
                                     Status* status) {
  const bool load = purpose == Purpose::kLoad;
  auto file = std::make_unique<MappedFile>();
  file->name = Name(source);
  const std::string name =
      file->name + (load ? "" : " can't be overwritten: it");
  const auto fail = [&](const char* what, const std::string& found,
                        const char* to_do, Code code = Code::kBadFile) {
    *status = Status(
        code,
        Message(name + what, found,
                load ? to_do : "save to another path, or remove that file"));
    return nullptr;
  };
  const char* const other =
      "pass a safetensors file that this process may read";
  const char* const again = "write it again";
  const bool in_memory = source.kind == Source::Kind::kMemory;
  if ((source.kind == Source::Kind::kPath && source.path == nullptr) ||
      (in_memory && source.data == nullptr && source.bytes > 0)) {
    return fail(" can't be opened", "nullptr instead of a path or of memory",
                other, Code::kInvalidArgument);
  }
  int fd = source.fd;
  if (source.kind == Source::Kind::kPath) {
    file->fd.Reset(files::Open(source.path));
    fd = file->fd.get();
  }
  std::uint64_t size = source.bytes;
  if (!in_memory) {
    const bool opened = source.kind != Source::Kind::kPath || fd >= 0;
    if (!opened || !files::GetStatus(fd, &file->status)) {
      return fail(" can't be opened", SystemError(), other, Code::kFileAccess);
    }
    if (!files::IsRegular(file->status)) {
      return fail(" isn't a regular file", "", other, Code::kFileAccess);
    }
    size = static_cast<std::uint64_t>(file->status.st_size);
  }
  const auto read = [&](void* to, std::uint64_t bytes, std::uint64_t offset) {
    if (!in_memory) return files::Read(fd, to, bytes, offset);
    std::memcpy(to, static_cast<const unsigned char*>(source.data) + offset,
                bytes);
    return true;
  };
  std::uint64_t header = 0;
  if (size < sizeof(header)) {
    return fail(" is truncated, or isn't a safetensors file",
                std::to_string(size) + " bytes", again);
  }
  const auto unreadable = [&] {
    return fail(" can't be read",
                errno == 0 ? "the file became shorter" : SystemError(), other,
                Code::kFileAccess);
  };
  if (!read(&header, sizeof(header), 0)) return unreadable();
  if (header > size - sizeof(header)) {
    return fail(" is truncated, or isn't a safetensors file",
                "a header of " + std::to_string(header) +
                    " bytes in a file of " + std::to_string(size),
                again);
  }
  if (header > kMaxHeader) {
    return fail(" has a header that is too large",
                std::to_string(header) + " bytes, and the limit is " +
                    std::to_string(kMaxHeader),
                "write it with fewer tensors, or with less metadata");
  }
  // Parsed in private memory, so it can't change meanwhile.
  file->header.resize(header);
  if (!read(file->header.data(), header, sizeof(header))) {
    return unreadable();
  }
  std::string problem;
  if (!safetensors::ParseHeader(file->header, &file->tensors, &file->metadata,
                                &problem)) {
    return fail(" isn't a safetensors file", problem, again);
  }
  file->data_bytes = size - sizeof(header) - header;
  for (const Tensor& tensor : file->tensors) {
    file->by_name.push_back(&tensor);
    const std::string found = Contradiction(tensor, file->data_bytes);
    if (found.empty()) continue;
    return fail(
        tensor.end > file->data_bytes ? " is truncated" : " contradicts itself",
        found, again);
  }
  std::sort(file->by_name.begin(), file->by_name.end(),
            [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  const std::string found = Contradiction(file->by_name);
  if (!found.empty()) return fail(" contradicts itself", found, again);
  if (in_memory) {
    file->data = static_cast<const unsigned char*>(source.data) +
                 sizeof(header) + header;
    return file;
  }
  if (source.copied) {
    file->copied_from = fd;
    return file;
  }
  file->mapping = files::Map(size, fd);
  // A mapping stays without its descriptor.
  file->fd.Reset(-1);
  if (!file->mapping) {
    *status = Status(
        errno == ENOMEM ? Code::kOutOfMemory : Code::kFileAccess,
        Message(file->name + " can't be mapped", SystemError(),
                "pass a file that fits in the address space limit (ulimit "
                "-v), or raise the limit: this one takes " +
                    std::to_string(size) + " bytes"));
    return nullptr;
  }
  file->data = file->mapping.get() + sizeof(header) + header;
  return file;
}

}  // namespace tfaot
