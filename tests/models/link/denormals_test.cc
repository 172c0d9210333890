// Protects both kinds of targets: one treats denormals as zero, like
// TensorFlow, and one leaves them to the caller. Neither changes the caller's
// mode.
#include <limits>

#include "tests/models/link/halves_flushed_aot.h"
#include "tests/models/link/halves_kept_aot.h"
#include "tests/runtime/expect.h"

namespace {

constexpr float kSmallest = std::numeric_limits<float>::min();

template <typename Model>
float Half() {
  Model model;
  model.x()(3) = kSmallest;
  EXPECT(model.Run());
  return model.y()(3);
}

}  // namespace

int main() {
  EXPECT(Half<halves::Flushed>() == 0);
  EXPECT(Half<halves::Kept>() == kSmallest / 2);
  EXPECT(kSmallest / 2 > 0);
  const volatile float smallest = kSmallest;
  EXPECT(smallest / 2 > 0);
  return failed == 0 ? 0 : 1;
}
