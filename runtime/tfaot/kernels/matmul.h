// The product of two dense matrices on one thread.
//
//   tfaot::kernels::MatrixProduct<float> product;
//   product.rows = 64, product.columns = 256, product.depth = 784;
//   Multiply(product, left, right, out);   // out[64][256] = left * right
//
// T is float, double, or an unsigned integer (sums wrap around). Any size can
// be zero, and pointers don't need to be aligned. `out` must not overlap the
// operands. Every product is computed and added, so infinities and NaN
// propagate.
//
// A call doesn't allocate or lock, and has no state: concurrent calls are safe
// if their outputs are disjoint. It uses up to 82 KiB of stack, or 120 with
// SSE2. A result's bits don't depend on whether it is computed at once or in
// parts.
#ifndef TFAOT_KERNELS_MATMUL_H_
#define TFAOT_KERNELS_MATMUL_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "tfaot/kernels/part.h"
#include "tfaot/kernels/tile.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// out[rows][columns] = left[rows][depth] * right[depth][columns], all row-major
// (the last index is adjacent in memory). A transposed operand is stored as
// left[depth][rows] or right[columns][depth].
struct MatrixProduct {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  bool transposed_left = false;
  bool transposed_right = false;
  bool packed_right = false;  // in panels (tile.h), transposed or not
  // Distances between rows as they are stored, in values. Zero means that rows
  // are adjacent. A packed right side has none.
  int64_t left_stride = 0;
  int64_t right_stride = 0;
  int64_t out_stride = 0;

  // Returns the same product with all distances, also of adjacent rows.
  MatrixProduct Strided() const {
    MatrixProduct strided = *this;
    if (left_stride == 0) strided.left_stride = transposed_left ? rows : depth;
    if (right_stride == 0) {
      strided.right_stride = transposed_right ? depth : columns;
    }
    if (out_stride == 0) strided.out_stride = columns;
    return strided;
  }
};

// Computes out[j] = sum over k of left[k] * right[k][j] for the columns in
// `span`. Reads `right`, whose rows are `stride` values apart, in memory order,
// eight rows at a time.
template <typename T>
TFAOT_NOINLINE void RowTimesMatrix(const T* left, const T* right,
                                   int64_t stride, Span span, int64_t depth,
                                   T* out) {
  using V = Vector<T>;
  constexpr int64_t kWidth = kLanes<T>;
  constexpr int kStep = 8;
  // As many columns as fit in the first-level cache.
  constexpr int64_t kColumns = 8192 / sizeof(T);
  for (int64_t begin = span.begin; begin < span.end; begin += kColumns) {
    const int64_t end = std::min(begin + kColumns, span.end);
    for (int64_t k = 0; k < depth; k += kStep) {
      const int64_t steps = std::min<int64_t>(kStep, depth - k);
      const T* row = right + k * stride;
      int64_t j = begin;
      if (steps == kStep) {
        V a[kStep];
        for (int i = 0; i < kStep; ++i) a[i] = left[k + i] - V{};
        for (; j + kWidth <= end; j += kWidth) {
          V sum = k == 0 ? V{} : Load(out + j);
#pragma GCC unroll 8
          for (int i = 0; i < kStep; ++i) {
            sum = MultiplyAdd(a[i], Load(row + i * stride + j), sum);
          }
          Store(out + j, sum);
        }
      } else {
        for (; j + kWidth <= end; j += kWidth) {
          V sum = k == 0 ? V{} : Load(out + j);
          for (int64_t i = 0; i < steps; ++i) {
            sum =
                MultiplyAdd(left[k + i] - V{}, Load(row + i * stride + j), sum);
          }
          Store(out + j, sum);
        }
      }
      for (; j < end; ++j) {
        T sum = k == 0 ? T(0) : out[j];
        for (int64_t i = 0; i < steps; ++i) {
          sum = MultiplyAdd(left[k + i], row[i * stride + j], sum);
        }
        out[j] = sum;
      }
    }
  }
}

// The most values of a strip in MultiplyTurned. They take 64 KiB.
template <typename T>
constexpr int64_t kTurnedStrip = 65536 / static_cast<int64_t>(sizeof(T));

