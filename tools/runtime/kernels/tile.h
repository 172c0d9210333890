// The inner loops of the matrix product and of the convolution: a block of rows
// times a matrix, with the result's tile held in registers.
//
// Rows of the left side are given by pointers, a pointer for each row and
// segment, so that they need not lie at a constant distance: a convolution's
// rows are pieces of its input. Sums run in ascending order of the inner index
// in every case, so a result depends on its operands and the target alone.
//
// Scratch space is the caller's stack; nothing here allocates or has state.
#ifndef TFAOT_KERNELS_TILE_H_
#define TFAOT_KERNELS_TILE_H_

#include <algorithm>
#include <cstdint>

#include "tfaot/kernels/vector.h"

namespace tfaot::kernels {
namespace {

// A tile has kTileRows x (kTileVectors vectors): as many accumulators as leave
// registers for a row of the right side and a broadcast value.
#if defined(__AVX512F__)
constexpr int kTileRows = 8;
constexpr int kTileVectors = 3;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
#elif defined(__SSE2__)
constexpr int kTileRows = 4;
constexpr int kTileVectors = 2;
#else
constexpr int kTileRows = 6;
constexpr int kTileVectors = 3;
#endif

// Rows of a tile of fewer vectors: one vector needs more rows to keep both of
// a CPU's multipliers busy.
constexpr int TileRows(int vectors) {
  return vectors == 1 && kTileRows < 8 ? 8 : kTileRows;
}

// Columns of a tile.
template <typename T>
constexpr int kTileColumns = kTileVectors * kLanes<T>;

// How much of the inner dimension is done at a time: a strip of the right side,
// a tile wide, takes 16 KiB (AVX-512: 24), half of a small first-level cache.
template <typename T>
constexpr int64_t kDepth =
    (kVectorBytes == 64 ? 24576 : 16384) / (kTileVectors * kVectorBytes);

// A block of rows of the left side, cut into segments of one length: the values
// [segment * length, (segment + 1) * length) of row r are at
// pointers[segment * stride + r].
template <typename T>
struct Rows {
  const T* const* pointers;
  int64_t stride;
  int64_t rows;
  int64_t segments;
  int64_t length;

  int64_t depth() const { return segments * length; }
};

// Adds (or, unless `accumulate`, writes) the product of kRows rows and of
// kVectors vectors of columns, of which `columns` exist.
//
// If kCopy, row k of the right side's segment s is at
// right[s] + column + k * right_stride, and is copied to `strip` as it is used:
// the copy costs nothing then, for what it needs is idle. Otherwise all is in
// `strip`, in rows at a distance of `right_stride`.
template <typename T, int kRows, int kVectors, bool kCopy>
TFAOT_NOINLINE void Tile(const T* const* left, int64_t left_stride,
                         int64_t segments, int64_t length,
                         const T* const* right, int64_t right_stride, T* strip,
                         T* const* out, int64_t column, int64_t columns,
                         bool accumulate) {
  using V = Vector<T>;
  constexpr int kWidth = kLanes<T>;
  V sum[kRows][kVectors] = {};
  for (int64_t segment = 0; segment < segments; ++segment) {
    const T* row[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) row[r] = left[r];
    left += left_stride;
    const T* from = kCopy ? right[segment] + column : strip;
#pragma GCC unroll 4
    for (int64_t k = 0; k < length; ++k) {
      V b[kVectors];
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) b[v] = Load(from + v * kWidth);
      from += right_stride;
      if constexpr (kCopy) {
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) Store(strip + v * kWidth, b[v]);
        strip += kVectors * kWidth;
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const V a = row[r][k] - V{};
#pragma GCC unroll 16
        for (int v = 0; v < kVectors; ++v) sum[r][v] += a * b[v];
      }
    }
    if constexpr (!kCopy) strip += length * right_stride;
  }
  const int64_t last = columns - (kVectors - 1) * kWidth;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    T* to = out[r] + column;
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) {
      if (v + 1 < kVectors || last == kWidth) {
        if (accumulate) sum[r][v] += Load(to + v * kWidth);
        Store(to + v * kWidth, sum[r][v]);
      } else {
        if (accumulate) sum[r][v] += LoadSome(to + v * kWidth, last);
        StoreSome(to + v * kWidth, sum[r][v], last);
      }
    }
  }
}

template <typename T>
using TileFunction = void (*)(const T* const*, int64_t, int64_t, int64_t,
                              const T* const*, int64_t, T*, T* const*, int64_t,
                              int64_t, bool);

template <typename T, int kVectors, int... kRows>
constexpr TileFunction<T> TileOfRows(int rows,
                                     std::integer_sequence<int, kRows...>) {
  constexpr TileFunction<T> kTiles[] = {
      &Tile<T, kRows + 1, kVectors, false>...};
  return kTiles[rows - 1];
}

