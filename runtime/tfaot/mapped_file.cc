#include "tfaot/mapped_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "tfaot/message.h"

namespace tfaot {

using files::Descriptor;
using files::SystemError;
using safetensors::Contradiction;
using safetensors::kMaxHeader;
using safetensors::Tensor;

const Tensor* MappedFile::Find(std::string_view name) const {
  const auto at =
      std::lower_bound(by_name.begin(), by_name.end(), name,
                       [](const Tensor* tensor, std::string_view wanted) {
                         return tensor->name < wanted;
                       });
  return at != by_name.end() && (*at)->name == name ? *at : nullptr;
}

std::unique_ptr<MappedFile> OpenFile(const char* path, Purpose purpose,
                                     std::string* error) {
  const bool load = purpose == Purpose::kLoad;
  const std::string name =
      path + std::string(load ? "" : " can't be overwritten: it");
  const auto fail = [&](const char* what, const std::string& found,
                        const char* to_do) {
    *error =
        Message(name + what, found,
                load ? to_do : "save to another path, or remove that file");
    return nullptr;
  };
  const char* const other =
      "pass a safetensors file that this process may read";
  const char* const again = "write it again";
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const Descriptor fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  auto file = std::make_unique<MappedFile>();
  if (fd.get() < 0 || fstat(fd.get(), &file->status) != 0) {
    return fail(" can't be opened", SystemError(), other);
  }
  if (!S_ISREG(file->status.st_mode)) {
    return fail(" isn't a regular file", "", other);
  }
  const auto size = static_cast<std::uint64_t>(file->status.st_size);
  std::uint64_t header = 0;
  if (size < sizeof(header)) {
    return fail(" is truncated, or isn't a safetensors file",
                std::to_string(size) + " bytes", again);
  }
  const auto unreadable = [&] {
    return fail(" can't be read",
                errno == 0 ? "the file became shorter" : SystemError(), other);
  };
  if (!files::Read(fd.get(), &header, sizeof(header), 0)) return unreadable();
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
  if (!files::Read(fd.get(), file->header.data(), header, sizeof(header))) {
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
  file->mapping = files::Map(size, fd.get());
  if (!file->mapping) {
    *error = Message(path + std::string(" can't be mapped"), SystemError(),
                     "pass a file that fits in the address space limit "
                     "(ulimit -v), or raise the limit: this one takes " +
                         std::to_string(size) + " bytes");
    return nullptr;
  }
  file->data = file->mapping.get() + sizeof(header) + header;
  return file;
}

}  // namespace tfaot
