// TensorFlow's 16-bit floats, for storage but not for arithmetic.
//
//   x[0] = tfaot::Float16(0.1f);   // rounded to the nearest, ties to even
//   float y = x[0] * 2;            // as a float
//
// Each is the bits of one value: trivially copyable, uninitialized by default.
// Conversions preserve NaN payloads as far as they fit. Float16 is IEEE's
// binary16; BFloat16 is the upper half of a float.
#ifndef TFAOT_HALF_H_
#define TFAOT_HALF_H_

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tfaot/unshared.h"

namespace tfaot {

class Float16 {
 public:
  Float16() = default;
  explicit Float16(float value) noexcept : bits_(Rounded(value)) {}

  operator float() const noexcept {
    const std::uint32_t sign = (bits_ & 0x8000u) << 16;
    const std::uint32_t magnitude = bits_ & 0x7fffu;
    std::uint32_t bits;
    if (magnitude >= 0x7c00u) {  // infinity, NaN
      bits = 0x7f800000u | (magnitude & 0x3ffu) << 13;
    } else if (magnitude >= 0x400u) {
      bits = (magnitude << 13) + (112u << 23);  // exponent biases differ
    } else {  // units of 2^-24, all normal as floats
      const float value = static_cast<float>(magnitude) / 16777216.0f;
      std::memcpy(&bits, &value, sizeof(bits));
    }
    bits |= sign;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  constexpr std::uint16_t bits() const noexcept { return bits_; }
  static constexpr Float16 FromBits(std::uint16_t bits) noexcept {
    Float16 value{};
    value.bits_ = bits;
    return value;
  }

 private:
  // Uses integers, so neither the rounding mode nor flushed denormals matter.
  static std::uint16_t Rounded(float value) noexcept {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    const std::uint32_t sign = (bits & 0x80000000u) >> 16;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    std::uint32_t half;
    if (magnitude > 0x7f800000u) {  // NaN, which needs a payload
      const std::uint32_t payload = (magnitude >> 13) & 0x3ffu;
      half = 0x7c00u | (payload != 0 ? payload : 0x200u);
    } else if (magnitude >= 0x477ff000u) {  // 65520, between 65504 and 65536
      half = 0x7c00u;
    } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal value
      const std::uint32_t tie_to_even = (magnitude >> 13) & 1u;
      half = (magnitude - (112u << 23) + 0xfffu + tie_to_even) >> 13;
    } else if (magnitude >= 0x33000000u) {  // 2^-25, half the smallest value
      const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
      const std::uint32_t shift = 126u - (magnitude >> 23);
      const std::uint32_t tie_to_even = (mantissa >> shift) & 1u;
      half = (mantissa + (1u << (shift - 1)) - 1u + tie_to_even) >> shift;
    } else {
      half = 0;
    }
    return static_cast<std::uint16_t>(sign | half);
  }

  std::uint16_t bits_;
};

class BFloat16 {
 public:
  BFloat16() = default;
  explicit BFloat16(float value) noexcept : bits_(Rounded(value)) {}

  operator float() const noexcept {
    const std::uint32_t bits = std::uint32_t{bits_} << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }

  constexpr std::uint16_t bits() const noexcept { return bits_; }
  static constexpr BFloat16 FromBits(std::uint16_t bits) noexcept {
    BFloat16 value{};
    value.bits_ = bits;
    return value;
  }

 private:
  static std::uint16_t Rounded(float value) noexcept {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7fffffffu) > 0x7f800000u) {  // NaN, which needs a payload
      const std::uint32_t payload = (bits >> 16) & 0x7fu;
      return static_cast<std::uint16_t>(bits >> 16 | (payload ? 0 : 0x40u));
    }
    const std::uint32_t tie_to_even = (bits >> 16) & 1u;
    return static_cast<std::uint16_t>((bits + 0x7fffu + tie_to_even) >> 16);
  }

  std::uint16_t bits_;
};

