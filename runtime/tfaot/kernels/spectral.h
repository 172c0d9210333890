// Eigenvalues of Hermitian matrices, and singular values.
//
// Reflectors make a matrix tridiagonal or bidiagonal. Rotations make it
// diagonal, in float64. They are collected, and then applied to strips of the
// vectors that stay in the first-level cache. Last, the reflectors are applied
// to the vectors.
//
// Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_SPECTRAL_H_
#define TFAOT_KERNELS_SPECTRAL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tfaot/kernels/divide.h"
#include "tfaot/kernels/linear.h"

namespace tfaot::kernels::TFAOT_ISA {

// Makes a Hermitian matrix tridiagonal. Rows are columns of the matrix. Row i
// becomes a reflector, from value i + 1 on.
template <typename T>
void Tridiagonalize(std::int64_t size, Matrix<T> a, double* d, double* e,
                    T* tau, T* memory, const Context<T>& context) {
  const std::int64_t stride = ReflectorStride(size);
  const Matrix<T> v = {memory, stride}, w = {memory + 32 * stride, stride};
  for (std::int64_t begin = 0; begin + 1 < size; begin += kReflectors) {
    const std::int64_t end = std::min(begin + kReflectors, size - 1);
    for (std::int64_t k = begin; k < end; ++k) {
      const std::int64_t done = k - begin, rest = size - k - 1;
      // Column k, as the reflectors before have left it.
      T* const column = a.row(k);
      AddRows(
          done, size - k,
          [&](std::int64_t p) { return -Conjugate(w.at(p, k)); }, v.data + k,
          stride, column + k);
      AddRows(
          done, size - k,
          [&](std::int64_t p) { return -Conjugate(v.at(p, k)); }, w.data + k,
          stride, column + k);
      d[k] = static_cast<double>(RealPart(column[k]));
      tau[k] = Reflect(rest, column + k + 1);
      e[k] = static_cast<double>(RealPart(column[k + 1]));
      T* const x = v.row(done);
      T* const y = w.row(done);
      std::fill_n(x, k + 1, T{});
      std::copy_n(column + k + 1, rest, x + k + 1);
      x[k + 1] = FromParts<T>(1, 0);
      std::fill_n(y, size, T{});
      // y = tau * (the matrix times x) - half of what is along x.
      AddRows(
          rest, rest, [&](std::int64_t j) { return x[k + 1 + j]; },
          a.row(k + 1) + k + 1, a.stride, y + k + 1);
      T along[2][kReflectors];
      Dots(done, rest, w.data + k + 1, stride, x + k + 1,
           [&](std::int64_t p, T sum) { along[0][p] = Conjugate(sum); });
      Dots(done, rest, v.data + k + 1, stride, x + k + 1,
           [&](std::int64_t p, T sum) { along[1][p] = Conjugate(sum); });
      AddRows(
          done, rest, [&](std::int64_t p) { return -along[0][p]; },
          v.data + k + 1, stride, y + k + 1);
      AddRows(
          done, rest, [&](std::int64_t p) { return -along[1][p]; },
          w.data + k + 1, stride, y + k + 1);
      ScaleRow(rest, tau[k], y + k + 1);
      const T half = Scaled(tau[k] * Dot(rest, x + k + 1, y + k + 1), -0.5f);
      AddRow(rest, half, x + k + 1, y + k + 1);
    }
    const std::int64_t rest = size - end;
    SubtractProduct(rest, rest, end - begin, w.part(0, end), true,
                    v.part(0, end), false, a.part(end, end), context);
    SubtractProduct(rest, rest, end - begin, v.part(0, end), true,
                    w.part(0, end), false, a.part(end, end), context);
  }
  d[size - 1] = static_cast<double>(RealPart(a.at(size - 1, size - 1)));
}

template <typename T>
void FillNan(std::int64_t count, T* values) {
  const Real<T> nan = std::numeric_limits<Real<T>>::quiet_NaN();
  std::fill_n(values, count, FromParts<T>(nan, nan));
}

// Makes rows of T of rows of its real type, which are in the same memory.
template <typename T>
void Widen(std::int64_t rows, std::int64_t columns, Matrix<T> x) {
  if constexpr (kIsComplex<T>) {
    for (std::int64_t i = rows; i-- > 0;) {
      const Real<T>* const from = Parts(x.data) + i * x.stride;
      for (std::int64_t j = columns; j-- > 0;) {
        const Real<T> value = from[j];
        x.at(i, j) = {value, 0};
      }
    }
  }
}

template <typename T>
Matrix<Real<T>> Identity(std::int64_t size, Matrix<T> memory) {
  const Matrix<Real<T>> rows = {Parts(memory.data), memory.stride};
  for (std::int64_t i = 0; i < size; ++i) {
    std::fill_n(rows.row(i), size, Real<T>(0));
    rows.at(i, i) = 1;
  }
  return rows;
}

// Returns a power of two times which the largest value is about one; NaN if a
// value isn't finite.
template <typename T>
Real<T> ScaleMatrix(std::int64_t rows, std::int64_t columns, Matrix<T> a) {
  Real<T> scale = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    const Real<T> row = SafeScale(columns, a.row(i));
    if (std::isnan(row)) return row;
    if (row != 0) scale = scale == 0 ? row : std::min(scale, row);
  }
  if (scale == 0) return 1;
  for (std::int64_t i = 0; i < rows && scale != 1; ++i) {
    ScaleRow(columns, FromParts<T>(scale, 0), a.row(i));
  }
  return scale;
}

