#include <cstdint>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/parallel.h"
#include "tfaot/kernels/row_copies.h"

namespace tfaot::kernels::TFAOT_ISA {

template <>
void RunRowCopies<float>(const RowOrder& order, const void* in, void* out,
                         ThreadPool* threads) {
  static_assert(RowOrder::kLoops == 4, "three loops are around the last one");
  const auto& [a, b, c, last] = order.loops;
  const std::int64_t step_c = last.count * order.row;
  const std::int64_t step_b = c.count * step_c;
  const std::int64_t step_a = b.count * step_b;
  // Threads share the outermost loop that has several turns.
  const bool share_a = a.count > 1;
  const auto run = [&, a = a, b = b, c = c, last = last](const Part& part) {
    const Span outer = share_a ? part.batch.Of(a.count, 1) : Span{0, a.count};
    const Span inner = share_a ? Span{0, b.count} : part.batch.Of(b.count, 1);
    for (std::int64_t x = outer.begin; x < outer.end; ++x) {
      for (std::int64_t y = inner.begin; y < inner.end; ++y) {
        for (std::int64_t z = 0; z < c.count; ++z) {
          CopyRows(
              static_cast<const float*>(in) + order.first + x * a.step +
                  y * b.step + z * c.step,
              last.step, last.count, order.row,
              static_cast<float*>(out) + x * step_a + y * step_b + z * step_c);
        }
      }
    }
  };
  if (threads == nullptr) return run(Part{});
  const double values =
      static_cast<double>(a.count) * static_cast<double>(step_a);
  // The caches' speed is the limit, as if each value took four multiply-adds.
  InParts(*threads, {share_a ? a.count : b.count, 1, 1, 1, 1, 4 * values}, run);
}

}  // namespace tfaot::kernels::TFAOT_ISA
