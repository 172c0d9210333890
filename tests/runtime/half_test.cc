// Protects the 16-bit floats at a model's edge: every value is preserved, and
// every float becomes the nearest value.
#include "tfaot/half.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "tests/runtime/expect.h"

using tfaot::BFloat16;
using tfaot::Float16;

// No other conversion is implicit, because storing means rounding.
static_assert(std::is_convertible_v<Float16, float>);
static_assert(!std::is_convertible_v<float, Float16>);
static_assert(!std::is_convertible_v<BFloat16, Float16>);
static_assert(std::is_trivially_copyable_v<BFloat16>);
static_assert(std::is_trivially_default_constructible_v<BFloat16>);
static_assert(Float16::FromBits(0x3c00).bits() == 0x3c00);

namespace {

std::uint32_t Bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FromBits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// A format according to its definition: kMantissa of the 16 bits are the
// mantissa's, and all others except one are the exponent's.
template <typename T, int kMantissa>
struct Format {
  static constexpr int kBias = (1 << (14 - kMantissa)) - 1;
  static constexpr std::uint32_t kInfinity = 0x7fffu >> kMantissa << kMantissa;

  // Returns the value of a pattern without sign, up to infinity. For infinity,
  // returns the next value if exponents continued, as rounding treats it.
  static double Value(std::uint32_t pattern) {
    const int exponent = static_cast<int>(pattern >> kMantissa);
    const int mantissa = static_cast<int>(pattern & ((1u << kMantissa) - 1));
    return exponent == 0 ? std::ldexp(mantissa, 1 - kBias - kMantissa)
                         : std::ldexp((1 << kMantissa) + mantissa,
                                      exponent - kBias - kMantissa);
  }

  // Returns the pattern nearest to a magnitude. Exact, because a double has
  // bits to spare.
  static std::uint32_t Nearest(double magnitude) {
    int exponent = 0;
    std::frexp(magnitude, &exponent);  // below 2^exponent
    const int unit =
        (exponent > 2 - kBias ? exponent : 2 - kBias) - 1 - kMantissa;
    const double units = std::nearbyint(std::ldexp(magnitude, -unit));
    const double rounded = std::ldexp(units, unit);
    if (rounded >= Value(kInfinity)) return kInfinity;
    std::uint32_t low = 0;
    for (std::uint32_t step = 0x8000; step > 0; step /= 2) {
      if (low + step < kInfinity && Value(low + step) <= rounded) low += step;
    }
    return low;
  }

  static void TestEveryPattern() {
    for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
      const T value = T::FromBits(static_cast<std::uint16_t>(pattern));
      const float wide = value;
      const std::uint32_t magnitude = pattern & 0x7fff;
      EXPECT(T(wide).bits() == pattern);  // including NaN payloads
      EXPECT(std::signbit(wide) == (pattern > 0x7fff));
      EXPECT(std::isnan(wide) == (magnitude > kInfinity));
      EXPECT(std::isinf(wide) == (magnitude == kInfinity));
      if (magnitude < kInfinity) {
        EXPECT(static_cast<double>(std::abs(wide)) == Value(magnitude));
      }
    }
  }

  // The floats at and next to the borders between adjacent values.
  static void TestEveryBorder() {
    for (std::uint32_t pattern = 0; pattern < kInfinity; ++pattern) {
      const double middle = (Value(pattern) + Value(pattern + 1)) / 2;
      const float border = static_cast<float>(middle);
      if (static_cast<double>(border) != middle) {  // below float's denormals
        EXPECT(kMantissa == 7 && pattern == 0);
        continue;
      }
      const std::uint32_t even = pattern + pattern % 2;
      const auto rounds = [](float value, std::uint32_t wanted) {
        EXPECT(T(value).bits() == wanted);
        EXPECT(T(-value).bits() == (wanted | 0x8000));
      };
      rounds(border, even);
      rounds(std::nextafter(border, 0.0f), pattern);
      rounds(std::nextafter(border, HUGE_VALF), pattern + 1);
    }
  }

  // Floats of all magnitudes, compared with arithmetic.
  static void TestManyFloats() {
    for (std::uint32_t bits = 0; bits < 0x7f800000u; bits += 4099) {
      const float value = FromBits(bits);
      const std::uint32_t wanted = Nearest(static_cast<double>(value));
      EXPECT(T(value).bits() == wanted);
      EXPECT(T(-value).bits() == (wanted | 0x8000));
    }
  }

