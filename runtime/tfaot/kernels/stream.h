// The product of few rows of floats with a matrix that is read as one stream.
//
// The matrix is a constant, as floats (kFloat32) or in fewer bits: kBfloat16
// has the upper half of each float, and kInt8 has integers with a factor for
// each column. It is in panels of 32 columns, each with its rows one after
// another (packing.h). Values are widened in registers, and all arithmetic is
// in float. Every product is computed and added, so infinities
// and NaN propagate.
//
// A call doesn't allocate or lock, and has no state. A result's bits don't
// depend on whether it is computed at once or in parts.
#ifndef TFAOT_KERNELS_STREAM_H_
#define TFAOT_KERNELS_STREAM_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tfaot/kernels/packing.h"
#include "tfaot/kernels/part.h"
#include "tfaot/kernels/tile.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// out[rows][columns] = left[rows][depth] * matrix[depth][columns], row-major.
// A transposed left side is stored as left[depth][rows].
struct StreamProduct {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  bool transposed_left = false;
};

// The vectors in a row of a panel.
constexpr int kStreamVectors = static_cast<int>(kStreamColumns) / kLanes<float>;

// As many rows as have their sums in registers.
#if defined(__AVX512F__)
constexpr int kStreamRows = 4;
#elif defined(__AVX2__) || defined(__aarch64__)
constexpr int kStreamRows = 2;
#else
constexpr int kStreamRows = 1;
#endif

// A sum waits for the one before it. With one row, this many sums of a column
// keep the multipliers busy.
constexpr int kStreamChains = std::max(1, 8 / kStreamVectors);

// The values along the inner dimension that are added up before they are added
// to the rest, which limits rounding.
constexpr int64_t kStreamPiece = 512;

// A panel is blocks of kBlock bytes, one after another, with the values of
// kBlockRows rows each. Words have 32 bits, and their lowest bits come first.

// A block is a row.
struct Float32Panels {
  static constexpr int64_t kBlock = 128;
  static constexpr int kBlockRows = 1;
  static constexpr int kChains = kStreamChains;
  static constexpr bool kScaled = false;

  TFAOT_INLINE static void Widen(const unsigned char* block,
                                 Vector<float> (*values)[kStreamVectors]) {
#pragma GCC unroll 8
    for (int v = 0; v < kStreamVectors; ++v) {
      values[0][v] = LoadAs<Vector<float>>(block + v * kVectorBytes);
    }
  }
};

// Word j of a block has column j and column j + 16.
struct Bfloat16Panels {
  static constexpr int64_t kBlock = 64;
  static constexpr int kBlockRows = 1;
  static constexpr int kChains = kStreamChains;
  static constexpr bool kScaled = false;

  TFAOT_INLINE static void Widen(const unsigned char* block,
                                 Vector<float> (*values)[kStreamVectors]) {
    using Words = Vector<std::uint32_t>;
    constexpr int kHalf = kStreamVectors / 2;
#pragma GCC unroll 8
    for (int v = 0; v < kHalf; ++v) {
      const auto words = LoadAs<Words>(block + v * kVectorBytes);
      const Words low = words << 16;
      const Words high = words & 0xffff0000u;
      std::memcpy(&values[0][v], &low, sizeof(low));
      std::memcpy(&values[0][kHalf + v], &high, sizeof(high));
    }
  }
};

// Word j of a block has columns j and j + 16 of one row, and of the next row.
// Values are 2^24 times as large, because that takes fewer instructions. The
// factors, which come before all panels, make up for it.
struct Int8Panels {
  static constexpr int64_t kBlock = 64;
  static constexpr int kBlockRows = 2;
  // Conversions limit the speed, and take registers.
  static constexpr int kChains = 1;
  static constexpr bool kScaled = true;

  TFAOT_INLINE static void Widen(const unsigned char* block,
                                 Vector<float> (*values)[kStreamVectors]) {
    using Words = Vector<std::uint32_t>;
    constexpr int kHalf = kStreamVectors / 2;
    constexpr std::uint32_t kTop = 0xff000000u;
#pragma GCC unroll 8
    for (int v = 0; v < kHalf; ++v) {
      const auto words = LoadAs<Words>(block + v * kVectorBytes);
      values[0][v] = ToFloat(words << 24);
      values[0][kHalf + v] = ToFloat((words << 16) & kTop);
      values[1][v] = ToFloat((words << 8) & kTop);
      values[1][kHalf + v] = ToFloat(words & kTop);
    }
  }

 private:
  TFAOT_INLINE static Vector<float> ToFloat(Vector<std::uint32_t> words) {
    Vector<std::int32_t> integers;
    std::memcpy(&integers, &words, sizeof(words));
    return __builtin_convertvector(integers, Vector<float>);
  }
};