// Returns whether MultiplyTurned is faster than copying a transposed right side
// or reading it in place. It transposes the left side and the result instead,
// and computes whole vectors of rows.
template <typename T>
bool IsTurned(int64_t rows, int64_t columns, int64_t depth) {
  constexpr int64_t kWidth = kLanes<T>;
  const int64_t fit = kTurnedStrip<T> / (depth * kWidth);  // vectors
  const int64_t vectors = (rows + kWidth - 1) / kWidth;
  const int64_t idle = vectors * kWidth - rows;
  if (depth < (idle > 0 ? 12 : 5) * kWidth) return false;
  if (fit < std::min<int64_t>(vectors, 2)) return false;
  if (kVectorBytes < 64 && (vectors < 4 || idle > 1) &&
      IsFlat<T>(rows, columns, depth)) {
    return false;
  }
  // The copies of the left side and of the result must take less than that of
  // the right side. Idle rows, or narrow strips, take more time.
  const int64_t weight = fit < kTileVectors ? 16 : 12;
  return weight * rows * (depth + columns) <= (8 - 3 * idle) * depth * columns;
}

// Multiplies a left side by a transposed right side by computing the transpose
// of the result: the rows of `right` times the transpose of `left`. Only that
// is copied, in strips, and each block of the result is transposed into place.
// All distances are given.
template <typename T>
TFAOT_NOINLINE void MultiplyTurned(const MatrixProduct& product, const T* left,
                                   const T* right, T* out, Span in_rows,
                                   Span in_columns, const Finish<T>* finish) {
  constexpr int64_t kWidth = kLanes<T>;
  constexpr int64_t kBlock = kVectorBytes == 64 ? 80 : 96;
  // Lines of the result that are written at once. A first-level cache has this
  // many, even if they are at distances at which they evict each other.
  constexpr int64_t kLines = 8;
  const T* pointers[kBlock];
  T* block_pointers[kBlock];
  alignas(64) T values[kTurnedStrip<T>];
  alignas(64) T block[kBlock * kMostVectors * kWidth];
  const int64_t depth = product.depth;
  const int64_t left_stride = product.left_stride;
  const int64_t right_stride = product.right_stride;
  const int64_t out_stride = product.out_stride;
  const int64_t step = DepthOf<T>(product.columns);
  const int64_t fit = kTurnedStrip<T> / (depth * kWidth);
  const int64_t most = std::min<int64_t>(kTileVectors, fit);
  int64_t vectors = (in_rows.size() + kWidth - 1) / kWidth;
  int64_t strips = (vectors + most - 1) / most;
  // As in MultiplyRows, one strip is wider rather than narrow.
  if (most < kMostVectors && kMostVectors <= fit && vectors > 1 &&
      vectors % most == 1) {
    --strips;
  }
  for (int64_t i = in_rows.begin; i < in_rows.end; --strips) {
    const int count = static_cast<int>((vectors + strips - 1) / strips);
    vectors -= count;
    const int64_t width = count * kWidth;
    const int64_t exist = std::min(width, in_rows.end - i);
    const int64_t tile_rows = TileRows(count);
    const T* const from = left + i * left_stride;
    const Right<T> side = {&from, 1, left_stride, false};
    CopyStrip(from, side, depth, 0, exist, width, values);
    for (int64_t j = in_columns.begin; j < in_columns.end; j += kBlock) {
      const int64_t height = std::min(kBlock, in_columns.end - j);
      for (int64_t k = 0; k < depth; k += step) {
        for (int64_t r = 0; r < height; ++r) {
          pointers[r] = right + (j + r) * right_stride + k;
          block_pointers[r] = block + r * width;
        }
        Strip<T> strip = {};
        strip.segments = 1;
        strip.length = std::min(step, depth - k);
        strip.right_stride = width;
        strip.panel_step = kPanelColumns<T>;
        strip.values = values + k * width;
        strip.columns = width;
        strip.accumulate = k > 0;
        // While a tile runs, it prefetches its share of the next block.
        strip.fetch = reinterpret_cast<const char*>(
            right + (j + kBlock) * right_stride + height * k);
        strip.fetch_step = tile_rows * static_cast<int64_t>(sizeof(T));
        const int64_t whole = height - height % tile_rows;
        if (whole > 0) {
          FindTile<T>(static_cast<int>(tile_rows), count, false, false, false)(
              strip, pointers, block_pointers, whole / tile_rows);
        }
        if (whole < height) {
          FindTile<T>(static_cast<int>(height - whole), count, false, false,
                      false)(strip, pointers + whole, block_pointers + whole,
                             1);
        }
      }
      T* const to = out + i * out_stride + j;
      for (int64_t line = 0; line < exist; line += kLines) {
        // The last lines overlap, because fewer than kLines take longer.
        const int64_t r = std::max<int64_t>(std::min(line, exist - kLines), 0);
        Transpose(block + r, width, height, std::min(kLines, exist - r),
                  to + r * out_stride, out_stride);
      }
      if (finish != nullptr) {
        FinishRows(*finish, to, out_stride, exist, j, height);
      }
    }
    i += width;
  }
}

