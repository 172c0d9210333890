// The real Schur form of a Hessenberg matrix, by Francis's iteration with
// double shifts.
//
// A sweep works on windows along the diagonal. What a window's reflectors do to
// the columns right of it, to the rows above it, and to the vectors, is done
// when they all exist, in vectors that stay in registers.
//
// Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_FRANCIS_H_
#define TFAOT_KERNELS_FRANCIS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tfaot/kernels/linear.h"

namespace tfaot::kernels::TFAOT_ISA {

// Iterations for each value, after which there is no result. All values can
// share them.
constexpr int kShifts = 60;
// An iteration of these takes another shift, in case the usual ones go round.
constexpr int kOtherShift = 10;

// Whether the value beside the diagonal in row i is as good as zero (Ahues and
// Tisseur, as in LAPACK), for a matrix whose largest value is about one.
template <typename T>
bool Negligible(std::int64_t i, std::int64_t first, std::int64_t last,
                Matrix<T> a) {
  using R = Real<T>;
  constexpr R kUnit = std::numeric_limits<R>::epsilon();
  constexpr R kLeast = std::numeric_limits<R>::min() / kUnit;
  const R below = Size(a.at(i, i - 1));
  if (below <= kLeast) return true;
  const R one = Size(a.at(i, i)), other = Size(a.at(i - 1, i - 1));
  R scale = one + other;
  if (scale == 0) {
    if (i - 1 > first) scale += Size(a.at(i - 1, i - 2));
    if (i < last) scale += Size(a.at(i + 1, i));
  }
  if (below > kUnit * scale) return false;
  const R above = Size(a.at(i - 1, i));
  const R between = Size(a.at(i - 1, i - 1) - a.at(i, i));
  const R most = std::max(below, above), least = std::min(below, above);
  const R large = std::max(one, between), small = std::min(one, between);
  const R sum = large + most;
  return least * (most / sum) <=
         std::max(kLeast, kUnit * (small * (large / sum)));
}

// A reflector of three neighbors, of which the first value of v is one. A sweep
// ends with one of two, where `third` is zero.
template <typename R>
struct Reflector {
  R tau, second, third;

  // Makes y and z zero, and x their length, up to its sign.
  TFAOT_INLINE Reflector(R& x, R& y, R& z) : tau(0), second(0), third(0) {
    constexpr R kLeast =
        std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
    R scale = 1;
    R squares = MultiplyAdd(x, x, MultiplyAdd(y, y, z * z));
    if (squares < kLeast) {
      scale = std::max(std::abs(x), std::max(std::abs(y), std::abs(z)));
      if (scale == 0) return;
      x /= scale;
      y /= scale;
      z /= scale;
      squares = MultiplyAdd(x, x, MultiplyAdd(y, y, z * z));
    }
    if (y != 0 || z != 0) {
      const R beta = -std::copysign(std::sqrt(squares), x);
      const R inverse = 1 / (x - beta);
      tau = (beta - x) / beta;
      second = y * inverse;
      third = z * inverse;
      x = beta;
    }
    x *= scale;
    y = z = 0;
  }

  template <typename V>
  TFAOT_INLINE void Apply(V& x, V& y, V& z) const {
    const V sum = All<V>(tau) * MultiplyAdd(All<V>(third), z,
                                            MultiplyAdd(All<V>(second), y, x));
    x = x - sum;
    y = MultiplyAdd(All<V>(-second), sum, y);
    z = MultiplyAdd(All<V>(-third), sum, z);
  }
};

template <typename R>
struct Francis {
  // Vectors of a window's rows, and the reflectors of a window.
  static constexpr int kVectors = kLanes<R> >= 16 ? 2 : kLanes<R> >= 8 ? 3 : 6;
  static constexpr std::int64_t kSteps = kVectors * kLanes<R> - 3;
  // Rows above a window that are transposed at a time.
  static constexpr std::int64_t kRows = 64;
  static constexpr std::int64_t kMemory = 3 * kSteps + (kSteps + 2) * kRows;

  std::int64_t size;
  Matrix<R> a;       // Vectors can reach beyond the rows' values.
  Matrix<R> turned;  // Rows are columns of the orthogonal matrix, or null.
  R* memory;         // kMemory

