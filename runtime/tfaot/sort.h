// Sorts and selects the largest values like XLA's runtime. Generated code uses
// it.
//
// Nothing here allocates or has state. Concurrent calls are safe if they write
// to different memory.
#ifndef TFAOT_SORT_H_
#define TFAOT_SORT_H_

#include <cstddef>
#include <cstdint>

namespace tfaot {

// A compiled order: sets `result` to whether the first value comes before the
// second. For each sorted array, `values` points at its first value and at its
// second. The other arguments are unused.
using Comparator = void(bool* result, const void*, const void** values,
                        const void*, const void*, const void*);

// The shape of arrays, which are sorted along the middle axis.
struct SortShape {
  std::int64_t outer;
  std::int64_t length;
  std::int64_t inner;
};

// The maximum number of arrays that one call sorts together.
inline constexpr int kMaxSorted = 64;

// Bytes of scratch memory that Sort needs, a multiple of 64 like all memory of
// an instance. `value_bytes` is the size of the largest value.
constexpr std::size_t SortScratchBytes(std::int64_t length,
                                       std::size_t value_bytes) {
  const std::size_t bytes = static_cast<std::size_t>(length) *
                            (2 * sizeof(std::int64_t) + value_bytes);
  return (bytes + 63) / 64 * 64;
}

// Sorts `arrays` arrays in place by one order. The sort is stable. `sizes` are
// the bytes per value of each array. `scratch` has SortScratchBytes() bytes,
// aligned for int64.
void Sort(const SortShape& shape, Comparator* comparator, int arrays,
          unsigned char* const* values, const std::size_t* sizes,
          unsigned char* scratch) noexcept;

// Returns the k largest values of each of `batch` rows of `size` values,
// largest first, and their indices. Among equal values, the first wins. A NaN
// counts as larger than any number, or as smaller if negative, and -0 as
// smaller than 0. Requires 0 <= k <= size < 2^31.
void TopK(std::int64_t batch, std::int64_t size, std::int64_t k,
          const float* values, float* out_values,
          std::int32_t* out_indices) noexcept;

}  // namespace tfaot

#endif  // TFAOT_SORT_H_
