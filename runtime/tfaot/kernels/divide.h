// Eigenvalues and vectors of symmetric tridiagonal matrices, and singular ones
// of bidiagonal matrices, divided and conquered (Cuppen; Gu and Eisenstat): a
// matrix is two smaller ones and a matrix of rank one, so most of the work is
// in matrix products.
//
// Values are float64. Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_DIVIDE_H_
#define TFAOT_KERNELS_DIVIDE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tfaot/kernels/linear.h"

namespace tfaot::kernels::TFAOT_ISA {

// Squares of float64 values that are tiny would vanish.
inline double Length(double a, double b) {
  const double squares = a * a + b * b;
  return squares > 1e-280 ? std::sqrt(squares) : std::hypot(a, b);
}

// Rotations of neighbors among rows, collected.
template <typename R>
struct Rotations {
  // Sweeps that are collected.
  static constexpr int kSweeps = 16;
  struct Sweep {
    std::int64_t first;  // the row that it starts from
    std::int64_t step;   // 1 or -1
    std::int64_t count;
  };

  Matrix<R> rows;
  std::int64_t width;  // of rows; zero if nobody wants them
  R* turns;            // 2 * kSweeps * the number of rows
  std::int64_t length = 0;
  int sweeps = 0;
  Sweep sweep[kSweeps];

  // Begins a sweep. Add adds rotations of row r and r + step: the first becomes
  // c * first + s * second, and the second c * second - s * first.
  void Begin(std::int64_t first, std::int64_t step) {
    if (sweeps == kSweeps) Apply();
    sweep[sweeps++] = {first, step, 0};
  }
  TFAOT_INLINE void Add(double c, double s) {
    turns[length++] = static_cast<R>(c);
    turns[length++] = static_cast<R>(s);
    ++sweep[sweeps - 1].count;
  }

  void Apply() {
    if (width > 0) {
      constexpr int kWidth = kLanes<R>;
      std::int64_t j = 0;
      for (; j + 4 * kWidth <= width; j += 4 * kWidth) Strip<Vector<R>, 4>(j);
      for (; j + kWidth <= width; j += kWidth) Strip<Vector<R>, 1>(j);
      for (; j < width; ++j) Strip<R, 1>(j);
    }
    length = 0;
    sweeps = 0;
  }