// The function for a tile of so many rows and vectors of columns; one that
// copies the right side has all rows that a tile can have.
template <typename T, int kVectors = kTileVectors>
TFAOT_INLINE TileFunction<T> FindTile(int rows, int vectors, bool copy) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) {
      return FindTile<T, kVectors - 1>(rows, vectors, copy);
    }
  }
  if (copy) return &Tile<T, TileRows(kVectors), kVectors, true>;
  return TileOfRows<T, kVectors>(
      rows, std::make_integer_sequence<int, TileRows(kVectors)>());
}

// The right side: value (k, j), of which k is in segment s, is at
// segments[s][(k - s * length) * row_stride + j * column_stride], and one of
// the two strides is 1.
template <typename T>
struct Right {
  const T* const* segments;
  int64_t row_stride;
  int64_t column_stride;
};

// Copies `columns` columns, from `column` on, of one segment into rows of
// `width` values, the rest of which are zero.
template <typename T>
TFAOT_INLINE void CopyStrip(const T* from, const Right<T>& right,
                            int64_t length, int64_t column, int64_t columns,
                            int64_t width, T* to) {
  if (right.column_stride == 1) {
    from += column;
    for (int64_t k = 0; k < length; ++k) {
      if (columns == width) {
        for (int64_t j = 0; j < width; j += kLanes<T>) {
          Store(to + j, Load(from + j));
        }
      } else {
        int64_t j = 0;
        for (; j + kLanes<T> <= columns; j += kLanes<T>) {
          Store(to + j, Load(from + j));
        }
        if (j < width) Store(to + j, LoadSome(from + j, columns - j));
      }
      from += right.row_stride;
      to += width;
    }
    return;
  }
  if (columns < width) {
    std::memset(to, 0, static_cast<std::size_t>(length * width) * sizeof(T));
  }
  Transpose(from + column * right.column_stride, right.column_stride, columns,
            length, to, width);
}

// Adds (or, unless `accumulate`, writes) the scalar products of kRows rows, of
// which `exist` differ, with kColumns columns: column j's values lie one beside
// the other from strip + j * strip_stride on.
template <typename T, int kRows, int kColumns>
TFAOT_NOINLINE void NarrowTile(const T* const* left, int64_t left_stride,
                               int64_t segments, int64_t length, const T* strip,
                               int64_t strip_stride, T* const* out,
                               int64_t column, int64_t exist, bool accumulate) {
  using V = Vector<T>;
  constexpr int64_t kWidth = kLanes<T>;
  V sum[kRows][kColumns] = {};
  const int64_t whole = length / kWidth * kWidth;
  for (int64_t segment = 0; segment < segments; ++segment) {
    const T* row[kRows];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) row[r] = left[r < exist ? r : 0];
    left += left_stride;
    for (int64_t k = 0; k < whole; k += kWidth) {
      V a[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) a[r] = Load(row[r] + k);
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) {
        const V b = Load(strip + j * strip_stride + k);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) sum[r][j] += a[r] * b;
      }
    }
    if (whole < length) {
      V a[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        a[r] = LoadSome(row[r] + whole, length - whole);
      }
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) {
        const V b = LoadSome(strip + j * strip_stride + whole, length - whole);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) sum[r][j] += a[r] * b;
      }
    }
    strip += length;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    if (r >= exist) break;
    T* to = out[r] + column;
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) {
      const T total = Sum<T>(sum[r][j]);
      to[j] = accumulate ? to[j] + total : total;
    }
  }
}

template <typename T, int kRows, int kColumns>
void NarrowTiles(const Rows<T>& rows, const T* strip, int64_t strip_stride,
                 T* const* out, int64_t column, bool accumulate) {
  for (int64_t r = 0; r < rows.rows; r += kRows) {
    NarrowTile<T, kRows, kColumns>(
        rows.pointers + r, rows.stride, rows.segments, rows.length, strip,
        strip_stride, out + r, column, std::min<int64_t>(kRows, rows.rows - r),
        accumulate);
  }
}

// True if few rows meet a transposed right side that is best used as it lies,
// by adding up along the inner dimension: the copy that MultiplyRows would make
// of it costs more than the sums across vectors at the end.
template <typename T>
bool IsFlat(int64_t rows, int64_t depth) {
  return rows == 1 || (rows < 8 * kTileRows && depth >= 4 * rows * kLanes<T>);
}

// True if MultiplyNarrow is quicker, because most of a vector of columns would
// be idle, and sums across vectors are few.
template <typename T>
bool IsNarrow(int64_t columns, int64_t depth, int64_t length) {
  constexpr int64_t kWidth = kLanes<T>;
  return columns <= 2 * kWidth &&
         5 * columns <= 4 * kWidth * ((columns + kWidth - 1) / kWidth) &&
         depth >= 16 * kWidth && length >= 2 * kWidth;
}

