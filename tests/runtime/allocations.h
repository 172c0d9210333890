// Counts a program's allocations through every function for memory in the C
// library, which operator new uses too. This header defines these functions, so
// only one source of a test can include it. For Linux with glibc. Counts
// nothing under a sanitizer, which has its own allocator.
#ifndef TFAOT_TESTS_RUNTIME_ALLOCATIONS_H_
#define TFAOT_TESTS_RUNTIME_ALLOCATIONS_H_

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>

namespace tests {
inline std::atomic<long> allocations{0};
}  // namespace tests

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
namespace tests {
constexpr bool kCountsAllocations = true;
}  // namespace tests

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) noexcept {
  ++tests::allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  ++tests::allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) noexcept {
  ++tests::allocations;
  return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  ++tests::allocations;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  ++tests::allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment,
                   std::size_t size) noexcept {
  ++tests::allocations;
  *out = __libc_memalign(alignment, size);
  return *out == nullptr;
}
}
#else
namespace tests {
constexpr bool kCountsAllocations = false;
}  // namespace tests
#endif

#endif  // TFAOT_TESTS_RUNTIME_ALLOCATIONS_H_