// Multiplies block by block of rows. All distances are given.
template <typename T>
TFAOT_NOINLINE void MultiplyBlocks(const MatrixProduct& product, const T* left,
                                   const T* right, T* out, Span in_rows,
                                   Span in_columns, const Finish<T>* finish) {
  const int64_t rows = product.rows;
  const int64_t columns = product.columns;
  const int64_t depth = product.depth;
  const int64_t left_stride = product.left_stride;
  const int64_t right_stride = product.right_stride;
  const int64_t out_stride = product.out_stride;
  Finish<T> finish_part = {};
  if (finish != nullptr) finish_part = finish->Shifted(in_columns.begin);
  constexpr int64_t kBlock = 24 * kTileRows;
  // A block of a transposed left side is copied into this many rows, or more if
  // they are short.
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kCopiedStride = kDepth<T> + kLine;
  constexpr int64_t kCopiedRows = (kVectorBytes == 64 ? 352 : 192) / sizeof(T);
  constexpr int64_t kMostRows = 2 * kBlock;
  static_assert(kCopiedRows <= kMostRows);
  const T* pointers[kMostRows];
  T* out_pointers[kMostRows];
  alignas(64) T copy[kCopiedRows * kCopiedStride];

  int64_t step = product.transposed_left ? kDepth<T> : DepthOf<T>(columns);
  if (product.packed_right) {
    // A strip that only one tile uses can have any length.
    if (!product.transposed_left) {
      step = rows <= kTileRows ? depth : PieceOf(depth, kPanelDepth<T>, 8);
    }
  } else if (product.transposed_right) {
    if (!product.transposed_left && IsFlat<T>(rows, columns, depth))
      step = depth;
  } else if (rows < 2 * kTileRows) {
    // The right side is used in place, and its rows can be far apart. Using
    // only a few at a time keeps them in the second-level cache while the
    // strips are processed.
    const int64_t fit = 262144 / static_cast<int64_t>(sizeof(T)) / columns;
    step = std::clamp<int64_t>(fit / 16 * 16, 16, kDepth<T>);
  }
  const bool far = !product.packed_right && !product.transposed_right &&
                   std::min(step, depth) * columns >=
                       393216 / static_cast<int64_t>(sizeof(T));
  int64_t block = product.transposed_left ? kCopiedRows : kBlock;
  int64_t copied_stride = kCopiedStride;
  if (product.transposed_left && rows > block) {
    // Each block copies the right side again, so higher blocks are better than
    // longer ones. Rows that are an odd number of cache lines apart don't evict
    // each other.
    if (depth > step) step = PieceOf(depth, step * 3 / 4, 8);
    copied_stride = ((std::min(step, depth) + kLine - 1) / kLine | 1) * kLine;
    const int64_t fit =
        std::min(kCopiedRows * kCopiedStride / copied_stride, kMostRows);
    block = PieceOf(in_rows.size(), fit / kTileRows * kTileRows, kTileRows);
  }
  for (int64_t i = in_rows.begin; i < in_rows.end; i += block) {
    const int64_t height = std::min(block, in_rows.end - i);
    for (int64_t k = 0; k < depth; k += step) {
      const int64_t length = std::min(step, depth - k);
      const T* right_rows = right + (product.packed_right ? k * kPanelColumns<T>
                                     : product.transposed_right
                                         ? in_columns.begin * right_stride + k
                                         : k * right_stride + in_columns.begin);
      Right<T> right_side = {&right_rows,
                             product.transposed_right ? 1 : right_stride,
                             product.transposed_right ? right_stride : 1, far};
      if (product.packed_right) {
        right_side.panel_step = depth * kPanelColumns<T>;
        right_side.first_column = in_columns.begin;
      }
      if (product.transposed_left) {
        Transpose(left + k * left_stride + i, left_stride, length, height, copy,
                  copied_stride);
      }
      for (int64_t r = 0; r < height; ++r) {
        pointers[r] = product.transposed_left
                          ? copy + r * copied_stride
                          : left + (i + r) * left_stride + k;
        out_pointers[r] = out + (i + r) * out_stride + in_columns.begin;
      }
      const bool narrow =
          !product.packed_right &&
          (IsNarrow<T>(columns, length, length) ||
           (product.transposed_right && IsFlat<T>(rows, columns, length)));
      const bool last = k + step >= depth;
      MultiplyRows<T>({pointers, 0, height, 1, length}, right_side,
                      in_columns.size(), out_pointers, k > 0, narrow,
                      last && finish != nullptr ? &finish_part : nullptr);
    }
  }
}

