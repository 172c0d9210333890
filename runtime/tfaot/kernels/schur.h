// Schur decompositions of complex matrices: a unitary matrix times a triangular
// one times the adjoint. Eigenvalues, eigenvectors, and square roots come from
// them. Real matrices stay real until the last step (francis.h).
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
#include <type_traits>

#include "tfaot/kernels/francis.h"
#include "tfaot/kernels/linear_scratch.h"
#include "tfaot/kernels/parallel.h"
#include "tfaot/kernels/spectral.h"

namespace tfaot::kernels::TFAOT_ISA {

// The root whose real part isn't negative.
template <typename R>
Complex<R> SquareRoot(Complex<R> a) {
  const R size = std::hypot(a.re, a.im);
  if (size == 0) return {0, a.im};
  const R half = size / 2 + std::abs(a.re) / 2;
  const R root = std::sqrt(half > 0 ? half : size);  // half of the least is 0
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
    constexpr R kLeast =
        std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
    const R most = std::max(Size(f), Size(g));
    if (Size(g) == 0 || most == 0) return;
    const Complex<R> p = {f.re / most, f.im / most};
    const Complex<R> q = {g.re / most, g.im / most};
    const R first = p.re * p.re + p.im * p.im;
    const R size = std::sqrt(first + q.re * q.re + q.im * q.im);
    // The square of an f that is as good as zero can be too small to be exact.
    const R root = first > kLeast ? std::sqrt(first) : R(0);
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

// Makes a matrix zero below the values beside its diagonal. Rows are columns of
// the matrix. Row i becomes a reflector, from value i + 1 on. `panel` has
// kReflectors rows.
template <typename T>
void ReduceToHessenberg(std::int64_t size, Matrix<T> a, T* tau, Matrix<T> panel,
                        const ReflectorWork<T>& work) {
  std::fill_n(tau, size, T{});
  for (std::int64_t begin = 0; begin + 2 < size; begin += kReflectors) {
    const std::int64_t end = std::min(begin + kReflectors, size - 2);
    // The reflectors together are I - v * t * adjoint of v. `panel` gets the
    // matrix times v * t.
    const Matrix<T> v = {work.v, ReflectorStride(size)};
    T t[kReflectors][kReflectors] = {}, sums[kReflectors];
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t i = k - begin, from = begin + 1, rest = size - k - 1;
      T* const column = a.row(k);
      // What the reflectors before do from the right, and from the left.
      AddRows(
          i, size, [&](std::int64_t p) { return -Conjugate(v.at(p, k)); },
          panel.data, panel.stride, column);
      Dots(i, size - from, v.data + from, v.stride, column + from,
           [&](std::int64_t p, T sum) { sums[p] = Conjugate(sum); });
      for (std::int64_t p = i; p-- > 0;) {
        T sum = {};
        for (std::int64_t q = 0; q <= p; ++q) {
          sum = sum + Conjugate(t[q][p]) * sums[q];
        }
        sums[p] = sum;
      }
      AddRows(
          i, size - from, [&](std::int64_t p) { return -sums[p]; },
          v.data + from, v.stride, column + from);
      tau[k] = Reflect(rest, column + k + 1);
      T* const x = v.row(i);
      T* const y = panel.row(i);
      std::fill_n(x, k + 1, T{});
      x[k + 1] = FromParts<T>(1, 0);
      std::copy_n(column + k + 2, rest - 1, x + k + 2);
      std::fill_n(y, size, T{});
      AddRows(
          rest, size, [&](std::int64_t j) { return x[k + 1 + j]; },
          a.row(k + 1), a.stride, y);
      Dots(i, rest, v.data + k + 1, v.stride, x + k + 1,
           [&](std::int64_t p, T sum) { sums[p] = Conjugate(sum); });
      AddRows(
          i, size, [&](std::int64_t p) { return -sums[p]; }, panel.data,
          panel.stride, y);
      ScaleRow(size, tau[k], y);
      for (std::int64_t p = 0; p < i; ++p) {
        T sum = {};
        for (std::int64_t q = p; q < i; ++q) sum = sum + t[p][q] * sums[q];
        t[p][i] = -(tau[k] * sum);
      }
      t[i][i] = tau[k];
    }
    const std::int64_t rest = size - end;
    SubtractProduct(rest, size, end - begin, v.part(0, end), true, panel, false,
                    a.part(end, 0), {work.scratch, work.threads});
    ApplyBlock(end - begin, size - begin - 1, a.part(begin, begin + 1),
               tau + begin, true, rest, a.part(end, begin + 1), work);
  }
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
  // A smaller one has no inverse.
  if (Size(divisor) < std::numeric_limits<R>::min()) return corner.at(1, 1);
  return corner.at(1, 1) - Scaled(Quotient(product, divisor), scale);
}

// Makes such a matrix triangular, or, if nobody wants its rows, only its
// diagonal right. Rotates rows of `turned`. Returns whether it converged.
template <typename R>
bool Triangularize(std::int64_t size, Matrix<Complex<R>> a,
                   Matrix<Complex<R>> turned) {
  using T = Complex<R>;
  const bool whole = turned.data != nullptr;
  std::int64_t left = kShifts * size;
  int iteration = 0;
  for (std::int64_t last = size - 1; last > 0;) {
    std::int64_t first = last;
    // As in FindRealSchur: rounding errors of equal values can go round
    // forever.
    const R least =
        iteration < kOtherShift ? R(0) : std::numeric_limits<R>::epsilon();
    while (first > 0 && !(Size(a.at(first, first - 1)) <= least) &&
           !Negligible(first, std::int64_t{0}, last, a)) {
      --first;
    }
    if (first > 0) a.at(first, first - 1) = {};
    if (first == last) {
      --last;
      iteration = 0;
      continue;
    }
    if (left-- == 0) return false;
    ++iteration;
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

// Sets `upper` to the Hessenberg form of a[size][size], scaled, and the columns
// of the unitary matrix that belongs to it, which are the rows of `turned`,
// unless it is null. Returns the scale. `columns` is memory.
template <typename U, typename T>
Real<T> FindHessenberg(std::int64_t size, const T* a, Matrix<U> upper,
                       Matrix<U> turned, Matrix<U> columns, Arena<U> arena) {
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t j = 0; j < size; ++j) {
      if constexpr (kIsComplex<U>) {
        columns.at(j, i) = a[i * size + j];
      } else {
        columns.at(j, i) = RealPart(a[i * size + j]);
      }
    }
  }
  const Real<T> scale = ScaleMatrix(size, size, columns);
  if (std::isnan(scale)) return scale;
  U* const tau = arena.Take(size);
  const std::int64_t stride = ReflectorStride(size);
  const Matrix<U> panel = {arena.Take(kReflectors * stride), stride};
  ReflectorWork<U> work = {};
  work.v = arena.Take(kReflectors * stride);
  work.factors = arena.Take(kReflectors * kReflectors);
  work.sums = arena.Take(2 * size * kReflectors);
  work.scratch = upper.data;
  ReduceToHessenberg(size, columns, tau, panel, work);
  if (turned.data != nullptr) {
    Identity(size, turned);
    Widen(size, size, turned);
    if (size > 2) {
      ApplyReflectors(size - 2, size, columns, 1, tau, true, size, turned,
                      work);
    }
  }
  for (std::int64_t i = 0; i < size; ++i) {
    U* const row = upper.row(i);
    std::fill_n(row, upper.stride, U{});
    for (std::int64_t j = std::max(i - 1, std::int64_t{0}); j < size; ++j) {
      row[j] = columns.at(j, i);
    }
  }
  return scale;
}

// Makes blocks of two rows on the diagonal of a real Schur form triangular.
// Conjugate eigenvalues are exactly that, and the one above comes first.
template <typename R>
void OpenBlocks(std::int64_t size, Matrix<Complex<R>> a,
                Matrix<Complex<R>> turned) {
  using T = Complex<R>;
  for (std::int64_t i = 0; i + 1 < size; ++i) {
    if (Size(a.at(i + 1, i)) == 0) continue;
    T value = Shift(i + 1, a);
    if (value.im > 0) value = Conjugate(value);
    const T other = value.im != 0 ? Conjugate(value)
                                  : a.at(i, i) + (a.at(i + 1, i + 1) - value);
    if (turned.data != nullptr) {
      // Both columns of the block minus the value are the other's vector. The
      // smaller one can be nothing but rounding errors.
      T f = a.at(i, i) - value, g = a.at(i + 1, i);
      const T p = a.at(i, i + 1), q = a.at(i + 1, i + 1) - value;
      if (Size(p) + Size(q) > Size(f) + Size(g)) f = p, g = q;
      Rotation<R> rotation(f, g);
      rotation.Rows(size - i, a.row(i) + i, a.row(i + 1) + i);
      rotation.Columns(0, i + 1, a, i);
      rotation.s = Conjugate(rotation.s);  // from the right
      rotation.Rows(size, turned.row(i), turned.row(i + 1));
    }
    a.at(i, i) = other;
    a.at(i + 1, i) = {};
    a.at(i + 1, i + 1) = value;
  }
}

// Decomposes a[size][size], scaled, into the scratch matrices `upper` and the
// columns of a unitary matrix, which are rows. Returns the scale, or NaN if
// there is no result. A matrix without imaginary parts stays real until its
// last step. `memory` is a matrix, too.
template <typename T>
Real<T> DecomposeSchur(std::int64_t size, const T* a, bool is_real,
                       Matrix<T> upper, Matrix<T> turned, Matrix<T> memory,
                       Arena<T> arena) {
  using R = Real<T>;
  const R nan = std::numeric_limits<R>::quiet_NaN();
  if (!is_real) {
    const R scale = FindHessenberg(size, a, upper, turned, memory, arena);
    return std::isnan(scale) || Triangularize(size, upper, turned) ? scale
                                                                   : nan;
  }
  const auto real = [](Matrix<T> x) {
    return Matrix<R>{x.data != nullptr ? Parts(x.data) : nullptr, x.stride};
  };
  const Matrix<R> h = real(upper), q = real(turned);
  R* const work = Parts(arena.next);
  const R scale = FindHessenberg(size, a, h, q, real(memory), Arena<R>{work});
  if (std::isnan(scale)) return scale;
  if (!FindRealSchur(Francis<R>{size, h, q, work})) return nan;
  Widen(size, size, upper);
  if (turned.data != nullptr) Widen(size, size, turned);
  OpenBlocks(size, upper, turned);
  return scale;
}

template <typename R>
bool IsReal(std::int64_t count, const Complex<R>* values) {
  return std::all_of(values, values + count,
                     [](Complex<R> value) { return value.im == 0; });
}

// Replaces a[size][size] by its principal square root.
template <typename T>
void RunRoot(std::int64_t size, T* a, Arena<T> arena) {
  using R = Real<T>;
  const std::int64_t stride = ReflectorStride(size);
  const Matrix<T> upper = {arena.Take(size * stride), stride};
  const Matrix<T> turned = {arena.Take(size * stride), stride};
  const Matrix<T> product = {arena.Take(size * stride), stride};
  const R scale = DecomposeSchur(size, a, IsReal(size * size, a), upper, turned,
                                 product, arena);
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
  const bool is_real = IsReal(size * size, a);
  const R scale =
      DecomposeSchur(size, a, is_real, upper, turned, result, arena);
  if (std::isnan(scale)) return FillNan(size * size + size, a);
  for (std::int64_t k = 0; k < size; ++k) {
    a[size * size + k] = Scaled(upper.at(k, k), 1 / scale);
  }
  if (!vectors) return;
  if (unitary) return Transpose(turned.data, stride, size, size, a, size);
  T* const x = arena.Take(size);  // the conjugate of what solves the triangle
  const R least = std::numeric_limits<R>::epsilon();
  for (std::int64_t k = 0; k < size; ++k) {
    const T value = a[size * size + k];
    T* const row = result.row(k);
    if (is_real && value.im < 0) {
      std::copy_n(result.row(k - 1), size, row);
      ConjugateRows(1, size, row, stride);
      continue;
    }
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
    std::fill_n(row, size, T{});
    AddRows(
        k + 1, size, [&](std::int64_t j) { return Conjugate(x[j]); },
        turned.data, stride, row);
    const std::int64_t most = Largest(size, row);
    const R inverse = 1 / Size(row[most]);
    for (std::int64_t j = 0; j < size; ++j) row[j] = Scaled(row[j], inverse);
    const T top = row[most];
    const R by = std::sqrt(top.re * top.re + top.im * top.im);
    ScaleRow(size, Scaled(Conjugate(top), 1 / by), row);
    row[most].im = 0;
    if (is_real && value.im == 0) {
      for (std::int64_t j = 0; j < size; ++j) row[j].im = 0;
    }
    const R length = std::sqrt(RealPart(Dot(size, row, row)));
    for (std::int64_t j = 0; j < size; ++j) row[j] = Scaled(row[j], 1 / length);
  }
  Transpose(result.data, stride, size, size, a, size);
}

// Runs such an operation. Errors of small float matrices would be several units
// in the last place of their largest value. For these, float64 takes 1 to 1.5
// times as long.
template <typename T>
void RunSchur(const Linear& linear, T* a, T* scratch) {
  const std::int64_t size = linear.rows;
  if constexpr (std::is_same_v<T, Complex<float>>) {
    if (size <= kWidened) {
      const std::int64_t count = LinearRow(linear);
      auto* const wide = reinterpret_cast<Complex<double>*>(scratch);
      for (std::int64_t i = 0; i < size * size; ++i) {
        wide[i] = {a[i].re, a[i].im};
      }
      RunSchur(linear, wide, wide + (count + 3) / 4 * 4);
      for (std::int64_t i = 0; i < count; ++i) {
        a[i] = {static_cast<float>(wide[i].re), static_cast<float>(wide[i].im)};
      }
      return;
    }
  }
  if constexpr (kIsComplex<T>) {
    if (linear.op == Linear::Op::kRoot) return RunRoot<T>(size, a, {scratch});
    RunGeneral<T>(size, linear.vectors, linear.others != 0, a, {scratch});
  }
}

// Runs some batch items of a call.
template <typename T>
void RunItems(const Linear& linear, Span items, T* scratch, T* data,
              ThreadPool* threads) {
  using Op = Linear::Op;
  const std::int64_t rows = linear.rows, columns = linear.columns;
  const std::int64_t others = linear.others;
  for (std::int64_t item = items.begin; item < items.end; ++item) {
    T* const a = data + item * LinearRow(linear);
    auto* const pivots = reinterpret_cast<std::int64_t*>(scratch);
    // Two values can be as small as one index.
    T* const behind = scratch + (2 * std::max(rows, columns) + 15) / 16 * 16;
    switch (linear.op) {
      case Op::kCholesky:
        RunCholesky<T>(rows, linear.lower, a, {scratch, threads});
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
      case Op::kGeneral:
        RunSchur<T>(linear, a, scratch);
        break;
    }
  }
}

// Runs one call for values of T. Shares batch items or, of one, its products.
template <typename T>
void RunLinearOf(const Linear& linear, T* scratch, T* data,
                 ThreadPool* threads) {
  const std::int64_t slots = LinearSlots(linear, sizeof(T));
  const Span all = {0, linear.batch};
  if (threads == nullptr || slots == 1) {
    return RunItems(linear, all, scratch, data, threads);
  }
  const std::int64_t step =
      LinearItemBytes(linear, sizeof(T)) / std::int64_t{sizeof(T)};
  Work work = {slots, 1, 1, 1, 1, 0};
  work.operations =
      static_cast<double>(linear.batch * linear.rows * linear.columns) *
      static_cast<double>(std::max(linear.columns, linear.others)) *
      (linear.op >= Linear::Op::kEigen ? 8 : 1) * (kIsComplex<T> ? 4 : 1);
  InParts(*threads, work, [&](const Part& part) {
    RunItems(linear, part.batch.Of(linear.batch, 1),
             scratch + part.batch.index * step, data,
             part.batch.count == 1 ? threads : nullptr);
  });
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_SCHUR_H_
