// Defines RunProducts. A translation unit that includes this instantiates it.
#ifndef TFAOT_KERNELS_PRODUCTS_H_
#define TFAOT_KERNELS_PRODUCTS_H_

#include <cstdint>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/cblas.h"
#include "tfaot/kernels/epilogue.h"
#include "tfaot/kernels/matmul.h"
#include "tfaot/kernels/panels.h"
#include "tfaot/kernels/parallel.h"

namespace tfaot::kernels::TFAOT_ISA {

template <typename T>
void RunProducts(const Products& products, const void* left, const void* right,
                 void* out, ThreadPool* threads, const Epilogue& epilogue) {
  const auto run = [&](const Part& part) {
    const Finish<T> finish = FinishOf(epilogue, static_cast<const T*>(out));
    MatrixProduct product;
    product.rows = products.rows;
    product.columns = products.columns;
    product.depth = products.depth;
    product.transposed_left = products.transposed_left;
    product.packed_right = products.packing == Packing::kPanels;
    product.transposed_right = products.transposed_right;
    product.left_stride = products.left_stride;
    product.right_stride = products.right_stride;
    product.out_stride = products.out_stride;
    const Span batch = part.batch.Of(products.batch, 1);
    for (std::int64_t i = batch.begin; i < batch.end; ++i) {
      const T* const a = static_cast<const T*>(left) + i * products.left_step;
      const T* const b = static_cast<const T*>(right) + i * products.right_step;
      T* const to = static_cast<T*>(out) + i * products.out_step;
      const Finish<T>* const end = finish.to != nullptr ? &finish : nullptr;
      if (MultiplyInLibrary(product, a, b, to, part, end)) continue;
      Multiply(product, a, b, to, part, end);
    }
  };
  if (threads == nullptr) return run(Part{});
  const Work work = {products.batch,
                     products.rows,
                     products.columns,
                     kTileRows,
                     ColumnGrain<T>(products.columns),
                     static_cast<double>(products.batch * products.rows) *
                         static_cast<double>(products.columns) *
                         static_cast<double>(products.depth)};
  InParts(*threads, work, run);
}

template <typename T>
void RunPack(std::int64_t depth, std::int64_t columns, bool transposed,
             const void* right, void* out) {
  PackPanels(static_cast<const T*>(right), depth, columns, transposed,
             static_cast<T*>(out));
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_PRODUCTS_H_
