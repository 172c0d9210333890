// files.cc for Windows, where no test has run it.
#if defined(_WIN32)
#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

#include "tfaot/files.h"

namespace tfaot::files {
namespace {

// The system takes a size as an int.
constexpr std::uint64_t kMaxPiece = std::uint64_t{1} << 30;
constexpr int kMaxTries = 10000;

}  // namespace

void Release::operator()(unsigned char* base) const {
  if (mapped > 0) {
    VirtualFree(base, 0, MEM_RELEASE);
  } else {
    ::operator delete(base, std::align_val_t{kAlignment});
  }
}

Block Allocate(std::uint64_t bytes) {
  return Block(static_cast<unsigned char*>(
      ::operator new(bytes, std::align_val_t{kAlignment})));
}

// Nothing can replace a file while it is mapped, so this reads it.
Block Map(std::uint64_t bytes, int fd) {
  void* const base =
      VirtualAlloc(nullptr, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  Block block(static_cast<unsigned char*>(base), Release{bytes});
  if (!block) {
    errno = ENOMEM;
  } else if (fd >= 0 && !Read(fd, base, bytes, 0)) {
    if (errno == 0) errno = EIO;
    return nullptr;
  }
  return block;
}

std::string SystemError() { return std::generic_category().message(errno); }

Descriptor::~Descriptor() { Reset(-1); }

void Descriptor::Reset(int fd) {
  const int error = errno;
  if (fd_ >= 0) _close(fd_);
  fd_ = fd;
  errno = error;
}

int Open(const char* path) {
  return _open(path, _O_RDONLY | _O_BINARY | _O_NOINHERIT);
}

bool GetStatus(int fd, FileStatus* status) { return _fstat64(fd, status) == 0; }

bool GetStatus(const char* path, FileStatus* status) {
  return _stat64(path, status) == 0;
}

bool IsRegular(const FileStatus& status) {
  return (status.st_mode & _S_IFMT) == _S_IFREG;
}

bool Sync(int fd) { return _commit(fd) == 0; }

void SyncFolder(const std::string&) {}

bool Read(int fd, void* data, std::uint64_t bytes, std::uint64_t offset) {
  errno = 0;
  if (_lseeki64(fd, static_cast<std::int64_t>(offset), SEEK_SET) < 0) {
    return false;
  }
  auto* next = static_cast<unsigned char*>(data);
  while (bytes > 0) {
    const int got =
        _read(fd, next, static_cast<unsigned>(std::min(bytes, kMaxPiece)));
    if (got <= 0) return false;
    next += got;
    bytes -= static_cast<std::uint64_t>(got);
  }
  return true;
}

bool Write(int fd, const void* data, std::uint64_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const int written =
        _write(fd, next, static_cast<unsigned>(std::min(bytes, kMaxPiece)));
    if (written <= 0) return false;
    next += written;
    bytes -= static_cast<std::uint64_t>(written);
  }
  return true;
}

// A new file gets what its folder gives.
bool TakeAccess(int, const FileStatus&) { return true; }

NewFile::NewFile(const std::string& folder, mode_t)
    : prefix_(folder + ".tfaot-save-") {
  FindName([this](const char* name) {
    fd_ = _open(name, _O_WRONLY | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT,
                _S_IREAD | _S_IWRITE);
    return fd_ >= 0;
  });
}

NewFile::~NewFile() {
  Close();
  if (!name_.empty()) DeleteFileA(name_.c_str());
}

bool NewFile::Replace(const char* path) {
  Close();
  if (!MoveFileExA(name_.c_str(), path,
                   MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH)) {
    errno = EACCES;
    return false;
  }
  name_.clear();
  return true;
}

// A file that was left behind keeps its name.
template <typename Take>
bool NewFile::FindName(Take take) {
  for (int number = 0; number < kMaxTries; ++number) {
    const std::string name = prefix_ + std::to_string(number);
    if (take(name.c_str())) {
      name_ = name;
      return true;
    }
    if (errno != EEXIST) return false;
  }
  return false;
}

void NewFile::Close() {
  if (fd_ >= 0) _close(fd_);
  fd_ = -1;
}

}  // namespace tfaot::files

#endif  // defined(_WIN32)
