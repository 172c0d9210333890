// Decompositions of matrices, and linear systems: what they are made from, and
// those that need no iteration.
//
// Rows are adjacent in memory. Everything works on whole rows, so lanes are
// columns, and nothing shuffles. Where columns are what is worked on, a matrix
// is transposed first. Large matrices are halved until they are small, so most
// of the work is in matrix products (calls.h).
//
// Nothing here allocates or has state.
#ifndef TFAOT_KERNELS_LINEAR_H_
#define TFAOT_KERNELS_LINEAR_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/complex.h"
#include "tfaot/kernels/linear_scratch.h"
#include "tfaot/kernels/linear_small.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// Functions of numbers T, which are real or complex.

template <typename T>
struct RealOf {
  using R = T;
};
template <typename R_>
struct RealOf<Complex<R_>> {
  using R = R_;
};
template <typename T>
using Real = typename RealOf<T>::R;
template <typename T>
constexpr bool kIsComplex = !std::is_same_v<T, Real<T>>;

template <typename R>
TFAOT_INLINE R RealPart(R a) {
  return a;
}
template <typename R>
TFAOT_INLINE R RealPart(Complex<R> a) {
  return a.re;
}
template <typename R>
TFAOT_INLINE R ImaginaryPart(R) {
  return 0;
}
template <typename R>
TFAOT_INLINE R ImaginaryPart(Complex<R> a) {
  return a.im;
}
template <typename R>
TFAOT_INLINE R Conjugate(R a) {
  return a;
}
template <typename R>
TFAOT_INLINE Complex<R> Conjugate(Complex<R> a) {
  return {a.re, -a.im};
}
template <typename R>
TFAOT_INLINE Complex<R> operator-(Complex<R> a) {
  return {-a.re, -a.im};
}
template <typename T>
TFAOT_INLINE T FromParts(Real<T> re, Real<T> im) {
  if constexpr (kIsComplex<T>) {
    return {re, im};
  } else {
    static_cast<void>(im);
    return re;
  }
}
template <typename T>
TFAOT_INLINE T Scaled(T a, Real<T> by) {
  if constexpr (kIsComplex<T>) {
    return {a.re * by, a.im * by};
  } else {
    return a * by;
  }
}
// The sum of both parts' absolute values, by which LAPACK compares, too.
template <typename T>
TFAOT_INLINE Real<T> Size(T a) {
  return std::abs(RealPart(a)) + std::abs(ImaginaryPart(a));
}

// Smith's quotient doesn't overflow where the result doesn't.
template <typename T>
TFAOT_INLINE T Quotient(T a, T b) {
  if constexpr (kIsComplex<T>) {
    if (std::abs(b.re) >= std::abs(b.im)) {
      const auto ratio = b.im / b.re, by = b.re + b.im * ratio;
      return {(a.re + a.im * ratio) / by, (a.im - a.re * ratio) / by};
    }
    const auto ratio = b.re / b.im, by = b.im + b.re * ratio;
    return {(a.re * ratio + a.im) / by, (a.im * ratio - a.re) / by};
  } else {
    return a / b;
  }
}

struct Swap {
  static constexpr int At(int lane, int) { return lane ^ 1; }
};

// Complex values are vectors of both parts. Swaps the parts.
template <typename V>
TFAOT_INLINE V PartsSwapped(V a) {
  return Shuffled(a, a, Order<V, Swap>());
}
// Returns -value in the lanes of real parts, and value in the others.
template <typename V>
TFAOT_INLINE V Alternating(Scalar<V> value) {
  V result;
  for (int i = 0; i < kCount<V>; ++i) result[i] = i % 2 == 0 ? -value : value;
  return result;
}

// Functions of rows of T, in vectors V of the real type.

template <typename T>
TFAOT_INLINE Real<T>* Parts(T* row) {
  return reinterpret_cast<Real<T>*>(row);
}
template <typename T>
TFAOT_INLINE const Real<T>* Parts(const T* row) {
  return reinterpret_cast<const Real<T>*>(row);
}
template <typename T>
constexpr std::int64_t kParts = kIsComplex<T> ? 2 : 1;

// A number in all lanes, as the factor of a row.
template <typename T>
struct Factor {
  using V = Vector<Real<T>>;
  explicit TFAOT_INLINE Factor(T value) : real(All<V>(RealPart(value))) {
    if constexpr (kIsComplex<T>) {
      imaginary = Alternating<V>(value.im);
    }
  }
  TFAOT_INLINE V TimesPlus(V row, V sum) const {
    sum = MultiplyAdd(real, row, sum);
    if constexpr (kIsComplex<T>) {
      sum = MultiplyAdd(imaginary, PartsSwapped(row), sum);
    }
    return sum;
  }
  V real;
  V imaginary;
};

