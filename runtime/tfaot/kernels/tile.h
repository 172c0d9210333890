// The inner loops of the matrix product and of the convolution: a block of rows
// times a matrix, with the result's tile in registers.
//
// A pointer per row and segment addresses the rows of the left side, so they
// don't need a constant distance: a convolution's rows are pieces of its input.
// Sums always run in ascending order of the inner index, so a result depends
// only on its operands and the target.
//
// Scratch space is on the caller's stack. Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_TILE_H_
#define TFAOT_KERNELS_TILE_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tfaot/kernels/packing.h"
#include "tfaot/kernels/part.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// A tile has kTileRows x (kTileVectors vectors). This is the most accumulators
// that leave registers for a row of the right side and a broadcast value.
#if defined(__AVX512F__)
constexpr int kTileRows = 8;
constexpr int kTileVectors = 3;
#elif defined(__AVX2__) && defined(__FMA__)
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
#elif defined(__SSE2__)
constexpr int kTileRows = 4;
constexpr int kTileVectors = 2;
#elif defined(__aarch64__)
constexpr int kTileRows = 6;
constexpr int kTileVectors = 4;
#else
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
#endif
static_assert(kPanelBytes % (kTileVectors * kVectorBytes) == 0 ||
                  kTileVectors * kVectorBytes % kPanelBytes == 0,
              "a strip must not begin within a panel and reach into the next");

// Rows of a tile with fewer vectors. With one vector, it needs more rows to
// keep both of a CPU's multipliers busy.
constexpr int TileRows(int vectors) {
  if (vectors > kTileVectors) return kTileRows * kTileVectors / vectors;
  return vectors == 1 && kTileRows < 8 ? 8 : kTileRows;
}

// Vectors of the widest tile. If an odd vector is left over, the last strip is
// one wider and its tiles are lower. They have as many accumulators, while
// tiles with one vector would read a broadcast value for each multiplication.
constexpr int kMostVectors =
    kTileVectors == 2 && kTileRows == 6 ? 3 : kTileVectors;

// Columns of a tile.
template <typename T>
constexpr int kTileColumns = kTileVectors * kLanes<T>;

// How much of the inner dimension is processed at a time. A strip of the right
// side, one tile wide, takes 16 KiB (AVX-512: 24), half of a small first-level
// cache.
template <typename T>
constexpr int64_t kDepth =
    (kVectorBytes == 64 ? 24576 : 16384) / (kTileVectors * kVectorBytes);

// The same for a result of so few columns that its only strip is narrower.
template <typename T>
constexpr int64_t DepthOf(int64_t columns) {
  const int64_t vectors = (columns + kLanes<T> - 1) / kLanes<T>;
  return kDepth<T> * kTileVectors /
         std::clamp<int64_t>(vectors, 1, kTileVectors);
}
template <typename T>
constexpr int64_t kMostDepth = DepthOf<T>(1);

// Columns of a panel. A packed right side is split into panels, each with the
// rows of its columns one after another: value (k, j) is value j %
// kPanelColumns of row k of panel j / kPanelColumns. Missing columns of the
// last panel are zero. A row is as wide as a cache line, so a strip is one
// panel with AVX2, half a panel with SSE2, and three panels with AVX-512.
template <typename T>
constexpr int64_t kPanelColumns = kPanelBytes / static_cast<int64_t>(sizeof(T));

// A part of a result for a thread begins at a multiple of this column. If there
// are few tiles, parts of whole ones would differ too much in size. Only with
// AVX-512 is a panel narrower than a tile.
template <typename T>
constexpr int64_t ColumnGrain(int64_t columns) {
  constexpr int64_t kTile = kTileColumns<T>;
  return columns < 16 * kTile ? std::min(kTile, kPanelColumns<T>) : kTile;
}

// Rows of a packed right side that are processed at a time. Like kDepth, but
// there is no copy whose size would be the limit, and with fewer pieces, fewer
// sums are read and written again.
template <typename T>
constexpr int64_t kPanelDepth =
    (kVectorBytes == 64 ? 26624 : 20480) / (kPanelColumns<T> * sizeof(T));

