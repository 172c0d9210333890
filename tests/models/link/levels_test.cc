// Protects programs with models for several CPU levels: each runs code for its
// own level, and all give the same results.
#include <cstdio>

#include "tests/models/link/product_v1_aot.h"
#include "tests/models/link/product_v2_aot.h"
#include "tests/models/link/product_v3_aot.h"

namespace {

int failed = 0;

// Small integers, whose sums are exact in any order.
template <typename Model>
void Check(const char* level) {
  Model model;
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 128; ++k) {
      model.x()(i, k) = static_cast<float>((i + k) % 5);
    }
  }
  const bool ran = model.Run();
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 64; ++j) {
      int sum = 0;
      for (int k = 0; k < 128; ++k) {
        sum += (i + k) % 5 * ((k * 64 + j) % 7 - 3);
      }
      if (ran && model.y()(i, j) == static_cast<float>(sum)) continue;
      std::printf("FAILED: %s, value (%d, %d)\n", level, i, j);
      ++failed;
      return;
    }
  }
}

}  // namespace

int main() {
  Check<product::V1>("x86-64");
  Check<product::V2>("x86-64-v2");
#if defined(__GNUC__) && defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    Check<product::V3>("x86-64-v3");
  }
#endif
  return failed == 0 ? 0 : 1;
}
