#include <algorithm>
#include <cstdint>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/column_sums.h"
#include "tfaot/kernels/parallel.h"

namespace tfaot::kernels::TFAOT_ISA {

template <>
void RunColumnSums<float>(const ColumnSums& sums, const void* in, void* out,
                          ThreadPool* threads) {
  const std::int64_t results = sums.arrays * sums.blocks;
  const bool narrow = sums.columns < kLanes<float>;
  const std::int64_t grain = narrow ? sums.columns : 8 * kLanes<float>;
  const auto run = [&](const Part& part) {
    const Span some = part.batch.Of(results, 1);
    for (std::int64_t i = some.begin; i < some.end; ++i) {
      const std::int64_t block = i % sums.blocks;
      const std::int64_t end =
          std::min(sums.first + block * sums.step, sums.rows);
      const std::int64_t begin =
          block == 0 ? 0 : sums.first + (block - 1) * sums.step;
      const std::int64_t row = i / sums.blocks * sums.rows + begin;
      SumRows(static_cast<const float*>(in) + row * sums.columns, end - begin,
              sums.columns, part.columns.Of(sums.columns, grain),
              static_cast<float*>(out) + i * sums.columns);
    }
  };
  if (threads == nullptr) return run(Part{});
  const double values = static_cast<double>(sums.arrays) *
                        static_cast<double>(sums.rows) *
                        static_cast<double>(sums.columns);
  // The caches' speed is the limit, as if each value took two multiply-adds.
  InParts(*threads, {results, 1, sums.columns, 1, grain, 2 * values}, run);
}

}  // namespace tfaot::kernels::TFAOT_ISA
