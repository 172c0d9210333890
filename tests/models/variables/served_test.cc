// Protects the choice between constants and variables, and weights from a file:
// a class has the variables that its target doesn't freeze.
//
//   served_test HEAD       a file from write_weights.py
#include <type_traits>

#include "tests/models/variables/chosen_aot.h"
#include "tests/models/variables/fixed_aot.h"
#include "tests/runtime/expect.h"

namespace {

using tests::Chosen;  // frozen = ["*", "!head/*"]
using tests::Fixed;   // the default for a model that writes nothing: all

template <typename Model, typename = void>
constexpr bool kHasBody = false;
template <typename Model>
constexpr bool kHasBody<
    Model, std::void_t<decltype(std::declval<Model>().body_kernel())>> = true;

template <typename Model, typename = void>
constexpr bool kHasHead = false;
template <typename Model>
constexpr bool kHasHead<
    Model, std::void_t<decltype(std::declval<Model>().head_kernel())>> = true;

template <typename Model, typename = void>
constexpr bool kHasFiles = false;
template <typename Model>
constexpr bool
    kHasFiles<Model, std::void_t<decltype(std::declval<Model>().Load("")),
                                 decltype(std::declval<Model>().Save(""))>> =
        true;

static_assert(!kHasBody<Chosen> && kHasHead<Chosen> && kHasFiles<Chosen>);
static_assert(!kHasBody<Fixed> && !kHasHead<Fixed> && !kHasFiles<Fixed>);

// For x = {1, 2, 3, 4}, the file's weights make 26 ones in all, and the head
// their sum, and 10 less than it.
template <typename Model>
bool Gives(Model& model, float y0, float y1) {
  for (int i = 0; i < 4; ++i) model.x()[i] = static_cast<float>(i + 1);
  return model.Run() && model.y()[0] == y0 && model.y()[1] == y1;
}

void TestWeightsOfAFile() {
  Fixed fixed;
  EXPECT(Gives(fixed, 26, -16));
  Chosen chosen;
  EXPECT(Gives(chosen, 26, -16));
  const Chosen& initial = chosen;
  EXPECT(initial.head_kernel()(7, 0) == 1 && initial.head_kernel()(7, 1) == -1);
  EXPECT(initial.head_bias()[0] == 0 && initial.head_bias()[1] == 10);
}

void TestFedOnesChange(const char* head) {
  // A file needs no values for frozen variables.
  Chosen chosen;
  EXPECT(chosen.Load(head));
  EXPECT(Gives(chosen, 52, -32));
  chosen.mutable_head_bias()[0] = 1;
  EXPECT(Gives(chosen, 53, -32));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  TestWeightsOfAFile();
  TestFedOnesChange(argv[1]);
  return failed == 0 ? 0 : 1;
}
