// Protects gradients of biases and other sums: every column of any number of
// rows, and blocks of rows.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/runtime/kernels/fuzz.h"
#include "tfaot/kernels/column_sums_f32.cc"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Random;
using fuzz::Require;
using fuzz::Same;

std::int64_t Results(const ColumnSums& sums) {
  return sums.arrays * sums.blocks * sums.columns;
}

// Sizes of random arrays, with blocks as XLA cuts them.
ColumnSums RandomSizes(Random& random) {
  ColumnSums sums = {};
  sums.arrays = random.Between(1, 3);
  sums.rows = random.OneIn(4) ? random.Between(60, 400) : random.Between(1, 40);
  sums.columns =
      random.OneIn(4) ? random.Between(41, 300) : random.Between(1, 40);
  sums.step = random.OneIn(2) ? sums.rows : random.Between(1, sums.rows);
  sums.first =
      sums.step == sums.rows ? sums.rows : random.Between(1, sums.step);
  sums.blocks = 1 + (sums.rows - sums.first + sums.step - 1) / sums.step;
  return sums;
}

// Small integers, whose sums are exact in any order.
void TestSizes() {
  Random random(1);
  for (int test = 0; test < fuzz::Cases(4000); ++test) {
    const ColumnSums sums = RandomSizes(random);
    const Array<float> in =
        Array<float>::Filled(random, sums.arrays * sums.rows * sums.columns);
    Array<float> want(Results(sums), 0);
    for (std::int64_t a = 0; a < sums.arrays; ++a) {
      for (std::int64_t b = 0, r = 0; b < sums.blocks; ++b) {
        float* const to = want.data() + (a * sums.blocks + b) * sums.columns;
        for (std::int64_t c = 0; c < sums.columns; ++c) to[c] = 0;
        const std::int64_t end =
            std::min(sums.rows, sums.first + b * sums.step);
        for (; r < end; ++r) {
          for (std::int64_t c = 0; c < sums.columns; ++c) {
            to[c] += in.data()[(a * sums.rows + r) * sums.columns + c];
          }
        }
      }
    }
    Array<float> got = Array<float>::Poisoned(random, Results(sums));
    RunColumnSums<float>(sums, in.data(), got.data());
    Require(Same(
        want, got,
        std::to_string(sums.arrays) + " x " + std::to_string(sums.rows) +
            " x " + std::to_string(sums.columns) + " in blocks of " +
            std::to_string(sums.first) + " and " + std::to_string(sums.step)));
  }
}

// Long sums of few columns don't lose digits: many sums run side by side.
void TestRounding() {
  constexpr std::int64_t kRows = 1 << 17;
  for (const std::int64_t columns : {1, 3}) {
    const std::vector<float> in(static_cast<std::size_t>(kRows * columns),
                                0.1f);
    std::vector<float> out(static_cast<std::size_t>(columns));
    RunColumnSums<float>({1, kRows, columns, 1, kRows, kRows}, in.data(),
                         out.data());
    for (const float sum : out) {
      const double want = double{0.1f} * kRows;
      if (std::fabs(double{sum} - want) > 2e-3 * want) {
        std::fprintf(stderr, "the sum is %g, not %g\n", double{sum}, want);
        Require(false);
      }
    }
  }
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::kernels::TestSizes();
  tfaot::kernels::TestRounding();
}