  template <typename V, int kVectors>
  TFAOT_NOINLINE void Strip(std::int64_t column) {
    constexpr std::int64_t kStep = sizeof(V) / sizeof(R);
    const R* turn = turns;
    for (int number = 0; number < sweeps; ++number) {
      const Sweep& s = sweep[number];
      const std::int64_t step = s.step * rows.stride;
      R* at = rows.row(s.first) + column;
      V carried[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        carried[v] = LoadAs<V>(at + v * kStep);
      }
      for (std::int64_t i = 0; i < s.count; ++i, turn += 2, at += step) {
        const V cosine = All<V>(turn[0]), sine = All<V>(turn[1]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const V next = LoadAs<V>(at + step + v * kStep);
          Store(at + v * kStep, MultiplyAdd(cosine, carried[v], sine * next));
          // Only one operation waits for the rotation before.
          carried[v] = MultiplyAdd(-sine, carried[v], cosine * next);
        }
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) Store(at + v * kStep, carried[v]);
    }
  }
};

// Iterations for each value, after which there is no result. All values can
// share them: those of graded matrices appear at the other end first.
constexpr int kIterations = 60;

// The eigenvalues `d` of a tridiagonal matrix, given its diagonal d[size] and
// the values beside it, e[size - 1], and one more. Rotates rows. Returns
// whether it converged.
template <typename R>
bool Diagonalize(std::int64_t size, double* d, double* e,
                 Rotations<R>& rotations) {
  constexpr double kEpsilon = std::numeric_limits<R>::epsilon() / 2;
  constexpr double kTiny = std::numeric_limits<double>::min();
  e[size - 1] = 0;
  std::int64_t iterations = kIterations * size;
  for (std::int64_t l = 0; l < size; ++l) {
    for (;;) {
      std::int64_t m = l;
      for (; m + 1 < size; ++m) {
        if (e[m] * e[m] <=
            kEpsilon * kEpsilon * std::abs(d[m] * d[m + 1]) + kTiny) {
          e[m] = 0;
          break;
        }
      }
      if (m == l) break;
      if (iterations-- == 0) return false;
      double g = (d[l + 1] - d[l]) / (2 * e[l]);
      double r = std::sqrt(g * g + 1);
      g = d[m] - d[l] + e[l] / (g + std::copysign(r, g));
      double s = 1, c = 1, p = 0;
      rotations.Begin(m, -1);
      std::int64_t i = m - 1;
      for (; i >= l; --i) {
        const double f = s * e[i], b = c * e[i];
        r = Length(f, g);
        e[i + 1] = r;
        if (r == 0) {
          d[i + 1] -= p;
          e[m] = 0;
          break;
        }
        const double inverse = 1 / r;
        s = f * inverse;
        c = g * inverse;
        g = d[i + 1] - p;
        r = (d[i] - g) * s + 2 * c * b;
        p = s * r;
        d[i + 1] = g + p;
        g = c * r - b;
        rotations.Add(c, s);
      }
      if (r == 0 && i >= l) continue;
      d[l] -= p;
      e[l] = g;
      e[m] = 0;
    }
  }
  rotations.Apply();
  return true;
}

// The singular values d[size] of a bidiagonal matrix. Rotates rows, which are
// left and right singular vectors. Returns whether it converged.
template <typename R>
bool DiagonalizeBoth(std::int64_t size, double* d, double* e,
                     Rotations<R>& left, Rotations<R>& right) {
  // Rotations in float64 can't make values smaller than its unit.
  constexpr double kEpsilon =
      std::max(double{std::numeric_limits<R>::epsilon() / 4},
               std::numeric_limits<double>::epsilon());
  // `above[i]` is beside d[i].
  double* const above = e - 1;
  double norm = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    norm = std::max(norm, std::abs(d[i]) + (i > 0 ? std::abs(above[i]) : 0.0));
  }
  const double least = kEpsilon * norm;
  std::int64_t iterations = kIterations * size;
  for (std::int64_t k = size - 1; k >= 0; --k) {
    for (;;) {
      std::int64_t l = k;
      bool zero = false;
      for (; l > 0; --l) {
        if (std::abs(above[l]) <= least) break;
        if (std::abs(d[l - 1]) <= least) {
          zero = true;
          break;
        }
      }
      if (zero) {
        // The row of a zero on the diagonal becomes zero.
        double c = 0, s = 1;
        for (std::int64_t i = l; i <= k; ++i) {
          const double f = s * above[i];
          above[i] *= c;
          if (std::abs(f) <= least) break;
          const double h = Length(f, d[i]);
          c = d[i] / h;
          s = -f / h;
          d[i] = h;
          // Not neighbours, so one at a time.
          left.Begin(l - 1, i - l + 1);
          left.Add(c, s);
        }
      }
      if (l == k) break;
      if (iterations-- == 0) return false;
      double x = d[l];
      const double y_k = d[k - 1], z_k = d[k];
      double g = k - 1 > l ? above[k - 1] : 0;
      double h = above[k];
      double f =
          ((y_k - z_k) * (y_k + z_k) + (g - h) * (g + h)) / (2 * h * y_k);
      g = Length(f, 1);
      f = ((x - z_k) * (x + z_k) + h * (y_k / (f + std::copysign(g, f)) - h)) /
          x;
      double c = 1, s = 1;
      right.Begin(l, 1);
      left.Begin(l, 1);
      for (std::int64_t j = l; j < k; ++j) {
        g = above[j + 1];
        double y = d[j + 1];
        h = s * g;
        g = c * g;
        double z = Length(f, h);
        if (j > l) above[j] = z;
        c = z != 0 ? f / z : 1;
        s = z != 0 ? h / z : 0;
        f = x * c + g * s;
        g = g * c - x * s;
        h = y * s;
        y *= c;
        right.Add(c, s);
        z = Length(f, h);
        d[j] = z;
        c = z != 0 ? f / z : 1;
        s = z != 0 ? h / z : 0;
        left.Add(c, s);
        f = c * g + s * y;
        x = c * y - s * g;
      }
      if (l > 0) above[l] = 0;
      above[k] = f;
      d[k] = x;
    }
  }
  left.Apply();
  right.Apply();
  return true;
}

