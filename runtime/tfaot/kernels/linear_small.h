// Real matrices of up to 16 rows, in registers. All loops are unrolled, and a
// matrix is filled up to the next of a few sizes.
//
// Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_LINEAR_SMALL_H_
#define TFAOT_KERNELS_LINEAR_SMALL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
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

#undef TFAOT_EACH

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_LINEAR_SMALL_H_
