// Sorts and picks the largest, as XLA's runtime does; generated code uses it.
//
// Nothing here allocates or has state: concurrent calls are safe if what they
// write is apart.
#ifndef TFAOT_SORT_H_
#define TFAOT_SORT_H_

#include <cstddef>
#include <cstdint>

namespace tfaot {

// A compiled order: sets `result` to whether the first value comes before the
// second. `values` points, for each array that is sorted, at its first value
// and at its second. The rest is unused.
using Comparator = void(bool* result, const void*, const void** values,
                        const void*, const void*, const void*);

// Arrays of this shape, sorted along the middle axis.
struct SortShape {
  std::int64_t outer;
  std::int64_t length;
  std::int64_t inner;
};

// The most arrays that one call sorts together.
inline constexpr int kMaxSorted = 64;

// Bytes of scratch memory that Sort needs, whose largest value has
// `value_bytes`: a multiple of 64, as all memory of an instance.
constexpr std::size_t SortScratchBytes(std::int64_t length,
                                       std::size_t value_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(length) *
                            (2 * sizeof(std::int64_t) + value_bytes);
  return (bytes + 63) / 64 * 64;
}

// Sorts `arrays` arrays by one order, in place. Values that are equal keep
// their order. `sizes` are the bytes of each array's values, and `scratch`,
// aligned for int64, has what SortScratchBytes says.
void Sort(const SortShape& shape, Comparator* comparator, int arrays,
          unsigned char* const* values, const std::size_t* sizes,
          unsigned char* scratch) noexcept;

// The k largest of each of `batch` rows of `size` values, largest first, and
// where they are; of equal ones those that come first. A NaN counts as larger
// or, if negative, as smaller than any number, and -0 as smaller than 0.
// Requires 0 <= k <= size < 2^31.
void TopK(std::int64_t batch, std::int64_t size, std::int64_t k,
          const float* values, float* out_values,
          std::int32_t* out_indices) noexcept;

}  // namespace tfaot

#endif  // TFAOT_SORT_H_
