// Protects programs with two models: classes whose names become the same symbol
// when `::` becomes `_` link together, and neither model affects the other.
#include <cmath>
#include <type_traits>
#include <utility>

#include "tests/models/link/one_aot.h"
#include "tests/models/link/other_aot.h"
#include "tests/runtime/expect.h"

static_assert(!std::is_copy_constructible_v<a::b_c>);
static_assert(!std::is_copy_assignable_v<a::b_c>);
static_assert(std::is_nothrow_move_constructible_v<a::b_c>);
static_assert(std::is_nothrow_move_assignable_v<a::b_c>);

// From another source file, which includes the same headers.
float SecondIncluder();

namespace {

template <typename Model>
void Fill(Model& model) {
  for (int i = 0; i < 4; ++i) model.x()(i) = static_cast<float>(i + 1);
}

template <typename Model>
bool Gives(const Model& model, float y0, float y3) {
  return model.y()(0) == y0 && model.y()(3) == y3;
}

}  // namespace

int main() {
  a::b_c one;
  a_b::c other;
  Expect(one.x()[0] == 0 && one.y()[0] == 0, "inputs and outputs start at 0");
  Expect(one.w()(3) == 4 && one.b()(0) == 0.5f,
         "variables start at their initial values");
  Fill(one);
  Fill(other);
  Expect(one.Run() && other.Run(), "both models run");
  Expect(*one.error() == '\0', "a run that succeeds clears the error");
  Expect(Gives(one, 1.5f, 16.5f), "y = w x + b");
  Expect(one.w()(3) == 5, "w grew by one");
  Expect(one.Run() && Gives(one, 2.5f, 20.5f), "the next run sees the new w");
  Expect(other.w()(3) == 5 && Gives(other, 1.5f, 16.5f),
         "the other model has variables of its own");

  a::b_c again;
  Expect(again.w()(3) == 4, "a new instance starts at the initial values");

  const float* view = one.w().data();
  a::b_c moved = std::move(one);
  Expect(moved.w().data() == view && moved.w()(3) == 6,
         "moving keeps values and views");
  again = std::move(moved);
  Fill(again);
  Expect(again.Run() && again.w()(3) == 7, "a model that was moved to runs");

  again.w()(0) = 100;
  Expect(again.Run() && again.y()(0) == 100.5f, "a caller may set a variable");
  Expect(SecondIncluder() == 2.5f, "a second source may include the headers");
  return failed == 0 ? 0 : 1;
}
