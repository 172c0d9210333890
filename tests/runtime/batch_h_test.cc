// Protects batches of any size: they are split as costs least, every row is
// computed once, and no result of padding is kept.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/verify/expect.h"
#include "tfaot/arena.h"
#include "tfaot/batch.h"

namespace {

constexpr std::size_t kMax = 100;
using Plan = tfaot::BatchPlan<3>;
using Sizes = std::array<std::int64_t, 3>;
using Costs = std::array<double, 3>;

// What a batch costs by the plan.
double Cost(const Plan& plan, const Sizes& sizes, const Costs& costs,
            std::int64_t rows) {
  double cost = 0;
  while (rows > 0) {
    const std::size_t next = plan.next(rows);
    cost += costs[next];
    rows -= sizes[next];
  }
  return cost;
}

// The least that a batch can cost: of all multisets of sizes that cover it.
double Least(const Sizes& sizes, const Costs& costs, std::int64_t rows) {
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t a = 0; a * sizes[2] < rows + sizes[2]; ++a) {
    for (std::int64_t b = 0; b * sizes[1] < rows + sizes[1]; ++b) {
      const std::int64_t left = rows - a * sizes[2] - b * sizes[1];
      const std::int64_t c = left > 0 ? (left + sizes[0] - 1) / sizes[0] : 0;
      least = std::min(least, static_cast<double>(a) * costs[2] +
                                  static_cast<double>(b) * costs[1] +
                                  static_cast<double>(c) * costs[0]);
    }
  }
  return least;
}

void TestPlanCostsLeast() {
  const Sizes some[] = {{1, 8, 64}, {3, 5, 7}, {16, 17, 90}};
  // As many rows as they have, next to nothing for more, more for more each.
  const Costs dear[] = {{1, 8, 64}, {5, 5.5, 6}, {1, 12, 200}};
  for (const Sizes& sizes : some) {
    for (const Costs& costs : dear) {
      const Plan plan(sizes, costs, kMax);
      for (std::int64_t rows = 1; rows <= static_cast<std::int64_t>(kMax);
           ++rows) {
        EXPECT(Cost(plan, sizes, costs, rows) == Least(sizes, costs, rows));
      }
    }
  }
}

void TestTiesTakeLargerParts() {
  const Plan plan({1, 2, 4}, {1, 2, 4}, 7);
  EXPECT(plan.next(4) == 2 && plan.next(7) == 2);
  EXPECT(plan.next(3) == 1 && plan.next(1) == 0);
}

// The largest batches fit no stack, and need none.
void TestManyRows() {
  constexpr std::int64_t kMany = 20'000'000;
  const Plan plan({1, 8, 64}, {1, 2, 10}, kMany);
  EXPECT(plan.next(kMany) == 2 && plan.next(kMany - 1) == 2);
  EXPECT(plan.next(64) == 2 && plan.next(2) == 1 && plan.next(1) == 0);
}

// Doubles rows of `kColumns` floats; takes any number of them.
struct Doubler {
  static constexpr std::size_t kColumns = 3;

  explicit Doubler(std::int64_t rows)
      : results(static_cast<std::size_t>(rows) * kColumns) {}

  void set_arg_data(std::size_t index, const void* data) {
    EXPECT(index == 1);
    EXPECT(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
    arg = static_cast<const float*>(data);
  }
  void* result_data(std::size_t index) {
    EXPECT(index == 2);
    return results.data();
  }
  void Run() {
    for (std::size_t i = 0; i < results.size(); ++i) results[i] = 2 * arg[i];
  }

  const float* arg = nullptr;
  std::vector<float> results;
};

void TestRows() {
  constexpr std::size_t kRow = Doubler::kColumns * sizeof(float);
  constexpr std::int64_t kRows = 40;
  // Where inputs are, outputs, and a padded part of 16 rows.
  constexpr std::size_t kIn = 0, kOut = 512, kPadded = 1024;
  for (std::int64_t size : {1, 4, 16}) {
    tfaot::Arena arena(2048);
    float* in = reinterpret_cast<float*>(arena.at(kIn));
    float* out = reinterpret_cast<float*>(arena.at(kOut));
    const std::size_t count = kRows * Doubler::kColumns;
    for (std::size_t i = 0; i < count; ++i) in[i] = static_cast<float>(i + 1);
    // Left over from an earlier part.
    std::memset(arena.at(kPadded), 0xff, 16 * kRow);
    Doubler doubler(size);
    const std::int64_t batch = 23;
    for (std::int64_t row = 0; row < batch; row += size) {
      const std::int64_t rows = std::min(size, batch - row);
      tfaot::FeedRows(doubler, arena, {1, kIn, kRow, kPadded}, row, rows, size);
      doubler.Run();
      for (std::size_t i = static_cast<std::size_t>(rows) * Doubler::kColumns;
           i < doubler.results.size(); ++i) {
        EXPECT(doubler.results[i] == 0);
      }
      tfaot::FetchRows(doubler, arena, {2, kOut, kRow, 0}, row, rows);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const bool computed = i < batch * Doubler::kColumns;
      EXPECT(out[i] == (computed ? 2 * in[i] : 0));
      EXPECT(in[i] == static_cast<float>(i + 1));
    }
  }
}

void TestAlignedPartsAreNotCopied() {
  tfaot::Arena arena(1024);
  Doubler doubler(16);
  const tfaot::BatchedTensor rows{1, 64, 12, 512};
  // Row 16 begins at 64 + 192, again a multiple of 64.
  tfaot::FeedRows(doubler, arena, rows, 16, 16, 16);
  EXPECT(doubler.arg == static_cast<void*>(arena.at(64 + 192)));
  tfaot::FeedRows(doubler, arena, rows, 1, 16, 16);
  EXPECT(doubler.arg == static_cast<void*>(arena.at(512)));
  tfaot::FeedRows(doubler, arena, rows, 16, 15, 16);
  EXPECT(doubler.arg == static_cast<void*>(arena.at(512)));
}

}  // namespace

int main() {
  TestPlanCostsLeast();
  TestTiesTakeLargerParts();
  TestManyRows();
  TestRows();
  TestAlignedPartsAreNotCopied();
  return failed == 0 ? 0 : 1;
}
