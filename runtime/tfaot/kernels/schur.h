// Schur decompositions of complex matrices: a unitary matrix times a triangular
// one times the adjoint. Eigenvalues, eigenvectors, and square roots come from
// them. Real matrices are taken as complex ones.
//
// Reflectors make a matrix zero below the values beside its diagonal. Rotations
// with shifts make these zero, too.
//
// Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_SCHUR_H_
#define TFAOT_KERNELS_SCHUR_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tfaot/kernels/spectral.h"

namespace tfaot::kernels::TFAOT_ISA {

// Iterations for each value, after which there is no result.
constexpr int kShifts = 60;
// An iteration of these takes another shift, in case the usual ones go round.
constexpr int kOtherShift = 10;

// The root whose real part isn't negative.
template <typename R>
Complex<R> SquareRoot(Complex<R> a) {
  const R size = std::hypot(a.re, a.im);
  if (size == 0) return {0, a.im};
  const R root = std::sqrt(size / 2 + std::abs(a.re) / 2);
  const R other = std::abs(a.im) / (2 * root);
  if (a.re >= 0) return {root, std::copysign(other, a.im)};
  return {other, std::copysign(root, a.im)};
}

// The first becomes c * first + s * second, and the second c * second -
// (conjugate of s) * first.
template <typename R>
struct Rotation {
  // Makes g zero, and f their size.
  TFAOT_INLINE Rotation(Complex<R>& f, Complex<R>& g) : c(1), s() {
    const R most = std::max(Size(f), Size(g));
    if (Size(g) == 0 || most == 0) return;
    const Complex<R> p = {f.re / most, f.im / most};
    const Complex<R> q = {g.re / most, g.im / most};
    const R first = p.re * p.re + p.im * p.im;
    const R size = std::sqrt(first + q.re * q.re + q.im * q.im);
    const R root = std::sqrt(first);
    const Complex<R> phase =
        root > 0 ? Complex<R>{p.re / root, p.im / root} : Complex<R>{1, 0};
    c = root / size;
    s = Scaled(phase * Conjugate(q), 1 / size);
    f = Scaled(phase, size * most);
    g = {};
  }

  void Rows(std::int64_t count, Complex<R>* x, Complex<R>* y) const {
    using T = Complex<R>;
    constexpr int kWidth = kLanes<R>;
    const Factor<T> right(s), left(-Conjugate(s));
    const Vector<R> cosine = All<Vector<R>>(c);
    R *p = Parts(x), *q = Parts(y);
    std::int64_t j = 0;
    for (; j + kWidth <= 2 * count; j += kWidth) {
      const Vector<R> a = Load(p + j), b = Load(q + j);
      Store(p + j, right.TimesPlus(b, cosine * a));
      Store(q + j, left.TimesPlus(a, cosine * b));
    }
    if (const std::int64_t rest = 2 * count - j; rest > 0) {
      const Vector<R> a = LoadSome(p + j, rest), b = LoadSome(q + j, rest);
      StoreSome(p + j, right.TimesPlus(b, cosine * a), rest);
      StoreSome(q + j, left.TimesPlus(a, cosine * b), rest);
    }
  }

  // The adjoint, from the right, of two columns.
  void Columns(std::int64_t first, std::int64_t last, Matrix<Complex<R>> a,
               std::int64_t column) const {
    for (std::int64_t i = first; i <= last; ++i) {
      Complex<R>* const x = a.row(i) + column;
      const Complex<R> p = x[0], q = x[1];
      x[0] = Scaled(p, c) + Conjugate(s) * q;
      x[1] = Scaled(q, c) - s * p;
    }
  }