// Adds to `to` the rows x[i], each times factor(i), for all i < rows.
template <typename T, typename Of>
TFAOT_INLINE void AddRows(std::int64_t rows, std::int64_t count,
                          const Of& factor, const T* x, std::int64_t stride,
                          T* to) {
  using R = Real<T>;
  constexpr int kWidth = kLanes<R>;
  const R* from = Parts(x);
  R* out = Parts(to);
  const std::int64_t step = stride * kParts<T>, width = count * kParts<T>;
  std::int64_t j = 0;
  const auto strip = [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    for (; j + kVectors * kWidth <= width; j += kVectors * kWidth) {
      Vector<R> sums[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[v] = Load(out + j + v * kWidth);
      for (std::int64_t i = 0; i < rows; ++i) {
        const Factor<T> by(factor(i));
        const R* row = from + i * step + j;
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[v] = by.TimesPlus(Load(row + v * kWidth), sums[v]);
        }
      }
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) Store(out + j + v * kWidth, sums[v]);
    }
  };
  strip(std::integral_constant<int, 4>());
  strip(std::integral_constant<int, 1>());
  if (j < width) {
    Vector<R> sum = LoadSome(out + j, width - j);
    for (std::int64_t i = 0; i < rows; ++i) {
      sum = Factor<T>(factor(i)).TimesPlus(
          LoadSome(from + i * step + j, width - j), sum);
    }
    StoreSome(out + j, sum, width - j);
  }
}

template <typename T>
TFAOT_INLINE void AddRow(std::int64_t count, T factor, const T* x, T* to) {
  AddRows(1, count, [=](std::int64_t) { return factor; }, x, 0, to);
}

// Calls take(i, sum of x[j] times the conjugate of y[j]) for rows x[i].
template <typename T, typename Take>
TFAOT_INLINE void Dots(std::int64_t rows, std::int64_t count, const T* x,
                       std::int64_t stride, const T* y, const Take& take) {
  using R = Real<T>;
  using V = Vector<R>;
  constexpr int kWidth = kLanes<R>;
  const R* const right = Parts(y);
  const std::int64_t step = stride * kParts<T>, width = count * kParts<T>;
  const auto some = [&](auto number, std::int64_t i) {
    constexpr int kRows = decltype(number)::value;
    // One row has four sums, so that its additions don't wait for each other.
    constexpr int kSums = kRows == 1 ? 4 : kRows;
    const R* const left = Parts(x) + i * step;
    V straight[kSums] = {}, crossed[kSums] = {};
    const auto add = [&](int sum, V a, V b) {
      straight[sum] = MultiplyAdd(a, b, straight[sum]);
      if constexpr (kIsComplex<T>) {
        crossed[sum] = MultiplyAdd(a, PartsSwapped(b), crossed[sum]);
      }
    };
    std::int64_t j = 0;
    if constexpr (kRows == 1) {
      for (; j + kSums * kWidth <= width; j += kSums * kWidth) {
#pragma GCC unroll 4
        for (int s = 0; s < kSums; ++s) {
          add(s, Load(left + j + s * kWidth), Load(right + j + s * kWidth));
        }
      }
    }
    for (; j + kWidth <= width; j += kWidth) {
      const V b = Load(right + j);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) add(r, Load(left + r * step + j), b);
    }
    if (j < width) {
      const V b = LoadSome(right + j, width - j);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        add(r, LoadSome(left + r * step + j, width - j), b);
      }
    }
    if constexpr (kRows == 1) {
      straight[0] = (straight[0] + straight[1]) + (straight[2] + straight[3]);
      crossed[0] = (crossed[0] + crossed[1]) + (crossed[2] + crossed[3]);
    }
    R re[kRows], im[kRows] = {};
    Sums<R, kRows>(straight, re);
    if constexpr (kIsComplex<T>) {
      // (a + bi) times the conjugate of (c + di) has the imaginary part
      // bc - ad; the lanes have ad and bc.
      const V sign = Alternating<V>(1);
      for (int r = 0; r < kRows; ++r) crossed[r] *= sign;
      Sums<R, kRows>(crossed, im);
    }
    for (int r = 0; r < kRows; ++r) take(i + r, FromParts<T>(re[r], im[r]));
  };
  std::int64_t i = 0;
  for (; i + 4 <= rows; i += 4) some(std::integral_constant<int, 4>(), i);
  for (; i < rows; ++i) some(std::integral_constant<int, 1>(), i);
}

template <typename T>
TFAOT_INLINE T Dot(std::int64_t count, const T* x, const T* y) {
  T result;
  Dots(1, count, x, 0, y, [&](std::int64_t, T sum) { result = sum; });
  return result;
}

template <typename T>
TFAOT_INLINE void ScaleRow(std::int64_t count, T factor, T* row) {
  for (std::int64_t j = 0; j < count; ++j) row[j] = row[j] * factor;
}