// How far ahead a panel's only tile prefetches it.
template <typename T>
constexpr int64_t kFetchAhead = 4096 / static_cast<int64_t>(sizeof(T));

// Splits a length into as few pieces of at most `most` as possible. Returns the
// length of all pieces, except possibly the last. It is a multiple of `grain`,
// and so is `most`.
inline int64_t PieceOf(int64_t length, int64_t most, int64_t grain) {
  const int64_t pieces = std::max<int64_t>((length + most - 1) / most, 1);
  const int64_t grains = (length + grain - 1) / grain;
  return (grains + pieces - 1) / pieces * grain;
}

// A block of rows of the left side, in segments of equal length: the values
// [segment * length, (segment + 1) * length) of row r are at
// pointers[segment * stride + r].
template <typename T>
struct Rows {
  const T* const* pointers;
  int64_t stride;
  int64_t rows;
  int64_t segments;
  int64_t length;
  // If not null, the address of zeros. A tile whose rows are all there skips
  // the segment.
  const T* zeros = nullptr;

  int64_t depth() const { return segments * length; }
};

// What to do with each complete sum after writing it to its place in `sums`:
// to = clamp((sum + bias) + (addend + addend_bias)), with the biases of its
// column, or to = clamp(scale * sum + addend). NaN stays NaN.
template <typename T>
struct Finish {
  const T* sums;
  T* to;            // has the layout of `sums`, and can be the same
  const T* bias;    // per column, or null
  const T* addend;  // has the layout of `sums`, or null; can be `to`
  const T* addend_bias;
  T low;
  T high;
  T scale = 1;           // other than 1 only with an addend and without biases
  bool scratch = false;  // whether sums that are finished needn't be written

  // Returns the Finish for columns starting at `column`.
  Finish Shifted(int64_t column) const {
    Finish shifted = *this;
    if (bias != nullptr) shifted.bias += column;
    if (addend_bias != nullptr) shifted.addend_bias += column;
    return shifted;
  }
};

// A Finish in registers. Stores in a loop could modify one in memory.
template <typename T>
struct Finisher {
  explicit Finisher(const Finish<T>& finish)
      : offset(finish.to - finish.sums),
        bias(finish.bias),
        addend(finish.addend - finish.sums),
        has_addend(finish.addend != nullptr),
        addend_bias(finish.addend_bias),
        low(finish.low - Vector<T>{}),
        high(finish.high - Vector<T>{}),
        scale(finish.scale - Vector<T>{}) {}

  TFAOT_INLINE Vector<T> Clamp(Vector<T> value) const {
    return Min(high, Max(low, value));
  }

  // Returns the final values of `count` sums at `at`, a vector or less.
  TFAOT_INLINE Vector<T> Of(Vector<T> value, const T* at, int64_t column,
                            int64_t count) const {
    const bool whole = count == kLanes<T>;
    const auto load = [&](const T* from) {
      return whole ? Load(from) : LoadSome(from, count);
    };
    if (bias != nullptr) value += load(bias + column);
    if (has_addend) {
      Vector<T> other = load(at + addend);
      if (addend_bias != nullptr) other += load(addend_bias + column);
      value = value * scale + other;
    }
    return Clamp(value);
  }

  // Finishes `count` sums at `at`, a vector or less.
  TFAOT_INLINE void Run(T* at, int64_t column, int64_t count) const {
    if (count == kLanes<T>) {
      Store(at + offset, Of(Load(at), at, column, count));
    } else {
      StoreSome(at + offset, Of(LoadSome(at, count), at, column, count), count);
    }
  }

  int64_t offset;  // from a sum to its final value
  const T* bias;
  int64_t addend;  // from a sum to its addend
  bool has_addend;
  const T* addend_bias;
  Vector<T> low;
  Vector<T> high;
  Vector<T> scale;
};

