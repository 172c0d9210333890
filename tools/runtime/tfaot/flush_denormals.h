// Treats denormal floats as zero for a scope, as TensorFlow does.
//
// Near convergence an optimizer's values fall below 1e-38, where x86 cores
// compute up to a hundred times slower. The caller's mode is restored at the
// end of the scope, its exception flags included.
#ifndef TFAOT_FLUSH_DENORMALS_H_
#define TFAOT_FLUSH_DENORMALS_H_

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#else
#error "rules_tfaot knows x86-64 and aarch64 only"
#endif

namespace tfaot {

class ScopedFlushDenormals {
 public:
#if defined(__x86_64__)
  ScopedFlushDenormals() noexcept : saved_(_mm_getcsr()) {
    constexpr unsigned kFlushToZero = 1u << 15;
    constexpr unsigned kDenormalsAreZero = 1u << 6;
    _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
  }
  ~ScopedFlushDenormals() { _mm_setcsr(saved_); }
#else
  ScopedFlushDenormals() noexcept {
    constexpr std::uint64_t kFlushToZero = std::uint64_t{1} << 24;
    asm volatile("mrs %0, fpcr" : "=r"(saved_));
    asm volatile("msr fpcr, %0" : : "r"(saved_ | kFlushToZero));
  }
  ~ScopedFlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#endif

  ScopedFlushDenormals(const ScopedFlushDenormals&) = delete;
  ScopedFlushDenormals& operator=(const ScopedFlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  unsigned saved_;
#else
  std::uint64_t saved_;
#endif
};

}  // namespace tfaot

#endif  // TFAOT_FLUSH_DENORMALS_H_