template <typename T>
void ConjugateRows(std::int64_t rows, std::int64_t columns, T* a,
                   std::int64_t stride) {
  if constexpr (kIsComplex<T>) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) {
        a[i * stride + j].im = -a[i * stride + j].im;
      }
    }
  }
}

// A part of a matrix whose rows are `stride` values apart.
template <typename T>
struct Matrix {
  T* data;
  std::int64_t stride;

  TFAOT_INLINE T* row(std::int64_t i) const { return data + i * stride; }
  TFAOT_INLINE T& at(std::int64_t i, std::int64_t j) const {
    return data[i * stride + j];
  }
  TFAOT_INLINE Matrix part(std::int64_t i, std::int64_t j) const {
    return {data + i * stride + j, stride};
  }
};

// What products need.
template <typename T>
struct Context {
  T* scratch;  // as many values as the result has, with its stride
  ThreadPool* threads;
};

// Below this many multiply-adds, a product isn't worth a call.
constexpr std::int64_t kLeastProduct = 4096;

// out[rows][columns] -= left * right. An adjoint operand is the conjugate of
// left[depth][rows], or of right[columns][depth].
template <typename T>
void SubtractProduct(std::int64_t rows, std::int64_t columns,
                     std::int64_t depth, Matrix<T> left, bool adjoint_left,
                     Matrix<T> right, bool adjoint_right, Matrix<T> out,
                     const Context<T>& context) {
  if (rows == 0 || columns == 0 || depth == 0) return;
  if constexpr (!kIsComplex<T>) {
    if (rows * columns * depth >= kLeastProduct && rows > 1 && columns > 1) {
      Products products = {1, rows, columns, depth, adjoint_left, adjoint_right,
                           0, 0,    0};
      products.left_stride = left.stride;
      products.right_stride = right.stride;
      products.out_stride = out.stride;
      Epilogue epilogue = {};
      epilogue.addend = epilogue.out = out.data;
      epilogue.high = std::numeric_limits<double>::infinity();
      epilogue.low = -epilogue.high;
      epilogue.scale = -1;
      epilogue.scratch = true;
      RunProducts<T>(products, left.data, right.data, context.scratch,
                     context.threads, epilogue);
      return;
    }
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto factor = [&](std::int64_t k) {
      return adjoint_left ? -Conjugate(left.at(k, i)) : -left.at(i, k);
    };
    if (!adjoint_right) {
      AddRows(depth, columns, factor, right.data, right.stride, out.row(i));
    } else if (!adjoint_left) {
      Dots(columns, depth, right.data, right.stride, left.row(i),
           [&](std::int64_t j, T sum) {
             out.at(i, j) = out.at(i, j) - Conjugate(sum);
           });
    } else {
      for (std::int64_t j = 0; j < columns; ++j) {
        for (std::int64_t k = 0; k < depth; ++k) {
          out.at(i, j) = out.at(i, j) + factor(k) * Conjugate(right.at(j, k));
        }
      }
    }
  }
}

// Triangular systems.

// A triangular matrix, or its adjoint. `lower` says which half is stored.
template <typename T>
struct Triangle {
  Matrix<T> matrix;
  bool lower;
  bool adjoint;
  bool unit;  // ones on the diagonal, whatever is stored there

  TFAOT_INLINE T at(std::int64_t i, std::int64_t j) const {
    return adjoint ? Conjugate(matrix.at(j, i)) : matrix.at(i, j);
  }
  Triangle part(std::int64_t i) const {
    return {matrix.part(i, i), lower, adjoint, unit};
  }
};

template <typename T>
TFAOT_INLINE void DivideRow(std::int64_t count, T by, T* row) {
  if (HasInverse(Size(by))) {
    ScaleRow(count, Quotient(FromParts<T>(1, 0), by), row);
  } else {
    for (std::int64_t j = 0; j < count; ++j) row[j] = Quotient(row[j], by);
  }
}