  // Applies reflectors of rows 0, 1, ... to strips of columns from `begin` on.
  template <typename V, int kCount>
  TFAOT_NOINLINE static void Strip(std::int64_t steps, bool short_end,
                                   const Reflector<R>* reflectors, R* column,
                                   std::int64_t stride) {
    constexpr std::int64_t kStep = sizeof(V) / sizeof(R);
    V x[kCount], y[kCount];
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      x[v] = LoadAs<V>(column + v * kStep);
      y[v] = LoadAs<V>(column + stride + v * kStep);
    }
    const auto apply = [&](const Reflector<R>& reflector, bool whole) {
#pragma GCC unroll 4
      for (int v = 0; v < kCount; ++v) {
        V z = whole ? LoadAs<V>(column + 2 * stride + v * kStep) : V{};
        reflector.Apply(x[v], y[v], z);
        Store(column + v * kStep, x[v]);
        x[v] = y[v];
        y[v] = z;
      }
      column += stride;
    };
    const std::int64_t whole = short_end ? steps - 1 : steps;
    for (std::int64_t i = 0; i < whole; ++i) apply(reflectors[i], true);
    if (short_end) apply(reflectors[whole], false);
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      Store(column + v * kStep, x[v]);
      if (!short_end) Store(column + stride + v * kStep, y[v]);
    }
  }

  static void Rows(std::int64_t steps, bool short_end,
                   const Reflector<R>* reflectors, R* data, std::int64_t stride,
                   std::int64_t width) {
    constexpr std::int64_t kWidth = kLanes<R>;
    std::int64_t j = 0;
    for (; j + 4 * kWidth <= width; j += 4 * kWidth) {
      Strip<Vector<R>, 4>(steps, short_end, reflectors, data + j, stride);
    }
    for (; j + kWidth <= width; j += kWidth) {
      Strip<Vector<R>, 1>(steps, short_end, reflectors, data + j, stride);
    }
    for (; j < width; ++j) {
      Strip<R, 1>(steps, short_end, reflectors, data + j, stride);
    }
  }

  // Chases a bulge, which v begins in row `start`, down to row `last`. The
  // block that iterates begins with row `first`.
  void Sweep(std::int64_t start, std::int64_t first, std::int64_t last,
             const R* v) const {
    constexpr std::int64_t kWidth = kLanes<R>;
    const bool whole = turned.data != nullptr;
    Reflector<R>* const reflectors = reinterpret_cast<Reflector<R>*>(memory);
    for (std::int64_t begin = start; begin < last; begin += kSteps) {
      const std::int64_t steps = std::min(kSteps, last - begin);
      const bool short_end = begin + steps == last;
      const std::int64_t right = begin + kVectors * kWidth;
      for (std::int64_t k = begin; k < begin + steps; ++k) {
        const bool three = k + 2 <= last;
        R* const x = a.row(k);
        R* const y = a.row(k + 1);
        R* const z = three ? a.row(k + 2) : nullptr;
        R bulge[3] = {v[0], v[1], v[2]};
        if (k > start) {
          bulge[0] = x[k - 1];
          bulge[1] = y[k - 1];
          bulge[2] = three ? z[k - 1] : R(0);
        }
        const Reflector<R> reflector(bulge[0], bulge[1], bulge[2]);
        reflectors[k - begin] = reflector;
        for (int j = 0; j < kVectors; ++j) {
          const std::int64_t at = begin + j * kWidth;
          if (at + kWidth <= k) continue;
          if (at >= size) break;
          Vector<R> p = Load(x + at), q = Load(y + at), r = {};
          if (three) r = Load(z + at);
          reflector.Apply(p, q, r);
          Store(x + at, p);
          Store(y + at, q);
          if (three) Store(z + at, r);
        }
        if (k > start) {
          x[k - 1] = bulge[0];
          y[k - 1] = 0;
          if (three) z[k - 1] = 0;
        } else if (start > first) {
          x[k - 1] *= 1 - reflector.tau;
        }
        // The next reflector waits for the last rows.
        for (std::int64_t i = std::min(k + 3, last); i >= begin; --i) {
          R* const row = a.row(i) + k;
          R third = three ? row[2] : R(0);
          reflector.Apply(row[0], row[1], third);
          if (three) row[2] = third;
        }
      }
      const std::int64_t end = whole ? size : last + 1;
      if (right < end) {
        Rows(steps, short_end, reflectors, a.row(begin) + right, a.stride,
             end - right);
      }
      const std::int64_t columns = steps + (short_end ? 1 : 2);
      R* const block = memory + 3 * kSteps;
      for (std::int64_t row = whole ? 0 : first; row < begin; row += kRows) {
        const std::int64_t rows = std::min(kRows, begin - row);
        R* const above = a.row(row) + begin;
        Transpose(above, a.stride, rows, columns, block, kRows);
        Rows(steps, short_end, reflectors, block, kRows,
             (rows + kWidth - 1) / kWidth * kWidth);
        Transpose(block, kRows, columns, rows, above, a.stride);
      }
      if (whole) {
        Rows(steps, short_end, reflectors, turned.row(begin), turned.stride,
             size);
      }
    }
  }
};

