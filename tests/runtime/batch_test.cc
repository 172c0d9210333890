// Protects batches of any size: no split has a lower cost, by trying every
// number of parts of every size. Compiled code sees the aligned rows of its
// part, followed by zeros and by no other rows, and no result of padding is
// kept.
#include "tfaot/batch.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>

#include "tests/runtime/expect.h"

namespace {

using tfaot::BatchPlan;

constexpr std::size_t kMax = 40;

void TestSome() {
  // With equal costs, the larger part comes first.
  const BatchPlan<2> equal({1, 2}, {1.0, 2.0}, 9);
  EXPECT(equal.next(1) == 0 && equal.next(2) == 1 && equal.next(9) == 1);
  // A large size that costs little more is padded instead of split.
  const BatchPlan<2> padded({1, 8}, {1.0, 3.0}, 8);
  EXPECT(padded.next(2) == 0 && padded.next(3) == 1 && padded.next(8) == 1);
  // A single size, and one that never pays off.
  const BatchPlan<1> one({4}, {1.0}, 7);
  EXPECT(one.next(1) == 0 && one.next(7) == 0);
  const BatchPlan<2> dear({1, 8}, {1.0, 100.0}, 8);
  EXPECT(dear.next(8) == 0);
}

// Returns the minimum cost of `rows` rows, by trying everything.
template <std::size_t kSizes>
double Least(const std::array<std::int64_t, kSizes>& sizes,
             const std::array<double, kSizes>& costs, std::int64_t rows,
             std::size_t from = 0) {
  if (rows <= 0) return 0;
  if (from == kSizes) return std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  double cost = 0;
  for (std::int64_t left = rows;; left -= sizes[from]) {
    least = std::min(least, cost + Least(sizes, costs, left, from + 1));
    if (left <= 0) return least;
    cost += costs[from];
  }
}

// Compares a plan with all alternatives, for every batch.
template <std::size_t kSizes>
void Compare(const std::array<std::int64_t, kSizes>& sizes,
             const std::array<double, kSizes>& costs) {
  const BatchPlan<kSizes> plan(sizes, costs, kMax);
  for (std::int64_t rows = 1; rows <= static_cast<std::int64_t>(kMax); ++rows) {
    double cost = 0;
    int parts = 0;
    for (std::int64_t left = rows; left > 0 && parts <= rows; ++parts) {
      const std::size_t next = plan.next(left);
      EXPECT(next < kSizes);
      cost += costs[next];
      left -= sizes[next];
    }
    EXPECT(parts <= rows);
    // Costs are integers, so sums in any order are the same.
    EXPECT(cost == Least(sizes, costs, rows));
  }
}

template <std::size_t kSizes>
void CompareMany(std::mt19937& random) {
  for (int round = 0; round < 200; ++round) {
    std::array<std::int64_t, kMax> all{};
    for (std::size_t i = 0; i < kMax; ++i) {
      all[i] = static_cast<std::int64_t>(i) + 1;
    }
    std::shuffle(all.begin(), all.end(), random);
    std::array<std::int64_t, kSizes> sizes{};
    std::copy_n(all.begin(), kSizes, sizes.begin());
    std::sort(sizes.begin(), sizes.end());
    std::array<double, kSizes> costs{};
    for (double& cost : costs) {
      cost = std::uniform_int_distribution<int>(1, 60)(random);
    }
    Compare(sizes, costs);
  }
}

// With open sizes, plans use only functions that have room, and cost the least
// of all ways to use these. With equal costs, they take the least room.
void TestBuckets(std::mt19937& random) {
  using Plan = BatchPlan<8, 4, 2>;
  const Plan::Buckets buckets{{{{4, 4}}, {{4, 8}}, {{16, 4}}, {{16, 8}}}};
  const std::array<std::int64_t, 8> batches{1, 3, 1, 3, 1, 3, 1, 3};
  for (int round = 0; round < 100; ++round) {
    std::array<double, 8> costs{};
    for (double& cost : costs) {
      cost = std::uniform_int_distribution<int>(1, 20)(random);
    }
    const Plan plan(batches, costs, 5, buckets);
    for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket) {
      std::array<double, 8> with_room = costs;
      for (std::size_t i = 0; i < costs.size(); ++i) {
        for (std::size_t size = 0; size < 2; ++size) {
          if (buckets[i / 2][size] < buckets[bucket][size]) with_room[i] = 1e9;
        }
      }
      for (std::int64_t rows = 1; rows <= 5; ++rows) {
        double cost = 0;
        for (std::int64_t left = rows; left > 0;) {
          const std::size_t next = plan.next(left, bucket);
          cost += with_room[next];
          left -= batches[next];
        }
        EXPECT(cost == Least(batches, with_room, rows));
      }
    }
  }
  const BatchPlan<3, 3, 1> equal({0, 0, 0}, {1, 1, 1}, 1,
                                 {{{{4}}, {{8}}, {{16}}}});
  EXPECT(equal.next(1, 0) == 0 && equal.next(1, 1) == 1);
  const BatchPlan<3, 3, 1> cheaper({0, 0, 0}, {2, 3, 1}, 1,
                                   {{{{4}}, {{8}}, {{16}}}});
  EXPECT(cheaper.next(1, 0) == 2 && cheaper.next(1, 2) == 2);
}

