// Parts of a result, for threads.
//
// A kernel that gets a Part computes only that part of its result. So that bits
// don't depend on how a result is split, decisions about the order of sums look
// only at the whole call. Only loops over rows and columns look at the part.
#ifndef TFAOT_KERNELS_PART_H_
#define TFAOT_KERNELS_PART_H_

#include <algorithm>
#include <cstdint>

namespace tfaot::kernels {

// The range [begin, end).
struct Span {
  std::int64_t begin;
  std::int64_t end;

  std::int64_t size() const { return end - begin; }
};

// Share number `index` of `count` shares of nearly equal size.
struct Share {
  std::int64_t index = 0;
  std::int64_t count = 1;

  // Returns its part of `total`, in whole grains. Can be empty.
  Span Of(std::int64_t total, std::int64_t grain) const {
    if (count == 1) return {0, total};
    const std::int64_t grains = (total + grain - 1) / grain;
    const auto at = [&](std::int64_t i) {
      return std::min(grains * i / count * grain, total);
    };
    return {at(index), at(index + 1)};
  }
};

// By default, the whole.
struct Part {
  Share batch;    // independent products
  Share rows;     // in a convolution: outputs of all images
  Share columns;  // in a convolution: filters
};

}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_PART_H_