// As MultiplyRows, but adds up along the inner dimension, which may be of any
// length if the right side is transposed and there is one segment.
template <typename T>
TFAOT_NOINLINE void MultiplyNarrow(const Rows<T>& rows, const Right<T>& right,
                                   int64_t columns, T* const* out,
                                   bool accumulate) {
  constexpr int kMost = 4;
  alignas(64) T buffer[kMost * (kDepth<T> + kLanes<T>)];
  // Of few rows, the tile that leaves none over.
  int64_t at_once =
      rows.rows <= 16 && rows.rows % 4 == 0 && rows.rows != 12 ? 3 : kMost;
  if (rows.rows == 1 && right.column_stride != 1 && rows.segments == 1) {
    at_once = 8;
  }
  for (int64_t column = 0; column < columns;) {
    if (columns - column < at_once) at_once = std::min<int64_t>(at_once, kMost);
    const int64_t count = std::min(at_once, columns - column);
    const T* strip = right.segments[0] + column * right.column_stride;
    int64_t stride = right.column_stride;
    if (stride == 1 || rows.segments > 1) {
      // The columns must not be at a distance where they evict each other.
      stride = kDepth<T> + kLanes<T>;
      for (int64_t s = 0; s < rows.segments; ++s) {
        Transpose(right.segments[s] + column, right.row_stride, rows.length,
                  count, buffer + s * rows.length, stride);
      }
      strip = buffer;
    }
    if (count == 8) {
      NarrowTiles<T, 1, 8>(rows, strip, stride, out, column, accumulate);
    } else if (count == 4) {
      NarrowTiles<T, 3, 4>(rows, strip, stride, out, column, accumulate);
    } else if (count == 3) {
      NarrowTiles<T, 4, 3>(rows, strip, stride, out, column, accumulate);
    } else if (count == 2) {
      NarrowTiles<T, 6, 2>(rows, strip, stride, out, column, accumulate);
    } else {
      NarrowTiles<T, 8, 1>(rows, strip, stride, out, column, accumulate);
    }
    column += count;
  }
}

// out[r][0 .. columns) (+)= rows * right, with all of the inner dimension that
// `rows` has: at most kDepth<T>, unless MultiplyNarrow does it.
template <typename T>
TFAOT_NOINLINE void MultiplyRows(const Rows<T>& rows, const Right<T>& right,
                                 int64_t columns, T* const* out,
                                 bool accumulate) {
  constexpr int kWidth = kLanes<T>;
  if (IsNarrow<T>(columns, rows.depth(), rows.length) ||
      (right.column_stride != 1 && IsFlat<T>(rows.rows, rows.depth()))) {
    return MultiplyNarrow(rows, right, columns, out, accumulate);
  }
  alignas(64) T buffer[kDepth<T> * kTileColumns<T>];
  const int64_t vectors = (columns + kWidth - 1) / kWidth;
  int64_t strips = (vectors + kTileVectors - 1) / kTileVectors;
  int64_t left_vectors = vectors;
  for (int64_t column = 0; strips > 0; --strips) {
    const int count = static_cast<int>((left_vectors + strips - 1) / strips);
    left_vectors -= count;
    const int64_t width = count * kWidth;
    const int64_t exist = std::min(width, columns - column);
    const int64_t tile_rows = TileRows(count);
    // The strip is used as it lies by few rows, and otherwise copied, at the
    // latest by the first tile.
    T* strip = buffer;
    int64_t stride = width;
    bool copied = false;
    if (right.column_stride != 1 || exist < width) {
      for (int64_t s = 0; s < rows.segments; ++s) {
        CopyStrip(right.segments[s], right, rows.length, column, exist, width,
                  strip + s * rows.length * width);
      }
      copied = true;
    } else if (rows.segments == 1 && rows.rows < 2 * tile_rows) {
      strip = const_cast<T*>(right.segments[0] + column);  // It is only read.
      stride = right.row_stride;
      copied = true;
    }
    // Where the last tile would be low, its rows and those of the tile before
    // are shared out: a low tile has too few sums to keep the units busy.
    int64_t r = 0;
    while (r < rows.rows) {
      const int64_t rest = rows.rows - r;
      int64_t height = std::min(tile_rows, rest);
      if (!copied && height < tile_rows) {
        for (int64_t s = 0; s < rows.segments; ++s) {
          CopyStrip(right.segments[s], right, rows.length, column, exist, width,
                    strip + s * rows.length * width);
        }
        copied = true;
      }
      if (copied && rest > tile_rows && rest < 2 * tile_rows) {
        height = (rest + 1) / 2;
      }
      FindTile<T>(static_cast<int>(height), count, !copied)(
          rows.pointers + r, rows.stride, rows.segments, rows.length,
          right.segments, copied ? stride : right.row_stride, strip, out + r,
          column, exist, accumulate);
      copied = true;
      r += height;
    }
    column += width;
  }
}

}  // namespace
}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_TILE_H_