// The largest batches fit on no stack, and don't need one.
void TestManyRows() {
  constexpr std::int64_t kMany = 20'000'000;
  const BatchPlan<3> plan({1, 8, 64}, {1, 2, 10}, kMany);
  EXPECT(plan.next(kMany) == 2 && plan.next(kMany - 1) == 2);
  EXPECT(plan.next(64) == 2 && plan.next(2) == 1 && plan.next(1) == 0);
}

constexpr int kColumns = 3;
constexpr int kRows = 11;
constexpr std::int64_t kSize = 4;
constexpr std::size_t kRowBytes = kColumns * sizeof(float);
constexpr std::size_t kInput = 0, kOutput = 192, kPadded = 384;

// Negates kSize rows like a compiled function: argument 1, result 0.
class Negate {
 public:
  void set_arg_data(std::size_t index, const void* data) {
    EXPECT(index == 1);
    data_ = static_cast<const float*>(data);
  }
  void Run() {
    EXPECT(reinterpret_cast<std::uintptr_t>(data_) % tfaot::kAlignment == 0);
    for (int i = 0; i < kSize * kColumns; ++i) result_[i] = -data_[i];
  }
  const void* result_data(std::size_t index) const {
    EXPECT(index == 0);
    return result_;
  }
  const float* data() const { return data_; }

 private:
  const float* data_ = nullptr;
  float result_[kSize * kColumns];
};

float* Floats(unsigned char* memory, std::size_t offset) {
  return reinterpret_cast<float*>(memory + offset);
}

void TestRows() {
  alignas(64) unsigned char arena[576] = {};
  const tfaot::BatchedTensor input{1, kRowBytes};
  const tfaot::BatchedTensor output{0, kRowBytes};
  float* in = Floats(arena, kInput);
  float* out = Floats(arena, kOutput);
  for (std::int64_t first = 0; first < kRows; ++first) {
    for (std::int64_t rows = 1; rows <= kSize && first + rows <= kRows;
         ++rows) {
      // NaN marks what must not be visible.
      for (int i = 0; i < kRows * kColumns; ++i) {
        in[i] = std::numeric_limits<float>::quiet_NaN();
        out[i] = -1;
      }
      std::memset(arena + kPadded, 0xff, 192);
      for (std::int64_t i = first * kColumns; i < (first + rows) * kColumns;
           ++i) {
        in[i] = static_cast<float>(i + 1);
      }
      Negate negate;
      tfaot::FeedRows(negate, input, in, arena + kPadded, first, rows, kSize);
      // Complete and aligned rows are used in place.
      const bool in_place = rows == kSize && first * kRowBytes % 64 == 0;
      EXPECT((negate.data() == in + first * kColumns) == in_place);
      negate.Run();
      tfaot::FetchRows(negate, output, out, first, rows);
      for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
        const bool fed = i >= first * kColumns && i < (first + rows) * kColumns;
        EXPECT(out[i] == (fed ? -static_cast<float>(i + 1) : -1.0f));
      }
      for (std::int64_t i = rows * kColumns; i < kSize * kColumns; ++i) {
        EXPECT(negate.data()[i] == 0.0f);
      }
    }
  }
}

}  // namespace

int main() {
  TestSome();
  std::mt19937 random(1);
  CompareMany<1>(random);
  CompareMany<2>(random);
  CompareMany<3>(random);
  CompareMany<4>(random);
  TestBuckets(random);
  TestManyRows();
  TestRows();
  std::printf("%d checks failed\n", failed.load());
  return failed == 0 ? 0 : 1;
}