// The equation 1 + rho * sum of z[i]^2 / (d[i] - x) = 0, whose solutions lie
// between neighboring poles d, and behind the last one. With kSquares, poles
// are d[i]^2.
template <bool kSquares>
struct SecularEquation {
  std::int64_t count;
  const double* d;  // ascending
  const double* z;
  double rho;

  // The difference of two poles.
  template <typename V>
  static TFAOT_INLINE V Gap(V a, V b) {
    return kSquares ? (a - b) * (a + b) : a - b;
  }

  // What poles first .. last contribute at `origin` + x.
  struct Sum {
    double value;
    double slope;
  };
  TFAOT_INLINE Sum Add(std::int64_t first, std::int64_t last, double origin,
                       double x) const {
    using V = Vector<double>;
    constexpr std::int64_t kWidth = kLanes<double>;
    V value = {}, slope = {};
    std::int64_t i = first;
    for (; i + kWidth <= last; i += kWidth) {
      const V weight = Load(z + i);
      const V ratio = weight / (Gap(Load(d + i), All<V>(origin)) - All<V>(x));
      value = MultiplyAdd(weight, ratio, value);
      slope = MultiplyAdd(ratio, ratio, slope);
    }
    Sum sum = {0, 0};
    for (; i < last; ++i) {
      const double ratio = z[i] / (Gap(d[i], origin) - x);
      sum.value += z[i] * ratio;
      sum.slope += ratio * ratio;
    }
    for (std::int64_t lane = 0; lane < kWidth; ++lane) {
      sum.value += value[lane];
      sum.slope += slope[lane];
    }
    return {rho * sum.value, rho * sum.slope};
  }

  // Sets solution j: the sum of x and the pole that is nearer, of `origin`.
  // `tolerance` is how exact weights are.
  void Solve(std::int64_t j, double tolerance, double& origin,
             double& x) const {
    const bool last = j + 1 == count;
    double low = 0, high;
    origin = d[j];
    if (last) {
      high = 0;
      for (std::int64_t i = 0; i < count; ++i) high += z[i] * z[i];
      high *= rho;
      x = high / 2;
      if (count == 1) {
        x = high;
        return;
      }
    } else {
      const double half = Gap(d[j + 1], d[j]) / 2;
      const double middle = 1 + Add(0, j + 1, origin, half).value +
                            Add(j + 1, count, origin, half).value;
      high = half;
      if (middle < 0) {
        origin = d[j + 1];
        low = -half;
        high = 0;
      }
      x = (low + high) / 2;
    }
    // Both sums are approximated by a pole each (Li's middle way).
    const std::int64_t pole = last ? j - 1 : j;
    for (int iteration = 0; iteration < 100; ++iteration) {
      const Sum left = Add(0, pole + 1, origin, x);
      const Sum right = Add(pole + 1, count, origin, x);
      const double f = 1 + left.value + right.value;
      if (std::abs(f) <=
          tolerance * (1 + std::abs(left.value) + std::abs(right.value))) {
        return;
      }
      (f < 0 ? low : high) = x;
      const double one = Gap(d[pole], origin) - x;
      const double other = Gap(d[pole + 1], origin) - x;
      const double a =
          (one + other) * f - one * other * (left.slope + right.slope);
      const double b = one * other * f;
      double c = f - one * left.slope - other * right.slope;
      if (last && c < 0) c = -c;
      const double root = std::sqrt(std::abs(a * a - 4 * b * c));
      double step;
      if (last) {
        step = a >= 0 ? (a + root) / (2 * c) : 2 * b / (a - root);
      } else {
        step = a <= 0 ? (a - root) / (2 * c) : 2 * b / (a + root);
      }
      if (!(f * step < 0)) step = -f / (left.slope + right.slope);
      const double next = x + step;
      const double before = x;
      x = next > low && next < high ? next : (low + high) / 2;
      if (std::abs(x - before) <= 4e-16 * std::abs(x)) return;
    }
  }
};

template <typename R, bool kSingular = false>
struct Conquest {
  // Below, rotations take less time.
  static constexpr std::int64_t kBase = 32;
  static constexpr std::int64_t kDoubles = 8;  // for each value
  static constexpr std::int64_t kIndices = 3;
  using Equation = SecularEquation<kSingular>;

