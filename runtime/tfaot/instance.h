// The memory of an instance of a compiled model. Generated code uses it.
#ifndef TFAOT_INSTANCE_H_
#define TFAOT_INSTANCE_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

#include "tfaot/collectives.h"
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

// A handle that the first call makes, without a lock, and of which each call
// returns a copy. If several threads are first, all get the same.
//
// It is destroyed with the program or library that has it. Threads that still
// run then keep their copies, and can get others.
template <typename T>
class Once {
 public:
  constexpr Once() noexcept = default;
  Once(const Once&) = delete;
  Once& operator=(const Once&) = delete;
  ~Once() {
    const T* const made = made_.exchange(nullptr);
    if (users_.load() == 0) delete made;
  }

  // Throws what `make` and the copy throw.
  template <typename Make>
  T Get(Make make) {
    const Use use(users_);
    const T* value = made_.load();
    if (value != nullptr) return *value;
    std::unique_ptr<const T> mine(new T(make()));
    if (!made_.compare_exchange_strong(value, mine.get())) return *value;
    return *mine.release();
  }

 private:
  struct Use {
    explicit Use(std::atomic<int>& users) noexcept : users(users) { ++users; }
    ~Use() { --users; }
    std::atomic<int>& users;
  };

  std::atomic<const T*> made_{nullptr};
  std::atomic<int> users_{0};
};

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

// Checks what a program gives to a replica of a model of `replicas` replicas.
Status CheckCollectives(const char* asked, int replicas,
                        const tfaot_collectives* collectives);

inline Options WithIsa(const char* isa) {
  Options options;
  options.isa = isa;
  return options;
}

// Throws std::bad_alloc, or ends a program that is built without exceptions.
[[noreturn]] void OutOfMemory();

}  // namespace tfaot

#endif  // TFAOT_INSTANCE_H_
