// The memory of an instance of a compiled model. Generated code uses it.
#ifndef TFAOT_INSTANCE_H_
#define TFAOT_INSTANCE_H_

#include <atomic>
#include <cstddef>
#include <new>

#include "tfaot/options.h"
#include "tfaot/status.h"

namespace tfaot {

// The alignment of everything in an instance's memory, as XLA's kernels need it
// of buffers.
inline constexpr std::size_t kAlignment = 64;

constexpr std::size_t Aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The one block of an instance. It isn't freed by itself.
struct InstanceMemory {
  unsigned char* data;  // at a multiple of kAlignment; null if there is none
  std::size_t bytes;
  Allocator* allocator;  // null for the program's own memory
  bool zeroed;           // whether it contains zeros at first
};

InstanceMemory AllocateInstance(std::size_t bytes,
                                Allocator* allocator) noexcept;
void FreeInstance(const InstanceMemory& memory) noexcept;

// Hands out the parts of a block, in order.
class Parts {
 public:
  explicit Parts(const InstanceMemory& memory) : next_(memory.data) {}

  unsigned char* Take(std::size_t bytes) noexcept {
    unsigned char* const part = next_;
    next_ += Aligned(bytes);
    return part;
  }

 private:
  unsigned char* next_;
};

// Returns what `made` refers to, and makes it in the first call, without a
// lock. If several threads are first, all get the same. It is never destroyed.
// Throws what `make` throws.
template <typename T, typename Make>
const T& MakeOnce(std::atomic<const T*>& made, Make make) {
  const T* value = made.load(std::memory_order_acquire);
  if (value != nullptr) return *value;
  const T* const mine = make();
  if (made.compare_exchange_strong(value, mine, std::memory_order_acq_rel)) {
    return *mine;
  }
  delete mine;
  return *value;
}

// Calls `make`, which returns whether there was memory.
template <typename Make>
Status CatchOutOfMemory(Make make) noexcept {
  bool made = false;
#if defined(__cpp_exceptions)
  try {
    made = make();
  } catch (const std::bad_alloc&) {
  }
#else
  made = make();
#endif
  // So short a text takes no memory.
  return made ? Status() : Status(Code::kOutOfMemory, "out of memory");
}

// Checks the address of an input or an output, which `asked` places there.
Status CheckAddress(const char* asked, const void* data);

inline Options WithIsa(const char* isa) {
  Options options;
  options.isa = isa;
  return options;
}

// Throws std::bad_alloc, or ends a program that is built without exceptions.
[[noreturn]] void OutOfMemory();

}  // namespace tfaot

#endif  // TFAOT_INSTANCE_H_