  Matrix<R> q;            // rows become vectors, or right singular vectors
  double* doubles;        // kDoubles * size
  std::int64_t* indices;  // kIndices * size
  Matrix<R> factors;      // size * size
  Matrix<R> halves;       // size * size
  Rotations<R>* rotations;
  ThreadPool* threads;
  Matrix<R> left = {};  // rows become left singular vectors
  Rotations<R>* left_rotations = nullptr;

  // Replaces d[size] by eigenvalues and the identity in q by vectors, both in
  // any order. Returns whether it converged.
  bool Divide(std::int64_t begin, std::int64_t size, double* d,
              double* e) const {
    if (size <= kBase) {
      rotations->rows = q.part(begin, begin);
      rotations->width = size;
      return Diagonalize(size, d + begin, e + begin, *rotations);
    }
    const std::int64_t half = size / 2;
    const double beside = e[begin + half - 1];
    d[begin + half - 1] -= std::abs(beside);
    d[begin + half] -= std::abs(beside);
    if (!Divide(begin, half, d, e) ||
        !Divide(begin + half, size - half, d, e)) {
      return false;
    }
    const double root = std::sqrt(0.5);
    Merge(begin, size, half, d, root, std::copysign(root, beside),
          2 * std::abs(beside), false);
    return true;
  }

  // The same for singular values, none of which is negative. With `zero`, the
  // last row is zero. Then the last value is zero, and the last left vector
  // stays as it is.
  bool DivideBoth(std::int64_t begin, std::int64_t size, bool zero, double* d,
                  double* e) const {
    if (size <= kBase) {
      const std::int64_t last = size - 1;
      rotations->rows = q.part(begin, begin);
      left_rotations->rows = left.part(begin, begin);
      rotations->width = left_rotations->width = size;
      d += begin, e += begin;
      if (zero) {
        // Rotations make the last column zero, too.
        double f = e[last - 1];
        for (std::int64_t i = last; i-- > 0 && f != 0;) {
          const double length = Length(d[i], f), c = d[i] / length;
          const double s = f / length;
          d[i] = length;
          rotations->Begin(i, last - i);
          rotations->Add(c, s);
          if (i == 0) break;
          f = -s * e[i - 1];
          e[i - 1] *= c;
        }
      }
      if (!DiagonalizeBoth(size - zero, d, e, *left_rotations, *rotations)) {
        return false;
      }
      for (std::int64_t i = 0; i < size; ++i) {
        if (!std::signbit(d[i])) continue;
        d[i] = -d[i];
        ScaleRow(size, R(-1), rotations->rows.row(i));
      }
      return true;
    }
    // Without its row `middle`, the matrix is two.
    const std::int64_t half = size / 2, middle = begin + half - 1;
    const double on = d[middle], above = e[middle];
    d[middle] = 0;
    if (!DivideBoth(begin, half, true, d, e) ||
        !DivideBoth(begin + half, size - half, zero, d, e)) {
      return false;
    }
    Merge(begin, size, half, d, on, above, 1, zero);
    return true;
  }

