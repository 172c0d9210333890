// Serves any batch with code that is compiled for a few sizes. Generated code
// uses it.
#ifndef TFAOT_BATCH_H_
#define TFAOT_BATCH_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "tfaot/instance.h"

namespace tfaot {

// Which of kFunctions compiled functions to run next. A batch's plan costs the
// least of all ways to split it, including the padding of the last part. Among
// ways with the same cost, it uses the larger parts. There is a plan for each
// of kBuckets products of the buckets of kSizes open sizes. It uses all
// functions with room for them, and those with the least room where costs are
// the same.
//
// Takes one byte for each plan and row of the largest batch. Immutable.
template <std::size_t kFunctions, std::size_t kBuckets = 1,
          std::size_t kSizes = 0>
class BatchPlan {
 public:
  using Buckets = std::array<std::array<std::int64_t, kSizes>, kBuckets>;

  // For batches of 1 to `most` rows. For each of `buckets`, which are
  // ascending, there are as many functions. `batches` are their batch sizes,
  // ascending, or zeros if there are no batches, and `costs` the costs of one
  // run of each, in any unit. Throws std::bad_alloc.
  BatchPlan(const std::array<std::int64_t, kFunctions>& batches,
            const std::array<double, kFunctions>& costs, std::int64_t most,
            const Buckets& buckets = {})
      : end_(static_cast<std::size_t>(most) + 1),
        next_(new std::uint8_t[kBuckets * end_]) {
    constexpr std::size_t kBatches = kFunctions / kBuckets;
    const std::unique_ptr<double[]> best(new double[end_]);
    for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
      std::uint8_t* const next = next_.get() + bucket * end_;
      best[0] = 0;
      next[0] = static_cast<std::uint8_t>(bucket * kBatches);
      for (std::size_t rows = 1; rows < end_; ++rows) {
        best[rows] = std::numeric_limits<double>::infinity();
        for (std::size_t other = kBuckets; other-- > bucket;) {
          if (!HasRoom(buckets[other], buckets[bucket])) continue;
          for (std::size_t i = other * kBatches; i < (other + 1) * kBatches;
               ++i) {
            const auto size =
                std::max<std::size_t>(1, static_cast<std::size_t>(batches[i]));
            const double cost = costs[i] + best[rows > size ? rows - size : 0];
            if (cost <= best[rows]) {
              best[rows] = cost;
              next[rows] = static_cast<std::uint8_t>(i);
            }
          }
        }
      }
    }
  }

  // Index of the function to run when `rows` rows are left.
  std::size_t next(std::int64_t rows, std::size_t bucket = 0) const noexcept {
    return next_[bucket * end_ + static_cast<std::size_t>(rows)];
  }

 private:
  static_assert(kFunctions >= 1 && kFunctions <= 255);
  static_assert(kFunctions % kBuckets == 0);

  static bool HasRoom(const std::array<std::int64_t, kSizes>& buckets,
                      const std::array<std::int64_t, kSizes>& sizes) noexcept {
    return std::equal(buckets.begin(), buckets.end(), sizes.begin(),
                      std::greater_equal<std::int64_t>());
  }

  const std::size_t end_;
  const std::unique_ptr<std::uint8_t[]> next_;
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