// Finishes sums that have been written to `at`. Their columns start at
// `column`.
template <typename T>
TFAOT_INLINE void FinishRow(const Finisher<T>& finisher, T* at, int64_t column,
                            int64_t count) {
  constexpr int64_t kWidth = kLanes<T>;
  int64_t j = 0;
  if (finisher.bias != nullptr && !finisher.has_addend) {
    const T* const bias = finisher.bias + column;
    for (; j + kWidth <= count; j += kWidth) {
      Store(at + finisher.offset + j,
            finisher.Clamp(Load(at + j) + Load(bias + j)));
    }
  } else {
    for (; j + kWidth <= count; j += kWidth) {
      finisher.Run(at + j, column + j, kWidth);
    }
  }
  if (j < count) finisher.Run(at + j, column + j, count - j);
}

// Finishes `rows` rows of sums at the addresses in `out`.
template <typename T>
TFAOT_NOINLINE void FinishTile(const Finish<T>& finish, T* const* out,
                               int64_t rows, int64_t column, int64_t count) {
  const Finisher<T> finisher(finish);
  for (int64_t r = 0; r < rows; ++r) {
    FinishRow(finisher, out[r] + column, column, count);
  }
}

// Finishes rows of sums that are `step` values apart.
template <typename T>
TFAOT_NOINLINE void FinishRows(const Finish<T>& finish, T* at, int64_t step,
                               int64_t rows, int64_t column, int64_t count) {
  const Finisher<T> finisher(finish);
  for (int64_t r = 0; r < rows; ++r) {
    FinishRow(finisher, at + r * step, column, count);
  }
}

// What the tiles of a strip share.
template <typename T>
struct Strip {
  // Left side, as in Rows.
  int64_t left_stride;
  int64_t segments;
  int64_t length;
  const T* zeros;
  // Right side: row k of segment s is at
  // right[s] + column + k * right_stride. If the strip isn't copied, everything
  // is in `values` instead, in rows that are `right_stride` apart. If a vector
  // fills a row of a panel, the vectors are `panel_step` apart.
  const T* const* right;
  int64_t right_stride;
  int64_t panel_step;
  T* values;
  // Result.
  int64_t column;
  int64_t columns;  // that exist
  bool accumulate;
  const Finish<T>* finish;
  // What to prefetch meanwhile, and how many bytes to advance per row.
  const char* fetch;
  int64_t fetch_step;
};

// Returns whether all rows are at the same address.
template <typename T, int kRows>
TFAOT_INLINE bool SameRows(const T* const* rows) {
  for (int r = 1; r < kRows; ++r) {
    if (rows[r] != rows[0]) return false;
  }
  return true;
}

// Adds (or, unless `accumulate`, writes) the products of `tiles` times kRows
// rows and of kVectors vectors of columns. If kHalf, the last one is a
// HalfVector.
//
// If kCopy, copies the right side to `values` as it is used. The copy is then
// free, because the units that it needs are idle. There is only one tile.
//
// If kFinish, the sums are complete, all columns exist, and `finish` applies
// before they are written. It has a bias, an addend, or both. Otherwise,
// `finish` is ignored.
template <typename T, int kRows, int kVectors, bool kHalf, bool kCopy,
          bool kFinish>