// Replaces a[size][size] by vectors, and writes values after them. Reads the
// lower half.
template <typename T>
void RunEigen(std::int64_t size, bool vectors, T* a, Arena<T> arena,
              ThreadPool* threads) {
  using R = Real<T>;
  const std::int64_t stride = ReflectorStride(size);
  const Matrix<T> matrix = {arena.Take(size * stride), stride};
  for (std::int64_t i = 0; i < size; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      matrix.at(j, i) = a[i * size + j];
      matrix.at(i, j) = Conjugate(a[i * size + j]);
    }
    matrix.at(i, i) = FromParts<T>(RealPart(a[i * size + i]), 0);
  }
  const R scale = ScaleMatrix(size, size, matrix);
  if (std::isnan(scale)) return FillNan(size * size + size, a);
  auto* const d = reinterpret_cast<double*>(arena.Take(2 * size));
  auto* const e = reinterpret_cast<double*>(arena.Take(2 * size));
  auto* const memory = reinterpret_cast<double*>(
      arena.Take(2 * (Conquest<R>::kDoubles + Conquest<R>::kIndices) * size));
  T* const tau = arena.Take(size);
  T* const panel = arena.Take(64 * stride);
  const Matrix<T> x = {arena.Take(size * stride), stride};
  Tridiagonalize(size, matrix, d, e, tau, panel, {x.data, threads});
  Rotations<R> rotations = {};
  rotations.turns = reinterpret_cast<R*>(arena.Take(32 * size + 32));
  Matrix<R> rows = {};
  if (vectors) {
    rotations.rows = rows = Identity(size, x);
    rotations.width = size;
  }
  ReflectorWork<T> work = {};
  if (vectors) work = arena.Reflectors(size, size, threads);
  bool converged;
  if (vectors && size > Conquest<R>::kBase) {
    auto* const indices =
        reinterpret_cast<std::int64_t*>(memory + Conquest<R>::kDoubles * size);
    converged = Conquest<R>{rows,
                            memory,
                            indices,
                            {Parts(a), size},
                            {Parts(work.scratch), stride},
                            &rotations,
                            threads}
                    .Divide(0, size, d, e);
  } else {
    converged = Diagonalize(size, d, e, rotations);
  }
  if (!converged) return FillNan(size * size + size, a);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t least = std::min_element(d + i, d + size) - d;
    if (least != i) {
      std::swap(d[i], d[least]);
      if (vectors) {
        std::swap_ranges(rows.row(i), rows.row(i) + size, rows.row(least));
      }
    }
    a[size * size + i] = FromParts<T>(static_cast<R>(d[i]) / scale, 0);
  }
  if (!vectors) return;
  Widen(size, size, x);
  ApplyReflectors(size - 1, size, matrix, 1, tau, false, size, x, work);
  Transpose(x.data, stride, size, size, a, size);
}