// Sets x[size] to the solution of triangle * x' = x. Rows are read in blocks,
// so that sums share loads. `conjugates` has `size` values, for complex ones.
template <typename T>
void SolveColumn(std::int64_t size, const Triangle<T>& triangle, T* x,
                 T* conjugates) {
  constexpr std::int64_t kBlock = 8;
  const bool adjoint = triangle.adjoint, forward = triangle.lower != adjoint;
  const Matrix<T>& a = triangle.matrix;
  const auto at = [&](std::int64_t i, std::int64_t j) {
    return adjoint ? a.at(j, i) : a.at(i, j);
  };
  // A system of the adjoint is the conjugate of one of the transpose.
  if (adjoint) ConjugateRows(1, size, x, size);
  T* const right = kIsComplex<T> ? conjugates : x;
  for (std::int64_t done = 0; done < size; done += kBlock) {
    const std::int64_t count = std::min(kBlock, size - done);
    const std::int64_t rest = size - done - count;
    const std::int64_t begin = forward ? done : rest;
    const std::int64_t solved = forward ? 0 : begin + count;
    const std::int64_t next = forward ? begin + count : 0;
    if (!adjoint) {
      Dots(count, done, a.row(begin) + solved, a.stride, right + solved,
           [&](std::int64_t i, T sum) { x[begin + i] = x[begin + i] - sum; });
    }
    for (std::int64_t step = 0; step < count; ++step) {
      const std::int64_t i = forward ? begin + step : begin + count - 1 - step;
      const std::int64_t first = forward ? begin : i + 1;
      T value = x[i];
      for (std::int64_t j = first; j < first + step; ++j) {
        value = value - at(i, j) * x[j];
      }
      x[i] = triangle.unit ? value : Quotient(value, at(i, i));
      right[i] = Conjugate(x[i]);
    }
    if (adjoint) {
      AddRows(
          count, rest, [&](std::int64_t k) { return -x[begin + k]; },
          a.row(begin) + next, a.stride, x + next);
    }
  }
  if (adjoint) ConjugateRows(1, size, x, size);
}

// Sets x[size][columns] to the solution of triangle * x' = x.
template <typename T>
void SolveTriangle(std::int64_t size, std::int64_t columns,
                   const Triangle<T>& triangle, Matrix<T> x,
                   const Context<T>& context) {
  const bool forward = triangle.lower != triangle.adjoint;
  if (columns == 1 && x.stride == 1) {
    return SolveColumn(size, triangle, x.data, context.scratch);
  }
  if (size > kSmall) {
    const std::int64_t half = (size / 2 + kSmall - 1) / kSmall * kSmall;
    const std::int64_t rest = size - half;
    // The block that isn't on the diagonal, as it is stored.
    const Matrix<T> block = triangle.lower ? triangle.matrix.part(half, 0)
                                           : triangle.matrix.part(0, half);
    if (forward) {
      SolveTriangle(half, columns, triangle, x, context);
      SubtractProduct(rest, columns, half, block, triangle.adjoint, x, false,
                      x.part(half, 0), context);
      SolveTriangle(rest, columns, triangle.part(half), x.part(half, 0),
                    context);
    } else {
      SolveTriangle(rest, columns, triangle.part(half), x.part(half, 0),
                    context);
      SubtractProduct(half, columns, rest, block, triangle.adjoint,
                      x.part(half, 0), false, x, context);
      SolveTriangle(half, columns, triangle, x, context);
    }
    return;
  }
  const auto place = [&](std::int64_t step) {
    return forward ? step : size - 1 - step;
  };
  if constexpr (!kIsComplex<T>) {
    T factors[kSmall * kSmall], inverses[kSmall];
    bool have_inverses = true;
    for (std::int64_t step = 0; step < size; ++step) {
      const T by = triangle.unit ? 1 : triangle.at(place(step), place(step));
      have_inverses &= HasInverse(by);
      inverses[step] = 1 / by;
      for (std::int64_t k = 0; k < step; ++k) {
        factors[step * kSmall + k] = -triangle.at(place(step), place(k));
      }
    }
    if (have_inverses) {
      return SolveSmall(size, columns, factors, inverses, x.row(place(0)),
                        forward ? x.stride : -x.stride);
    }
  }
  for (std::int64_t step = 0; step < size; ++step) {
    const std::int64_t i = place(step);
    const std::int64_t first = forward ? 0 : i + 1;
    AddRows(
        step, columns,
        [&](std::int64_t k) { return -triangle.at(i, first + k); },
        x.row(first), x.stride, x.row(i));
    if (!triangle.unit) DivideRow(columns, triangle.at(i, i), x.row(i));
  }
}

// Cholesky decomposition.

// Replaces the upper half of a positive definite matrix by u, where it is the
// product of u's adjoint and u. Returns whether it is positive definite. The
// lower half is memory to work in.
template <typename T>
bool Decompose(std::int64_t size, Matrix<T> a, const Context<T>& context) {
  // Complex ones take loops.
  if (size > (kIsComplex<T> ? 24 : kSmall)) {
    const std::int64_t half = (size / 2 + 15) / 16 * 16, rest = size - half;
    if (!Decompose(half, a, context)) return false;
    SolveTriangle(half, rest, {a, false, true, false}, a.part(0, half),
                  context);
    // Only the upper half is needed: blocks of rows from the diagonal on.
    constexpr std::int64_t kBlock = 128;
    for (std::int64_t i = half; i < size; i += kBlock) {
      SubtractProduct(std::min(kBlock, size - i), size - i, half, a.part(0, i),
                      true, a.part(0, i), false, a.part(i, i), context);
    }
    return Decompose(rest, a.part(half, half), context);
  }
  if constexpr (!kIsComplex<T>) {
    const auto run = size <= 4   ? DecomposeSmall<4, T>
                     : size <= 8 ? DecomposeSmall<8, T>
                                 : DecomposeSmall<kSmall, T>;
    return run(size, a.data, a.stride);
  }
  constexpr std::int64_t kWidth = kLanes<Real<T>> / kParts<T>;
  for (std::int64_t i = 0; i < size; ++i) {
    // Whole vectors, if the matrix has them: what is left of the diagonal
    // doesn't matter.
    const std::int64_t first = i - i % kWidth;
    AddRows(
        i, size - first, [&](std::int64_t k) { return -Conjugate(a.at(k, i)); },
        a.data + first, a.stride, a.row(i) + first);
    const Real<T> square = RealPart(a.at(i, i));
    if (square <= 0) return false;  // NaN and infinity go on, as in LAPACK
    const Real<T> root = std::sqrt(square);
    ScaleRow(size - first, FromParts<T>(1 / root, 0), a.row(i) + first);
    a.at(i, i) = FromParts<T>(root, 0);
  }
  return true;
}

