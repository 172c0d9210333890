// Protects the way in which a batch is split: none costs less, found by trying
// every number of parts of every size.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>

#include "tests/verify/expect.h"
#include "tfaot/batch.h"

using tfaot::BatchPlan;

namespace {

constexpr std::size_t kMax = 40;

void TestSome() {
  // Of equal costs, the larger part comes first.
  const BatchPlan<2> equal({1, 2}, {1.0, 2.0}, 9);
  EXPECT(equal.next(1) == 0 && equal.next(2) == 1 && equal.next(9) == 1);
  // A large size that costs hardly more is padded rather than split.
  const BatchPlan<2> padded({1, 8}, {1.0, 3.0}, 8);
  EXPECT(padded.next(2) == 0 && padded.next(3) == 1 && padded.next(8) == 1);
  // One size alone, and one that is never worth it.
  const BatchPlan<1> one({4}, {1.0}, 7);
  EXPECT(one.next(1) == 0 && one.next(7) == 0);
  const BatchPlan<2> dear({1, 8}, {1.0, 100.0}, 8);
  EXPECT(dear.next(8) == 0);
}

// The least that `rows` rows can cost, by trying all.
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

// Compares a plan with all others, for every batch.
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
    // Costs are whole numbers, so that sums in any order are the same.
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

}  // namespace

int main() {
  TestSome();
  std::mt19937 random(1);
  CompareMany<1>(random);
  CompareMany<2>(random);
  CompareMany<3>(random);
  CompareMany<4>(random);
  std::printf("%d checks failed\n", failed);
  return failed == 0 ? 0 : 1;
}