// Makes a matrix bidiagonal, with d[columns] on its diagonal and e[columns - 1]
// above. Rows are columns of the matrix, each of `length` values, which aren't
// fewer than columns. Row i becomes a reflector, from value i on. Row i of
// `right` gets one that is applied from the right, from value i + 1 on.
template <typename T>
void Bidiagonalize(std::int64_t columns, std::int64_t length, Matrix<T> a,
                   Matrix<T> right, double* d, double* e, T* tau, T* right_tau,
                   T* sums, Matrix<T> pair) {
  for (std::int64_t k = 0; k < columns; ++k) {
    const std::int64_t rest = columns - k - 1, width = length - k - 1;
    T* const v = a.row(k) + k;
    tau[k] = Reflect(length - k, v);
    const T beta = v[0];
    d[k] = static_cast<double>(RealPart(beta));
    if (rest == 0) break;
    T* const u = right.row(k) + k + 1;
    const Matrix<T> others = a.part(k + 1, k);
    v[0] = FromParts<T>(1, 0);
    Dots(rest, length - k, others.data, a.stride, v,
         [&](std::int64_t j, T sum) {
           sums[j] = Conjugate(tau[k]) * sum;
           u[j] = Conjugate(others.at(j, 0) - sums[j]);
         });
    v[0] = beta;
    right_tau[k] = Reflect(rest, u);
    e[k] = static_cast<double>(RealPart(u[0]));
    const T first = u[0];
    u[0] = FromParts<T>(1, 0);
    // What the right reflector sees is the matrix behind the left one.
    T* const y = pair.row(1);
    T along = {};
    for (std::int64_t j = 0; j < rest; ++j) along = along + sums[j] * u[j];
    std::copy_n(v + 1, width, pair.row(0));
    std::fill_n(y, width, T{});
    AddRows(
        rest, width, [&](std::int64_t j) { return u[j]; }, others.data + 1,
        a.stride, y);
    AddRow(width, -along, pair.row(0), y);
    for (std::int64_t j = 0; j < rest; ++j) {
      const T factors[2] = {-sums[j], -(right_tau[k] * Conjugate(u[j]))};
      AddRows(
          2, width, [&](std::int64_t i) { return factors[i]; }, pair.data,
          pair.stride, others.row(j) + 1);
    }
    u[0] = first;
  }
}

