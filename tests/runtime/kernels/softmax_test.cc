// Protects attention: rows of any length beside their definition in double, and
// special values.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/kernels/fuzz.h"
#include "tfaot/kernels/softmax_f32.cc"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Random;
using fuzz::Require;

void Expect(bool holds, const std::string& what) {
  if (!holds) std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  Require(holds);
}

// The definition. A result that float can only hold as a denormal is 0.
std::vector<double> Wanted(const float* row, std::int64_t columns,
                           float scale) {
  double most = -HUGE_VAL, sum = 0;
  std::vector<double> result;
  for (std::int64_t j = 0; j < columns; ++j) {
    const double value = double{scale} * double{row[j]};
    if (value > most) most = value;
  }
  for (std::int64_t j = 0; j < columns; ++j) {
    result.push_back(std::exp(double{scale} * double{row[j]} - most));
    sum += result.back();
  }
  for (double& value : result) value /= sum;
  return result;
}

// Rows with whole vectors, the values after them, or both; blocks of rows, and
// rows after them; in place and elsewhere.
void TestRows() {
  Random random(1);
  for (int test = 0; test < fuzz::Cases(3000); ++test) {
    const std::int64_t rows = random.Between(1, 9);
    const std::int64_t columns =
        random.OneIn(10) ? random.Between(71, 700) : random.Between(1, 70);
    const float scale = random.OneIn(3) ? 1.0f : random.OneIn(2) ? 0.3f : -0.7f;
    Array<float> from(rows * columns, random.Between(0, 3));
    for (std::int64_t i = 0; i < from.size(); ++i) {
      from.data()[i] = static_cast<float>(random.Between(-4000, 4000)) / 200;
    }
    const std::string what =
        std::to_string(rows) + " rows of " + std::to_string(columns);
    const Array<float> before = from;
    Array<float> to = Array<float>::Poisoned(random, rows * columns);
    float* const out = random.OneIn(2) ? from.data() : to.data();
    RunSoftmax<float>(rows, columns, scale, from.data(), out);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::vector<double> wanted =
          Wanted(before.data() + r * columns, columns, scale);
      for (std::int64_t j = 0; j < columns; ++j) {
        const double want = wanted[static_cast<std::size_t>(j)];
        const double got = double{out[r * columns + j]};
        // An error of the scaled value, at most 20 in size, is one of the
        // result, relative to it.
        Expect(std::fabs(got - want) <= 8e-6 * want + 2e-38,
               what + ": value " + std::to_string(j) + " of row " +
                   std::to_string(r));
      }
    }
    Expect(from.MarginsAreIntact() && to.MarginsAreIntact(), what);
  }
}

// What masks do, and what TensorFlow makes of values that aren't finite.
void TestSpecialValues() {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::int64_t columns : {1, 2, 5, 16, 17, 40}) {
    for (std::int64_t at = 0; at < columns; ++at) {
      const auto row = [&](float all, float special) {
        std::vector<float> values(static_cast<std::size_t>(columns), all);
        values[static_cast<std::size_t>(at)] = special;
        RunSoftmax<float>(1, columns, 1.0f, values.data(), values.data());
        return values;
      };
      const auto masked = [&](float special) {
        const std::vector<float> values = row(2.0f, special);
        const float rest = 1.0f / static_cast<float>(columns - 1);
        for (std::size_t j = 0; j < values.size(); ++j) {
          const float want = static_cast<std::int64_t>(j) == at ? 0.0f : rest;
          Expect(std::fabs(values[j] - want) <= 1e-7f,
                 "a masked value among " + std::to_string(columns));
        }
        Expect(values[static_cast<std::size_t>(at)] == 0.0f, "exactly 0");
      };
      const auto nan = [&](float all, float special) {
        for (const float value : row(all, special)) {
          Expect(std::isnan(value),
                 "NaN in a row of " + std::to_string(columns));
        }
      };
      if (columns > 1) {
        masked(-kInfinity);
        masked(-1e9f);
        masked(-std::numeric_limits<float>::max());
        nan(1.0f, kInfinity);
      }
      // A large value needs no infinity, and a small one no denormal.
      for (const float all : {1e38f, -1e38f, -1000.0f}) {
        Expect(std::fabs(row(all, all)[0] * static_cast<float>(columns) - 1) <
                   1e-6f,
               "equal values in a row of " + std::to_string(columns));
      }
      nan(1.0f, kNan);
      nan(-kInfinity, -kInfinity);
    }
  }
}

// A row of equal values has equal shares, whatever its mask and its scale are,
// unless a scaled value overflows, which is NaN in TensorFlow, too.
void TestScales() {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (const std::int64_t columns : {1, 5, 20, 67}) {
    for (const float value :
         {1.5f, -1e8f, -1e9f, -1e10f, -1e30f, -kMost, 1e10f, 3e12f, kMost}) {
      for (const float scale :
           {1.0f, 0.125f, 0.17677669f, 0.3f, -0.3f, 1.7f, -1.7f}) {
        Array<float> row(4 * columns, 1);
        std::fill(row.data(), row.data() + row.size(), value);
        RunSoftmax<float>(4, columns, scale, row.data(), row.data());
        const std::string what = std::to_string(columns) + " times " +
                                 std::to_string(value) + ", scale " +
                                 std::to_string(scale);
        for (std::int64_t j = 0; j < row.size(); ++j) {
          const float got = row.data()[j];
          Expect(std::isinf(value * scale)
                     ? std::isnan(got)
                     : std::fabs(got * static_cast<float>(columns) - 1) < 1e-6f,
                 what);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::kernels::TestRows();
  tfaot::kernels::TestSpecialValues();
  tfaot::kernels::TestScales();
}
