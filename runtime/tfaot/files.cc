// files_windows.cc has the same for Windows.
#if !defined(_WIN32)
#include "tfaot/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>
#include <system_error>

namespace tfaot::files {
namespace {

static_assert(sizeof(std::size_t) == 8 && sizeof(off_t) == 8,
              "files are mapped as a whole, and may be larger than 4 GB");

// How many names to try for a new file.
constexpr int kMaxTries = 10000;

// Removes a file if no process uses it. Returns whether it is gone.
bool RemoveLeftover(const char* name) {
  const Descriptor fd(
      open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat held, named;
  return fd.get() >= 0 && fstat(fd.get(), &held) == 0 &&
         S_ISREG(held.st_mode) && flock(fd.get(), LOCK_EX | LOCK_NB) == 0 &&
         lstat(name, &named) == 0 && named.st_dev == held.st_dev &&
         named.st_ino == held.st_ino && unlink(name) == 0;
}

}  // namespace

void Release::operator()(unsigned char* base) const {
  if (mapped > 0) {
    munmap(base, mapped);
  } else {
    ::operator delete(base, std::align_val_t{kAlignment});
  }
}

Block Allocate(std::uint64_t bytes) {
  return Block(static_cast<unsigned char*>(
      ::operator new(bytes, std::align_val_t{kAlignment})));
}

Block Map(std::uint64_t bytes, int fd) {
  void* base =
      mmap(nullptr, bytes, fd < 0 ? PROT_READ | PROT_WRITE : PROT_READ,
           MAP_PRIVATE | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
  if (base == MAP_FAILED) return nullptr;
  return Block(static_cast<unsigned char*>(base), Release{bytes});
}

std::string SystemError() { return std::generic_category().message(errno); }

Descriptor::~Descriptor() { Reset(-1); }

void Descriptor::Reset(int fd) {
  const int error = errno;
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  errno = error;
}

int Open(const char* path) {
  return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

bool GetStatus(int fd, FileStatus* status) { return fstat(fd, status) == 0; }

bool GetStatus(const char* path, FileStatus* status) {
  return stat(path, status) == 0;
}

bool IsRegular(const FileStatus& status) { return S_ISREG(status.st_mode); }

bool Sync(int fd) { return fsync(fd) == 0; }

void SyncFolder(const std::string& folder) {
  const Descriptor fd(open(folder.empty() ? "." : folder.c_str(),
                           O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) fsync(fd.get());
}

bool Read(int fd, void* data, std::uint64_t bytes, std::uint64_t offset) {
  auto* next = static_cast<unsigned char*>(data);
  while (bytes > 0) {
    errno = 0;
    const ssize_t got = pread(fd, next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return true;
}

bool Write(int fd, const void* data, std::uint64_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(fd, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    bytes -= static_cast<std::uint64_t>(written);
  }
  return true;
}

bool TakeAccess(int fd, const FileStatus& old) {
  struct stat own;
  if (fstat(fd, &own) != 0) return false;
  mode_t mode = old.st_mode & 0777;
  if ((own.st_uid != old.st_uid || own.st_gid != old.st_gid) &&
      fchown(fd, old.st_uid, old.st_gid) != 0 && own.st_gid != old.st_gid &&
      fchown(fd, static_cast<uid_t>(-1), old.st_gid) != 0) {
    mode &= ~mode_t{070};  // they belonged to another group
  }
  return fchmod(fd, mode) == 0;
}

NewFile::NewFile(const std::string& folder, mode_t mode)
    : prefix_(folder + ".tfaot-save-") {
#if defined(O_TMPFILE)
  fd_ = open(folder.empty() ? "." : folder.c_str(),
             O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  link_ = "/proc/self/fd/" + std::to_string(fd_);
  if (fd_ >= 0 && access(link_.c_str(), F_OK) == 0) {
    flock(fd_, LOCK_EX);
    return;
  }
  Close();
#endif
  FindName([this, mode](const char* name) {
    fd_ = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd_ < 0) return false;
    // Before this, another process can mistake it for a file left behind.
    flock(fd_, LOCK_EX);
    struct stat status;
    if (fstat(fd_, &status) == 0 && status.st_nlink > 0) return true;
    Close();
    errno = EEXIST;
    return false;
  });
}

NewFile::~NewFile() {
  if (!name_.empty()) unlink(name_.c_str());
  Close();
}

bool NewFile::Replace(const char* path) {
  const bool named = !name_.empty() || FindName([this](const char* name) {
    return linkat(AT_FDCWD, link_.c_str(), AT_FDCWD, name, AT_SYMLINK_FOLLOW) ==
           0;
  });
  if (!named || std::rename(name_.c_str(), path) != 0) return false;
  name_.clear();
  return true;
}

// Calls `take(name)` until it succeeds, or fails with an error other than
// EEXIST. Returns whether it succeeded.
template <typename Take>
bool NewFile::FindName(Take take) {
  for (int tries = 0, number = 0; tries < kMaxTries; ++tries) {
    const std::string name = prefix_ + std::to_string(number);
    if (take(name.c_str())) {
      name_ = name;
      return true;
    }
    if (errno != EEXIST) return false;
    if (!RemoveLeftover(name.c_str())) ++number;
  }
  errno = EEXIST;
  return false;
}

void NewFile::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace tfaot::files

#endif  // !defined(_WIN32)
