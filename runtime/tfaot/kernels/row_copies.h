// Copies of short rows in another order.
//
// Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_ROW_COPIES_H_
#define TFAOT_KERNELS_ROW_COPIES_H_

#include <cstdint>
#include <cstring>

#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// Copies `rows` rows of kCount values that are `step` values apart.
template <int kCount>
TFAOT_INLINE void CopyShortRows(const float* from, std::int64_t step,
                                std::int64_t rows, float* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(to + r * kCount, from + r * step, kCount * sizeof(float));
  }
}

// Copies `rows` rows of `count` values that are `step` values apart. They are
// adjacent afterwards.
TFAOT_NOINLINE inline void CopyRows(const float* from, std::int64_t step,
                                    std::int64_t rows, std::int64_t count,
                                    float* to) {
  switch (count) {
    case 2:
      return CopyShortRows<2>(from, step, rows, to);
    case 4:
      return CopyShortRows<4>(from, step, rows, to);
    case 8:
      return CopyShortRows<8>(from, step, rows, to);
    case 16:
      return CopyShortRows<16>(from, step, rows, to);
    default:
      break;
  }
  for (std::int64_t r = 0; r < rows; ++r, from += step, to += count) {
    std::int64_t i = 0;
    for (; i + kLanes<float> <= count; i += kLanes<float>) {
      Store(to + i, Load(from + i));
    }
    if (i < count) StoreSome(to + i, LoadSome(from + i, count - i), count - i);
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_ROW_COPIES_H_