// Makes a Hessenberg matrix triangular, but for blocks of two rows on its
// diagonal; if nobody wants the orthogonal matrix, only these are right.
// Returns whether it converged.
template <typename R>
bool FindRealSchur(const Francis<R>& f) {
  const Matrix<R> a = f.a;
  constexpr R kUnit = std::numeric_limits<R>::epsilon();
  std::int64_t left = kShifts * f.size;
  int iteration = 0;
  for (std::int64_t last = f.size - 1; last > 0;) {
    std::int64_t first = last;
    // Beside a diagonal that is nearly zero, the usual values can stay forever
    // what no other value notices.
    const R least = iteration < kOtherShift ? R(0) : kUnit;
    while (first > 0 && !(std::abs(a.at(first, first - 1)) <= least) &&
           !Negligible(first, std::int64_t{0}, last, a)) {
      --first;
    }
    if (first > 0) a.at(first, first - 1) = 0;
    if (first + 1 >= last) {
      last = first - 1;
      iteration = 0;
      continue;
    }
    if (left-- == 0) return false;
    ++iteration;
    // Both shifts are real, or they are conjugates: re[0] +- im.
    R h[4] = {a.at(last - 1, last - 1), a.at(last - 1, last),
              a.at(last, last - 1), a.at(last, last)};
    if (iteration % kOtherShift == 0) {
      const R sum = std::abs(h[2]) + std::abs(a.at(last - 1, last - 2));
      h[0] = h[3] = R(0.75) * sum + h[3];
      h[1] = R(-0.4375) * sum;
      h[2] = sum;
    }
    R re[2] = {}, im = 0;
    const R scale =
        std::abs(h[0]) + std::abs(h[1]) + std::abs(h[2]) + std::abs(h[3]);
    if (scale != 0) {
      for (R& value : h) value /= scale;
      const R half = (h[0] + h[3]) / 2;
      const R determinant = (h[0] - half) * (h[3] - half) - h[1] * h[2];
      const R root = std::sqrt(std::abs(determinant));
      if (determinant >= 0) {
        re[0] = re[1] = half * scale;
        im = root * scale;
      } else {
        const R one = half + root, other = half - root;
        re[0] = re[1] =
            scale *
            (std::abs(one - h[3]) <= std::abs(other - h[3]) ? one : other);
      }
    }
    // A sweep can begin where two neighbors below the diagonal are small.
    R v[3];
    std::int64_t begin = last - 2;
    for (;; --begin) {
      const R one = a.at(begin, begin), next = a.at(begin + 1, begin + 1);
      const R below = a.at(begin + 1, begin);
      const R size = std::abs(one - re[1]) + std::abs(im) + std::abs(below);
      const R ratio = below / size;
      v[0] = ratio * a.at(begin, begin + 1) +
             (one - re[0]) * ((one - re[1]) / size) + im * (im / size);
      v[1] = ratio * (one + next - re[0] - re[1]);
      v[2] = ratio * a.at(begin + 2, begin + 1);
      const R sum = std::abs(v[0]) + std::abs(v[1]) + std::abs(v[2]);
      if (sum > 0) {
        for (R& value : v) value /= sum;
      }
      if (begin == first) break;
      const R before = a.at(begin - 1, begin - 1);
      if (std::abs(a.at(begin, begin - 1)) *
              (std::abs(v[1]) + std::abs(v[2])) <=
          kUnit * std::abs(v[0]) *
              (std::abs(before) + std::abs(one) + std::abs(next))) {
        break;
      }
    }
    f.Sweep(begin, first, last, v);
  }
  return true;
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_FRANCIS_H_
