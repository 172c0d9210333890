// Types of SIMD vectors that are as wide as the target allows.
//
// They are the vector extensions that GCC and Clang share, so one source works
// for SSE2, AVX2, AVX-512, and any other target.
#ifndef TFAOT_KERNELS_LANES_H_
#define TFAOT_KERNELS_LANES_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "tfaot/kernels/isa.h"

#define TFAOT_INLINE inline __attribute__((always_inline))
#define TFAOT_NOINLINE __attribute__((noinline))

// The linker merges what several translation units of a program instantiate, so
// everything here is in the namespace of the CPU level (isa.h). It must not
// merge code that only some of the program's CPUs can run.
namespace tfaot::kernels::TFAOT_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

// Some CPUs process a vector of 64 bytes in two halves. Where only one half has
// values, a vector of that half takes half the time.
constexpr int kHalfBytes = kVectorBytes == 64 ? 32 : kVectorBytes;

template <typename T, int kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};

// A vector of as many T as the target processes at once.
template <typename T>
using Vector = typename VectorOf<T, kVectorBytes>::Type;

// Half of the widest vectors, and all of others.
template <typename T>
using HalfVector = typename VectorOf<T, kHalfBytes>::Type;

// Returns a V of one value. Subtracting +0 keeps every value's bits.
template <typename V, typename T>
TFAOT_INLINE V All(T value) {
  return value - V{};
}

// Bits of float32 values: an integer for a float, and a vector for a vector.
template <typename V>
using Bits =
    std::conditional_t<std::is_same_v<V, float>, std::uint32_t,
                       typename VectorOf<std::uint32_t, sizeof(V)>::Type>;

// Returns the same bits as another type.
template <typename To, typename From>
TFAOT_INLINE To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// The number of T in a vector.
template <typename T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
template <typename T>
constexpr int kHalfLanes = kHalfBytes / static_cast<int>(sizeof(T));

// Returns a * b + c, of values or vectors. Floats are rounded once if the
// target has an instruction for it, and twice otherwise. Compilers don't fuse
// other products with sums (-ffp-contract=off): they would choose differently
// for a row alone and for several at once, and so for different parts of a
// call.
template <typename V>
TFAOT_INLINE V MultiplyAdd(V a, V b, V c) {
  return a * b + c;
}

#if defined(__FMA__) || defined(__aarch64__)
TFAOT_INLINE float MultiplyAdd(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
TFAOT_INLINE double MultiplyAdd(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
#define TFAOT_MULTIPLY_ADD(type, bytes, call)                       \
  TFAOT_INLINE VectorOf<type, bytes>::Type MultiplyAdd(             \
      VectorOf<type, bytes>::Type a, VectorOf<type, bytes>::Type b, \
      VectorOf<type, bytes>::Type c) {                              \
    return call;                                                    \
  }
#if defined(__aarch64__)
TFAOT_MULTIPLY_ADD(float, 16, vfmaq_f32(c, a, b))
TFAOT_MULTIPLY_ADD(double, 16, vfmaq_f64(c, a, b))
#else
TFAOT_MULTIPLY_ADD(float, 16, _mm_fmadd_ps(a, b, c))
TFAOT_MULTIPLY_ADD(double, 16, _mm_fmadd_pd(a, b, c))
TFAOT_MULTIPLY_ADD(float, 32, _mm256_fmadd_ps(a, b, c))
TFAOT_MULTIPLY_ADD(double, 32, _mm256_fmadd_pd(a, b, c))
#endif
#if defined(__AVX512F__)
TFAOT_MULTIPLY_ADD(float, 64, _mm512_fmadd_ps(a, b, c))
TFAOT_MULTIPLY_ADD(double, 64, _mm512_fmadd_pd(a, b, c))
#endif
#undef TFAOT_MULTIPLY_ADD
#endif

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_LANES_H_