// Sets the upper half of a square matrix to the adjoint of the lower one, or
// the lower one to that of the upper one. The other half is memory to work in.
template <typename T>
void Mirror(std::int64_t size, bool from_lower, Matrix<T> a) {
  constexpr std::int64_t kBlock = 16;
  T block[kBlock * kBlock];
  for (std::int64_t i = 0; i < size; i += kBlock) {
    const std::int64_t height = std::min(kBlock, size - i);
    for (std::int64_t j = 0; j < i; j += kBlock) {
      T* const low = a.row(i) + j;
      T* const high = a.row(j) + i;
      if (from_lower) {
        Transpose(low, a.stride, height, kBlock, high, a.stride);
        ConjugateRows(kBlock, height, high, a.stride);
      } else {
        Transpose(high, a.stride, kBlock, height, low, a.stride);
        ConjugateRows(height, kBlock, low, a.stride);
      }
    }
    T* const both = a.row(i) + i;
    Transpose(both, a.stride, height, height, block, kBlock);
    ConjugateRows(height, height, block, kBlock);
    for (std::int64_t r = 0; r < height; ++r) {
      T* const to = both + r * a.stride;
      if (height == kBlock) {
        std::copy_n(block + r * kBlock, kBlock, to);  // of a constant size
      } else {
        std::copy_n(block + r * kBlock, height, to);
      }
    }
  }
}

// Replaces a[size][size] by the lower factor, reading the lower half, or by the
// upper one, reading the upper half. Without a factor, the half becomes NaN.
template <typename T>
void RunCholesky(std::int64_t size, bool lower, T* a,
                 const Context<T>& context) {
  const Matrix<T> matrix = {a, size};
  if (lower) Mirror(size, true, matrix);
  if (!Decompose(size, matrix, context)) {
    const Real<T> nan = std::numeric_limits<Real<T>>::quiet_NaN();
    std::fill_n(a, size * size, FromParts<T>(nan, nan));
  }
  if (lower) Mirror(size, false, matrix);
  for (std::int64_t i = 0; i < size; ++i) {
    std::fill_n(matrix.row(i) + (lower ? i + 1 : 0), lower ? size - i - 1 : i,
                T{});
  }
}

// LU decomposition with partial pivoting.

// Columns that are decomposed together.
constexpr std::int64_t kPanel = 16;

// The distance between columns of a panel, which are rows here. Vectors can
// reach beyond `rows`.
template <typename T>
constexpr std::int64_t PanelStride(std::int64_t rows) {
  return rows + 2 * kLanes<Real<T>>;
}

// Returns the index of the first of the largest values.
template <typename T>
TFAOT_INLINE std::int64_t Largest(std::int64_t count, const T* x) {
  using R = Real<T>;
  R most = -1;
  std::int64_t j = 0;
  if constexpr (!kIsComplex<T>) {
    using V = Vector<R>;
    if (count >= 2 * kLanes<R>) {
      V best = V{};
      for (; j + kLanes<R> <= count; j += kLanes<R>) {
        const V value = Load(x + j);
        best = Max(value < V{} ? -value : value, best);
      }
      for (int lane = 0; lane < kLanes<R>; ++lane) {
        most = std::max(most, best[lane]);
      }
    }
  }
  for (; j < count; ++j) most = std::max(most, Size(x[j]));
  for (j = 0; j < count; ++j) {
    if (Size(x[j]) == most) return j;
  }
  return 0;
}