// Replaces a[rows][columns] by left singular vectors, values, and the adjoint
// of right ones; without vectors, by values, where they would be.
template <typename T>
void RunSingular(std::int64_t rows, std::int64_t columns, bool all,
                 bool vectors, T* a, Arena<T> arena, ThreadPool* threads) {
  using R = Real<T>;
  // A wide matrix is the adjoint of a tall one.
  const bool wide = rows < columns;
  const std::int64_t least = std::min(rows, columns);
  const std::int64_t length = std::max(rows, columns);
  const std::int64_t count = all ? length : least;  // of the long vectors
  const std::int64_t stride = ReflectorStride(length);
  const Matrix<T> matrix = {arena.Take(least * stride), stride};
  const std::int64_t first = wide ? least * least : length * count;
  T* const values = a + first;
  T* const adjoint = values + least;
  if (wide) {
    for (std::int64_t i = 0; i < least; ++i) {
      std::copy_n(a + i * length, length, matrix.row(i));
    }
    ConjugateRows(least, length, matrix.data, stride);
  } else {
    Transpose(a, columns, rows, columns, matrix.data, stride);
  }
  const R scale = ScaleMatrix(least, length, matrix);
  if (std::isnan(scale)) {
    return FillNan(first + least + (wide ? count * length : least * least), a);
  }
  const std::int64_t short_stride = ReflectorStride(least);
  const Matrix<T> right = {arena.Take(least * short_stride), short_stride};
  const Matrix<T> pair = {arena.Take(2 * stride), stride};
  auto* const d = reinterpret_cast<double*>(arena.Take(2 * least));
  auto* const e = reinterpret_cast<double*>(arena.Take(2 * least));
  auto* const memory = reinterpret_cast<double*>(
      arena.Take(2 * (Conquest<R>::kDoubles + Conquest<R>::kIndices) * least));
  T* const tau = arena.Take(least);
  T* const right_tau = arena.Take(least);
  T* const sums = arena.Take(least);
  const Matrix<T> x = {arena.Take(count * stride), stride};
  const Matrix<T> y = {arena.Take(least * stride), stride};
  Bidiagonalize(least, length, matrix, right, d, e, tau, right_tau, sums, pair);
  Rotations<R> turns[2] = {};
  Matrix<R> long_rows = {}, short_rows = {};
  for (auto& turn : turns) {
    turn.turns = reinterpret_cast<R*>(arena.Take(32 * least + 32));
  }
  if (vectors) {
    turns[0].rows = long_rows = Identity(least, x);
    turns[1].rows = short_rows = Identity(least, y);
    turns[0].width = turns[1].width = least;
  }
  bool converged;
  if (vectors && least > Conquest<R, true>::kBase) {
    // Squares in parts of the matrix must not vanish.
    double most = 0;
    for (std::int64_t i = 0; i < least; ++i) {
      most = std::max({most, std::abs(d[i]), i > 0 ? std::abs(e[i - 1]) : 0});
    }
    for (std::int64_t i = 0; i < least; ++i) {
      if (std::abs(d[i]) < 1e-40 * most) d[i] = 0;
      if (i > 0 && std::abs(e[i - 1]) < 1e-40 * most) e[i - 1] = 0;
    }
    // The operand isn't needed any more.
    const Matrix<R> factors = {Parts(a), least};
    auto* const indices = reinterpret_cast<std::int64_t*>(
        memory + Conquest<R, true>::kDoubles * least);
    converged =
        Conquest<R, true>{
            short_rows, memory,  indices,   factors,  factors.part(least, 0),
            &turns[1],  threads, long_rows, &turns[0]}
            .DivideBoth(0, least, false, d, e);
  } else {
    converged = DiagonalizeBoth(least, d, e, turns[0], turns[1]);
  }
  if (!converged) {
    return FillNan(first + least + (wide ? count * length : least * least), a);
  }
  for (std::int64_t i = 0; i < least; ++i) {
    const auto larger = [](double p, double q) {
      return std::abs(p) < std::abs(q);
    };
    const std::int64_t most = std::max_element(d + i, d + least, larger) - d;
    std::swap(d[i], d[most]);
    values[i] = FromParts<T>(static_cast<R>(std::abs(d[i])) / scale, 0);
    if (!vectors) continue;
    if (most != i) {
      std::swap_ranges(long_rows.row(i), long_rows.row(i) + least,
                       long_rows.row(most));
      std::swap_ranges(short_rows.row(i), short_rows.row(i) + least,
                       short_rows.row(most));
    }
    if (std::signbit(d[i])) ScaleRow(least, R(-1), short_rows.row(i));
  }
  if (!vectors) return;
  Widen(least, least, x);
  Widen(least, least, y);
  for (std::int64_t i = 0; i < count; ++i) {
    std::fill_n(x.row(i) + (i < least ? least : 0),
                i < least ? length - least : length, T{});
    if (i >= least) x.at(i, i) = FromParts<T>(1, 0);
  }
  const ReflectorWork<T> work = arena.Reflectors(length, count, threads);
  ApplyReflectors(least, length, matrix, 0, tau, false, count, x, work);
  ApplyReflectors(least - 1, least, right, 1, right_tau, false, least, y, work);
  if (wide) {
    Transpose(y.data, stride, least, least, a, least);
    ConjugateRows(count, length, x.data, stride);
    for (std::int64_t i = 0; i < count; ++i) {
      std::copy_n(x.row(i), length, adjoint + i * length);
    }
  } else {
    Transpose(x.data, stride, count, length, a, count);
    ConjugateRows(least, least, y.data, stride);
    for (std::int64_t i = 0; i < least; ++i) {
      std::copy_n(y.row(i), least, adjoint + i * least);
    }
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_SPECTRAL_H_
