// Protects programs with their own rounding to bfloat16, as in newer compilers'
// libraries: both link, and theirs is used.
#include <emmintrin.h>

#include "tests/runtime/expect.h"

extern "C" __m128i __truncdfbf2(double);
extern "C" __m128i __truncsfbf2(float) { return _mm_cvtsi32_si128(7); }

int main() {
  // The first comes from our object file, which also contains the other one.
  EXPECT(_mm_cvtsi128_si32(__truncdfbf2(1.0)) == 0x3f80);
  EXPECT(_mm_cvtsi128_si32(__truncsfbf2(1.0f)) == 7);
  return failed == 0 ? 0 : 1;
}
