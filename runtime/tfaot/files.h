// Memory and files from the operating system, for variables.
//
// Nothing here is shared between threads.
#ifndef TFAOT_FILES_H_
#define TFAOT_FILES_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tfaot::files {

// What the operating system knows about a file.
#if defined(_WIN32)
using FileStatus = struct _stat64;
#else
using FileStatus = struct stat;
#endif

// The alignment of every block and of every value in it. XLA's kernels need it.
inline constexpr std::uint64_t kAlignment = 64;

constexpr std::uint64_t RoundUp(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Frees what a Block owns: a mapping of `mapped` bytes, or, if 0, memory from
// operator new.
struct Release {
  std::uint64_t mapped = 0;
  void operator()(unsigned char* base) const;
};
using Block = std::unique_ptr<unsigned char, Release>;

// Throws std::bad_alloc.
Block Allocate(std::uint64_t bytes);

// Maps a file, or zeros if `fd` is -1. On failure, returns an empty block and
// sets errno. A file's pages are read-only. No memory is reserved for zeros
// (MAP_NORESERVE), so the mapping can exceed it.
Block Map(std::uint64_t bytes, int fd);

// Describes errno.
std::string SystemError();

// Owns a file descriptor. A negative one means none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

  // Closes the descriptor and owns another one. Doesn't change errno.
  void Reset(int fd);

 private:
  int fd_;
};

// Opens a file for reading, without waiting for a pipe's writer. On failure,
// returns a negative number and sets errno.
int Open(const char* path);

// On failure, these return false and set errno.
bool GetStatus(int fd, FileStatus* status);
bool GetStatus(const char* path, FileStatus* status);

bool IsRegular(const FileStatus& status);

// Waits until a file's data are on the disk. On failure, returns false and sets
// errno.
bool Sync(int fd);

// The same for the names in a folder, whose path ends in a slash or is empty,
// if the system can.
void SyncFolder(const std::string& folder);

// Reads from the start of a file. On failure, returns false and sets errno, to
// 0 if the file has become shorter.
bool Read(int fd, void* data, std::uint64_t bytes, std::uint64_t offset);

// Writes all bytes. On failure, returns false and sets errno.
bool Write(int fd, const void* data, std::uint64_t bytes);

// Gives a file the owner, group, and permissions of the one it will replace.
// Where only root can do that, nobody gets more access than before. On failure,
// returns false and sets errno.
bool TakeAccess(int fd, const FileStatus& old);

// A new file in a folder, whose path ends in a slash or is empty. The file has
// no name until it replaces another, so a killed process leaves nothing behind.
//
// Where the file system doesn't support that, and briefly during replacement,
// it is called .tfaot-save-N. A process that uses such a name holds a lock on
// the file. A file without a lock was left behind, and the next process that
// wants the name removes it.
class NewFile {
 public:
  NewFile(const std::string& folder, mode_t mode);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Negative if there is no file. Then errno says why.
  int fd() const { return fd_; }

  // Gives the file this name and unlinks the previous one. On failure, returns
  // false and sets errno.
  bool Replace(const char* path);

 private:
  template <typename Take>
  bool FindName(Take take);
  void Close();

  const std::string prefix_;
  std::string link_;  // to the file, in /proc
  std::string name_;  // empty if it has none
  int fd_ = -1;
};

}  // namespace tfaot::files

#endif  // TFAOT_FILES_H_
