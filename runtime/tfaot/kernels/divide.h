// Eigenvalues and vectors of symmetric tridiagonal matrices, divided and
// conquered (Cuppen; Gu and Eisenstat): a matrix is two smaller ones and a
// matrix of rank one, so most of the work is in matrix products.
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

// The equation 1 + rho * sum of z[i]^2 / (d[i] - x) = 0, whose solutions lie
// between neighboring poles d, and behind the last one.
struct SecularEquation {
  std::int64_t count;
  const double* d;  // ascending
  const double* z;
  double rho;

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
      const V ratio = weight / ((Load(d + i) - All<V>(origin)) - All<V>(x));
      value = MultiplyAdd(weight, ratio, value);
      slope = MultiplyAdd(ratio, ratio, slope);
    }
    Sum sum = {0, 0};
    for (; i < last; ++i) {
      const double ratio = z[i] / ((d[i] - origin) - x);
      sum.value += z[i] * ratio;
      sum.slope += ratio * ratio;
    }
    for (std::int64_t lane = 0; lane < kWidth; ++lane) {
      sum.value += value[lane];
      sum.slope += slope[lane];
    }
    return {rho * sum.value, rho * sum.slope};
  }

  // Sets solution j: the sum of `origin`, the pole that is nearer, and x.
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
      const double half = (d[j + 1] - d[j]) / 2;
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
      const double one = (d[pole] - origin) - x;
      const double other = (d[pole + 1] - origin) - x;
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

template <typename R>
struct Conquest {
  // Below, rotations take less time.
  static constexpr std::int64_t kBase = 32;
  static constexpr std::int64_t kDoubles = 8;  // for each value
  static constexpr std::int64_t kIndices = 3;

  Matrix<R> q;            // rows become vectors
  double* doubles;        // kDoubles * size
  std::int64_t* indices;  // kIndices * size
  Matrix<R> factors;      // size * size
  Matrix<R> halves;       // size * size
  Rotations<R>* rotations;
  ThreadPool* threads;

  // Replaces d[size] by values and the identity in q by vectors, both in any
  // order. Returns whether it converged.
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
    Merge(size, half, d + begin, beside, q.part(begin, begin));
    return true;
  }

  // Joins two matrices beside each other on the diagonal.
  void Merge(std::int64_t size, std::int64_t half, double* d, double beside,
             Matrix<R> rows) const {
    double* const z = doubles;
    std::int64_t* const order = indices;
    double most = 0, weight = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const double value = i < half ? rows.at(i, half - 1) : rows.at(i, half);
      z[i] = std::sqrt(0.5) * (i >= half && beside < 0 ? -value : value);
      most = std::max(most, std::abs(d[i]));
      weight = std::max(weight, std::abs(z[i]));
      order[i] = i;
    }
    const double rho = 2 * std::abs(beside);
    std::sort(order, order + size,
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
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int64_t next = order[i];
      if (rho * std::abs(z[next]) <= tolerance) continue;
      if (count > 0) {
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
          const double low = d[last], high = d[next];
          d[last] = low * c * c + high * s * s;
          d[next] = low * s * s + high * c * c;
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
    const SecularEquation equation = {count, poles, weights, rho};
    const double unit =
        static_cast<double>(std::numeric_limits<R>::epsilon()) / 16;
    for (std::int64_t j = 0; j < count; ++j) {
      equation.Solve(j, std::max(unit, 4e-16 * 4), origins[j], offsets[j]);
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
        std::copy_n(rows.row(kept[i]), size, halves.row(at++));
      }
      groups[group + 1] = at;
    }
    for (std::int64_t i = 0; i < count; ++i) kind[kept[i]] = 3;
    for (std::int64_t i = 0; i < size; ++i) {
      if (kind[i] == 3) continue;
      std::copy_n(rows.row(i), size, halves.row(at));
      z[at++] = d[i];
    }
    for (std::int64_t i = count; i < size; ++i) {
      std::copy_n(halves.row(i), size, rows.row(i));
      d[i] = z[i];
    }
    for (std::int64_t j = 0; j < count; ++j) {
      d[j] = origins[j] + offsets[j];
      FillFactors(count, grouped_poles, grouped, origins[j], offsets[j],
                  factors.row(j));
    }
    Multiply(count, half, 0, groups[2], rows, 0);
    Multiply(count, size - half, groups[1], count, rows, half);
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
        const V above = (All<V>(origins[j]) - pole) + All<V>(offsets[j]);
        const V gap = All<V>(poles[j]) - pole;
        product = product * (above / (gap == V{} ? All<V>(1.0) : gap));
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
                   R* to) const {
    double* const row = doubles;
    double squares = 0;
    std::int64_t i = 0;
    using V = Vector<double>;
    V sums = {};
    for (; i + kLanes<double> <= count; i += kLanes<double>) {
      const V value = Load(weights + i) /
                      ((Load(poles + i) - All<V>(origin)) - All<V>(offset));
      Store(row + i, value);
      sums = MultiplyAdd(value, value, sums);
    }
    for (; i < count; ++i) {
      row[i] = weights[i] / ((poles[i] - origin) - offset);
      squares += row[i] * row[i];
    }
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
