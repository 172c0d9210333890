// Defines RunProducts; a translation unit that includes this instantiates it.
#ifndef TFAOT_KERNELS_PRODUCTS_H_
#define TFAOT_KERNELS_PRODUCTS_H_

#include <cstdint>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/matmul.h"

namespace tfaot::kernels::TFAOT_ISA {

template <typename T>
void RunProducts(const Products& products, const void* left, const void* right,
                 void* out) {
  MatrixProduct product;
  product.rows = products.rows;
  product.columns = products.columns;
  product.depth = products.depth;
  product.transposed_left = products.transposed_left;
  product.transposed_right = products.transposed_right;
  for (std::int64_t i = 0; i < products.batch; ++i) {
    Multiply(product, static_cast<const T*>(left) + i * products.left_step,
             static_cast<const T*>(right) + i * products.right_step,
             static_cast<T*>(out) + i * products.out_step);
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_PRODUCTS_H_
