// Protects "threads don't change a bit": every kernel that is split for a pool,
// compiled as for models, in random sizes on pools of random sizes. Also into
// which parts calls are split, and that these have the caller's floating-point
// mode.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/runtime/expect.h"
#include "tests/runtime/kernels/fuzz.h"
#include "tests/runtime/kernels/winograd_kernel.h"
#include "tests/runtime/pools.h"
#include "tfaot/flush_denormals.h"
#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/parallel.h"
#include "tfaot/kernels/row_sweep.h"
#include "tfaot/kernels/sweep.h"
#include "tfaot/kernels/winograd_scratch.h"
#include "tfaot/threads.h"

namespace tfaot::kernels {
namespace {

using fuzz::Random;

// How often a pool had parts of each kernel, and did not.
std::map<std::string, std::array<int, 2>> calls;

unsigned char* At(std::vector<float>& values) {
  return reinterpret_cast<unsigned char*>(values.data());
}

// Values whose sums depend on the order and on each rounding: some of a list
// that repeats, of a length that is prime.
std::vector<float> Rough(Random& random, std::int64_t size) {
  static const std::vector<float> all = [&] {
    std::vector<float> drawn(99991);
    for (float& value : drawn) {
      value = static_cast<float>(random.Between(-1000000, 1000000)) / 999983;
    }
    return drawn;
  }();
  std::vector<float> values(static_cast<std::size_t>(size));
  auto from = static_cast<std::size_t>(random.Between(0, 99990));
  for (float& value : values) {
    value = all[from];
    from = from + 1 == all.size() ? 0 : from + 1;
  }
  return values;
}

// Compares run(pool), a vector, with run(nullptr). `what` is the kernel, and
// may have sizes after it.
template <typename Run>
void Compare(Random& random, const std::string& what, const Run& run) {
  const auto whole = run(nullptr);
  const int count = static_cast<int>(random.Between(2, 9));
  ShuffledPool shuffled(count);
  Threads threads(count < 5 ? count : 2);
  for (ThreadPool* pool : {static_cast<ThreadPool*>(&shuffled),
                           static_cast<ThreadPool*>(&threads)}) {
    const auto parts = run(pool);
    if (whole.size() == parts.size() &&
        std::memcmp(whole.data(), parts.data(),
                    whole.size() * sizeof(whole[0])) == 0) {
      continue;
    }
    std::printf("FAILED: %s, on %d threads\n", what.c_str(), pool->threads());
    ++failed;
  }
  ++calls[what.substr(0, what.find_first_of("0123456789"))][shuffled.calls > 0];
}

// x = x * x + y * scale, y = exp(x * y) / (scale + x * x): each sum has
// products that a compiler could fuse with it.
struct Formula {
  using Value = float;
  static constexpr std::size_t kArrays = 2;
  static constexpr std::size_t kScalars = 1;
  static constexpr int kCost = 40;
  explicit Formula(const Places<kScalars>& scalars)
      : scale(Get<float, float>(scalars[0], 0)) {}
  float scale;
  template <typename V>
  TFAOT_INLINE void At(const Places<kArrays>& arrays, std::int64_t i) const {
    const V x = Get<V, float>(arrays[0], i), y = Get<V, float>(arrays[1], i);
    const V square = x * x;
    Put<float>(arrays[0], i, square + y * All<V>(scale));
    Put<float>(arrays[1], i, Exp(x * y) / (All<V>(scale) + square));
  }
};

// The same in rows, as in a chain of norms: a is the sum of (x + y)^2, b is the
// sum of u^2 with u = (x + y) * a * vector + 2 * x, and x becomes
// (u * b * vector + 2 * x) * vector + 2 * y. `values` is b.
template <int kLength>
struct RowFormula {
  static constexpr std::int64_t kColumns = kLength;
  static constexpr std::size_t kArrays = 2;
  static constexpr std::size_t kVectors = 1;
  static constexpr std::size_t kValues = 1;
  static constexpr std::size_t kScalars = 0;
  using Stages = std::tuple<std::tuple<Add>, std::tuple<Add>>;
  static constexpr bool kWrites = true;
  static constexpr int kCost = 20;
  struct Rows {
    alignas(64) float a[kMostRows], b[kMostRows];
  };
  template <int kStage>
  static TFAOT_INLINE void Begin(RowSums sums, const Places<kValues>& values,
                                 const Places<kScalars>&, std::int64_t first,
                                 std::int64_t count, Rows& rows) {
    if constexpr (kStage > 0) {
      float* const to = kStage == 1 ? rows.a : rows.b;
      for (std::int64_t r = 0; r < count; ++r) to[r] = sums[0][r] / kLength;
    }
    if constexpr (kStage == 2) {
      std::memcpy(values[0] + 4 * first, rows.b,
                  4 * static_cast<std::size_t>(count));
    }
  }
  template <int kStage, typename V, typename Index>
  static TFAOT_INLINE void At(const Rows& rows, std::int64_t r, std::int64_t,
                              const Places<kArrays>& arrays, Index i,
                              const Places<kVectors>& vectors, Index j,
                              V* sums) {
    const V x = Get<V, float>(arrays[0], i), y = Get<V, float>(arrays[1], i);
    const V vector = Get<V, float>(vectors[0], j);
    const V two = All<V>(2.0f), sum = x + y;
    if constexpr (kStage == 0) {
      sums[0] += sum * sum;
    } else {
      const V u = sum * All<V>(rows.a[r]) * vector + x * two;
      if constexpr (kStage == 1) {
        sums[0] += u * u;
      } else {
        const V w = u * All<V>(rows.b[r]) * vector + x * two;
        Put<float>(arrays[0], i, w * vector + y * two);
      }
    }
  }
};

void SweepOf(Random& random) {
  const std::int64_t count = random.Between(30000, 200000);
  const auto x = Rough(random, count), y = Rough(random, count);
  Compare(random, "a formula", [&](ThreadPool* threads) {
    std::vector<float> results[] = {x, y}, scale = {0.3f};
    RunSweep<Formula>(count, {At(results[0]), At(results[1])}, {At(scale)},
                      threads);
    results[0].insert(results[0].end(), results[1].begin(), results[1].end());
    return results[0];
  });
}

template <int kLength>
void RowSweepOf(Random& random) {
  const std::int64_t rows = random.Between(40000, 150000) / kLength + 1;
  const auto x = Rough(random, rows * kLength), y = Rough(random, x.size());
  const auto vector = Rough(random, kLength);
  Compare(
      random, "rows of " + std::to_string(kLength), [&](ThreadPool* threads) {
        std::vector<float> to = x, other = y, columns = vector,
                           value(static_cast<std::size_t>(rows));
        RunRowSweep<RowFormula<kLength>>(
            rows, {At(to), At(other)}, {At(columns)}, {At(value)}, {}, threads);
        to.insert(to.end(), value.begin(), value.end());
        return to;
      });
}

void ColumnSumsOf(Random& random) {
  ColumnSums sums;
  sums.arrays = random.OneIn(2) ? 1 : random.Between(2, 20);
  sums.columns = random.Between(1, random.OneIn(2) ? 40 : 2000);
  sums.rows = random.Between(600000, 900000) / sums.columns / sums.arrays + 1;
  sums.step = random.Between(sums.rows / 4 + 1, sums.rows);
  sums.first = random.Between(1, sums.step);
  sums.blocks = 1 + (sums.rows - sums.first + sums.step - 1) / sums.step;
  const auto in = Rough(random, sums.arrays * sums.rows * sums.columns);
  Compare(random, "sums of columns", [&](ThreadPool* threads) {
    std::vector<float> out(
        static_cast<std::size_t>(sums.arrays * sums.blocks * sums.columns));
    RunColumnSums<float>(sums, in.data(), out.data(), threads);
    return out;
  });
}

template <typename T>
void ProductsOf(Random& random) {
  Products product = {};
  product.batch = random.OneIn(4) ? random.Between(2, 5) : 1;
  const auto size = [&] {
    return random.OneIn(4) ? random.Between(1, 9) : random.Between(10, 300);
  };
  product.rows = size();
  product.columns = size();
  product.depth = random.Between(500000, 1500000) /
                      (product.batch * product.rows * product.columns) +
                  1;
  if (product.depth > 20000) return;
  product.transposed_left = random.OneIn(2);
  product.transposed_right = random.OneIn(2);
  product.left_step = product.rows * product.depth;
  product.right_step = product.depth * product.columns;
  product.out_step = product.rows * product.columns;
  if (product.batch > 1 && random.OneIn(2)) {  // side by side
    product.out_step = product.columns;
    product.out_stride = product.batch * product.columns;
  }
  const auto filled = [&](std::int64_t count) {
    const auto rough = Rough(random, product.batch * count);
    std::vector<T> values(rough.size());
    for (std::size_t i = 0; i < rough.size(); ++i) {
      values[i] = static_cast<T>(std::is_integral_v<T> ? (rough[i] + 1) * 1e9f
                                                       : rough[i]);
    }
    return values;
  };
  const auto left = filled(product.left_step);
  const auto right = filled(product.right_step);
  Compare(random,
          "a product of " + std::to_string(product.rows) + " x " +
              std::to_string(product.depth) + " x " +
              std::to_string(product.columns),
          [&](ThreadPool* threads) {
            std::vector<T> out(
                static_cast<std::size_t>(product.batch * product.rows) *
                static_cast<std::size_t>(product.columns));
            RunProducts<T>(product, left.data(), right.data(), out.data(),
                           threads);
            return out;
          });
}

void StreamOf(Random& random) {
  Products product = {};
  product.batch = 1;
  product.rows = random.Between(1, 4);
  product.depth = random.Between(1, 900);
  product.columns =
      random.Between(600000, 900000) / product.depth / product.rows + 1;
  product.packing = random.OneIn(2) ? Packing::kFloat32 : Packing::kInt8;
  const std::int64_t panels =
      (product.columns + kStreamColumns - 1) / kStreamColumns;
  const auto left = Rough(random, product.rows * product.depth);
  auto right = Rough(random, panels * kStreamColumns * (product.depth + 2));
  if (product.packing == Packing::kInt8) {  // after the factors, any bytes
    for (std::size_t i = static_cast<std::size_t>(panels * kStreamColumns);
         i < right.size(); ++i) {
      const auto bits = static_cast<std::uint32_t>(random.Between(0, 1 << 30));
      std::memcpy(&right[i], &bits, 4);
    }
  }
  Compare(random, "a stream", [&](ThreadPool* threads) {
    std::vector<float> out(
        static_cast<std::size_t>(product.rows * product.columns));
    RunStream<float>(product, left.data(), right.data(), out.data(), threads);
    return out;
  });
}

// Convolutions, and for some of them Winograd's and the gradient.
void ConvolutionOf(Random& random) {
  const bool depthwise = random.OneIn(4);
  Images images = {};
  images.batch = random.Between(1, 3);
  images.input_channels = random.OneIn(3) ? 3 : random.Between(1, 40);
  images.groups = depthwise ? images.input_channels : 1;
  images.kernel_channels = images.input_channels / images.groups;
  images.filters = depthwise         ? images.input_channels
                   : random.OneIn(3) ? 16 * random.Between(1, 4)
                                     : random.Between(1, 70);
  const std::int64_t tap = random.OneIn(3) ? random.Between(1, 5) : 3;
  const std::int64_t stride = random.OneIn(3) ? 2 : 1;
  const auto axis = [&] {
    ImageAxis result = {random.Between(6, 40), tap, 0, stride, tap / 2, 1, 1};
    result.output = (result.input + 2 * result.padding - tap) / stride + 1;
    return result;
  };
  images.x = axis();
  images.y = axis();
  const std::int64_t outputs =
      images.batch * images.x.output * images.y.output * images.filters;
  if (outputs * tap * tap * images.kernel_channels > 6000000) return;
  const auto input = Rough(random, images.batch * images.x.input *
                                       images.y.input * images.input_channels);
  const auto kernel =
      Rough(random, tap * tap * images.kernel_channels * images.filters);
  Compare(random, "a convolution", [&](ThreadPool* threads) {
    std::vector<float> out(static_cast<std::size_t>(outputs));
    RunConvolution<float>(images, input.data(), kernel.data(), out.data(),
                          threads);
    return out;
  });
  if (depthwise || stride != 1) return;
  if (tap == 3) {
    const auto packed = fuzz::WinogradKernel(
        kernel.data(), images.input_channels, images.filters);
    Compare(random, "a convolution by Winograd", [&](ThreadPool* threads) {
      std::vector<float> out(static_cast<std::size_t>(outputs));
      std::vector<unsigned char> memory(WinogradScratchBytes(images) + 64);
      const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
      RunWinograd<float>(images, input.data(), packed.data(), out.data(),
                         memory.data() + (64 - address % 64), threads);
      return out;
    });
  }
  if (images.filters % 16 == 0) {
    const auto gradient = Rough(random, outputs);
    Compare(random, "a gradient of a kernel", [&](ThreadPool* threads) {
      std::vector<float> out(kernel.size());
      RunFilterGradient<float>(images, input.data(), gradient.data(),
                               out.data(), threads);
      return out;
    });
  }
}

// Rows of an array in another order.
void RowCopiesOf(Random& random) {
  const std::int64_t row = random.Between(1, 40), outer = random.Between(2, 30);
  const std::int64_t inner = random.Between(400000, 900000) / row / outer + 1;
  const auto in = Rough(random, row * outer * inner);
  Compare(random, "copies of rows", [&](ThreadPool* threads) {
    std::vector<float> out(in.size());
    RunRowCopies<float>(
        {0, {{1, 0}, {inner, row}, {1, 0}, {outer, inner * row}}, row},
        in.data(), out.data(), threads);
    return out;
  });
}

bool IsCut(const Cut& cut, std::int64_t batch, std::int64_t rows,
           std::int64_t columns) {
  return cut.batch == batch && cut.rows == rows && cut.columns == columns;
}

void TestCuts() {
  constexpr double kMuch = 1e9, kLeast = 2 * kLeastOperations;
  constexpr int kParts = 2 * kPartsPerThread;
  // Work for less than two parts isn't split, and one thread is none.
  EXPECT(IsCut(CutFor({1, 900, 900, 6, 16, kLeast - 1}, 8), 1, 1, 1));
  EXPECT(IsCut(CutFor({1, 900, 900, 6, 16, kLeast}, 8), 1, 2, 1));
  EXPECT(IsCut(CutFor({1, 900, 900, 6, 16, kMuch}, 1), 1, 1, 1));
  EXPECT(IsCut(CutFor({1, 0, 0, 6, 16, 0}, 8), 1, 1, 1));
  // Independent results go first, then many rows or many columns.
  EXPECT(IsCut(CutFor({64, 900, 900, 6, 16, kMuch}, 2), kParts, 1, 1));
  EXPECT(IsCut(CutFor({1, 900, 90, 6, 16, kMuch}, 2), 1, kParts, 1));
  EXPECT(IsCut(CutFor({1, 90, 900, 6, 16, kMuch}, 2), 1, 1, kParts));
  // Both, but no tile is split.
  EXPECT(IsCut(CutFor({1, 12, 40, 6, 16, kMuch}, 8), 1, 2, 3));
}

// A pool's threads don't have the caller's mode.
void TestFloatMode() {
  const Products p = {1, 64, 256, 256, false, false, 0, 0, 0};
  const std::vector<float> left(p.rows * p.depth, 1e-30f);
  const std::vector<float> right(p.depth * p.columns, 1e-10f);
  std::vector<float> out(p.rows * p.columns);
  Threads threads(3);
  for (int repeat = 0; repeat < 20; ++repeat) {
    for (const bool flush : {false, true}) {
      const FloatMode before = GetFloatMode();
      {
        const ScopedFloatMode mode(flush ? Flushing(before) : before);
        RunProducts<float>(p, left.data(), right.data(), out.data(), &threads);
      }
      for (const float value : out) {
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        EXPECT((bits == 0) == flush);
      }
    }
  }
}

int Test() {
  TestCuts();
  TestFloatMode();
  Random random(34);
  const int rounds = fuzz::Cases(300);
  for (int round = 0; round < rounds; ++round) {
    SweepOf(random);
    RowSweepOf<17>(random);
    RowSweepOf<65>(random);
    RowSweepOf<768>(random);
    ColumnSumsOf(random);
    ProductsOf<float>(random);
    ProductsOf<double>(random);
    ProductsOf<std::uint32_t>(random);
    StreamOf(random);
    ConvolutionOf(random);
    RowCopiesOf(random);
  }
  for (const auto& [kernel, counts] : calls) {
    std::printf("%s: %d split, %d not\n", kernel.c_str(), counts[1], counts[0]);
    EXPECT(counts[1] > 0);
  }
  return failed != 0;
}

}  // namespace
}  // namespace tfaot::kernels

int main() { return tfaot::fuzz::CanRun() ? tfaot::kernels::Test() : 0; }
