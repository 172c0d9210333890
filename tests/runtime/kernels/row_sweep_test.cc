// Protects layer norms and softmaxes of compiled models: numbers of rows of any
// length beside their definition in double, rows that are written in place,
// equal rows, and values that aren't finite.
#include "tfaot/kernels/row_sweep.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/kernels/fuzz.h"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Random;
using fuzz::Require;

void Expect(bool holds, const std::string& what) {
  if (!holds) std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  Require(holds);
}

// As compiled models have it. Two sums, then one that needs the first:
//   a = sum(x), b = sum(x * y), c = sum((x - a / columns)^2) + old
//   x = (x - a / columns) * scale + b * rate, and values of rows are b and c.
template <int kLength>
struct Norm {
  static constexpr std::int64_t kColumns = kLength;
  static constexpr std::size_t kArrays = 2;
  static constexpr std::size_t kVectors = 1;
  static constexpr std::size_t kValues = 2;
  static constexpr std::size_t kScalars = 1;
  using Stages = std::tuple<std::tuple<Add, Add>, std::tuple<Add>>;
  static constexpr bool kWrites = true;
  static constexpr int kCost = 20;
  struct Rows {
    alignas(64) float old[kMostRows], mean[kMostRows], b[kMostRows],
        c[kMostRows], step[kMostRows];
  };
  template <int kStage>
  static TFAOT_INLINE void Begin(RowSums sums, const Places<kValues>& values,
                                 const Places<kScalars>& scalars,
                                 std::int64_t first, std::int64_t count,
                                 Rows& rows) {
    using V = Vector<float>;
    const std::size_t bytes = 4 * static_cast<std::size_t>(count);
    if constexpr (kStage == 0) {
      std::memcpy(rows.old, values[1] + 4 * first, bytes);
    }
    for (std::int64_t r = 0; r < count; r += kLanes<float>) {
      if constexpr (kStage == 1) {
        Store(rows.mean + r, Load(sums[0] + r) / All<V>(float{kLength}));
        Store(rows.b + r, Load(sums[1] + r));
        Store(rows.step + r,
              Load(rows.b + r) * All<V>(Get<float, float>(scalars[0], 0)));
      }
      if constexpr (kStage == 2) {
        Store(rows.c + r, Load(sums[0] + r) + Load(rows.old + r));
      }
    }
    if constexpr (kStage == 2) {
      std::memcpy(values[0] + 4 * first, rows.b, bytes);
      std::memcpy(values[1] + 4 * first, rows.c, bytes);
    }
  }
  template <int kStage, typename V, typename Index>
  static TFAOT_INLINE void At(const Rows& rows, std::int64_t r, std::int64_t,
                              const Places<kArrays>& arrays, Index i,
                              const Places<kVectors>& vectors, Index j,
                              V* sums) {
    const V x = Get<V, float>(arrays[0], i);
    if constexpr (kStage == 0) {
      sums[0] += x;
      sums[1] = MultiplyAdd(x, Get<V, float>(arrays[1], i), sums[1]);
    } else {
      const V apart = x - All<V>(rows.mean[r]);
      if constexpr (kStage == 1) {
        sums[0] = MultiplyAdd(apart, apart, sums[0]);
      } else {
        Put<float>(arrays[0], i,
                   MultiplyAdd(apart, Get<V, float>(vectors[0], j),
                               All<V>(rows.step[r])));
      }
    }
  }
};

// Without sums: x = x * value + vector.
struct Biased {
  static constexpr std::int64_t kColumns = 37;
  static constexpr std::size_t kArrays = 1;
  static constexpr std::size_t kVectors = 1;
  static constexpr std::size_t kValues = 1;
  static constexpr std::size_t kScalars = 0;
  using Stages = std::tuple<>;
  static constexpr bool kWrites = true;
  static constexpr int kCost = 20;
  struct Rows {
    alignas(64) float value[kMostRows];
  };
  template <int kStage>
  static TFAOT_INLINE void Begin(RowSums, const Places<kValues>& values,
                                 const Places<kScalars>&, std::int64_t first,
                                 std::int64_t count, Rows& rows) {
    std::memcpy(rows.value, values[0] + 4 * first,
                4 * static_cast<std::size_t>(count));
  }
  template <int kStage, typename V, typename Index>
  static TFAOT_INLINE void At(const Rows& rows, std::int64_t r, std::int64_t,
                              const Places<kArrays>& arrays, Index i,
                              const Places<kVectors>& vectors, Index j, V*) {
    const V product = Get<V, float>(arrays[0], i) * All<V>(rows.value[r]);
    Put<float>(arrays[0], i, product + Get<V, float>(vectors[0], j));
  }
};