// Decomposes a panel, and writes the rows that were swapped with 0, 1, ...
template <typename T>
void DecomposePanel(std::int64_t rows, std::int64_t columns, Matrix<T> a,
                    std::int64_t* pivots, const Context<T>& context) {
  using R = Real<T>;
  constexpr std::int64_t kWidth = kLanes<R>;
  const std::int64_t stride = PanelStride<T>(rows);
  T* const w = context.scratch;
  Transpose(a.data, a.stride, rows, columns, w, stride);
  for (std::int64_t c = 0; c < columns; ++c) {
    std::fill_n(w + c * stride + rows, stride - rows, T{});
  }
  for (std::int64_t i = 0; i < std::min(rows, columns); ++i) {
    T* const column = w + i * stride;
    const std::int64_t pivot = i + Largest(rows - i, column + i);
    pivots[i] = pivot;
    if (pivot != i) {
      for (std::int64_t c = 0; c < columns; ++c) {
        std::swap(w[c * stride + i], w[c * stride + pivot]);
      }
    }
    const std::int64_t rest = rows - i - 1;
    if (Size(column[i]) != 0) DivideRow(rest, column[i], column + i + 1);
    // Whole vectors, also beyond the rows.
    const std::int64_t width =
        (rest * kParts<T> + kWidth - 1) / kWidth * kWidth;
    const R* const from = Parts(column + i + 1);
    for (std::int64_t c = i + 1; c < columns; ++c) {
      const Factor<T> by(-w[c * stride + i]);
      R* const to = Parts(w + c * stride + i + 1);
      for (std::int64_t j = 0; j < width; j += kWidth) {
        Store(to + j, by.TimesPlus(Load(from + j), Load(to + j)));
      }
    }
  }
  Transpose(w, stride, columns, rows, a.data, a.stride);
}

template <typename T>
void SwapRows(std::int64_t count, const std::int64_t* pivots,
              std::int64_t width, Matrix<T> a) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (pivots[i] != i) {
      std::swap_ranges(a.row(i), a.row(i) + width, a.row(pivots[i]));
    }
  }
}

// Replaces a[rows][columns] by L below the diagonal, which has ones on it, and
// U. `pivots` gets the smaller number of them.
template <typename T>
void DecomposeLu(std::int64_t rows, std::int64_t columns, Matrix<T> a,
                 std::int64_t* pivots, const Context<T>& context) {
  if (columns <= kPanel) {
    return DecomposePanel(rows, columns, a, pivots, context);
  }
  const std::int64_t half =
      std::min(rows, (columns / 2 + kPanel - 1) / kPanel * kPanel);
  const std::int64_t rest = columns - half;
  DecomposeLu(rows, half, a, pivots, context);
  SwapRows(half, pivots, rest, a.part(0, half));
  SolveTriangle(half, rest, {a, true, false, true}, a.part(0, half), context);
  if (rows == half) return;
  SubtractProduct(rows - half, rest, half, a.part(half, 0), false,
                  a.part(0, half), false, a.part(half, half), context);
  DecomposeLu(rows - half, rest, a.part(half, half), pivots + half, context);
  const std::int64_t more = std::min(rows, columns) - half;
  SwapRows(more, pivots + half, half, a.part(half, 0));
  for (std::int64_t i = half; i < half + more; ++i) pivots[i] += half;
}

// Replaces a[rows][columns] by L and U. After them come the order of the rows,
// which rows were swapped, and the sign of the permutation.
template <typename T>
void RunLu(std::int64_t rows, std::int64_t columns, T* a, std::int64_t* pivots,
           const Context<T>& context) {
  DecomposeLu(rows, columns, {a, columns}, pivots, context);
  const std::int64_t count = std::min(rows, columns);
  T* const order = a + rows * columns;
  T* const swapped = order + rows;
  const auto number = [](std::int64_t i) {
    return FromParts<T>(static_cast<Real<T>>(i), 0);
  };
  for (std::int64_t i = 0; i < rows; ++i) order[i] = number(i);
  std::int64_t sign = 1;
  for (std::int64_t i = 0; i < count; ++i) {
    std::swap(order[i], order[pivots[i]]);
    swapped[i] = number(pivots[i]);
    if (pivots[i] != i) sign = -sign;
  }
  swapped[count] = number(sign);
}

// Solves a[size][size] * x = b, where b[size][columns] comes after a, and
// becomes x.
template <typename T>
void RunSolve(std::int64_t size, std::int64_t columns, T* a,
              std::int64_t* pivots, const Context<T>& context) {
  const Matrix<T> matrix = {a, size}, b = {a + size * size, columns};
  if constexpr (!kIsComplex<T>) {
    // Of 4 rows or fewer, loops are as fast.
    if (size > 4 && size <= kSmall && columns <= kFewColumns) {
      const auto run =
          size <= 8 ? SmallSystem<T, 8>::Run : SmallSystem<T, kSmall>::Run;
      return run(size, columns, a, b.data);
    }
  }
  DecomposeLu(size, size, matrix, pivots, context);
  SwapRows(size, pivots, columns, b);
  SolveTriangle(size, columns, {matrix, true, false, true}, b, context);
  SolveTriangle(size, columns, {matrix, false, false, false}, b, context);
}

// Reflectors. A reflector is I - tau * v * adjoint of v, where v is zero before
// its first value, which is one. Columns of matrices are rows here.