TFAOT_NOINLINE void Tile(const Strip<T>& strip, const T* const* left,
                         T* const* out, int64_t tiles) {
  using V = Vector<T>;
  using Last = std::conditional_t<kHalf, HalfVector<T>, V>;
  constexpr int kWidth = kLanes<T>;
  constexpr int kInPanel = static_cast<int>(kPanelColumns<T>) / kWidth;
  constexpr int kBefore = kVectors - 1;  // vectors before the last
  const int64_t panel_step = kCopy ? kPanelColumns<T> : strip.panel_step;
  const int64_t length = strip.length;
  const int64_t right_stride = strip.right_stride;
  const int64_t fetch_step = strip.fetch_step;
  const int64_t column = strip.column;
  const T* const zeros = strip.zeros;
  const char* fetch = strip.fetch;
  for (; tiles > 0; --tiles) {
    V sum[kRows][kVectors] = {};  // of which the last is unused
    Last last[kRows] = {};
    T* values = strip.values;
    const T* const* at = left;
    for (int64_t segment = 0; segment < strip.segments; ++segment) {
      const T* row[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) row[r] = at[r];
      at += strip.left_stride;
      if constexpr (!kCopy) {
        if (row[0] == zeros && SameRows<T, kRows>(row)) {
          values += length * right_stride;
          fetch += length * fetch_step;
          continue;
        }
      }
      const T* from = kCopy ? strip.right[segment] + column : values;
#pragma GCC unroll 4
      for (int64_t k = 0; k < length; ++k) {
        V b[kVectors];
#pragma GCC unroll 16
        for (int v = 0; v < kBefore; ++v) {
          b[v] = Load(from + v / kInPanel * panel_step + v % kInPanel * kWidth);
        }
        const Last b_last =
            LoadAs<Last>(from + kBefore / kInPanel * panel_step +
                         kBefore % kInPanel * kWidth);
        from += right_stride;
        if constexpr (kCopy) {
#pragma GCC unroll 16
          for (int v = 0; v < kBefore; ++v) Store(values + v * kWidth, b[v]);
          Store(values + kBefore * kWidth, b_last);
          values += kVectors * kWidth;
        } else {
          __builtin_prefetch(fetch, 0, 2);
          fetch += fetch_step;
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const V a = row[r][k] - V{};
#pragma GCC unroll 16
          for (int v = 0; v < kBefore; ++v) {
            sum[r][v] = MultiplyAdd(a, b[v], sum[r][v]);
          }
          last[r] = MultiplyAdd(First<Last>(a), b_last, last[r]);
        }
      }
      if constexpr (!kCopy) values += length * right_stride;
    }
    if constexpr (kFinish) {
      const Finisher<T> finisher(*strip.finish);
      if (strip.accumulate) {
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          const T* const from = out[r] + column;
#pragma GCC unroll 16
          for (int v = 0; v < kBefore; ++v) {
            sum[r][v] += Load(from + v * kWidth);
          }
          last[r] += LoadAs<Last>(from + kBefore * kWidth);
        }
      }
      // Finishes all sums. `finished` returns a sum's final value before it is
      // clamped, given the sum, its place, and its column.
      const auto finish = [&](const auto& finished) __attribute__((
                              always_inline)) {
        const V low = finisher.low;
        const V high = finisher.high;
        const Last last_low = strip.finish->low - Last{};
        const Last last_high = strip.finish->high - Last{};
        const int64_t offset = finisher.offset;
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          T* const at = out[r] + column;
#pragma GCC unroll 16
          for (int v = 0; v < kBefore; ++v) {
            // A barrier. Otherwise, compilers finish all sums before they store
            // the first one, and there are too few registers for that.
            __asm__ volatile("" ::: "memory");
            const V value = finished(sum[r][v], at + v * kWidth, v * kWidth);
            Store(at + offset + v * kWidth, Min(high, Max(low, value)));
          }
          __asm__ volatile("" ::: "memory");
          constexpr int kAt = kBefore * kWidth;
          const Last value = finished(last[r], at + kAt, kAt);
          Store(at + offset + kAt, Min(last_high, Max(last_low, value)));
        }
      };
      const T* const bias = finisher.bias + column;
      const int64_t addend = finisher.addend;
      if (!finisher.has_addend) {
        finish([&](auto value, const T*, int j) __attribute__((always_inline)) {
          return value + LoadAs<decltype(value)>(bias + j);
        });
      } else if (finisher.bias == nullptr) {
        const T scale = strip.finish->scale;
        finish([&](auto value, const T* at, int)
                   __attribute__((always_inline)) {
                     using W = decltype(value);
                     return value * (scale - W{}) + LoadAs<W>(at + addend);
                   });
      } else {
        finish(
            [&](auto value, const T* at, int j) __attribute__((always_inline)) {
              using W = decltype(value);
              return (value + LoadAs<W>(bias + j)) + LoadAs<W>(at + addend);
            });
      }
    } else {
      const bool accumulate = strip.accumulate;
      const int64_t rest = strip.columns - kBefore * kWidth;
      const bool whole = rest == static_cast<int64_t>(sizeof(Last) / sizeof(T));
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        T* to = out[r] + column;
#pragma GCC unroll 16
        for (int v = 0; v < kBefore; ++v) {
          if (accumulate) sum[r][v] += Load(to + v * kWidth);
          Store(to + v * kWidth, sum[r][v]);
        }
        to += kBefore * kWidth;
        if (whole) {
          if (accumulate) last[r] += LoadAs<Last>(to);
          Store(to, last[r]);
        } else {
          if (accumulate) last[r] += LoadSomeAs<Last>(to, rest);
          StoreSome(to, last[r], rest);
        }
      }
    }
    left += kRows;
    out += kRows;
  }
}

