// Sums of rows: each column's values are added up.
//
// The order of additions depends only on the sizes and on the target. Nothing
// here allocates or has state.
#ifndef TFAOT_KERNELS_COLUMN_SUMS_H_
#define TFAOT_KERNELS_COLUMN_SUMS_H_

#include <algorithm>
#include <cstdint>

#include "tfaot/kernels/part.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// Adds up rows of fewer columns than a vector has values. Vectors of several
// rows are added up first. Each of their values is always the same column's.
TFAOT_NOINLINE inline void SumNarrowRows(const float* from, std::int64_t rows,
                                         std::int64_t columns, float* to) {
  constexpr std::int64_t kWidth = kLanes<float>;
  constexpr std::int64_t kMost = std::max<std::int64_t>(kWidth, 4);
  // As many vectors as have a whole number of rows.
  const std::int64_t count = kWidth % columns == 0 ? 4 : columns;
  const std::int64_t size = rows * columns;
  Vector<float> sums[kMost] = {};
  std::int64_t i = 0;
  if (count == 4) {
    for (; i + 4 * kWidth <= size; i += 4 * kWidth) {
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[v] += Load(from + i + v * kWidth);
    }
  } else {
    for (; i + count * kWidth <= size; i += count * kWidth) {
      for (std::int64_t v = 0; v < count; ++v) {
        sums[v] += Load(from + i + v * kWidth);
      }
    }
  }
  float values[kMost * kWidth];
  std::memcpy(values, sums, sizeof(values));
  for (std::int64_t c = 0; c < columns; ++c) {
    float sum = 0;
    for (std::int64_t j = c; j < count * kWidth; j += columns) {
      sum += values[j];
    }
    for (std::int64_t j = i + c; j < size; j += columns) sum += from[j];
    to[c] = sum;
  }
}

// Adds up kVectors vectors of columns, or if `some` isn't 0, so many values of
// one vector.
template <int kVectors>
TFAOT_INLINE void SumColumns(const float* from, std::int64_t rows,
                             std::int64_t columns, std::int64_t some,
                             float* to) {
  Vector<float> sums[kVectors] = {};
  for (std::int64_t r = 0; r < rows; ++r, from += columns) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[v] +=
          some > 0 ? LoadSome(from, some) : Load(from + v * kLanes<float>);
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    if (some > 0) {
      StoreSome(to, sums[v], some);
    } else {
      Store(to + v * kLanes<float>, sums[v]);
    }
  }
}

// Adds up a range of the columns of some rows.
TFAOT_NOINLINE inline void SumRows(const float* from, std::int64_t rows,
                                   std::int64_t columns, Span range,
                                   float* to) {
  constexpr std::int64_t kWidth = kLanes<float>;
  if (columns < kWidth) return SumNarrowRows(from, rows, columns, to);
  std::int64_t c = range.begin;
  for (; c + 8 * kWidth <= range.end; c += 8 * kWidth) {
    SumColumns<8>(from + c, rows, columns, 0, to + c);
  }
  for (; c + kWidth <= range.end; c += kWidth) {
    SumColumns<1>(from + c, rows, columns, 0, to + c);
  }
  if (c < range.end) {
    SumColumns<1>(from + c, rows, columns, range.end - c, to + c);
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_COLUMN_SUMS_H_
