// Real matrices of up to 16 rows, in vectors of constant number. Most loops are
// unrolled, and a matrix is filled up to the next of a few sizes.
//
// Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_LINEAR_SMALL_H_
#define TFAOT_KERNELS_LINEAR_SMALL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "tfaot/kernels/complex.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

constexpr std::int64_t kSmall = 16;

// Calls run(integral_constant) for all integers from kFrom to kTo - 1.
template <int kFrom, int kTo, typename Run>
TFAOT_INLINE void Unrolled(const Run& run) {
  if constexpr (kFrom < kTo) {
    run(std::integral_constant<int, kFrom>());
    Unrolled<kFrom + 1, kTo>(run);
  }
}
#define TFAOT_EACH(index) [&](auto index) __attribute__((always_inline))

// Whether to multiply by 1 / by instead of dividing.
template <typename T>
TFAOT_INLINE bool HasInverse(T by) {
  return std::abs(by) > std::numeric_limits<T>::min() &&
         std::abs(by) < 1 / std::numeric_limits<T>::min();
}

template <int kLane>
struct Only {
  static constexpr int At(int, int) { return kLane; }
};

// A row of at least kSize values.
template <typename T, int kSize>
struct SmallRow {
  using V =
      std::conditional_t<(kSize * sizeof(T) > 32), Vector<T>, HalfVector<T>>;
  static constexpr int kWidth = kCount<V>;
  static constexpr int kVectors = (kSize + kWidth - 1) / kWidth;
  V parts[kVectors];

  // Reads the first `count` values. The others are zero.
  TFAOT_INLINE void Read(const T* from, std::int64_t count) {
    Unrolled<0, kVectors>(TFAOT_EACH(v) {
      const std::int64_t left = count - v * kWidth;
      parts[v] = left >= kWidth ? LoadAs<V>(from + v * kWidth)
                 : left > 0     ? LoadSomeAs<V>(from + v * kWidth, left)
                                : V{};
    });
  }
  TFAOT_INLINE void Write(T* to, std::int64_t count) const {
    Unrolled<0, kVectors>(TFAOT_EACH(v) {
      const std::int64_t left = count - v * kWidth;
      if (left >= kWidth) {
        Store(to + v * kWidth, parts[v]);
      } else if (left > 0) {
        StoreSome(to + v * kWidth, parts[v], left);
      }
    });
  }
  // Returns value kAt in all lanes.
  template <int kAt>
  TFAOT_INLINE V Of() const {
    const V part = parts[kAt / kWidth];
    return Shuffled(part, part, Order<V, Only<kAt % kWidth>>());
  }
  template <int kAt>
  TFAOT_INLINE void Set(T value) {
    parts[kAt / kWidth][kAt % kWidth] = value;
  }
};

// Replaces the upper half of a positive definite matrix by its factor, and
// returns whether it is one, as Decompose does.
template <int kSize, typename T>
TFAOT_NOINLINE bool DecomposeSmall(std::int64_t size, T* a,
                                   std::int64_t stride) {
  using Row = SmallRow<T, kSize>;
  Row rows[kSize];
  Unrolled<0, kSize>(TFAOT_EACH(i) {
    if (i < size) {
      rows[i].Read(a + i * stride, size);
    } else {
      rows[i].Read(a, 0);
      rows[i].template Set<i>(1);
    }
  });
  bool is_positive = true;
  Unrolled<0, kSize>(TFAOT_EACH(k) {
    const T square = rows[k].parts[k / Row::kWidth][k % Row::kWidth];
    is_positive &= !(square <= 0);  // NaN and infinity go on, as in LAPACK
    const T root = std::sqrt(square);
    const auto inverse = All<typename Row::V>(1 / root);
    Unrolled<k / Row::kWidth, Row::kVectors>(
        TFAOT_EACH(v) { rows[k].parts[v] *= inverse; });
    rows[k].template Set<k>(root);
    Unrolled<k + 1, kSize>(TFAOT_EACH(i) {
      const auto factor = -rows[k].template Of<i>();
      Unrolled<i / Row::kWidth, Row::kVectors>(TFAOT_EACH(v) {
        rows[i].parts[v] =
            MultiplyAdd(factor, rows[k].parts[v], rows[i].parts[v]);
      });
    });
  });
  Unrolled<0, kSize>(TFAOT_EACH(i) {
    if (i < size) rows[i].Write(a + i * stride, size);
  });
  return is_positive;
}

// Solves a triangular system of kSmall rows or fewer, for all columns of x.
// Row i of `factors` has the negative factors of the solved rows, and
// `inverses` what its sum is multiplied by. Rows of x are `stride` values
// apart, and in the order in which they are solved.
template <typename T>
TFAOT_NOINLINE void SolveSmall(std::int64_t size, std::int64_t columns,
                               const T* factors, const T* inverses, T* x,
                               std::int64_t stride) {
  using V = Vector<T>;
  constexpr int kSize = kSmall;
  for (std::int64_t j = 0; j < columns; j += kLanes<T>) {
    const std::int64_t left = columns - j;
    V rows[kSize];
    Unrolled<0, kSize>(TFAOT_EACH(i) {
      if (i < size) {
        T* const row = x + i * stride + j;
        V sum = left >= kLanes<T> ? Load(row) : LoadSome(row, left);
        Unrolled<0, i>(TFAOT_EACH(k) {
          sum = MultiplyAdd(All<V>(factors[i * kSize + k]), rows[k], sum);
        });
        rows[i] = sum *= All<V>(inverses[i]);
        if (left >= kLanes<T>) {
          Store(row, sum);
        } else {
          StoreSome(row, sum, left);
        }
      }
    });
  }
}

