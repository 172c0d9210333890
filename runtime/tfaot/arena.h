// One block of memory for an instance's inputs and outputs. Generated code uses
// it.
#ifndef TFAOT_ARENA_H_
#define TFAOT_ARENA_H_

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace tfaot {

// Owns its bytes, which start out as zeros, at a multiple of 64 bytes, as XLA's
// kernels expect of buffers. Move-only; pointers into it survive a move.
class Arena {
 public:
  static constexpr std::size_t kAlignment = 64;

  explicit Arena(std::size_t size)
      : bytes_(static_cast<unsigned char*>(::operator new(
            size > 0 ? size : 1, std::align_val_t{kAlignment}))) {
    if (size > 0) std::memset(bytes_.get(), 0, size);
  }

  unsigned char* at(std::size_t offset) const noexcept {
    return bytes_.get() + offset;
  }

 private:
  struct Delete {
    void operator()(unsigned char* bytes) const noexcept {
      ::operator delete(bytes, std::align_val_t{kAlignment});
    }
  };

  std::unique_ptr<unsigned char[], Delete> bytes_;
};

}  // namespace tfaot

#endif  // TFAOT_ARENA_H_
