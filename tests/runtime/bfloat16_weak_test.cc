// A program may bring its own rounding to bfloat16, as newer compilers'
// libraries do: both link, and theirs is taken.
#include <emmintrin.h>

#include "tests/runtime/expect.h"

extern "C" __m128i __truncdfbf2(double);
extern "C" __m128i __truncsfbf2(float) { return _mm_cvtsi32_si128(7); }

int main() {
  // The first comes from our object file, which has the other one, too.
  EXPECT(_mm_cvtsi128_si32(__truncdfbf2(1.0)) == 0x3f80);
  EXPECT(_mm_cvtsi128_si32(__truncsfbf2(1.0f)) == 7);
  return failed == 0 ? 0 : 1;
}