// Right sides, up to which a small system's columns are its vectors.
constexpr std::int64_t kFewColumns = 4;

// Linear systems of up to kSize rows, of which each lane has one.
template <typename T, int kSize>
struct SmallSystem {
  using V = typename SmallRow<T, kSize>::V;
  static constexpr int kWidth = kCount<V>;
  static constexpr int kVectors = SmallRow<T, kSize>::kVectors;
  static constexpr std::int64_t kStride = kWidth * kVectors;

  // The numbers of the lanes from kWidth * part on.
  static TFAOT_INLINE V Lanes(int part) {
    V lanes;
    for (int i = 0; i < kWidth; ++i) {
      lanes[i] = static_cast<T>(kWidth * part + i);
    }
    return lanes;
  }
  template <int kStep>
  struct Across {
    static constexpr int At(int lane, int) { return lane ^ kStep; }
  };
  // Keeps the larger values, and the smaller numbers of equal ones.
  static TFAOT_INLINE void Keep(V value, V number, V& most, V& at) {
    const auto better = (value > most) | ((value == most) & (number < at));
    most = better ? value : most;
    at = better ? number : at;
  }
  template <int kStep>
  static TFAOT_INLINE void KeepAcross(V& most, V& at) {
    if constexpr (kStep > 0) {
      using Lane = Order<V, Across<kStep>>;
      Keep(Shuffled(most, most, Lane()), Shuffled(at, at, Lane()), most, at);
      KeepAcross<kStep / 2>(most, at);
    }
  }
  // Returns the first of the largest values from `first` on; NaN is small.
  static TFAOT_INLINE std::int64_t Largest(std::int64_t first,
                                           std::int64_t size, const T* column) {
    const V begin = All<V>(static_cast<T>(first));
    const V end = All<V>(static_cast<T>(size));
    V most = All<V>(T{-1}), at = begin;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const V lanes = Lanes(v), x = LoadAs<V>(column + v * kWidth);
      const V large = Max(x < V{} ? -x : x, V{});
      Keep((lanes >= begin) & (lanes < end) ? large : All<V>(T{-1}), lanes,
           most, at);
    }
    KeepAcross<kWidth / 2>(most, at);
    return static_cast<std::int64_t>(at[0]);
  }

  // Makes the matrix of the first `size` columns upper triangular. What is
  // below the diagonal doesn't matter then.
  static TFAOT_NOINLINE void Eliminate(std::int64_t size, std::int64_t count,
                                       T* w) {
    for (std::int64_t i = 0; i < size; ++i) {
      T* const column = w + i * kStride;
      const std::int64_t pivot = Largest(i, size, column);
      const V here = All<V>(static_cast<T>(i));
      const V there = All<V>(static_cast<T>(pivot));
      const auto swapped = [&](const T* x, int v) {
        const V lanes = Lanes(v), value = LoadAs<V>(x + v * kWidth);
        const V other = lanes == there ? All<V>(x[i]) : value;
        return lanes == here ? All<V>(x[pivot]) : other;
      };
      const T by = column[pivot];
      const bool has_inverse = HasInverse(by), divides = by != 0;
      const V inverse = All<V>(1 / by);
      V factors[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const V value = swapped(column, v);
        factors[v] = has_inverse ? value * inverse
                     : divides   ? value / All<V>(by)
                                 : value;
      }
      column[i] = by;
      for (std::int64_t c = i + 1; c < count; ++c) {
        T* const x = w + c * kStride;
        const V factor = All<V>(-x[pivot]);
        V values[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const V value = swapped(x, v);
          const V rest = MultiplyAdd(factor, factors[v], value);
          values[v] = Lanes(v) > here ? rest : value;
        }
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) Store(x + v * kWidth, values[v]);
      }
    }
  }

  // Solves the upper triangular system of the first `size` columns for the
  // others.
  static TFAOT_NOINLINE void Solve(std::int64_t size, std::int64_t count,
                                   T* w) {
    for (std::int64_t k = size - 1; k >= 0; --k) {
      const T* const column = w + k * kStride;
      const T by = column[k], inverse = 1 / by;
      const bool has_inverse = HasInverse(by);
      const V here = All<V>(static_cast<T>(k));
      for (std::int64_t c = size; c < count; ++c) {
        T* const x = w + c * kStride;
        const T solved = has_inverse ? x[k] * inverse : x[k] / by;
        V values[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const V lanes = Lanes(v), value = LoadAs<V>(x + v * kWidth);
          const V rest = MultiplyAdd(All<V>(-solved),
                                     LoadAs<V>(column + v * kWidth), value);
          values[v] = lanes < here    ? rest
                      : lanes == here ? All<V>(solved)
                                      : value;
        }
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) Store(x + v * kWidth, values[v]);
      }
    }
  }

  // Replaces b[size][columns] by the solution of a[size][size] * x = b.
  static void Run(std::int64_t size, std::int64_t columns, const T* a, T* b) {
    T w[(kSmall + kFewColumns) * kStride] = {};
    T* const right = w + size * kStride;
    Transpose(a, size, size, size, w, kStride);
    Transpose(b, columns, size, columns, right, kStride);
    Eliminate(size, size + columns, w);
    Solve(size, size + columns, w);
    Transpose(right, kStride, columns, size, b, columns);
  }
};

#undef TFAOT_EACH

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_LINEAR_SMALL_H_
