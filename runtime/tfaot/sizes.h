// Serves any sizes of dimensions with code that is compiled for a few.
// Generated code uses it.
#ifndef TFAOT_SIZES_H_
#define TFAOT_SIZES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "tfaot/instance.h"
#include "tfaot/status.h"

namespace tfaot {

// The index of the smallest of `buckets`, which are ascending, that has room
// for `size`. There must be one.
template <std::size_t kBuckets>
std::size_t BucketOf(const std::int64_t (&buckets)[kBuckets],
                     std::int64_t size) noexcept {
  std::size_t index = 0;
  while (buckets[index] < size) ++index;
  return index;
}

// An open size as the input that it is. A number that isn't an int32 is none
// that any class takes, as 0 is.
inline std::int32_t AsSize(std::int64_t size) noexcept {
  return size < 0 || size > INT32_MAX ? 0 : static_cast<std::int32_t>(size);
}

// Checks the value of an open size, which a class takes up to `most`.
inline Status CheckSize(const char* name, std::int64_t size,
                        std::int64_t most) {
  if (size >= 1 && size <= most) return Status();
  return Status(Code::kInvalidArgument,
                std::string(name) + " is " + std::to_string(size) +
                    "\n  found: this class takes 1 to " + std::to_string(most) +
                    "\n  to do: pass a part of the values, or add a larger "
                    "bucket to the target's sizes");
}

// Checks what a model requires of its open sizes: the sum of them, each times
// its factor, and of `constant` is at least 0, is 0 if `equal`, or is a
// multiple of `modulus` if that isn't 0.
template <std::size_t kSizes>
Status CheckSizes(const char* name, const char* requirement,
                  const std::int64_t (&sizes)[kSizes],
                  const std::int64_t (&factors)[kSizes], std::int64_t constant,
                  bool equal, std::int64_t modulus) {
  std::int64_t sum = constant;
  std::string listed;
  for (std::size_t index = 0; index < kSizes; ++index) {
    sum += factors[index] * sizes[index];
    listed += (index > 0 ? ", " : "") + std::to_string(sizes[index]);
  }
  const bool holds = modulus != 0 ? sum % modulus == 0
                     : equal      ? sum == 0
                                  : sum >= 0;
  if (holds) return Status();
  return Status(Code::kInvalidArgument,
                std::string(name) + " of " + listed +
                    "\n  found: the model requires " + requirement +
                    "\n  to do: pass sizes that fulfill it");
}

namespace internal {

// Copies the first `used` values of each of `rank` dimensions, between arrays
// with other sizes.
inline void CopyUsed(unsigned char* to, const std::int64_t* to_dims,
                     const unsigned char* from, const std::int64_t* from_dims,
                     const std::int64_t* used, std::size_t rank,
                     std::size_t value_bytes) noexcept {
  std::size_t to_bytes = value_bytes;
  std::size_t from_bytes = value_bytes;
  bool dense = true;
  for (std::size_t axis = 1; axis < rank; ++axis) {
    to_bytes *= static_cast<std::size_t>(to_dims[axis]);
    from_bytes *= static_cast<std::size_t>(from_dims[axis]);
    dense = dense && to_dims[axis] == from_dims[axis] &&
            used[axis] == to_dims[axis];
  }
  const std::size_t count = rank > 0 ? static_cast<std::size_t>(used[0]) : 1;
  if (dense) {
    if (count * to_bytes > 0) std::memcpy(to, from, count * to_bytes);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    CopyUsed(to + i * to_bytes, to_dims + 1, from + i * from_bytes,
             from_dims + 1, used + 1, rank - 1, value_bytes);
  }
}

}  // namespace internal

// Points a compiled function's argument at a part of an input: the first `used`
// values of each dimension, from row `first` on. `whole` are the input's sizes,
// and `part` the argument's. Uses the values in place if their strides are the
// argument's, and they are aligned. Otherwise, copies them to `padded`. What is
// behind the used values is unspecified, but rows behind the last one are zero.
template <std::size_t kRank, typename Function>
void FeedUsed(Function& function, std::size_t index, std::size_t value_bytes,
              const void* input, unsigned char* padded,
              const std::int64_t (&whole)[kRank],
              const std::int64_t (&part)[kRank],
              const std::int64_t (&used)[kRank], std::int64_t first = 0) {
  std::size_t whole_stride = value_bytes;
  std::size_t part_stride = value_bytes;
  bool in_place = first + part[0] <= whole[0];
  for (std::size_t axis = kRank; axis-- > 0;) {
    if (used[axis] > 1 && whole_stride != part_stride) in_place = false;
    if (axis == 0) break;
    whole_stride *= static_cast<std::size_t>(whole[axis]);
    part_stride *= static_cast<std::size_t>(part[axis]);
  }
  const std::size_t begin = static_cast<std::size_t>(first) * whole_stride;
  const unsigned char* data = static_cast<const unsigned char*>(input) + begin;
  if (!in_place || begin % kAlignment != 0) {
    internal::CopyUsed(padded, part, data, whole, used, kRank, value_bytes);
    data = padded;
  }
  function.set_arg_data(index, data);
}

// The same for a part with fewer rows than the function takes.
template <std::size_t kRank, typename Function>
void FeedUsedRows(Function& function, std::size_t index,
                  std::size_t value_bytes, const void* input,
                  unsigned char* padded, const std::int64_t (&whole)[kRank],
                  const std::int64_t (&part)[kRank],
                  const std::int64_t (&used)[kRank], std::int64_t first) {
  if (used[0] == part[0]) {
    FeedUsed(function, index, value_bytes, input, padded, whole, part, used,
             first);
    return;
  }
  std::size_t whole_row = value_bytes;
  std::size_t part_row = value_bytes;
  for (std::size_t axis = 1; axis < kRank; ++axis) {
    whole_row *= static_cast<std::size_t>(whole[axis]);
    part_row *= static_cast<std::size_t>(part[axis]);
  }
  internal::CopyUsed(padded, part,
                     static_cast<const unsigned char*>(input) +
                         static_cast<std::size_t>(first) * whole_row,
                     whole, used, kRank, value_bytes);
  std::memset(padded + static_cast<std::size_t>(used[0]) * part_row, 0,
              static_cast<std::size_t>(part[0] - used[0]) * part_row);
  function.set_arg_data(index, padded);
}

// Copies a result whose size is known only at run time to its place in
// `output`, and its true size to `dims`. `sizes` is the index of the result
// that is this size. Of a batch, copies `rows` rows, which start at `first`.
template <typename Function>
void FetchSized(Function& function, std::size_t index, std::size_t sizes,
                std::size_t rank, std::size_t value_bytes, void* output,
                void* dims, std::int64_t first = 0, std::int64_t rows = -1) {
  const auto* size =
      static_cast<const std::int32_t*>(function.result_data(sizes));
  auto* total = static_cast<std::int32_t*>(dims);
  if (rows < 0) rows = size[0];
  total[0] = static_cast<std::int32_t>(first + rows);
  std::size_t row_bytes = value_bytes;
  for (std::size_t axis = 1; axis < rank; ++axis) {
    total[axis] = size[axis];
    row_bytes *= static_cast<std::size_t>(size[axis]);
  }
  const std::size_t bytes = static_cast<std::size_t>(rows) * row_bytes;
  if (bytes == 0) return;
  std::memcpy(static_cast<unsigned char*>(output) +
                  static_cast<std::size_t>(first) * row_bytes,
              function.result_data(index), bytes);
}

}  // namespace tfaot

#endif  // TFAOT_SIZES_H_