template <typename T>
using TileFunction = void (*)(const Strip<T>&, const T* const*, T* const*,
                              int64_t);

template <typename T, int kVectors, bool kHalf, int... kRows>
constexpr TileFunction<T> TileOfRows(int rows,
                                     std::integer_sequence<int, kRows...>) {
  constexpr TileFunction<T> kTiles[] = {
      &Tile<T, kRows + 1, kVectors, kHalf, false, false>...};
  return kTiles[rows - 1];
}

template <typename T, int kVectors, bool kHalf>
TFAOT_INLINE TileFunction<T> FindTileOf(int rows, bool copy, bool finish) {
  constexpr int kRows = TileRows(kVectors);
  if (copy) return &Tile<T, kRows, kVectors, kHalf, true, false>;
  if constexpr (std::is_floating_point_v<T>) {
    if (finish) return &Tile<T, kRows, kVectors, kHalf, false, true>;
  }
  return TileOfRows<T, kVectors, kHalf>(
      rows, std::make_integer_sequence<int, kRows>());
}

// Returns the function for a tile of this many rows and vectors of columns, the
// last of which can be half a vector. A tile that copies the right side or
// finishes has the maximum number of rows.
template <typename T, int kVectors = kMostVectors>
TFAOT_INLINE TileFunction<T> FindTile(int rows, int vectors, bool half,
                                      bool copy, bool finish) {
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) {
      return FindTile<T, kVectors - 1>(rows, vectors, half, copy, finish);
    }
  }
  if constexpr (kHalfBytes < kVectorBytes) {
    if (half) return FindTileOf<T, kVectors, true>(rows, copy, finish);
  }
  return FindTileOf<T, kVectors, false>(rows, copy, finish);
}

// The right side. Value (k, j), where k is in segment s, is at
// segments[s][(k - s * length) * row_stride + j * column_stride], and one of
// the two strides is 1. If it is packed, segments[0] is the address of row 0 of
// panel 0, and `first_column` is the column that has number 0 here.
template <typename T>
struct Right {
  const T* const* segments;
  int64_t row_stride;
  int64_t column_stride;
  // Whether to prefetch it: it is so large that it is far from the core, and no
  // CPU predicts the distances between a strip's rows.
  bool far;
  int64_t panel_step = 0;  // from one panel to the next; 0 if not packed
  int64_t first_column = 0;

  // Returns the address of a packed column.
  const T* Panel(int64_t column) const {
    const int64_t at = first_column + column;
    return segments[0] + at / kPanelColumns<T> * panel_step +
           at % kPanelColumns<T>;
  }
};

// Copies `columns` columns of one segment, starting at `column`, into rows of
// `width` values. The rest of each row is zero.
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

