// Packs right sides for the kernels' tests, like
// py/tfaot/compile/program/prepack.py.
#ifndef TFAOT_TESTS_RUNTIME_KERNELS_PANELS_H_
#define TFAOT_TESTS_RUNTIME_KERNELS_PANELS_H_

#include <cstdint>

#include "tests/runtime/kernels/fuzz.h"
#include "tfaot/kernels/tile.h"

namespace tfaot::fuzz {

// Returns matrix[depth][columns], or matrix[columns][depth] if it is
// transposed, in panels.
template <typename T>
Array<T> InPanels(Random& random, const Array<T>& matrix, int64_t depth,
                  int64_t columns, bool transposed = false) {
  constexpr int64_t kWidth = kernels::kPanelColumns<T>;
  const int64_t panels = (columns + kWidth - 1) / kWidth;
  Array<T> packed(panels * depth * kWidth, random.Between(0, 3));
  T* to = packed.data();
  for (int64_t panel = 0; panel < panels; ++panel) {
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = panel * kWidth; j < (panel + 1) * kWidth; ++j) {
        *to++ =
            j < columns
                ? matrix.data()[transposed ? j * depth + k : k * columns + j]
                : T(0);
      }
    }
  }
  return packed;
}

}  // namespace tfaot::fuzz

#endif  // TFAOT_TESTS_RUNTIME_KERNELS_PANELS_H_
