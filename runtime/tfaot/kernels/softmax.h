// The softmax of rows: the exponential of each value, divided by the sum of its
// row's.
//
// Each value has the row's largest subtracted first, so that no exponential is
// infinite, and is scaled after that: a difference from a product that is
// rounded elsewhere would be an error of the exponent, which is large for large
// values, such as those of a mask. A row's bits depend only on its values and
// on the target. Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_SOFTMAX_H_
#define TFAOT_KERNELS_SOFTMAX_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

#include "tfaot/kernels/functions.h"
#include "tfaot/kernels/part.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sets each of kCount results to the largest of a vector's values, or to any if
// one is NaN.
template <int kCount>
TFAOT_INLINE void Largest(const Vector<float>* vectors, float* largest) {
#if defined(__SSE2__)
  __m128 x[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    __m128 parts[kVectorBytes / 16];
    std::memcpy(parts, &vectors[i < kCount ? i : 0], kVectorBytes);
    for (int width = kVectorBytes / 32; width > 0; width /= 2) {
      for (int j = 0; j < width; ++j) {
        parts[j] = _mm_max_ps(parts[j], parts[j + width]);
      }
    }
    x[i] = parts[0];
  }
  const __m128 a =
      _mm_max_ps(_mm_unpacklo_ps(x[0], x[1]), _mm_unpackhi_ps(x[0], x[1]));
  const __m128 b =
      _mm_max_ps(_mm_unpacklo_ps(x[2], x[3]), _mm_unpackhi_ps(x[2], x[3]));
  const __m128 all = _mm_max_ps(_mm_movelh_ps(a, b), _mm_movehl_ps(b, a));
  std::memcpy(largest, &all, sizeof(float) * kCount);
#else
  for (int i = 0; i < kCount; ++i) {
    float values[kLanes<float>];
    std::memcpy(values, &vectors[i], sizeof(values));
    largest[i] = values[0];
    for (const float value : values) largest[i] = Max(largest[i], value);
  }
#endif
}

// Computes kRows rows: softmax(scale * from). A row of which the largest scaled
// value overflows is NaN. `to` is the same as `from`, or doesn't overlap it.
// With several rows at once, a core always has something to do while it waits
// for a row's sum or largest value.
template <int kRows>
TFAOT_NOINLINE void SoftmaxBlock(std::int64_t columns, float scale,
                                 const float* from, float* to) {
  constexpr std::int64_t kWidth = kLanes<float>;
  const std::int64_t whole = columns / kWidth * kWidth;
  const std::int64_t rest = columns - whole;
  // The largest scaled value is that of the smallest one if the scale is
  // negative. Signs change no other bit.
  const Vector<float> sign = All<Vector<float>>(scale < 0 ? -1.0f : 1.0f);
  const Vector<float> factor = All<Vector<float>>(std::fabs(scale));
  Vector<float> most[kRows];
  Vector<float> last[kRows] = {};
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float* const row = from + r * columns;
    most[r] = All<Vector<float>>(-kInfinity);
    for (std::int64_t j = 0; j < whole; j += kWidth) {
      most[r] = Max(Load(row + j) * sign, most[r]);
    }
    if (rest > 0) {
      last[r] = LoadSome(row + whole, rest) * sign;
      most[r] = Max(FirstOr(last[r], rest, -kInfinity), most[r]);
    }
  }
  float peaks[kRows];
  Largest<kRows>(most, peaks);
  Vector<float> total[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float* const row = from + r * columns;
    float* const result = to + r * columns;
    // Zero, or NaN if the scaled value is infinite.
    const float finite = peaks[r] * std::fabs(scale) * 0.0f;
    const Vector<float> peak = All<Vector<float>>(peaks[r] + finite);
    total[r] = Vector<float>{};
    for (std::int64_t j = 0; j < whole; j += kWidth) {
      const Vector<float> power = Exp((Load(row + j) * sign - peak) * factor);
      total[r] += power;
      Store(result + j, power);
    }
    if (rest > 0) {
      last[r] = Exp((last[r] - peak) * factor);
      total[r] += FirstOr(last[r], rest, 0.0f);
    }
  }
  float sums[kRows];
  Sums<float, kRows>(total, sums);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float* const result = to + r * columns;
    // Rounds once more than a quotient, in half of the time.
    const Vector<float> share = All<Vector<float>>(1.0f / sums[r]);
    for (std::int64_t j = 0; j < whole; j += kWidth) {
      Store(result + j, Load(result + j) * share);
    }
    if (rest > 0) StoreSome(result + whole, last[r] * share, rest);
  }
}

// Computes some rows of `columns` values each.
inline void SoftmaxRows(Span rows, std::int64_t columns, float scale,
                        const float* from, float* to) {
  constexpr int kRows = 4;
  std::int64_t r = rows.begin;
  for (; r + kRows <= rows.end; r += kRows) {
    SoftmaxBlock<kRows>(columns, scale, from + r * columns, to + r * columns);
  }
  for (; r < rows.end; ++r) {
    SoftmaxBlock<1>(columns, scale, from + r * columns, to + r * columns);
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_SOFTMAX_H_