// Returns a power of two by which values are multiplied so that their squares
// neither overflow nor vanish; zero or NaN if there is none.
template <typename T>
Real<T> SafeScale(std::int64_t count, const T* x) {
  using R = Real<T>;
  R most = 0;
  for (std::int64_t i = 0; i < count * kParts<T>; ++i) {
    const R value = std::abs(Parts(x)[i]);
    if (!std::isfinite(value)) return value * 0;  // NaN
    most = std::max(most, value);
  }
  if (most == 0) return 0;
  return std::ldexp(R(1), std::clamp(-std::ilogb(most),
                                     std::numeric_limits<R>::min_exponent + 4,
                                     std::numeric_limits<R>::max_exponent - 4));
}

// The reflector whose adjoint turns x into (beta, 0, ...), where beta is real.
// x becomes beta and the other values of v. Returns tau.
template <typename T>
T Reflect(std::int64_t count, T* x) {
  using R = Real<T>;
  constexpr R kLeast =
      std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
  const auto square = [](T a) {
    return RealPart(a) * RealPart(a) + ImaginaryPart(a) * ImaginaryPart(a);
  };
  R rest = count > 1 ? RealPart(Dot(count - 1, x + 1, x + 1)) : 0;
  R scale = 1;
  if (!(rest + square(x[0]) > kLeast) || std::isinf(rest + square(x[0]))) {
    scale = SafeScale(count, x);
    if (scale == 0) return T{};
    ScaleRow(count, FromParts<T>(scale, 0), x);
    rest = count > 1 ? RealPart(Dot(count - 1, x + 1, x + 1)) : 0;
  }
  const T alpha = x[0];
  if (rest == 0 && ImaginaryPart(alpha) == 0) {
    std::fill_n(x + 1, count - 1, T{});
    x[0] = Scaled(alpha, 1 / scale);
    return T{};
  }
  const R beta =
      -std::copysign(std::sqrt(rest + square(alpha)), RealPart(alpha));
  ScaleRow(count - 1,
           Quotient(FromParts<T>(1, 0), alpha - FromParts<T>(beta, 0)), x + 1);
  x[0] = FromParts<T>(beta / scale, 0);
  return FromParts<T>((beta - RealPart(alpha)) / beta,
                      -ImaginaryPart(alpha) / beta);
}

// Applies a reflector to rows.
template <typename T>
TFAOT_INLINE void ApplyOne(std::int64_t rows, std::int64_t count, const T* v,
                           T tau, Matrix<T> x) {
  if (Size(tau) == 0) return;
  Dots(rows, count, x.data, x.stride, v, [&](std::int64_t i, T sum) {
    AddRow(count, -(tau * sum), v, x.row(i));
  });
}

// Reflectors that are applied together.
constexpr std::int64_t kReflectors = 32;

// Memory for reflectors of `length` values that are applied to `rows` rows.
template <typename T>
struct ReflectorWork {
  T* v;        // kReflectors * RowStride(length)
  T* factors;  // kReflectors * kReflectors
  T* sums;     // 2 * rows * kReflectors
  ThreadPool* threads;
  T* scratch;  // rows * the stride of the rows
};

// Applies `count` reflectors to rows: the first, then the second, and so on, of
// each its adjoint; or the last, then the one before. Row i of `v` has a
// reflector from its value i + shift on, where there is something else than
// its one.
template <typename T>
void ApplyBlock(std::int64_t count, std::int64_t length, Matrix<T> v,
                const T* tau, bool adjoint, std::int64_t rows, Matrix<T> x,
                const ReflectorWork<T>& work) {
  if (rows < 8 || length < 48) {
    for (std::int64_t step = 0; step < count; ++step) {
      const std::int64_t i = adjoint ? step : count - 1 - step;
      T* const row = v.row(i) + i;
      const T first = row[0];
      row[0] = FromParts<T>(1, 0);
      ApplyOne(rows, length - i, row, adjoint ? Conjugate(tau[i]) : tau[i],
               x.part(0, i));
      row[0] = first;
    }
    return;
  }
  // Together, they are I - v * t * adjoint of v, with a triangular t.
  const Matrix<T> whole = {work.v, ReflectorStride(length)};
  T t[kReflectors][kReflectors] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    T* const row = whole.row(i);
    std::fill_n(row, i, T{});
    row[i] = FromParts<T>(1, 0);
    std::copy_n(v.row(i) + i + 1, length - i - 1, row + i + 1);
    T sums[kReflectors];
    Dots(i, length - i, whole.data + i, whole.stride, row + i,
         [&](std::int64_t j, T sum) { sums[j] = Conjugate(sum); });
    for (std::int64_t j = 0; j < i; ++j) {
      T sum = {};
      for (std::int64_t k = j; k < i; ++k) sum = sum + t[j][k] * sums[k];
      t[j][i] = -(tau[i] * sum);
    }
    t[i][i] = tau[i];
  }
  const Matrix<T> factors = {work.factors, kReflectors};
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < count; ++j) {
      factors.at(i, j) = adjoint ? Conjugate(t[i][j]) : t[j][i];
    }
  }
  const Matrix<T> first = {work.sums, kReflectors};
  const Matrix<T> second = {work.sums + rows * kReflectors, kReflectors};
  std::fill_n(work.sums, 2 * rows * kReflectors, T{});
  const Context<T> context = {work.scratch, work.threads};
  SubtractProduct(rows, count, length, x, false, whole, true, first, context);
  SubtractProduct(rows, count, count, first, false, factors, false, second,
                  context);
  SubtractProduct(rows, length, count, second, false, whole, false, x, context);
}

