// Packs a right side in a run. Constants are packed when the model is compiled
// (py/tfaot/compile/program/prepack.py).
#ifndef TFAOT_KERNELS_PANELS_H_
#define TFAOT_KERNELS_PANELS_H_

#include <algorithm>
#include <cstdint>

#include "tfaot/kernels/tile.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// Writes right[depth][columns], or right[columns][depth] if it is transposed,
// as kPanels (packing.h), with zeros where the last panel has no column. The
// two must not overlap.
template <typename T>
void PackPanels(const T* right, int64_t depth, int64_t columns, bool transposed,
                T* out) {
  constexpr int64_t kWidth = kPanelColumns<T>;
  for (int64_t column = 0; column < columns; column += kWidth) {
    const int64_t exist = std::min(kWidth, columns - column);
    if (exist < kWidth) std::fill(out, out + depth * kWidth, T(0));
    if (transposed) {
      Transpose(right + column * depth, depth, exist, depth, out, kWidth);
    } else {
      for (int64_t i = 0; i < depth; ++i) {
        const T* const row = right + i * columns + column;
        std::copy(row, row + exist, out + i * kWidth);
      }
    }
    out += depth * kWidth;
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_PANELS_H_