// Prefetches column `column` of rows [begin, end), counted over all segments,
// of a right side that is row-major.
template <typename T>
TFAOT_INLINE void FetchRows(const Right<T>& right, int64_t length,
                            int64_t column, int64_t begin, int64_t end) {
  while (begin < end) {
    const int64_t segment = begin / length;
    const int64_t first = begin - segment * length;
    const int64_t count = std::min(end - begin, length - first);
    const T* from = right.segments[segment] + column + first * right.row_stride;
    for (int64_t k = 0; k < count; ++k) {
      __builtin_prefetch(from, 0, 2);
      from += right.row_stride;
    }
    begin += count;
  }
}

// Adds (or, unless `accumulate`, writes) the scalar products of kRows rows, of
// which `exist` are distinct, with kColumns columns, a V at a time. Column j's
// values are adjacent, starting at strip + j * strip_stride.
template <typename T, typename V, int kRows, int kColumns>
TFAOT_NOINLINE void NarrowTile(const T* const* left, int64_t left_stride,
                               int64_t segments, int64_t length, const T* strip,
                               int64_t strip_stride, T* const* out,
                               int64_t column, int64_t exist, bool accumulate) {
  constexpr int64_t kWidth = sizeof(V) / sizeof(T);
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
      for (int r = 0; r < kRows; ++r) a[r] = LoadAs<V>(row[r] + k);
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) {
        const V b = LoadAs<V>(strip + j * strip_stride + k);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          sum[r][j] = MultiplyAdd(a[r], b, sum[r][j]);
        }
      }
    }
    if (whole < length) {
      V a[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        a[r] = LoadSomeAs<V>(row[r] + whole, length - whole);
      }
#pragma GCC unroll 16
      for (int j = 0; j < kColumns; ++j) {
        const V b =
            LoadSomeAs<V>(strip + j * strip_stride + whole, length - whole);
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) {
          sum[r][j] = MultiplyAdd(a[r], b, sum[r][j]);
        }
      }
    }
    strip += length;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    if (r >= exist) break;
    T* to = out[r] + column;
    T totals[kColumns];
    Sums<T, kColumns>(sum[r], totals);
#pragma GCC unroll 16
    for (int j = 0; j < kColumns; ++j) {
      to[j] = accumulate ? to[j] + totals[j] : totals[j];
    }
  }
}

template <typename T, int kRows, int kColumns>
void NarrowTiles(const Rows<T>& rows, const T* strip, int64_t strip_stride,
                 T* const* out, int64_t column, bool accumulate) {
  for (int64_t r = 0; r < rows.rows; r += kRows) {
    const int64_t exist = std::min<int64_t>(kRows, rows.rows - r);
    if constexpr (kHalfBytes < kVectorBytes) {
      // Short sums of wide vectors spend their time on adding across them.
      if (rows.length < 128 * kLanes<T>) {
        NarrowTile<T, HalfVector<T>, kRows, kColumns>(
            rows.pointers + r, rows.stride, rows.segments, rows.length, strip,
            strip_stride, out + r, column, exist, accumulate);
        continue;
      }
    }
    NarrowTile<T, Vector<T>, kRows, kColumns>(
        rows.pointers + r, rows.stride, rows.segments, rows.length, strip,
        strip_stride, out + r, column, exist, accumulate);
  }
}

// Returns whether few rows meet a transposed right side that is best used in
// place, by adding along the inner dimension. The copy that MultiplyRows would
// make costs more than the sums across vectors at the end.
template <typename T>
bool IsFlat(int64_t rows, int64_t columns, int64_t depth) {
  // Wide vectors make a tile's sums cheaper, but not the sums across vectors.
  constexpr int64_t kNear = (1 << 20) / static_cast<int64_t>(sizeof(T));
  const int64_t most = kVectorBytes < 64          ? 8 * kTileRows
                       : columns * depth <= kNear ? 10
                                                  : 24;
  return rows == 1 || (rows < most && depth >= 4 * rows * kHalfLanes<T>);
}

// Returns whether MultiplyNarrow is faster, because most of a vector of columns
// would be idle, and there are few sums across vectors.
template <typename T>
bool IsNarrow(int64_t columns, int64_t depth, int64_t length) {
  constexpr int64_t kWidth = kHalfLanes<T>;
  return columns <= 2 * kWidth &&
         5 * columns <= 4 * kWidth * ((columns + kWidth - 1) / kWidth) &&
         depth >= 16 * kWidth && length >= 2 * kWidth;
}