// Applies all reflectors to rows, the last one first. With `identity`, x is the
// identity, and has zeros where nothing has to be computed.
template <typename T>
void ApplyReflectors(std::int64_t count, std::int64_t length, Matrix<T> v,
                     std::int64_t shift, const T* tau, bool identity,
                     std::int64_t rows, Matrix<T> x,
                     const ReflectorWork<T>& work) {
  for (std::int64_t end = count; end > 0;) {
    const std::int64_t begin = (end - 1) / kReflectors * kReflectors;
    const std::int64_t at = begin + shift, skip = identity ? at : 0;
    ApplyBlock(end - begin, length - at, v.part(begin, at), tau + begin, false,
               rows - skip, x.part(skip, at), work);
    end = begin;
  }
}

// Replaces rows, the columns of a matrix, by reflectors and the columns of its
// triangular factor.
template <typename T>
void DecomposeQr(std::int64_t columns, std::int64_t rows, Matrix<T> a, T* tau,
                 const ReflectorWork<T>& work) {
  const std::int64_t count = std::min(rows, columns);
  for (std::int64_t begin = 0; begin < count; begin += kReflectors) {
    const std::int64_t end = std::min(begin + kReflectors, count);
    for (std::int64_t i = begin; i < end; ++i) {
      T* const v = a.row(i) + i;
      tau[i] = Reflect(rows - i, v);
      const T beta = v[0];
      v[0] = FromParts<T>(1, 0);
      ApplyOne(end - i - 1, rows - i, v, Conjugate(tau[i]), a.part(i + 1, i));
      v[0] = beta;
    }
    ApplyBlock(end - begin, rows - begin, a.part(begin, begin), tau + begin,
               true, columns - end, a.part(end, begin), work);
  }
}

// Takes memory from a block of it.
template <typename T>
struct Arena {
  T* next;

  T* Take(std::int64_t count) {
    T* const taken = next;
    next += count;
    return taken;
  }
  ReflectorWork<T> Reflectors(std::int64_t length, std::int64_t rows,
                              ThreadPool* threads) {
    ReflectorWork<T> work = {};
    work.v = Take(kReflectors * ReflectorStride(length));
    work.factors = Take(kReflectors * kReflectors);
    work.sums = Take(2 * rows * kReflectors);
    work.scratch = Take(rows * ReflectorStride(length));
    work.threads = threads;
    return work;
  }
};

// Replaces a[rows][columns] by reflectors below the diagonal, and the
// triangular factor. After it come the values of tau.
template <typename T>
void RunReflectors(std::int64_t rows, std::int64_t columns, T* a,
                   Arena<T> arena, ThreadPool* threads) {
  const Matrix<T> turned = {arena.Take(columns * ReflectorStride(rows)),
                            ReflectorStride(rows)};
  Transpose(a, columns, rows, columns, turned.data, turned.stride);
  DecomposeQr(columns, rows, turned, a + rows * columns,
              arena.Reflectors(rows, columns, threads));
  Transpose(turned.data, turned.stride, columns, rows, a, columns);
}

// Replaces reflectors in a[rows][count], and the values of tau after them, by
// the first columns of their product.
template <typename T>
void RunOrthogonal(std::int64_t rows, std::int64_t count, std::int64_t columns,
                   T* a, Arena<T> arena, ThreadPool* threads) {
  const std::int64_t stride = ReflectorStride(rows);
  const Matrix<T> v = {arena.Take(count * stride), stride};
  const Matrix<T> x = {arena.Take(columns * stride), stride};
  T* const tau = arena.Take(count);
  std::copy_n(a + rows * count, count, tau);
  Transpose(a, count, rows, count, v.data, stride);
  for (std::int64_t i = 0; i < columns; ++i) {
    std::fill_n(x.row(i), rows, T{});
    x.at(i, i) = FromParts<T>(1, 0);
  }
  ApplyReflectors(count, rows, v, 0, tau, true, columns, x,
                  arena.Reflectors(rows, columns, threads));
  Transpose(x.data, stride, columns, rows, a, columns);
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_LINEAR_H_