// Sets sums[r] to the sums of kRows rows for the columns of one panel.
// `left[r * row_step + k * depth_step]` are the rows.
template <typename Panels, int kRows, int kChains>
TFAOT_NOINLINE void StreamTile(const unsigned char* panel, const float* left,
                               int64_t row_step, int64_t depth_step,
                               int64_t depth, float (*sums)[kStreamColumns]) {
  using V = Vector<float>;
  constexpr int kBlockRows = Panels::kBlockRows;
  constexpr int kUnrolled = 4;
  static_assert(kStreamPiece % kUnrolled == 0 && kChains <= kUnrolled);
  for (int64_t begin = 0; begin < depth || begin == 0; begin += kStreamPiece) {
    const int64_t end = std::min(begin + kStreamPiece, depth);
    V sum[kChains][kRows][kStreamVectors] = {};
    // Adds rows k to k + count - 1, which are in one block.
    const auto add = [&](int64_t k, int count,
                         int chain) __attribute__((always_inline)) {
      V values[kBlockRows][kStreamVectors];
      Panels::Widen(panel + k / kBlockRows * Panels::kBlock, values);
#pragma GCC unroll 2
      for (int i = 0; i < count; ++i) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const V factor = left[r * row_step + (k + i) * depth_step] - V{};
#pragma GCC unroll 8
          for (int v = 0; v < kStreamVectors; ++v) {
            V& to = sum[(chain + i) % kChains][r][v];
            to = MultiplyAdd(factor, values[i][v], to);
          }
        }
      }
    };
    int64_t k = begin;
    for (; k + kUnrolled <= end; k += kUnrolled) {
#pragma GCC unroll 4
      for (int i = 0; i < kUnrolled; i += kBlockRows) add(k + i, kBlockRows, i);
    }
    for (; k + kBlockRows <= end; k += kBlockRows) add(k, kBlockRows, 0);
    if (k < end) add(k, 1, 0);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kStreamVectors; ++v) {
        V total = sum[0][r][v];
#pragma GCC unroll 4
        for (int i = 1; i < kChains; ++i) total += sum[i][r][v];
        float* const to = sums[r] + v * kLanes<float>;
        Store(to, begin == 0 ? total : Load(to) + total);
      }
    }
  }
}

// Writes the sums of one panel's columns, of which the first `count` exist, and
// finishes them.
TFAOT_INLINE void WriteStream(const float* sums, const float* factors,
                              int64_t column, int64_t count,
                              const Finisher<float>* finisher, bool keep,
                              float* out) {
  constexpr int64_t kWidth = kLanes<float>;
  for (int64_t j = 0; j < count; j += kWidth) {
    const int64_t some = std::min(kWidth, count - j);
    const auto store = [&](float* to, Vector<float> value) {
      if (some == kWidth) {
        Store(to, value);
      } else {
        StoreSome(to, value, some);
      }
    };
    Vector<float> value = Load(sums + j);
    if (factors != nullptr) value *= Load(factors + j);
    float* const at = out + j;
    if (finisher == nullptr) {
      store(at, value);
      continue;
    }
    const Vector<float> finished = finisher->Of(value, at, column + j, some);
    if (keep) store(at, value);
    store(at + finisher->offset, finished);
  }
}

// Computes `part` of a product. `matrix` is as described in packing.h, and
// aligned to 4 bytes. `finish` may be null. Its addend may be `out`, if so is
// its `to`.
template <typename Panels>
void MultiplyStream(const StreamProduct& product, const float* left,
                    const unsigned char* matrix, float* out, const Part& part,
                    const Finish<float>* finish) {
  const int64_t columns = product.columns;
  const int64_t panels = (columns + kStreamColumns - 1) / kStreamColumns;
  const float* factors = nullptr;
  if constexpr (Panels::kScaled) {
    factors = reinterpret_cast<const float*>(matrix);
    matrix += panels * kStreamColumns * static_cast<int64_t>(sizeof(float));
  }
  const int64_t blocks =
      (product.depth + Panels::kBlockRows - 1) / Panels::kBlockRows;
  const Span rows = part.rows.Of(product.rows, kStreamRows);
  const Span span = part.columns.Of(columns, kStreamColumns);
  const int64_t row_step = product.transposed_left ? 1 : product.depth;
  const int64_t depth_step = product.transposed_left ? product.rows : 1;
  const bool keep = finish != nullptr && finish->to != finish->sums;
  float sums[kStreamRows][kStreamColumns];
  for (int64_t j = span.begin; j < span.end; j += kStreamColumns) {
    const unsigned char* const panel =
        matrix + j / kStreamColumns * blocks * Panels::kBlock;
    const int64_t count = std::min(kStreamColumns, columns - j);
    for (int64_t i = rows.begin; i < rows.end;) {
      const float* const from = left + i * row_step;
      int64_t height = 1;
      if (product.rows == 1) {
        StreamTile<Panels, 1, Panels::kChains>(panel, from, row_step,
                                               depth_step, product.depth, sums);
      } else if (rows.end - i >= kStreamRows) {
        height = kStreamRows;
        StreamTile<Panels, kStreamRows, 1>(panel, from, row_step, depth_step,
                                           product.depth, sums);
      } else {
        StreamTile<Panels, 1, 1>(panel, from, row_step, depth_step,
                                 product.depth, sums);
      }
      for (int64_t r = 0; r < height; ++r, ++i) {
        const float* const scale = factors == nullptr ? nullptr : factors + j;
        float* const to = out + i * columns + j;
        if (finish != nullptr) {
          const Finisher<float> finisher(*finish);
          WriteStream(sums[r], scale, j, count, &finisher, keep, to);
        } else {
          WriteStream(sums[r], scale, j, count, nullptr, false, to);
        }
      }
    }
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_STREAM_H_
