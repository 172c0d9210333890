// Functions that compilers call to round to bfloat16. libgcc has them since
// version 13.
//
// LLVM calls them by name from the kernels that it compiled. They are weak, so
// a program can have other definitions, and hidden, so no shared library
// exports them. They have no state and are thread-safe.
#if defined(__x86_64__)

#include <emmintrin.h>

#include <cstdint>
#include <cstring>

// A bfloat16 is returned in the low bits of xmm0. Not every compiler that needs
// this file knows that type. A vector is returned in the same place.
#define TFAOT_HELPER \
  extern "C" __attribute__((weak, visibility("hidden"))) __m128i

namespace {

template <typename Bits, typename Float>
Bits BitsOf(Float value) {
  Bits bits;
  static_assert(sizeof(bits) == sizeof(value), "");
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

// Returns a value divided by 2^shift, rounded to the nearest, ties to even.
// 0 < shift < 64.
std::uint64_t Shifted(std::uint64_t value, int shift) {
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t rest = value & (2 * half - 1);
  const std::uint64_t quotient = value >> shift;
  return quotient + (rest > half || (rest == half && (quotient & 1) != 0));
}

// Uses integers, so neither the rounding mode nor flushed denormals matter. A
// NaN stays NaN, quiet, with as much of its payload as fits.

std::uint32_t FromFloat(float value) {
  const std::uint32_t bits = BitsOf<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
  return static_cast<std::uint32_t>(Shifted(bits, 16));
}

// Rounds once, and not by way of a float, which would round twice.
std::uint32_t FromDouble(double value) {
  const std::uint64_t bits = BitsOf<std::uint64_t>(value);
  const std::uint64_t infinity = std::uint64_t{0x7ff} << 52;
  const std::uint64_t magnitude = bits & ~(std::uint64_t{1} << 63);
  const std::uint64_t fraction = bits & ((std::uint64_t{1} << 52) - 1);
  const auto sign = static_cast<std::uint32_t>(bits >> 48 & 0x8000u);
  if (magnitude > infinity) {
    return sign | 0x7fc0u | static_cast<std::uint32_t>(fraction >> 45);
  }
  const int exponent = static_cast<int>(magnitude >> 52) - 1023;
  if (exponent > 127) return sign | 0x7f80u;
  std::uint64_t rounded = 0;
  if (exponent >= -126) {
    // Rounding up carries into the exponent, and so to infinity.
    const auto biased = static_cast<std::uint64_t>(exponent + 127);
    rounded = Shifted(biased << 52 | fraction, 45);
  } else if (exponent >= -134) {  // at least half of the smallest value
    rounded = Shifted(std::uint64_t{1} << 52 | fraction, -81 - exponent);
  }
  return sign | static_cast<std::uint32_t>(rounded);
}

}  // namespace

TFAOT_HELPER __truncsfbf2(float value) {
  return _mm_cvtsi32_si128(static_cast<int>(FromFloat(value)));
}

TFAOT_HELPER __truncdfbf2(double value) {
  return _mm_cvtsi32_si128(static_cast<int>(FromDouble(value)));
}

#endif  // defined(__x86_64__)