  // Joins two matrices beside each other on the diagonal, and a matrix of rank
  // one: rho times the square of a vector with two values, `low` and `high`, or
  // row half - 1 with these values. With `zero`, the last value is kept.
  void Merge(std::int64_t begin, std::int64_t size, std::int64_t half,
             double* d, double low, double high, double rho, bool zero) const {
    const Matrix<R> rows = q.part(begin, begin);
    d += begin;
    double* const z = doubles;
    std::int64_t* const order = indices;
    const std::int64_t middle = half - 1;
    double most = 0, weight = 0;
    std::int64_t sorted = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      z[i] = i < half ? low * static_cast<double>(rows.at(i, half - 1))
                      : high * static_cast<double>(rows.at(i, half));
      most = std::max(most, std::abs(d[i]));
      weight = std::max(weight, std::abs(z[i]));
      if (kSingular && (i == middle || (zero && i == size - 1))) continue;
      order[sorted++] = i;
    }
    if (kSingular) weight = std::max(std::abs(low), std::abs(high));
    std::sort(order, order + sorted,
              [=](std::int64_t a, std::int64_t b) { return d[a] < d[b]; });
    // Vectors with a small weight stay, and of two with nearly the same value,
    // one can be turned so that it has none. Rows of the others are marked by
    // where they aren't zero: left of `half`, everywhere, or right of it.
    const double tolerance =
        4 * static_cast<double>(std::numeric_limits<R>::epsilon()) *
        std::max(most, weight);
    std::int64_t* const kept = indices + size;  // in ascending order
    std::int64_t* const kind = indices + 2 * size;
    for (std::int64_t i = 0; i < size; ++i) kind[i] = i < half ? 0 : 2;
    std::int64_t count = 0;
    if constexpr (kSingular) {
      if (tolerance == 0) return;
      if (zero) {
        const double length = Length(z[middle], z[size - 1]);
        if (length > 0) {
          Turn(size, static_cast<R>(z[middle] / length),
               static_cast<R>(z[size - 1] / length), rows.row(middle),
               rows.row(size - 1));
        }
        z[middle] = length;
        kind[middle] = 1;
      }
      // The value zero of the row is the first pole.
      if (std::abs(z[middle]) < tolerance) z[middle] = tolerance;
      kept[count++] = middle;
    }
    for (std::int64_t i = 0; i < sorted; ++i) {
      const std::int64_t next = order[i];
      if (rho * std::abs(z[next]) <= tolerance) continue;
      if (kSingular) d[next] = std::max(d[next], tolerance / 2);
      if (count > kSingular) {
        const std::int64_t last = kept[count - 1];
        const double length = std::sqrt(z[last] * z[last] + z[next] * z[next]);
        const double c = z[next] / length, s = -z[last] / length;
        const double gap = d[next] - d[last];
        if (std::abs(gap * c * s) <= tolerance) {
          z[next] = length;
          z[last] = 0;
          if (kind[last] != kind[next]) kind[next] = 1;
          Turn(size, static_cast<R>(c), static_cast<R>(s), rows.row(last),
               rows.row(next));
          if constexpr (kSingular) {
            const Matrix<R> others = left.part(begin, begin);
            Turn(size, static_cast<R>(c), static_cast<R>(s), others.row(last),
                 others.row(next));
          }
          const double less = d[last], more = d[next];
          d[last] = less * c * c + more * s * s;
          d[next] = less * s * s + more * c * c;
          --count;
        }
      }
      kept[count++] = next;
    }
    if (count == 0) return;
    double* const poles = doubles + size;
    double* const weights = doubles + 2 * size;
    double* const origins = doubles + 3 * size;
    double* const offsets = doubles + 4 * size;
    double* const exact = doubles + 5 * size;
    double* const grouped_poles = doubles + 6 * size;
    double* const grouped = doubles + 7 * size;
    for (std::int64_t i = 0; i < count; ++i) {
      poles[i] = d[kept[i]];
      weights[i] = z[kept[i]];
    }
    const Equation equation = {count, poles, weights, rho};
    const double unit =
        static_cast<double>(std::numeric_limits<R>::epsilon()) / 16;
    for (std::int64_t j = 0; j < count; ++j) {
      equation.Solve(j, std::max(unit, 4e-16 * 4), origins[j], offsets[j]);
      if constexpr (kSingular) {
        offsets[j] /=
            std::sqrt(origins[j] * origins[j] + offsets[j]) + origins[j];
      }
    }
    FindWeights(count, poles, weights, origins, offsets, exact);
    // Rows are grouped by where they aren't zero. The others come last, with
    // their values.
    std::int64_t groups[4] = {};
    std::int64_t at = 0;
    for (std::int64_t group = 0; group < 3; ++group) {
      for (std::int64_t i = 0; i < count; ++i) {
        if (kind[kept[i]] != group) continue;
        grouped_poles[at] = poles[i];
        grouped[at] = exact[i];
        order[at++] = kept[i];
      }
      groups[group + 1] = at;
    }
    for (std::int64_t i = 0; i < count; ++i) kind[kept[i]] = 3;
    for (std::int64_t i = 0; i < size; ++i) {
      if (kind[i] == 3) continue;
      z[at] = d[i];
      order[at++] = i;
    }
    std::copy(z + count, z + size, d + count);
    for (std::int64_t j = 0; j < count; ++j) d[j] = origins[j] + offsets[j];
    const auto update = [&](Matrix<R> vectors, bool of_left) {
      for (std::int64_t i = 0; i < size; ++i) {
        std::copy_n(vectors.row(order[i]), size, halves.row(i));
      }
      for (std::int64_t i = count; i < size; ++i) {
        std::copy_n(halves.row(i), size, vectors.row(i));
      }
      for (std::int64_t j = 0; j < count; ++j) {
        FillFactors(count, grouped_poles, grouped, origins[j], offsets[j],
                    of_left, factors.row(j));
      }
      Multiply(count, half, 0, groups[2], vectors, 0);
      Multiply(count, size - half, groups[1], count, vectors, half);
    };
    update(rows, false);
    if constexpr (kSingular) update(left.part(begin, begin), true);
  }

  // The pole of a solution minus another, exact where they are close.
  template <typename V>
  static TFAOT_INLINE V Distance(double origin, double offset, V pole) {
    const V above = (All<V>(origin) - pole) + All<V>(offset);
    if (!kSingular) return above;
    return above * ((All<V>(origin) + pole) + All<V>(offset));
  }

  // Weights of which these solutions are the exact ones, up to a factor.
  static void FindWeights(std::int64_t count, const double* poles,
                          const double* weights, const double* origins,
                          const double* offsets, double* exact) {
    const auto find = [&](auto zero, std::int64_t i) {
      using V = decltype(zero);
      const V pole = LoadAs<V>(poles + i);
      V product = All<V>(1.0);
      for (std::int64_t j = 0; j < count; ++j) {
        const V gap = Equation::Gap(All<V>(poles[j]), pole);
        product = product * (Distance(origins[j], offsets[j], pole) /
                             (gap == V{} ? All<V>(1.0) : gap));
      }
      Store(exact + i, product);
    };
    std::int64_t i = 0;
    for (; i + kLanes<double> <= count; i += kLanes<double>) {
      find(Vector<double>{}, i);
    }
    for (; i < count; ++i) find(0.0, i);
    for (i = 0; i < count; ++i) {
      exact[i] = std::copysign(std::sqrt(std::abs(exact[i])), weights[i]);
    }
  }

  // The vector of a solution, of length 1.
  void FillFactors(std::int64_t count, const double* poles,
                   const double* weights, double origin, double offset,
                   bool of_left, R* to) const {
    double* const row = doubles;
    double squares = 0;
    const auto fill = [&](auto zero, std::int64_t i) {
      using V = decltype(zero);
      const V pole = LoadAs<V>(poles + i);
      V value = LoadAs<V>(weights + i) / -Distance(origin, offset, pole);
      // The row of the pole zero is the vector of rank one's.
      if (kSingular && of_left) {
        value = pole == V{} ? All<V>(-1.0) : pole * value;
      }
      Store(row + i, value);
      return value * value;
    };
    std::int64_t i = 0;
    Vector<double> sums = {};
    for (; i + kLanes<double> <= count; i += kLanes<double>) {
      sums = sums + fill(Vector<double>{}, i);
    }
    for (; i < count; ++i) squares += fill(0.0, i);
    for (int lane = 0; lane < kLanes<double>; ++lane) squares += sums[lane];
    const double by = 1 / std::sqrt(squares);
    for (i = 0; i < count; ++i) to[i] = static_cast<R>(row[i] * by);
  }

  // x becomes c * x + s * y, and y becomes c * y - s * x.
  static void Turn(std::int64_t count, R c, R s, R* x, R* y) {
    for (std::int64_t j = 0; j < count; ++j) {
      const R value = x[j];
      x[j] = MultiplyAdd(c, value, s * y[j]);
      y[j] = MultiplyAdd(c, y[j], -(s * value));
    }
  }

  // Sets columns of `rows` to the factors' columns first .. last times the
  // rows of these numbers.
  void Multiply(std::int64_t count, std::int64_t width, std::int64_t first,
                std::int64_t last, Matrix<R> rows, std::int64_t column) const {
    if (first == last) {
      for (std::int64_t i = 0; i < count; ++i) {
        std::fill_n(rows.row(i) + column, width, R(0));
      }
      return;
    }
    Products products = {1, count, width, last - first, false, false, 0, 0, 0};
    products.left_stride = factors.stride;
    products.right_stride = halves.stride;
    products.out_stride = rows.stride;
    RunProducts<R>(products, factors.row(0) + first, halves.row(first) + column,
                   rows.row(0) + column, threads);
  }
};

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_DIVIDE_H_
