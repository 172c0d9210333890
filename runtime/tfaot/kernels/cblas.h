// Large matrix products in a library, if the build names one
// (docs/guide/blas.md).
//
// TFAOT_CBLAS means that there is one, with CBLAS's functions for products of
// float and double. Macros define their names and their integer type:
// TFAOT_CBLAS_SGEMM, TFAOT_CBLAS_DGEMM, TFAOT_CBLAS_INT.
//
// The library decides whether a call allocates, locks, or has its own threads.
// Several threads must be able to call it at the same time, and it must not
// throw.
#ifndef TFAOT_KERNELS_CBLAS_H_
#define TFAOT_KERNELS_CBLAS_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tfaot/kernels/matmul.h"
#include "tfaot/kernels/part.h"
#include "tfaot/kernels/tile.h"

#ifdef TFAOT_CBLAS

#ifndef TFAOT_CBLAS_SGEMM
#define TFAOT_CBLAS_SGEMM cblas_sgemm
#endif
#ifndef TFAOT_CBLAS_DGEMM
#define TFAOT_CBLAS_DGEMM cblas_dgemm
#endif
#ifndef TFAOT_CBLAS_INT
#define TFAOT_CBLAS_INT int
#endif

// Declared as in cblas.h, with enumerations as int. This way, we don't need the
// library's own header, which can have any name.
extern "C" {
void TFAOT_CBLAS_SGEMM(int order, int transposed_left, int transposed_right,
                       TFAOT_CBLAS_INT rows, TFAOT_CBLAS_INT columns,
                       TFAOT_CBLAS_INT depth, float alpha, const float* left,
                       TFAOT_CBLAS_INT left_stride, const float* right,
                       TFAOT_CBLAS_INT right_stride, float beta, float* out,
                       TFAOT_CBLAS_INT out_stride);
void TFAOT_CBLAS_DGEMM(int order, int transposed_left, int transposed_right,
                       TFAOT_CBLAS_INT rows, TFAOT_CBLAS_INT columns,
                       TFAOT_CBLAS_INT depth, double alpha, const double* left,
                       TFAOT_CBLAS_INT left_stride, const double* right,
                       TFAOT_CBLAS_INT right_stride, double beta, double* out,
                       TFAOT_CBLAS_INT out_stride);
}

namespace tfaot::kernels {
namespace {

// A product goes to the library if none of its sizes is less than this and no
// operand is packed for our own code. At this size, a call takes 350 us. The
// smaller the smallest size, the more a library loses by copying operands into
// blocks.
constexpr std::int64_t kLeastSizeForLibrary = 256;

// If the product goes to the library, writes a part of `out`, and finishes it
// if `finish` is given, like Multiply. Returns whether it does.
template <typename T>
bool MultiplyInLibrary(const MatrixProduct& given, const T* left,
                       const T* right, T* out, const Part& part,
                       const Finish<T>* finish) {
  if constexpr (std::is_floating_point_v<T>) {
    const MatrixProduct product = given.Strided();
    const std::int64_t rows = product.rows;
    const std::int64_t columns = product.columns;
    const std::int64_t depth = product.depth;
    const bool transposed_left = product.transposed_left;
    const bool transposed_right = product.transposed_right;
    if (product.packed_right ||
        std::min({rows, columns, depth}) < kLeastSizeForLibrary ||
        std::max({rows, columns, depth, product.left_stride,
                  product.right_stride, product.out_stride}) >
            std::numeric_limits<TFAOT_CBLAS_INT>::max()) {
      return false;
    }
    const Span in_rows = part.rows.Of(rows, kTileRows);
    const Span in_columns = part.columns.Of(columns, ColumnGrain<T>(columns));
    if (in_rows.size() == 0 || in_columns.size() == 0) return true;
    constexpr int kRowMajor = 101;
    constexpr int kAsItIs = 111;
    constexpr int kTransposed = 112;
    const auto size = [](std::int64_t n) {
      return static_cast<TFAOT_CBLAS_INT>(n);
    };
    const auto run = [&](auto gemm) {
      gemm(kRowMajor, transposed_left ? kTransposed : kAsItIs,
           transposed_right ? kTransposed : kAsItIs, size(in_rows.size()),
           size(in_columns.size()), size(depth), T(1),
           left + in_rows.begin * (transposed_left ? 1 : product.left_stride),
           size(product.left_stride),
           right +
               in_columns.begin * (transposed_right ? product.right_stride : 1),
           size(product.right_stride), T(0),
           out + in_rows.begin * product.out_stride + in_columns.begin,
           size(product.out_stride));
    };
    if constexpr (std::is_same_v<T, float>) {
      run(&TFAOT_CBLAS_SGEMM);
    } else {
      run(&TFAOT_CBLAS_DGEMM);
    }
    if (finish != nullptr) {
      FinishRows(*finish,
                 out + in_rows.begin * product.out_stride + in_columns.begin,
                 product.out_stride, in_rows.size(), in_columns.begin,
                 in_columns.size());
    }
    return true;
  } else {
    return false;
  }
}

}  // namespace
}  // namespace tfaot::kernels

#else

namespace tfaot::kernels {
namespace {

template <typename T>
constexpr bool MultiplyInLibrary(const MatrixProduct&, const T*, const T*, T*,
                                 const Part&, const Finish<T>*) {
  return false;
}

}  // namespace
}  // namespace tfaot::kernels

#endif  // TFAOT_CBLAS

#endif  // TFAOT_KERNELS_CBLAS_H_