// Writes a part of `out`, and finishes it if `finish` is given.
template <typename T>
void Multiply(MatrixProduct product, const T* left, const T* right, T* out,
              Part part = {}, const Finish<T>* finish = nullptr) {
  if (product.rows == 0 || product.columns == 0) return;
  product = product.Strided();
  if (product.columns == 1 && product.rows > 1 && product.out_stride == 1 &&
      finish == nullptr && !product.packed_right) {
    // A column is a row of the transposed product.
    std::swap(left, right);
    std::swap(product.left_stride, product.right_stride);
    std::swap(product.rows, product.columns);
    std::swap(part.rows, part.columns);
    std::swap(product.transposed_left, product.transposed_right);
    product.transposed_left = !product.transposed_left;
    product.transposed_right = !product.transposed_right;
    product.out_stride = product.columns;
  }
  if (product.rows == 1 && product.left_stride == 1) {
    product.transposed_left = false;  // equivalent
  }
  if (product.packed_right) product.transposed_right = false;
  const int64_t rows = product.rows;
  const int64_t columns = product.columns;
  const int64_t depth = product.depth;
  const int64_t right_stride = product.right_stride;
  const int64_t out_stride = product.out_stride;
  const Span in_rows = part.rows.Of(rows, kTileRows);
  const Span in_columns = part.columns.Of(columns, ColumnGrain<T>(columns));
  if (in_rows.size() == 0 || in_columns.size() == 0) return;
  const auto finish_rows = [&] {
    if (finish == nullptr) return;
    FinishRows(*finish, out + in_rows.begin * out_stride + in_columns.begin,
               out_stride, in_rows.size(), in_columns.begin, in_columns.size());
  };
  if (depth == 0) {
    for (int64_t i = in_rows.begin; i < in_rows.end; ++i) {
      std::fill(out + i * out_stride + in_columns.begin,
                out + i * out_stride + in_columns.end, T(0));
    }
    return finish_rows();
  }
  if (rows == 1 && !product.transposed_left && !product.transposed_right &&
      !product.packed_right) {
    RowTimesMatrix(left, right, right_stride, in_columns, depth, out);
    return finish_rows();
  }
  if constexpr (kVectorBytes >= 32 && std::is_floating_point_v<T>) {
    if (product.transposed_right && !product.transposed_left &&
        IsTurned<T>(rows, columns, depth)) {
      return MultiplyTurned(product, left, right, out, in_rows, in_columns,
                            finish);
    }
  }
  MultiplyBlocks(product, left, right, out, in_rows, in_columns, finish);
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_MATMUL_H_
