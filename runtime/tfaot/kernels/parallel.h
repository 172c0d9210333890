// Splits kernel calls into parts for a thread pool.
//
// However a call is split, results have the same bits (part.h).
#ifndef TFAOT_KERNELS_PARALLEL_H_
#define TFAOT_KERNELS_PARALLEL_H_

#include <algorithm>
#include <cstdint>

#include "tfaot/flush_denormals.h"
#include "tfaot/kernels/part.h"
#include "tfaot/thread_pool.h"

namespace tfaot::kernels {
namespace {

// The size of a call, which decides how to split it. Counts are at least 1.
struct Work {
  std::int64_t batch;  // independent results
  std::int64_t rows;   // of one result
  std::int64_t columns;
  std::int64_t row_grain;  // rows that stay together
  std::int64_t column_grain;
  // Multiply-adds. Other work counts as as many as take the same time.
  double operations;
};

// The minimum work of a part, in multiply-adds. Handing out parts and waiting
// for them takes about a microsecond, in which a core does 50,000. Parts of
// 100,000 gain nothing.
constexpr double kLeastOperations = 250000;

// More parts than threads, so a thread whose core is busy elsewhere gets fewer.
constexpr int kPartsPerThread = 2;

// The number of shares along each dimension.
struct Cut {
  std::int64_t batch;
  std::int64_t rows;
  std::int64_t columns;
};

inline Cut CutFor(const Work& work, int threads) {
  const auto divide = [](std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
  };
  std::int64_t parts = static_cast<std::int64_t>(
      std::min(work.operations / kLeastOperations,
               static_cast<double>(threads) * kPartsPerThread));
  if (threads <= 1 || parts <= 1) return {1, 1, 1};
  Cut cut;
  cut.batch = std::min(parts, work.batch);
  parts = divide(parts, cut.batch);
  // All parts in a row share the row's operand, and all parts in a column the
  // column's. Split the longer side first, because the shorter side's operand
  // is smaller.
  const std::int64_t row_tiles = divide(work.rows, work.row_grain);
  const std::int64_t column_tiles = divide(work.columns, work.column_grain);
  if (work.rows >= work.columns) {
    cut.rows = std::min(parts, row_tiles);
    cut.columns = std::min(divide(parts, cut.rows), column_tiles);
  } else {
    cut.columns = std::min(parts, column_tiles);
    cut.rows = std::min(divide(parts, cut.columns), row_tiles);
  }
  return cut;
}

// Calls run(part) for parts that make up the whole. Uses the pool if there is
// enough work.
template <typename Run>
void InParts(ThreadPool& threads, const Work& work, const Run& run) {
  const Cut cut = CutFor(work, threads.threads());
  const std::int64_t parts = cut.batch * cut.rows * cut.columns;
  if (parts == 1) return run(Part{});
  struct Context {
    const Run& run;
    Cut cut;
    FloatMode mode;
  } context = {run, cut, GetFloatMode()};
  threads.ParallelFor(
      static_cast<int>(parts),
      [](void* data, int index) {
        const Context& context = *static_cast<const Context*>(data);
        const Cut& cut = context.cut;
        const ScopedFloatMode mode(context.mode);
        context.run(Part{{index / (cut.columns * cut.rows), cut.batch},
                         {index / cut.columns % cut.rows, cut.rows},
                         {index % cut.columns, cut.columns}});
      },
      &context);
}

}  // namespace
}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_PARALLEL_H_
