// Memory and files, as the operating system gives them; variables are made of
// these.
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

// Where every block starts, and every value in it: XLA's kernels rely on it.
inline constexpr std::uint64_t kAlignment = 64;

constexpr std::uint64_t RoundUp(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Frees what a Block owns: a mapping of so many bytes, or, if 0, memory of
// operator new.
struct Release {
  std::uint64_t mapped = 0;
  void operator()(unsigned char* base) const;
};
using Block = std::unique_ptr<unsigned char, Release>;

// Throws std::bad_alloc.
Block Allocate(std::uint64_t bytes);

// Maps a file, or zeroes if `fd` is -1. Returns nothing, and sets errno, if
// that fails. Pages become memory of ours when they are written, so that no
// memory is reserved for them (MAP_NORESERVE): the whole may exceed it.
Block Map(std::uint64_t bytes, int fd);

// What errno says.
std::string SystemError();

// Owns a file descriptor; a negative one is none.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Reads from the start of a file. Returns false, and sets errno, if it cannot;
// to 0 if the file has become shorter.
bool Read(int fd, void* data, std::uint64_t bytes, std::uint64_t offset);

// Returns false, and sets errno, if not all could be written.
bool Write(int fd, const void* data, std::uint64_t bytes);

// Gives a file the owner, the group, and the permissions of one that it is to
// replace. Where only root may do that, it gives nobody more than before.
// Returns false, and sets errno, if that fails.
bool TakeAccess(int fd, const struct stat& old);

// A new file in a folder that ends in a slash, or is empty. It has no name
// until it replaces another, so that a process that is killed leaves nothing.
//
// Where the file system cannot do that, and for a moment while it replaces, it
// is .tfaot-save-N. Whoever uses such a name holds a lock of the file: if
// nobody does, it was left behind, and the next one to want the name removes
// it.
class NewFile {
 public:
  NewFile(const std::string& folder, mode_t mode);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Negative if there is none; then errno says why.
  int fd() const { return fd_; }

  // Gives it this name; what had it before has none. Returns false, and sets
  // errno, if that fails.
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
