// Treats denormal floats as zero for a scope, as TensorFlow does.
//
// Near convergence, an optimizer's values fall below 1e-38, where x86 cores
// compute up to a hundred times slower. The end of the scope restores the
// caller's mode, including its exception flags.
#ifndef TFAOT_FLUSH_DENORMALS_H_
#define TFAOT_FLUSH_DENORMALS_H_

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#else
#error "rules_tfaot supports only x86-64 and 64-bit ARM"
#endif

namespace tfaot {
// Translation units share nothing here, because they can be compiled for
// different CPU levels.
namespace {

// A thread's rounding mode, exception flags, and whether it flushes denormals:
// x86's MXCSR, or ARM's FPCR and FPSR.
#if defined(__x86_64__)
using FloatMode = unsigned;
inline FloatMode GetFloatMode() noexcept { return _mm_getcsr(); }
inline void SetFloatMode(FloatMode mode) noexcept { _mm_setcsr(mode); }
// Flushes results to zero, and treats denormal inputs as zero.
constexpr FloatMode kFlush = 1u << 15 | 1u << 6;
constexpr FloatMode Flushing(FloatMode mode) noexcept { return mode | kFlush; }
#else
struct FloatMode {
  std::uint64_t control;  // FPCR
  std::uint64_t status;   // FPSR
};
inline FloatMode GetFloatMode() noexcept {
  FloatMode mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode.control));
  asm volatile("mrs %0, fpsr" : "=r"(mode.status));
  return mode;
}
inline void SetFloatMode(FloatMode mode) noexcept {
  asm volatile("msr fpcr, %0" : : "r"(mode.control));
  asm volatile("msr fpsr, %0" : : "r"(mode.status));
}
constexpr FloatMode Flushing(FloatMode mode) noexcept {
  return {mode.control | std::uint64_t{1} << 24, mode.status};
}
#endif

// Sets the calling thread's mode for a scope.
class ScopedFloatMode {
 public:
  explicit ScopedFloatMode(FloatMode mode) noexcept : saved_(GetFloatMode()) {
    SetFloatMode(mode);
  }
  ~ScopedFloatMode() { SetFloatMode(saved_); }

  ScopedFloatMode(const ScopedFloatMode&) = delete;
  ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;

 private:
  FloatMode saved_;
};

class ScopedFlushDenormals : public ScopedFloatMode {
 public:
  ScopedFlushDenormals() noexcept : ScopedFloatMode(Flushing(GetFloatMode())) {}
};

}  // namespace
}  // namespace tfaot

#endif  // TFAOT_FLUSH_DENORMALS_H_
