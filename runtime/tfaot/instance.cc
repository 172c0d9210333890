#include "tfaot/instance.h"

#if !defined(_WIN32)
#include <sys/mman.h>
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "tfaot/message.h"

namespace tfaot {
namespace {

// Blocks of this size are mapped, as the C library does with large blocks, so
// that they start out as zeros and take no memory until they are used.
#if defined(_WIN32)
constexpr std::size_t kMapped = std::size_t{0} - 1;  // none
#else
constexpr std::size_t kMapped = std::size_t{1} << 17;
#endif

// A block of at least two huge pages consists of such pages, if the system has
// them. A first run spends up to a third of its time on faults of small ones.
constexpr std::size_t kHugePage = std::size_t{1} << 21;

// Returns the bytes to map for a block. Near the largest size, the sum wraps
// around, and the result is zero, which can't be mapped.
[[maybe_unused]] constexpr std::size_t MappedBytes(std::size_t bytes) {
  return bytes < 2 * kHugePage
             ? bytes
             : (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

unsigned char* MapZeros([[maybe_unused]] std::size_t bytes) noexcept {
#if defined(_WIN32)
  return nullptr;
#else
  void* const data = mmap(nullptr, MappedBytes(bytes), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  // If it fails, the pages are small. Touching all of them at once
  // (MADV_POPULATE_WRITE) is slower, because a run doesn't use all.
  if (bytes >= 2 * kHugePage) madvise(data, MappedBytes(bytes), MADV_HUGEPAGE);
#endif
  return static_cast<unsigned char*>(data);
#endif
}

void Unmap([[maybe_unused]] unsigned char* data,
           [[maybe_unused]] std::size_t bytes) noexcept {
#if !defined(_WIN32)
  munmap(data, MappedBytes(bytes));
#endif
}

}  // namespace

InstanceMemory AllocateInstance(std::size_t bytes,
                                Allocator* allocator) noexcept {
  InstanceMemory memory = {nullptr, bytes, allocator, false};
  void* data = nullptr;
  if (allocator != nullptr) {
    data = allocator->Allocate(bytes, kAlignment);
    // Compiled code would crash there.
    if (reinterpret_cast<std::uintptr_t>(data) % kAlignment != 0) {
      allocator->Free(data, bytes);
      data = nullptr;
    }
  } else if (bytes >= kMapped) {
    data = MapZeros(bytes);
    memory.zeroed = true;
  } else {
    data = ::operator new(bytes, std::align_val_t{kAlignment}, std::nothrow);
  }
  memory.data = static_cast<unsigned char*>(data);
  return memory;
}

void FreeInstance(const InstanceMemory& memory) noexcept {
  if (memory.allocator != nullptr) {
    memory.allocator->Free(memory.data, memory.bytes);
  } else if (memory.bytes >= kMapped) {
    Unmap(memory.data, memory.bytes);
  } else {
    ::operator delete(memory.data, std::align_val_t{kAlignment});
  }
}

Status CheckAddress(const char* asked, const void* data) {
  const std::uintptr_t off =
      reinterpret_cast<std::uintptr_t>(data) % kAlignment;
  if (off == 0) return Status();
  return Status(
      Code::kInvalidArgument,
      Message(
          std::string(asked) + " got an address that isn't aligned",
          "an address " + std::to_string(off) + " bytes after a multiple of 64",
          "allocate the memory with std::aligned_alloc(64, bytes), or "
          "declare it alignas(64)"));
}

Status CheckCollectives(const char* asked, int replicas,
                        const tfaot_collectives* collectives) {
  std::string got;
  if (collectives == nullptr || collectives->start == nullptr ||
      collectives->wait == nullptr || collectives->abort == nullptr ||
      collectives->error == nullptr) {
    got = "a null pointer";
  } else if (collectives->version < 1) {
    got = "version " + std::to_string(collectives->version);
  } else if (collectives->size != replicas || collectives->rank < 0 ||
             collectives->rank >= replicas) {
    got = "replica " + std::to_string(collectives->rank) + " of " +
          std::to_string(collectives->size);
  } else {
    return Status();
  }
  return Status(
      Code::kInvalidArgument,
      Message(std::string(asked) + " got collectives that don't fit the model",
              got + "; the model is for " + std::to_string(replicas) +
                  " replicas, 0 to " + std::to_string(replicas - 1),
              "start as many replicas, or build the model with "
              "another number of replicas"));
}

void OutOfMemory() {
#if defined(__cpp_exceptions)
  throw std::bad_alloc();
#else
  std::fputs("out of memory\n", stderr);
  std::abort();
#endif
}

}  // namespace tfaot
