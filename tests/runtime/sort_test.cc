// Compares sorting and top-k with the standard library's results.
#include "tfaot/sort.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace {

int failed = 0;

void Expect(bool holds, const char* what, long a = 0, long b = 0) {
  if (holds) return;
  std::printf("FAILED: %s (%ld, %ld)\n", what, a, b);
  ++failed;
}

// By the first array only, in descending order.
void Greater(bool* result, const void*, const void** values, const void*,
             const void*, const void*) {
  std::int32_t a, b;
  std::memcpy(&a, values[0], sizeof(a));
  std::memcpy(&b, values[1], sizeof(b));
  *result = a > b;
}

// Every length around the sizes of runs and merges, along any axis.
void TestSort() {
  std::mt19937 random(1);
  for (std::int64_t length = 0; length < 70; ++length) {
    for (const std::int64_t inner : {1, 3}) {
      const std::int64_t outer = 2;
      const std::size_t count =
          static_cast<std::size_t>(outer * length * inner);
      std::vector<std::int32_t> keys(count);
      std::vector<std::int64_t> tags(count);
      std::vector<std::int8_t> bytes(count);
      for (std::size_t i = 0; i < count; ++i) {
        keys[i] = static_cast<std::int32_t>(random() % 9);
        tags[i] = static_cast<std::int64_t>(i);
        bytes[i] = static_cast<std::int8_t>(i);
      }
      const std::vector<std::int32_t> before = keys;
      unsigned char* const arrays[] = {
          reinterpret_cast<unsigned char*>(keys.data()),
          reinterpret_cast<unsigned char*>(tags.data()),
          reinterpret_cast<unsigned char*>(bytes.data())};
      const std::size_t sizes[] = {4, 8, 1};
      const std::size_t room = tfaot::SortScratchBytes(length, 8);
      std::vector<std::int64_t> scratch(room / 8 + 1, -1);
      tfaot::Sort({outer, length, inner}, &Greater, 3, arrays, sizes,
                  reinterpret_cast<unsigned char*>(scratch.data()));
      Expect(scratch.back() == -1, "scratch memory suffices", length, inner);
      for (std::int64_t vector = 0; vector < outer * inner; ++vector) {
        const std::int64_t first =
            vector / inner * length * inner + vector % inner;
        std::vector<std::int64_t> order(static_cast<std::size_t>(length));
        std::iota(order.begin(), order.end(), 0);
        const auto at = [&](std::int64_t i) {
          return static_cast<std::size_t>(first + i * inner);
        };
        std::stable_sort(order.begin(), order.end(),
                         [&](std::int64_t a, std::int64_t b) {
                           return before[at(a)] > before[at(b)];
                         });
        for (std::int64_t i = 0; i < length; ++i) {
          const std::size_t from = at(order[static_cast<std::size_t>(i)]);
          Expect(keys[at(i)] == before[from] &&
                     tags[at(i)] == static_cast<std::int64_t>(from) &&
                     bytes[at(i)] == static_cast<std::int8_t>(from),
                 "a stable order of all arrays", length, inner);
        }
      }
    }
  }
}

void TestTopK() {
  std::mt19937 random(2);
  for (std::int64_t size = 1; size < 40; ++size) {
    for (std::int64_t k = 0; k <= size; ++k) {
      constexpr std::int64_t kBatch = 2;
      std::vector<float> values(static_cast<std::size_t>(kBatch * size));
      for (float& value : values) {
        value = static_cast<float>(static_cast<int>(random() % 11) - 5);
      }
      std::vector<float> top(static_cast<std::size_t>(kBatch * k) + 1, 99);
      std::vector<std::int32_t> indices(top.size(), 99);
      tfaot::TopK(kBatch, size, k, values.data(), top.data(), indices.data());
      for (std::int64_t row = 0; row < kBatch; ++row) {
        const float* const from = values.data() + row * size;
        std::vector<std::int32_t> order(static_cast<std::size_t>(size));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [from](std::int32_t a, std::int32_t b) {
                           return from[a] > from[b];
                         });
        for (std::int64_t i = 0; i < k; ++i) {
          const std::size_t at = static_cast<std::size_t>(row * k + i);
          const std::int32_t want = order[static_cast<std::size_t>(i)];
          Expect(indices[at] == want && top[at] == from[want],
                 "the largest, and of equal ones the first", size, k);
        }
      }
      Expect(top.back() == 99 && indices.back() == 99, "no more", size, k);
    }
  }
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {-0.0f, -kInf, std::copysign(nan, -1.0f), 1,
                          0,     kInf,  std::copysign(nan, 1.0f)};
  float top[7];
  std::int32_t indices[7];
  tfaot::TopK(1, 7, 7, values, top, indices);
  const std::int32_t want[] = {6, 5, 3, 4, 0, 1, 2};
  Expect(std::equal(want, want + 7, indices), "NaN and zeros have an order");
}

}  // namespace

int main() {
  TestSort();
  TestTopK();
  return failed == 0 ? 0 : 1;
}