  R c;
  Complex<R> s;
};

// Makes a matrix zero below the values beside its diagonal. Multiplies rows,
// which are columns of `turned`, by the same reflectors; without `data`, there
// are none.
template <typename T>
void ReduceToHessenberg(std::int64_t size, Matrix<T> a, Matrix<T> turned, T* v,
                        T* sums) {
  for (std::int64_t k = 0; k + 2 < size; ++k) {
    const std::int64_t rest = size - k - 1;
    for (std::int64_t i = 0; i < rest; ++i) v[i] = a.at(k + 1 + i, k);
    const T tau = Reflect(rest, v);
    a.at(k + 1, k) = v[0];
    for (std::int64_t i = 1; i < rest; ++i) a.at(k + 1 + i, k) = {};
    v[0] = FromParts<T>(1, 0);
    // From the left, its adjoint.
    std::fill_n(sums, rest, T{});
    AddRows(
        rest, rest, [&](std::int64_t i) { return Conjugate(v[i]); },
        a.row(k + 1) + k + 1, a.stride, sums);
    for (std::int64_t i = 0; i < rest; ++i) {
      AddRow(rest, -(Conjugate(tau) * v[i]), sums, a.row(k + 1 + i) + k + 1);
    }
    if (turned.data != nullptr) {
      // Rows are columns, so that what comes from the right comes from the
      // left.
      std::fill_n(sums, size, T{});
      AddRows(
          rest, size, [&](std::int64_t i) { return v[i]; }, turned.row(k + 1),
          turned.stride, sums);
      for (std::int64_t i = 0; i < rest; ++i) {
        AddRow(size, -(tau * Conjugate(v[i])), sums, turned.row(k + 1 + i));
      }
    }
    // From the right.
    ConjugateRows(1, rest, v, rest);
    Dots(size, rest, a.data + k + 1, a.stride, v, [&](std::int64_t i, T sum) {
      AddRow(rest, -(tau * sum), v, a.row(i) + k + 1);
    });
  }
}

// Whether the value beside the diagonal in row i is as good as zero (Ahues and
// Tisseur, as in LAPACK), for a matrix whose largest value is about one.
template <typename R>
bool Negligible(std::int64_t i, std::int64_t first, std::int64_t last,
                Matrix<Complex<R>> a) {
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

// The eigenvalue of the last two rows that is closer to the last value.
template <typename R>
Complex<R> Shift(std::int64_t last, Matrix<Complex<R>> a) {
  const Matrix<Complex<R>> corner = a.part(last - 1, last - 1);
  R scale = 0;
  for (int i = 0; i < 4; ++i) scale += Size(corner.at(i / 2, i % 2));
  const auto at = [&](int i, int j) {
    return Complex<R>{corner.at(i, j).re / scale, corner.at(i, j).im / scale};
  };
  const Complex<R> product = at(0, 1) * at(1, 0);
  const Complex<R> half = Scaled(at(0, 0) - at(1, 1), R(0.5));
  const Complex<R> root = SquareRoot(half * half + product);
  // Of both quotients, the one with the larger divisor is the smaller.
  const Complex<R> sum = half + root, difference = half - root;
  const Complex<R> divisor = Size(sum) > Size(difference) ? sum : difference;
  if (Size(divisor) == 0) return corner.at(1, 1);
  return corner.at(1, 1) - Scaled(Quotient(product, divisor), scale);
}

// Makes such a matrix triangular, or, if nobody wants its rows, only its
// diagonal right. Rotates rows of `turned`. Returns whether it converged.
template <typename R>
bool Triangularize(std::int64_t size, Matrix<Complex<R>> a,
                   Matrix<Complex<R>> turned) {
  using T = Complex<R>;
  const bool whole = turned.data != nullptr;
  int iteration = 0;
  for (std::int64_t last = size - 1; last > 0;) {
    std::int64_t first = last;
    while (first > 0 && !Negligible(first, 0, last, a)) --first;
    if (first > 0) a.at(first, first - 1) = {};
    if (first == last) {
      --last;
      iteration = 0;
      continue;
    }
    if (++iteration > kShifts) return false;
    T shift = Shift(last, a);
    if (iteration % kOtherShift == 0) {
      shift = {Size(a.at(last, last - 1)) +
                   (last > 1 ? Size(a.at(last - 1, last - 2)) : R(0)),
               0};
    }
    T f = a.at(first, first) - shift, g = a.at(first + 1, first);
    for (std::int64_t i = first; i < last; ++i) {
      Rotation<R> rotation =
          i == first ? Rotation<R>(f, g)
                     : Rotation<R>(a.at(i, i - 1), a.at(i + 1, i - 1));
      const std::int64_t end = whole ? size : last + 1;
      rotation.Rows(end - i, a.row(i) + i, a.row(i + 1) + i);
      rotation.Columns(whole ? 0 : first, std::min(i + 2, last), a, i);
      rotation.s = Conjugate(rotation.s);  // from the right
      if (whole) rotation.Rows(size, turned.row(i), turned.row(i + 1));
    }
  }
  return true;
}

// Decomposes a[size][size], scaled, into the scratch matrices `upper` and the
// columns of a unitary matrix, which are rows. Returns the scale, or NaN if
// there is no result.
template <typename T>
Real<T> DecomposeSchur(std::int64_t size, const T* a, Matrix<T> upper,
                       Matrix<T> turned, Arena<T>& arena) {
  for (std::int64_t i = 0; i < size; ++i) {
    std::copy_n(a + i * size, size, upper.row(i));
  }
  const Real<T> scale = ScaleMatrix(size, size, upper);
  if (std::isnan(scale)) return scale;
  if (turned.data != nullptr) {
    Identity(size, turned);
    Widen(size, size, turned);
  }
  T* const v = arena.Take(size);
  T* const sums = arena.Take(size);
  ReduceToHessenberg(size, upper, turned, v, sums);
  if (!Triangularize(size, upper, turned)) {
    return std::numeric_limits<Real<T>>::quiet_NaN();
  }
  return scale;
}

// Replaces a[size][size] by its principal square root.
template <typename T>
void RunRoot(std::int64_t size, T* a, Arena<T> arena) {
  using R = Real<T>;
  const std::int64_t stride = ReflectorStride(size);
  const Matrix<T> upper = {arena.Take(size * stride), stride};
  const Matrix<T> turned = {arena.Take(size * stride), stride};
  const R scale = DecomposeSchur(size, a, upper, turned, arena);
  if (std::isnan(scale)) return FillNan(size * size, a);
  T* const column = arena.Take(size);
  for (std::int64_t j = 0; j < size; ++j) {
    column[j] = Conjugate(upper.at(j, j) = SquareRoot(upper.at(j, j)));
    for (std::int64_t i = j; i-- > 0;) {
      const T rest =
          upper.at(i, j) - Dot(j - i - 1, upper.row(i) + i + 1, column + i + 1);
      const T sum = upper.at(i, i) + upper.at(j, j);
      upper.at(i, j) =
          Size(rest) == 0 && Size(sum) == 0 ? T{} : Quotient(rest, sum);
      column[i] = Conjugate(upper.at(i, j));
    }
  }
  // The unitary matrix times the root times the adjoint.
  ConjugateRows(size, size, turned.data, stride);
  const Matrix<T> product = {arena.Take(size * stride), stride};
  const R back = 1 / std::sqrt(scale);
  for (std::int64_t i = 0; i < size; ++i) {
    std::fill_n(product.row(i), size, T{});
    AddRows(
        size - i, size,
        [&](std::int64_t k) { return Scaled(upper.at(i, i + k), back); },
        turned.row(i), stride, product.row(i));
  }
  for (std::int64_t i = 0; i < size; ++i) {
    T* const row = a + i * size;
    std::fill_n(row, size, T{});
    AddRows(
        size, size, [&](std::int64_t k) { return Conjugate(turned.at(k, i)); },
        product.data, stride, row);
  }
}

// Replaces a[size][size] by eigenvectors of length 1 whose largest value is
// real and positive, or by the unitary matrix of its Schur decomposition, and
// writes values after them.
template <typename T>
void RunGeneral(std::int64_t size, bool vectors, bool unitary, T* a,
                Arena<T> arena) {
  using R = Real<T>;
  const std::int64_t stride = ReflectorStride(size);
  const Matrix<T> upper = {arena.Take(size * stride), stride};
  Matrix<T> turned = {arena.Take(size * stride), stride};
  const Matrix<T> result = {arena.Take(size * stride), stride};
  if (!vectors) turned.data = nullptr;
  const R scale = DecomposeSchur(size, a, upper, turned, arena);
  if (std::isnan(scale)) return FillNan(size * size + size, a);
  for (std::int64_t k = 0; k < size; ++k) {
    a[size * size + k] = Scaled(upper.at(k, k), 1 / scale);
  }
  if (!vectors) return;
  if (unitary) return Transpose(turned.data, stride, size, size, a, size);
  T* const x = arena.Take(size);  // the conjugate of what solves the triangle
  const R least = std::numeric_limits<R>::epsilon();
  for (std::int64_t k = 0; k < size; ++k) {
    x[k] = FromParts<T>(1, 0);
    for (std::int64_t i = k; i-- > 0;) {
      const T sum = Dot(k - i, upper.row(i) + i + 1, x + i + 1);
      T difference = upper.at(k, k) - upper.at(i, i);
      if (Size(difference) < least) difference = FromParts<T>(least, 0);
      x[i] = Conjugate(Quotient(sum, difference));
      // Without a full set of vectors, these grow with each division.
      if (Size(x[i]) > 1 / least) {
        ScaleRow(k - i + 1, FromParts<T>(1 / Size(x[i]), 0), x + i);
      }
    }
    T* const row = result.row(k);
    std::fill_n(row, size, T{});
    AddRows(
        k + 1, size, [&](std::int64_t j) { return Conjugate(x[j]); },
        turned.data, stride, row);
    const std::int64_t most = Largest(size, row);
    const R inverse = 1 / Size(row[most]);
    for (std::int64_t j = 0; j < size; ++j) row[j] = Scaled(row[j], inverse);
    const R length = std::sqrt(RealPart(Dot(size, row, row)));
    const T top = row[most];
    const R by = std::sqrt(top.re * top.re + top.im * top.im);
    ScaleRow(size, Scaled(Conjugate(top), 1 / (by * length)), row);
    row[most].im = 0;
  }
  Transpose(result.data, stride, size, size, a, size);
}

// Runs one call for values of T.
template <typename T>
void RunLinearOf(const Linear& linear, T* scratch, T* data,
                 ThreadPool* threads) {
  using Op = Linear::Op;
  const std::int64_t rows = linear.rows, columns = linear.columns;
  const std::int64_t others = linear.others;
  for (std::int64_t item = 0; item < linear.batch; ++item) {
    T* const a = data + item * LinearRow(linear);
    auto* const pivots = reinterpret_cast<std::int64_t*>(scratch);
    // Two values can be as small as one index.
    T* const behind = scratch + (2 * std::max(rows, columns) + 15) / 16 * 16;
    switch (linear.op) {
      case Op::kCholesky:
        RunCholesky<T>(rows, a, {scratch, threads});
        break;
      case Op::kTriangle:
        SolveTriangle<T>(rows, others,
                         {{a, rows}, linear.lower, linear.adjoint, linear.unit},
                         {a + rows * rows, others}, {scratch, threads});
        break;
      case Op::kLu:
        RunLu<T>(rows, columns, a, pivots, {behind, threads});
        break;
      case Op::kSolve:
        RunSolve<T>(rows, others, a, pivots, {behind, threads});
        break;
      case Op::kReflectors:
        RunReflectors<T>(rows, columns, a, {scratch}, threads);
        break;
      case Op::kOrthogonal:
        RunOrthogonal<T>(rows, columns, others, a, {scratch}, threads);
        break;
      case Op::kEigen:
        RunEigen<T>(rows, linear.vectors, a, {scratch}, threads);
        break;
      case Op::kSingular:
        RunSingular<T>(rows, columns, others != 0, linear.vectors, a, {scratch},
                       threads);
        break;
      case Op::kRoot:
        if constexpr (kIsComplex<T>) RunRoot<T>(rows, a, {scratch});
        break;
      case Op::kGeneral:
        if constexpr (kIsComplex<T>) {
          RunGeneral<T>(rows, linear.vectors, others != 0, a, {scratch});
        }
        break;
    }
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_SCHUR_H_
