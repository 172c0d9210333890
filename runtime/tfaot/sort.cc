#include "tfaot/sort.h"

#include <algorithm>
#include <cstring>

namespace tfaot {
namespace {

// One vector of values of each array, `inner` values apart.
struct Vectors {
  Comparator* comparator;
  int arrays;
  const unsigned char* starts[kMaxSorted];
  std::size_t steps[kMaxSorted];  // bytes from one value to the next

  bool Less(std::int64_t a, std::int64_t b) const noexcept {
    const void* values[2 * kMaxSorted];
    for (int i = 0; i < arrays; ++i) {
      values[2 * i] = starts[i] + static_cast<std::size_t>(a) * steps[i];
      values[2 * i + 1] = starts[i] + static_cast<std::size_t>(b) * steps[i];
    }
    bool result = false;
    comparator(&result, nullptr, values, nullptr, nullptr, nullptr);
    return result;
  }
};

// Sorts `order`, the numbers 0 to count - 1, by the values that they stand for.
// Returns where the result is: `order` or `other`.
const std::int64_t* SortOrder(const Vectors& vectors, std::int64_t count,
                              std::int64_t* order,
                              std::int64_t* other) noexcept {
  // For a few values, insertion is faster than merging.
  constexpr std::int64_t kRun = 8;
  for (std::int64_t begin = 0; begin < count; begin += kRun) {
    const std::int64_t end = std::min(begin + kRun, count);
    for (std::int64_t i = begin; i < end; ++i) {
      std::int64_t j = i;
      for (; j > begin && vectors.Less(i, order[j - 1]); --j) {
        order[j] = order[j - 1];
      }
      order[j] = i;
    }
  }
  for (std::int64_t width = kRun; width < count; width *= 2) {
    for (std::int64_t begin = 0; begin < count; begin += 2 * width) {
      const std::int64_t middle = std::min(begin + width, count);
      const std::int64_t end = std::min(begin + 2 * width, count);
      std::int64_t left = begin;
      std::int64_t right = middle;
      for (std::int64_t to = begin; to < end; ++to) {
        const bool from_right =
            right < end &&
            (left == middle || vectors.Less(order[right], order[left]));
        other[to] = from_right ? order[right++] : order[left++];
      }
    }
    std::swap(order, other);
  }
  return order;
}

// Returns an integer that orders like the float, and gives NaN a place.
std::int32_t Rank(float value) noexcept {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  constexpr std::uint32_t kSign = 0x80000000u;
  if ((bits & kSign) != 0) bits = (kSign - 1) - bits;
  std::int32_t rank;
  std::memcpy(&rank, &bits, sizeof(rank));
  return rank;
}

}  // namespace

void Sort(const SortShape& shape, Comparator* comparator, int arrays,
          unsigned char* const* values, const std::size_t* sizes,
          unsigned char* scratch) noexcept {
  const std::size_t length = static_cast<std::size_t>(shape.length);
  const std::size_t inner = static_cast<std::size_t>(shape.inner);
  std::int64_t* const order = reinterpret_cast<std::int64_t*>(scratch);
  std::int64_t* const other = order + shape.length;
  unsigned char* const sorted =
      reinterpret_cast<unsigned char*>(other + shape.length);
  Vectors vectors = {};
  vectors.comparator = comparator;
  vectors.arrays = arrays;
  for (int i = 0; i < arrays; ++i) vectors.steps[i] = inner * sizes[i];
  const std::size_t outer = static_cast<std::size_t>(shape.outer);
  for (std::size_t vector = 0; vector < outer * inner; ++vector) {
    const std::size_t first = vector / inner * length * inner + vector % inner;
    for (int i = 0; i < arrays; ++i) {
      vectors.starts[i] = values[i] + first * sizes[i];
    }
    const std::int64_t* const from =
        SortOrder(vectors, shape.length, order, other);
    for (int i = 0; i < arrays; ++i) {
      const std::size_t size = sizes[i];
      unsigned char* const start = values[i] + first * size;
      for (std::size_t v = 0; v < length; ++v) {
        std::memcpy(sorted + v * size,
                    start + static_cast<std::size_t>(from[v]) * inner * size,
                    size);
      }
      for (std::size_t v = 0; v < length; ++v) {
        std::memcpy(start + v * inner * size, sorted + v * size, size);
      }
    }
  }
}

void TopK(std::int64_t batch, std::int64_t size, std::int64_t k,
          const float* values, float* out_values,
          std::int32_t* out_indices) noexcept {
  if (k == 0) return;
  for (std::int64_t row = 0; row < batch; ++row) {
    const auto before = [values](std::int32_t a, std::int32_t b) {
      const std::int32_t rank_a = Rank(values[a]);
      const std::int32_t rank_b = Rank(values[b]);
      return rank_a != rank_b ? rank_a > rank_b : a < b;
    };
    // The best so far, as a heap whose top is the next to be replaced.
    std::int32_t* const end = out_indices + k;
    for (std::int32_t i = 0; i < k; ++i) out_indices[i] = i;
    std::make_heap(out_indices, end, before);
    for (std::int32_t i = static_cast<std::int32_t>(k); i < size; ++i) {
      if (!before(i, *out_indices)) continue;
      std::pop_heap(out_indices, end, before);
      end[-1] = i;
      std::push_heap(out_indices, end, before);
    }
    std::sort_heap(out_indices, end, before);
    for (std::int64_t i = 0; i < k; ++i) {
      out_values[i] = values[out_indices[i]];
    }
    values += size;
    out_values += k;
    out_indices += k;
  }
}

}  // namespace tfaot
