#include <algorithm>
#include <cstdint>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/parallel.h"
#include "tfaot/kernels/softmax.h"

namespace tfaot::kernels::TFAOT_ISA {

template <>
void RunSoftmax<float>(std::int64_t rows, std::int64_t columns, float scale,
                       const void* in, void* out, ThreadPool* threads) {
  const auto* const from = static_cast<const float*>(in);
  auto* const to = static_cast<float*>(out);
  if (threads == nullptr) {
    return SoftmaxRows({0, rows}, columns, scale, from, to);
  }
  constexpr double kCost = 10;  // multiply-adds of a value
  const double operations =
      static_cast<double>(rows) * static_cast<double>(columns) * kCost;
  // Parts share few cache lines.
  const std::int64_t grain = std::max<std::int64_t>(1, 1024 / columns);
  InParts(*threads, {1, rows, 1, grain, 1, operations}, [&](const Part& part) {
    SoftmaxRows(part.rows.Of(rows, grain), columns, scale, from, to);
  });
}

}  // namespace tfaot::kernels::TFAOT_ISA
