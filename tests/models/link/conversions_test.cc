// Protects the functions outside the C library that compiled code calls: a
// model with every conversion links, for a level with half-precision
// instructions and for one without, and both models can be in one program.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "tests/models/link/conversions_aot.h"
#include "tests/models/link/conversions_v1_aot.h"
#include "tests/runtime/expect.h"

namespace {

template <typename Model>
void Check() {
  Model model;
  const float x[] = {-1.5f, 0.25f, 0.75f, 2.0f};
  const int n[] = {0, 6, 59, 1000};
  std::copy(std::begin(x), std::end(x), model.x().begin());
  std::copy(std::begin(n), std::end(n), model.n().begin());
  EXPECT(model.Run());
  const auto converted = model.converted();
  EXPECT(converted.size() == (4 * 12 + 8 * 4) * 4);
  for (std::size_t i = 0; i < converted.size(); ++i) {
    EXPECT(converted.data()[i] == static_cast<float>(2 * (n[i % 4] % 60 + 1)));
  }
  const auto found = model.found();
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT(std::isfinite(found.data()[i]));
  }
}

}  // namespace

int main() {
  Check<conversions::Model>();
  Check<conversions::V1>();
  return failed == 0 ? 0 : 1;
}