// Like MultiplyRows, but adds along the inner dimension. That can have any
// length if the right side is transposed and there is one segment.
template <typename T>
TFAOT_NOINLINE void MultiplyNarrow(const Rows<T>& rows, const Right<T>& right,
                                   int64_t columns, T* const* out,
                                   bool accumulate) {
  constexpr int kMost = 4;
  constexpr int64_t kStride = kMostDepth<T> + kLanes<T>;
  alignas(64) T buffer[kMost * kStride];
  // With few rows, choose the tile that leaves no remainder.
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
      // Columns must not be at distances at which they evict each other.
      stride = kStride;
      // Eight columns at once are only read in place. GCC can't see that.
      const int64_t copied = std::min<int64_t>(count, kMost);
      for (int64_t s = 0; s < rows.segments; ++s) {
        Transpose(right.segments[s] + column, right.row_stride, rows.length,
                  copied, buffer + s * rows.length, stride);
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

// Computes out[r][0 .. columns) (+)= rows * right, over the complete inner
// dimension of `rows`: at most DepthOf<T>(columns), unless `narrow` says to use
// MultiplyNarrow. Callers decide this by the sizes of the whole result, of
// which this can be a part (part.h), because the two ways add in different
// orders. With `finish`, the sums are complete afterwards.
template <typename T>
TFAOT_NOINLINE void MultiplyRows(const Rows<T>& rows, const Right<T>& right,
                                 int64_t columns, T* const* out,
                                 bool accumulate, bool narrow,
                                 const Finish<T>* finish) {
  constexpr int kWidth = kLanes<T>;
  if (narrow) {
    MultiplyNarrow(rows, right, columns, out, accumulate);
    if (finish == nullptr) return;
    return FinishTile(*finish, out, rows.rows, 0, columns);
  }
  alignas(64) T buffer[kDepth<T> * kMostVectors * kWidth];
  const int64_t vectors = (columns + kWidth - 1) / kWidth;
  int64_t strips = (vectors + kTileVectors - 1) / kTileVectors;
  const bool wide_last =
      kMostVectors > kTileVectors && vectors > 1 && vectors % kTileVectors == 1;
  if (wide_last) --strips;
  int64_t left_vectors = vectors;
  for (int64_t column = 0; strips > 0; --strips) {
    // Strips are equally wide, unless one would begin within a panel and reach
    // into the next.
    const bool even = kPanelColumns<T> <= 2 * kWidth || right.panel_step == 0;
    const int count = static_cast<int>(
        wide_last ? (strips == 1 ? kMostVectors : kTileVectors)
        : even    ? (left_vectors + strips - 1) / strips
                  : std::min<int64_t>(left_vectors, kTileVectors));
    left_vectors -= count;
    const int64_t width = count * kWidth;
    const int64_t exist = std::min(width, columns - column);
    const bool half =
        exist <= width - kWidth + kHalfLanes<T> && kHalfLanes<T> < kWidth;
    const bool filled =
        exist == (half ? width - kWidth + kHalfLanes<T> : width);
    const int64_t tile_rows = TileRows(count);
    // If there are few rows, the strip is used in place. Otherwise it is
    // copied, by the first tile at the latest.
    Strip<T> strip = {rows.stride,
                      rows.segments,
                      rows.length,
                      rows.zeros,
                      right.segments,
                      width,
                      kPanelColumns<T>,
                      buffer,
                      column,
                      exist,
                      accumulate,
                      finish,
                      reinterpret_cast<const char*>(buffer),
                      0};
    bool copied = true;
    const auto copy = [&] {
      for (int64_t s = 0; s < rows.segments; ++s) {
        CopyStrip(right.segments[s], right, rows.length, column, exist, width,
                  buffer + s * rows.length * width);
      }
    };
    if (right.panel_step != 0) {
      const T* const panel = right.Panel(column);
      strip.values = const_cast<T*>(panel);  // read-only
      strip.right_stride = kPanelColumns<T>;
      strip.panel_step = right.panel_step;
      if (rows.rows <= tile_rows) {
        // A single tile prefetches what it will soon read itself.
        strip.fetch = reinterpret_cast<const char*>(panel + kFetchAhead<T>);
        strip.fetch_step = kPanelBytes;
      }
    } else if (right.column_stride != 1 || !filled) {
      copy();
    } else if (rows.segments == 1 && rows.rows < 2 * tile_rows) {
      strip.values = const_cast<T*>(right.segments[0] + column);
      strip.right_stride = right.row_stride;
    } else {
      copied = false;
    }
    const bool finish_at_once =
        std::is_floating_point_v<T> && finish != nullptr && filled &&
        (finish->scratch || finish->to == finish->sums) &&
        (finish->bias != nullptr || finish->addend != nullptr) &&
        finish->addend_bias == nullptr;
    // The tiles of a packed strip prefetch the panels of the next strip, or of
    // the next piece of the inner dimension: each panel is a share of tiles.
    const int64_t all_tiles = (rows.rows + tile_rows - 1) / tile_rows;
    const int64_t panels =
        std::clamp<int64_t>(width / kPanelColumns<T>, 1, all_tiles);
    const T* const next_panel =
        right.panel_step == 0 ? nullptr
        : column + width < columns
            ? right.Panel(column + width)
            : right.Panel(0) + rows.depth() * kPanelColumns<T>;
    int64_t panel = 0;
    Span share = Share{0, panels}.Of(all_tiles, 1);
    // While this strip's tiles run, prefetch the next strip.
    const int64_t next = std::min(column + 2 * width, columns) - 1;
    int64_t fetched = right.far && column + width < columns ? 0 : rows.depth();
    int64_t r = 0;
    while (r < rows.rows) {
      if (r > 0 && fetched < rows.depth()) {
        const int64_t end = std::min(
            fetched + rows.depth() * tile_rows / rows.rows + 1, rows.depth());
        FetchRows(right, rows.length, next, fetched, end);
        fetched = end;
      }
      const int64_t rest = rows.rows - r;
      int64_t height = std::min(tile_rows, rest);
      if (!copied && height < tile_rows) {
        copy();
        copied = true;
      }
      // If the last tile would be low, it shares rows with the tile before. A
      // low tile has too few sums to keep the units busy.
      if (copied && rest > tile_rows && rest < 2 * tile_rows) {
        height = (rest + 1) / 2;
      }
      const bool finishing = finish_at_once && copied && height == tile_rows;
      // Tiles run back to back if there is nothing to do in between.
      int64_t tiles = 1;
      if (copied && height == tile_rows && fetched == rows.depth() &&
          (finish == nullptr || finishing)) {
        tiles =
            std::max<int64_t>(rest / tile_rows - (rest % tile_rows != 0), 1);
      }
      if (right.panel_step != 0 && all_tiles > 1) {
        const int64_t tile = r / tile_rows;
        if (tile >= share.end) share = Share{++panel, panels}.Of(all_tiles, 1);
        tiles = std::min(tiles, share.end - tile);
        strip.fetch_step = (kPanelBytes + share.size() - 1) / share.size();
        strip.fetch = reinterpret_cast<const char*>(next_panel +
                                                    panel * right.panel_step) +
                      (tile - share.begin) * strip.fetch_step * rows.depth();
      }
      if (!copied) strip.right_stride = right.row_stride;
      FindTile<T>(static_cast<int>(height), count, half, !copied, finishing)(
          strip, rows.pointers + r, out + r, tiles);
      if (finish != nullptr && !finishing) {
        FinishTile(*finish, out + r, height, column, exist);
      }
      if (!copied) strip.right_stride = width;
      copied = true;
      r += tiles * height;
    }
    column += width;
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_TILE_H_