static_assert(sizeof(Float16) == 2 && std::is_trivial<Float16>::value, "");
static_assert(sizeof(BFloat16) == 2 && std::is_trivial<BFloat16>::value, "");

namespace internal {

// std::numeric_limits of a 16-bit float with `kMantissa` bits of mantissa.
template <typename T, int kMantissa>
struct HalfLimits {
  TFAOT_UNSHARED static constexpr bool is_specialized = true;
  TFAOT_UNSHARED static constexpr bool is_signed = true;
  TFAOT_UNSHARED static constexpr bool is_integer = false;
  TFAOT_UNSHARED static constexpr bool is_exact = false;
  TFAOT_UNSHARED static constexpr bool is_bounded = true;
  TFAOT_UNSHARED static constexpr bool is_modulo = false;
  TFAOT_UNSHARED static constexpr bool is_iec559 = true;
  TFAOT_UNSHARED static constexpr bool has_infinity = true;
  TFAOT_UNSHARED static constexpr bool has_quiet_NaN = true;
  TFAOT_UNSHARED static constexpr bool has_signaling_NaN = true;
  TFAOT_UNSHARED static constexpr std::float_denorm_style has_denorm =
      std::denorm_present;
  TFAOT_UNSHARED static constexpr bool has_denorm_loss = false;
  TFAOT_UNSHARED static constexpr std::float_round_style round_style =
      std::round_to_nearest;
  TFAOT_UNSHARED static constexpr bool traps = false;
  TFAOT_UNSHARED static constexpr bool tinyness_before = false;

  TFAOT_UNSHARED static constexpr int radix = 2;
  TFAOT_UNSHARED static constexpr int digits = kMantissa + 1;
  TFAOT_UNSHARED static constexpr int digits10 = kMantissa * 301 / 1000;
  TFAOT_UNSHARED static constexpr int max_digits10 = digits * 301 / 1000 + 2;
  TFAOT_UNSHARED static constexpr int max_exponent = 1 << (14 - kMantissa);
  TFAOT_UNSHARED static constexpr int max_exponent10 =
      max_exponent * 301 / 1000;
  TFAOT_UNSHARED static constexpr int min_exponent = 3 - max_exponent;
  TFAOT_UNSHARED static constexpr int min_exponent10 =
      (min_exponent - 1) * 301 / 1000;

  static constexpr T min() noexcept { return Make(1, 0); }
  static constexpr T max() noexcept { return Make(kInfinity, -1); }
  static constexpr T lowest() noexcept { return Make(kInfinity, 0x7fff); }
  static constexpr T epsilon() noexcept { return Make(kBias - kMantissa, 0); }
  static constexpr T round_error() noexcept { return Make(kBias - 1, 0); }
  static constexpr T denorm_min() noexcept { return Make(0, 1); }
  static constexpr T infinity() noexcept { return Make(kInfinity, 0); }
  static constexpr T quiet_NaN() noexcept {
    return Make(kInfinity, 1 << (kMantissa - 1));
  }
  static constexpr T signaling_NaN() noexcept {
    return Make(kInfinity, 1 << (kMantissa - 2));
  }

 private:
  TFAOT_UNSHARED static constexpr int kBias = max_exponent - 1;
  TFAOT_UNSHARED static constexpr int kInfinity =
      2 * max_exponent - 1;  // as an exponent

  static constexpr T Make(int exponent, int mantissa) noexcept {
    return T::FromBits(
        static_cast<std::uint16_t>((exponent << kMantissa) + mantissa));
  }
};

}  // namespace internal
}  // namespace tfaot

template <>
class std::numeric_limits<tfaot::Float16>
    : public tfaot::internal::HalfLimits<tfaot::Float16, 10> {};

template <>
class std::numeric_limits<tfaot::BFloat16>
    : public tfaot::internal::HalfLimits<tfaot::BFloat16, 7> {};

#endif  // TFAOT_HALF_H_
