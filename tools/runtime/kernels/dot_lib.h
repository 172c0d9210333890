// XLA's matrix product by the kernels here in place of Eigen's.
//
// A translation unit that instantiates TypedMatMul below defines the symbol
// that the header written by tfcompile calls. It stands for XLA's own
// dot_lib_*.cc and must not include XLA's dot_lib.h, where the same template is
// defined with Eigen.
#ifndef TFAOT_KERNELS_DOT_LIB_H_
#define TFAOT_KERNELS_DOT_LIB_H_

#include <cstdint>
#include <type_traits>

#include "absl/functional/any_invocable.h"
#include "tfaot/kernels/matmul.h"

namespace Eigen {
struct ThreadPoolDevice;
}  // namespace Eigen

namespace xla::cpu::internal {

using DoneCallback = absl::AnyInvocable<void()>;

// out[m][n] = lhs[m][k] * rhs[k][n], all in columns; a transposed operand lies
// as lhs[k][m] or rhs[n][k]. Works in the calling thread, whatever the device,
// and calls `done` before it returns. Integers wrap.
template <typename LhsType, typename RhsType, typename OutType>
void TypedMatMul(const Eigen::ThreadPoolDevice* /*device*/, void* out,
                 void* lhs, void* rhs, int64_t m, int64_t n, int64_t k,
                 bool transpose_lhs, bool transpose_rhs, DoneCallback done) {
  static_assert(std::is_same_v<LhsType, RhsType> &&
                std::is_same_v<LhsType, OutType>);
  using T = typename std::conditional_t<std::is_integral_v<OutType>,
                                        std::make_unsigned<OutType>,
                                        std::common_type<OutType>>::type;
  // A matrix in columns is its transpose in rows, and the transpose of a
  // product is the product of the transposes in reverse.
  tfaot::kernels::MatrixProduct product;
  product.rows = n;
  product.columns = m;
  product.depth = k;
  product.transposed_left = transpose_rhs;
  product.transposed_right = transpose_lhs;
  tfaot::kernels::Multiply(product, static_cast<const T*>(rhs),
                           static_cast<const T*>(lhs), static_cast<T*>(out));
  done();
}

}  // namespace xla::cpu::internal

#endif  // TFAOT_KERNELS_DOT_LIB_H_