// Two extrema, then what a softmax keeps in its result: x = exp(x - max(x)),
// and its share of the sum. `values` are the largest and the smallest value.
template <int kLength>
struct Softmax {
  static constexpr std::int64_t kColumns = kLength;
  static constexpr std::size_t kArrays = 1;
  static constexpr std::size_t kVectors = 0;
  static constexpr std::size_t kValues = 2;
  static constexpr std::size_t kScalars = 0;
  using Stages = std::tuple<std::tuple<Smaller, Larger>, std::tuple<Add>>;
  static constexpr bool kWrites = true;
  static constexpr int kCost = 20;
  struct Rows {
    alignas(64) float most[kMostRows], least[kMostRows], share[kMostRows];
  };
  template <int kStage>
  static TFAOT_INLINE void Begin(RowSums sums, const Places<kValues>& values,
                                 const Places<kScalars>&, std::int64_t first,
                                 std::int64_t count, Rows& rows) {
    for (std::int64_t r = 0; r < count; ++r) {
      if constexpr (kStage == 1) {
        rows.least[r] = sums[0][r];
        rows.most[r] = sums[1][r];
      }
      if constexpr (kStage == 2) rows.share[r] = 1.0f / sums[0][r];
    }
    if constexpr (kStage == 2) {
      const std::size_t bytes = 4 * static_cast<std::size_t>(count);
      std::memcpy(values[0] + 4 * first, rows.most, bytes);
      std::memcpy(values[1] + 4 * first, rows.least, bytes);
    }
  }
  template <int kStage, typename V, typename Index>
  static TFAOT_INLINE void At(const Rows& rows, std::int64_t r, std::int64_t,
                              const Places<kArrays>& arrays, Index i,
                              const Places<kVectors>&, Index, V* sums) {
    const V x = Get<V, float>(arrays[0], i);
    if constexpr (kStage == 0) {
      sums[0] = Smaller()(x, sums[0]);
      sums[1] = Larger()(x, sums[1]);
    } else if constexpr (kStage == 1) {
      const V power = Exp(x - All<V>(rows.most[r]));
      Put<float>(arrays[0], i, power);
      sums[0] += power;
    } else {
      Put<float>(arrays[0], i, x * All<V>(rows.share[r]));
    }
  }
};

template <typename T>
unsigned char* At(T* values) {
  return reinterpret_cast<unsigned char*>(values);
}

bool Close(double got, double want, double size) {
  return std::fabs(got - want) <= 1e-5 * size;
}

// Whole vectors and the values after them; groups of rows, and rows after them;
// and nothing beyond an end.
template <int kColumns>
void TestRows() {
  Random random(kColumns);
  for (const int rows : {1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 37, 64, 70}) {
    const auto fill = [&](std::int64_t size) {
      Array<float> values(size, 1);
      for (std::int64_t i = 0; i < size; ++i) {
        values.data()[i] = static_cast<float>(random.Between(-100, 100)) / 64;
      }
      return values;
    };
    Array<float> x = fill(rows * kColumns), y = fill(rows * kColumns);
    Array<float> scale = fill(kColumns), b = fill(rows), c = fill(rows);
    const Array<float> before = x, old = c;
    float rate = 0.25f;
    RunRowSweep<Norm<kColumns>>(
        rows, {At(x.data()), At(y.data())}, {At(scale.data())},
        {At(b.data()), At(c.data())}, {At(&rate)}, nullptr);
    const std::string what =
        std::to_string(rows) + " rows of " + std::to_string(kColumns);
    for (int r = 0; r < rows; ++r) {
      double sum = 0, product = 0, squares = 0;
      for (int j = 0; j < kColumns; ++j) {
        const double value = double{before.data()[r * kColumns + j]};
        sum += value;
        product += value * double{y.data()[r * kColumns + j]};
      }
      const double mean = sum / kColumns;
      for (int j = 0; j < kColumns; ++j) {
        const double apart = double{before.data()[r * kColumns + j]} - mean;
        squares += apart * apart;
        const double want = apart * double{scale.data()[j]} + product * 0.25;
        Expect(Close(double{x.data()[r * kColumns + j]}, want, kColumns + 4),
               what + ": a value");
      }
      Expect(Close(double{b.data()[r]}, product, 3 * kColumns),
             what + ": the first sum");
      Expect(Close(double{c.data()[r]}, squares + double{old.data()[r]},
                   3 * kColumns + 2),
             what + ": the second sum");
    }
    for (const Array<float>* each : {&x, &y, &scale, &b, &c}) {
      Expect(each->MarginsAreIntact(), what + ": beyond an end");
    }
  }
}

