// Parts of a result, for threads.
//
// A kernel that is given a Part computes only that part of its result. The rule
// by which bits do not depend on how a result is cut: what decides how sums are
// formed looks at the whole call; the part is for loops over rows and columns.
#ifndef TFAOT_KERNELS_PART_H_
#define TFAOT_KERNELS_PART_H_

#include <algorithm>
#include <cstdint>

namespace tfaot::kernels {

// From `begin` to, excluded, `end`.
struct Span {
  std::int64_t begin;
  std::int64_t end;

  std::int64_t size() const { return end - begin; }
};

// Of `count` shares, as equal as can be, number `index`.
struct Share {
  std::int64_t index = 0;
  std::int64_t count = 1;

  // What it has of `total`, in whole grains; maybe nothing.
  Span Of(std::int64_t total, std::int64_t grain) const {
    if (count == 1) return {0, total};
    const std::int64_t grains = (total + grain - 1) / grain;
    const auto at = [&](std::int64_t i) {
      return std::min(grains * i / count * grain, total);
    };
    return {at(index), at(index + 1)};
  }
};

// The whole, by default.
struct Part {
  Share batch;    // of products that are independent
  Share rows;     // of a convolution: outputs of all images
  Share columns;  // of a convolution: filters
};

}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_PART_H_