  static void TestNaN() {
    for (std::uint32_t payload = 1; payload < 0x800000u; payload += 61) {
      const T positive = T(FromBits(0x7f800000u | payload));
      const T negative = T(FromBits(0xff800000u | payload));
      EXPECT(std::isnan(positive) && std::isnan(negative));
      EXPECT(negative.bits() == (positive.bits() | 0x8000));
    }
  }

  static void TestLimits() {
    using Limits = std::numeric_limits<T>;
    static_assert(Limits::is_specialized && Limits::is_iec559);
    static_assert(Limits::digits == kMantissa + 1);
    static_assert(Limits::max_exponent == kBias + 1);
    static_assert(Limits::min_exponent == 2 - kBias);
    const auto value = [](std::uint32_t pattern) {
      return static_cast<float>(Value(pattern));
    };
    EXPECT(Limits::min() == value(1u << kMantissa));
    EXPECT(Limits::denorm_min() == value(1));
    EXPECT(Limits::max() == value(kInfinity - 1));
    EXPECT(Limits::lowest() == -value(kInfinity - 1));
    EXPECT(Limits::epsilon() == std::ldexp(1.0f, -kMantissa));
    EXPECT(Limits::round_error() == 0.5f);
    EXPECT(Limits::infinity() == HUGE_VALF);
    EXPECT(std::isnan(Limits::quiet_NaN()));
    EXPECT(std::isnan(Limits::signaling_NaN()));
    EXPECT(Limits::quiet_NaN().bits() != Limits::signaling_NaN().bits());
    // As <limits> defines them, for powers of ten.
    const double smallest = Value(1u << kMantissa);
    EXPECT(std::pow(10.0, Limits::min_exponent10) >= smallest);
    EXPECT(std::pow(10.0, Limits::min_exponent10 - 1) < smallest);
    EXPECT(std::pow(10.0, Limits::max_exponent10) <= Value(kInfinity - 1));
    EXPECT(std::pow(10.0, Limits::max_exponent10 + 1) > Value(kInfinity - 1));
    EXPECT(Limits::digits10 == std::floor(kMantissa * std::log10(2.0)));
    EXPECT(Limits::max_digits10 ==
           std::ceil((kMantissa + 1) * std::log10(2.0) + 1));
  }

  static void TestUse() {
    const T one(1.0f);
    const T half(0.5f);
    const T nan = std::numeric_limits<T>::quiet_NaN();
    EXPECT(half < one && one > half && half != one && one == T(1.0f));
    EXPECT(one == 1 && half < 0.75 && T(0.0f) == T(-0.0f));
    EXPECT(!(nan == nan) && nan != nan && !(nan < one));
    EXPECT(one + half == 1.5f && -half == -0.5f && one / half == 2);
    static_assert(std::is_same_v<decltype(one + half), float>);
    T values[3] = {one, half, nan};
    T copies[3];
    std::memcpy(copies, values, sizeof(values));
    EXPECT(copies[1] == half && T{}.bits() == 0);
    T assigned = one;
    assigned = T(assigned * 3);
    EXPECT(assigned == 3 && std::abs(T(-3.0f)) == 3);
  }

  static void Test() {
    TestEveryPattern();
    TestEveryBorder();
    TestManyFloats();
    TestNaN();
    TestLimits();
    TestUse();
  }
};

}  // namespace

int main() {
  Format<Float16, 10>::Test();
  Format<BFloat16, 7>::Test();
  // Known values, which also check the reference.
  EXPECT(Float16(1.0f).bits() == 0x3c00 && Float16(-2.0f).bits() == 0xc000);
  EXPECT(Float16(65504.0f).bits() == 0x7bff);
  EXPECT(Float16(65520.0f).bits() == 0x7c00);
  EXPECT(BFloat16(1.0f).bits() == 0x3f80 &&
         BFloat16(3.14159f).bits() == 0x4049);
  EXPECT(Bits(BFloat16::FromBits(0x0001)) == 0x00010000u);
  return failed == 0 ? 0 : 1;
}
