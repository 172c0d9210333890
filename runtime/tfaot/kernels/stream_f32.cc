#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/epilogue.h"
#include "tfaot/kernels/parallel.h"
#include "tfaot/kernels/stream.h"

namespace tfaot::kernels::TFAOT_ISA {

template <>
void RunStream<float>(const Products& products, const void* left,
                      const void* right, void* out, ThreadPool* threads,
                      const Epilogue& epilogue) {
  const StreamProduct product = {products.rows, products.columns,
                                 products.depth, products.transposed_left};
  const auto run = [&](const Part& part) {
    const auto* const a = static_cast<const float*>(left);
    const auto* const b = static_cast<const unsigned char*>(right);
    auto* const to = static_cast<float*>(out);
    const Finish<float> finish = FinishOf<float>(epilogue, to);
    const Finish<float>* const end = finish.to != nullptr ? &finish : nullptr;
    switch (products.packing) {
      case Packing::kInt8:
        return MultiplyStream<Int8Panels>(product, a, b, to, part, end);
      case Packing::kBfloat16:
        return MultiplyStream<Bfloat16Panels>(product, a, b, to, part, end);
      default:
        return MultiplyStream<Float32Panels>(product, a, b, to, part, end);
    }
  };
  if (threads == nullptr) return run(Part{});
  const Work work = {1,
                     products.rows,
                     products.columns,
                     kStreamRows,
                     kStreamColumns,
                     static_cast<double>(products.rows) *
                         static_cast<double>(products.columns) *
                         static_cast<double>(products.depth)};
  InParts(*threads, work, run);
}

}  // namespace tfaot::kernels::TFAOT_ISA
