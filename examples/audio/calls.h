// Counts calls that may take a thread any time: for memory, and for locks. The
// header defines the C library's functions, which operator new and std::mutex
// use too, so only one source of a program can include it. For Linux with
// glibc. Counts nothing under a sanitizer, which has its own.
//
//   const calls::Counts before = calls::OfThisThread();
//   callback(in, out, 512);
//   const calls::Counts made = calls::OfThisThread() - before;
//   if (made.Any()) ...
#ifndef EXAMPLES_AUDIO_CALLS_H_
#define EXAMPLES_AUDIO_CALLS_H_

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>

namespace calls {

struct Counts {
  long allocations = 0;
  long frees = 0;
  long maps = 0;   // mmap and munmap
  long locks = 0;  // mutexes, read-write locks, semaphores, and futexes

  bool Any() const { return allocations + frees + maps + locks != 0; }
  friend Counts operator-(const Counts& a, const Counts& b) {
    return {a.allocations - b.allocations, a.frees - b.frees, a.maps - b.maps,
            a.locks - b.locks};
  }
};

// What the calling thread has called so far, and all allocations of the
// process.
inline thread_local Counts thread_counts;
inline std::atomic<long> allocations{0};

inline Counts OfThisThread() { return thread_counts; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCounts = false;
#else
constexpr bool kCounts = true;

inline void Allocates() {
  ++thread_counts.allocations;
  ++allocations;
}

// The C library's function of this name.
template <typename Function>
Function* Next(std::atomic<Function*>& next, const char* name) {
  if (next.load() == nullptr) {
    next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  }
  return next;
}
#endif

}  // namespace calls

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);

void* malloc(std::size_t size) noexcept {
  calls::Allocates();
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) noexcept {
  calls::Allocates();
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) noexcept {
  calls::Allocates();
  return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) noexcept {
  calls::Allocates();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  calls::Allocates();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment,
                   std::size_t size) noexcept {
  calls::Allocates();
  *out = __libc_memalign(alignment, size);
  return *out == nullptr;
}
void free(void* memory) noexcept {
  if (memory != nullptr) ++calls::thread_counts.frees;
  __libc_free(memory);
}

// Defines a function that counts, and calls the C library's.
#define TFAOT_COUNTED(counter, result, name, parameters, arguments) \
  result name parameters noexcept {                                 \
    static std::atomic<result(*) parameters> next{nullptr};         \
    ++calls::thread_counts.counter;                                 \
    return calls::Next(next, #name) arguments;                      \
  }
TFAOT_COUNTED(maps, void*, mmap,
              (void* at, std::size_t size, int access, int flags, int fd,
               off_t from),
              (at, size, access, flags, fd, from))
TFAOT_COUNTED(maps, void*, mmap64,
              (void* at, std::size_t size, int access, int flags, int fd,
               off64_t from),
              (at, size, access, flags, fd, from))
TFAOT_COUNTED(maps, int, munmap, (void* at, std::size_t size), (at, size))
TFAOT_COUNTED(locks, int, pthread_mutex_lock, (pthread_mutex_t * mutex),
              (mutex))
TFAOT_COUNTED(locks, int, pthread_rwlock_rdlock, (pthread_rwlock_t * lock),
              (lock))
TFAOT_COUNTED(locks, int, pthread_rwlock_wrlock, (pthread_rwlock_t * lock),
              (lock))
TFAOT_COUNTED(locks, int, sem_wait, (sem_t * semaphore), (semaphore))
#undef TFAOT_COUNTED

// A futex, as std::atomic::wait() calls it, or any other system call.
long syscall(long number, ...) noexcept {
  static std::atomic<long (*)(long, ...)> next{nullptr};
  ++calls::thread_counts.locks;
  std::va_list list;
  va_start(list, number);
  long words[6];
  for (long& word : words) word = va_arg(list, long);
  va_end(list);
  return calls::Next(next, "syscall")(number, words[0], words[1], words[2],
                                      words[3], words[4], words[5]);
}
}
#endif

#endif  // EXAMPLES_AUDIO_CALLS_H_
