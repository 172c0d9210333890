// Serves any batch with code that is compiled for a few sizes. Generated code
// uses it.
#ifndef TFAOT_BATCH_H_
#define TFAOT_BATCH_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "tfaot/instance.h"

namespace tfaot {

// Which of kSizes compiled sizes to run next. A batch's plan costs the least of
// all ways to split it, including the padding of the last part. Among ways with
// the same cost, it uses the larger parts.
//
// Takes one byte for each row of the largest batch. Immutable.
template <std::size_t kSizes>
class BatchPlan {
 public:
  // For batches of 1 to `most` rows. `sizes` are ascending; `costs` are the
  // costs of one run of each, in any unit. Throws std::bad_alloc.
  BatchPlan(const std::array<std::int64_t, kSizes>& sizes,
            const std::array<double, kSizes>& costs, std::int64_t most)
      : next_(new std::uint8_t[static_cast<std::size_t>(most) + 1]) {
    const std::size_t end = static_cast<std::size_t>(most) + 1;
    const std::unique_ptr<double[]> best(new double[end]);
    best[0] = 0;
    next_[0] = 0;
    for (std::size_t rows = 1; rows < end; ++rows) {
      for (std::size_t i = 0; i < kSizes; ++i) {
        const auto size = static_cast<std::size_t>(sizes[i]);
        const double cost = costs[i] + best[rows > size ? rows - size : 0];
        if (i == 0 || cost <= best[rows]) {
          best[rows] = cost;
          next_[rows] = static_cast<std::uint8_t>(i);
        }
      }
    }
  }

  // Index of the size to run when `rows` rows are left.
  std::size_t next(std::int64_t rows) const noexcept {
    return next_[static_cast<std::size_t>(rows)];
  }

 private:
  static_assert(kSizes >= 1 && kSizes <= 255);

  std::unique_ptr<std::uint8_t[]> next_;
};

// A batched input or output of a compiled function.
struct BatchedTensor {
  int index;              // among the function's arguments or results
  std::size_t row_bytes;  // of one row
};

// Points a compiled function's argument at `rows` rows of `batch`, starting at
// `first`. Uses them in place if there are enough for the function and they are
// aligned. Otherwise, copies them to `padded`, followed by zeros.
template <typename Function>
void FeedRows(Function& function, const BatchedTensor& tensor,
              const void* batch, unsigned char* padded, std::int64_t first,
              std::int64_t rows, std::int64_t size) {
  const std::size_t begin = static_cast<std::size_t>(first) * tensor.row_bytes;
  const std::size_t bytes = static_cast<std::size_t>(rows) * tensor.row_bytes;
  const unsigned char* data = static_cast<const unsigned char*>(batch) + begin;
  if (rows < size || begin % kAlignment != 0) {
    if (bytes > 0) std::memcpy(padded, data, bytes);
    const std::size_t whole = static_cast<std::size_t>(size) * tensor.row_bytes;
    if (whole > bytes) std::memset(padded + bytes, 0, whole - bytes);
    data = padded;
  }
  function.set_arg_data(static_cast<std::size_t>(tensor.index), data);
}

// Copies `rows` rows of a compiled function's result to their place in `batch`.
// Drops the results of padding.
template <typename Function>
void FetchRows(Function& function, const BatchedTensor& tensor, void* batch,
               std::int64_t first, std::int64_t rows) {
  const std::size_t begin = static_cast<std::size_t>(first) * tensor.row_bytes;
  const std::size_t bytes = static_cast<std::size_t>(rows) * tensor.row_bytes;
  if (bytes == 0) return;
  std::memcpy(static_cast<unsigned char*>(batch) + begin,
              function.result_data(static_cast<std::size_t>(tensor.index)),
              bytes);
}

}  // namespace tfaot

#endif  // TFAOT_BATCH_H_