// Extrema, also of negative values only; NaN and infinities anywhere in a row.
template <int kColumns>
void TestExtrema() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Random random(kColumns);
  for (const int rows : {1, 3, 4, 6, 33}) {
    Array<float> x(rows * kColumns, 1), most(rows, 1), least(rows, 1);
    for (const float special : {0.0f, -kInfinity, kInfinity, std::nanf("")}) {
      for (std::int64_t i = 0; i < x.size(); ++i) {
        x.data()[i] = static_cast<float>(random.Between(-999, -9)) / 64;
      }
      for (int r = 1; r < rows; r += 2) {
        x.data()[r * kColumns + random.Between(0, kColumns - 1)] = special;
      }
      const Array<float> before = x;
      RunRowSweep<Softmax<kColumns>>(rows, {At(x.data())}, {},
                                     {At(most.data()), At(least.data())}, {},
                                     nullptr);
      const std::string what = std::to_string(rows) + " rows of " +
                               std::to_string(kColumns) + " with " +
                               std::to_string(special);
      for (int r = 0; r < rows; ++r) {
        const float* row = before.data() + r * kColumns;
        double high = -HUGE_VAL, low = HUGE_VAL, sum = 0;
        for (int j = 0; j < kColumns; ++j) {
          const double value = double{row[j]};
          high = value > high || value != value ? value : high;
          low = value < low || value != value ? value : low;
        }
        for (int j = 0; j < kColumns; ++j) {
          sum += std::exp(double{row[j]} - high);
        }
        const auto same = [](double a, double b) {
          return a == b || (std::isnan(a) && std::isnan(b));
        };
        Expect(same(double{most.data()[r]}, high), what + ": the largest");
        Expect(same(double{least.data()[r]}, low), what + ": the smallest");
        for (int j = 0; j < kColumns; ++j) {
          const double got = double{x.data()[r * kColumns + j]};
          const double want = std::exp(double{row[j]} - high) / sum;
          Expect(same(got, want) || std::fabs(got - want) <= 2e-6 * want,
                 what + ": a share");
        }
      }
      for (const Array<float>* each : {&x, &most, &least}) {
        Expect(each->MarginsAreIntact(), what + ": beyond an end");
      }
    }
  }
}

// Rows without sums.
void TestWithoutSums() {
  constexpr std::int64_t kRows = 5003, kColumns = Biased::kColumns;
  std::vector<float> x(kRows * kColumns), value(kRows), vector(kColumns);
  Random random(3);
  for (auto* values : {&x, &value, &vector}) {
    for (float& each : *values) {
      each = static_cast<float>(random.Between(-300, 300)) / 64;
    }
  }
  std::vector<float> got = x;
  RunRowSweep<Biased>(kRows, {At(got.data())}, {At(vector.data())},
                      {At(value.data())}, {}, nullptr);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float want = x[i] * value[i / kColumns] + vector[i % kColumns];
    Expect(got[i] == want, "value " + std::to_string(i) + " without sums");
  }
}

// Equal rows have equal bits, wherever they begin in a cache line.
void TestEqualRows() {
  constexpr int kRows = 37, kColumns = 1021;
  std::vector<float> x(kRows * kColumns), scale(kColumns, 0.7f), b(kRows),
      c(kRows);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = 1.0f / static_cast<float>(i % kColumns + 3);
  }
  std::vector<float> y = x;
  float rate = 0.3f;
  RunRowSweep<Norm<kColumns>>(kRows, {At(x.data()), At(y.data())},
                              {At(scale.data())}, {At(b.data()), At(c.data())},
                              {At(&rate)}, nullptr);
  for (int r = 1; r < kRows; ++r) {
    Expect(std::memcmp(&x[r * kColumns], &x[0], 4 * kColumns) == 0,
           "equal rows differ");
  }
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::kernels::TestRows<1>();
  tfaot::kernels::TestRows<7>();
  tfaot::kernels::TestRows<16>();
  tfaot::kernels::TestRows<33>();
  tfaot::kernels::TestRows<64>();
  tfaot::kernels::TestRows<127>();
  tfaot::kernels::TestRows<1100>();
  tfaot::kernels::TestExtrema<1>();
  tfaot::kernels::TestExtrema<7>();
  tfaot::kernels::TestExtrema<16>();
  tfaot::kernels::TestExtrema<37>();
  tfaot::kernels::TestExtrema<1025>();
  tfaot::kernels::TestWithoutSums();
  tfaot::kernels::TestEqualRows();
}
