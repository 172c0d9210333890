// Protects rounding to bfloat16 as compiled kernels call it: to the nearest,
// ties to even, once, whatever the processor's modes are. NaN stays NaN.
#include <emmintrin.h>
#include <xmmintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>

#include "tests/runtime/expect.h"

extern "C" __m128i __truncsfbf2(float);
extern "C" __m128i __truncdfbf2(double);

namespace {

std::uint16_t Low(__m128i value) {
  return static_cast<std::uint16_t>(_mm_cvtsi128_si32(value));
}

float Value(std::uint32_t bits) {
  bits <<= 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Returns the nearest bfloat16 to a finite value, by looking at its neighbors.
std::uint16_t Nearest(double value) {
  const double magnitude = std::fabs(value);
  std::uint32_t low = 0, high = 0x7f80u;
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (Value(middle) <= magnitude ? low : high) = middle;
  }
  // Infinity is as far away as the next value would be.
  const double above = high == 0x7f80u ? 0x1p128 : double{Value(high)};
  const double down = magnitude - Value(low), up = above - magnitude;
  const bool rises = up < down || (up == down && low % 2 == 1);
  return static_cast<std::uint16_t>((rises ? high : low) |
                                    (std::signbit(value) ? 0x8000u : 0u));
}

void Check(double value) {
  for (const double signed_value : {value, -value}) {
    EXPECT(Low(__truncdfbf2(signed_value)) == Nearest(signed_value));
    const auto narrow = static_cast<float>(signed_value);
    if (std::isfinite(narrow)) {
      EXPECT(Low(__truncsfbf2(narrow)) == Nearest(narrow));
    }
  }
}

void CheckAll() {
  std::mt19937_64 random(1);
  for (std::uint32_t bits = 0; bits < 0x7f80u; bits += 1 + random() % 5) {
    const double value = Value(bits),
                 next = bits == 0x7f7fu ? 0x1p128 : double{Value(bits + 1)};
    const double middle = value + (next - value) / 2;
    Check(value);
    Check(middle);
    Check(std::nextafter(middle, 0));
    Check(std::nextafter(middle, INFINITY));
    Check(
        static_cast<double>(std::nextafter(static_cast<float>(middle), 0.0f)));
    Check(value + (next - value) *
                      std::ldexp(static_cast<double>(random() >> 11), -53));
  }
  for (const double value :
       {0.0, 0x1p-1074, 0x1p-1022, 0x1p-135, 0x1p-134, 0x1.8p-134,
        0x1.00000001p-134, 0x1p-133, 0x1.fep127, 0x1.fefffffffffffp127,
        0x1.ffp127, 0x1p128, 1e300}) {
    Check(value);
  }
}

void CheckNans() {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT(Low(__truncdfbf2(infinity)) == 0x7f80u);
  EXPECT(Low(__truncdfbf2(-infinity)) == 0xff80u);
  EXPECT(Low(__truncsfbf2(static_cast<float>(infinity))) == 0x7f80u);
  EXPECT(Low(__truncsfbf2(static_cast<float>(-infinity))) == 0xff80u);
  // Quiet and signaling NaNs, including those whose entire payload is cut off.
  for (const std::uint64_t bits : {0x7ff8000000000000u, 0x7ff0000000000001u,
                                   0xfff0000000000001u, 0x7fffffffffffffffu}) {
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    EXPECT((Low(__truncdfbf2(value)) & 0x7fc0u) == 0x7fc0u);
    EXPECT(Low(__truncdfbf2(value)) >> 15 == bits >> 63);
  }
  for (const std::uint32_t bits :
       {0x7fc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu}) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    EXPECT((Low(__truncsfbf2(value)) & 0x7fc0u) == 0x7fc0u);
    EXPECT(Low(__truncsfbf2(value)) >> 15 == bits >> 31);
  }
}

}  // namespace

int main() {
  CheckAll();
  CheckNans();
  _mm_setcsr(_mm_getcsr() |
             0x8040);  // denormals are flushed, as while a model runs
  EXPECT(Low(__truncsfbf2(0x1p-133f)) == 1u);
  EXPECT(Low(__truncdfbf2(0x1p-133)) == 1u);
  return failed == 0 ? 0 : 1;
}
