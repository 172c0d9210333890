// Protects how kernel calls are split for a pool: when, into which parts, and
// that results have the same bits, in the caller's floating-point mode.
#include "tfaot/kernels/parallel.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/runtime/kernels/winograd_kernel.h"
#include "tests/runtime/pools.h"
#include "tfaot/flush_denormals.h"
#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/convolution_f32.cc"
#include "tfaot/kernels/products_f32.cc"
#include "tfaot/kernels/winograd_f32.cc"
#include "tfaot/threads.h"

namespace tfaot::kernels {
namespace {

int failed = 0;

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  ++failed;
}

bool IsCut(const Cut& cut, std::int64_t batch, std::int64_t rows,
           std::int64_t columns) {
  return cut.batch == batch && cut.rows == rows && cut.columns == columns;
}

void TestCuts() {
  const double much = 1e9;
  Expect(
      IsCut(CutFor({1, 900, 900, 6, 16, 2 * kLeastOperations - 1}, 8), 1, 1, 1),
      "work for less than two parts isn't split");
  Expect(IsCut(CutFor({1, 900, 900, 6, 16, 2 * kLeastOperations}, 8), 1, 2, 1),
         "no part is smaller than the least");
  Expect(IsCut(CutFor({1, 900, 900, 6, 16, much}, 1), 1, 1, 1),
         "one thread is none");
  Expect(
      IsCut(CutFor({64, 900, 900, 6, 16, much}, 2), 2 * kPartsPerThread, 1, 1),
      "results that are independent go first");
  Expect(IsCut(CutFor({1, 900, 90, 6, 16, much}, 2), 1, 2 * kPartsPerThread, 1),
         "many rows");
  Expect(IsCut(CutFor({1, 90, 900, 6, 16, much}, 2), 1, 1, 2 * kPartsPerThread),
         "many columns");
  Expect(IsCut(CutFor({1, 12, 40, 6, 16, much}, 8), 1, 2, 3),
         "both, but no tile is split");
  Expect(IsCut(CutFor({1, 0, 0, 6, 16, 0}, 8), 1, 1, 1), "nothing at all");
}

std::vector<float> Values(std::size_t size) {
  std::vector<float> values(size);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) / 16777216.0f - 0.5f;
  }
  return values;
}

// Runs with the pools and compares bits. Each pool must have been called.
template <typename Run>
void ExpectSameBits(std::size_t outputs, const char* what, Run run) {
  std::vector<float> whole(outputs, -1);
  run(whole.data(), nullptr);
  const auto same = [&](ThreadPool& pool) {
    std::vector<float> parts(outputs, -2);
    run(parts.data(), &pool);
    return std::memcmp(whole.data(), parts.data(), outputs * sizeof(float)) ==
           0;
  };
  for (const int count : {1, 2, 3, 8, 50}) {
    ShuffledPool shuffled(count);
    Expect(same(shuffled), what);
    Expect(shuffled.calls == (count == 1 ? 0 : 1), what);
    if (count > 8) continue;
    Threads threads(count);
    for (int repeat = 0; repeat < 20; ++repeat) Expect(same(threads), what);
  }
}

void TestProducts() {
  struct {
    Products sizes;
    const char* what;
  } const cases[] = {
      {{1, 64, 256, 784, false, false, 0, 0, 0}, "a layer on a batch"},
      {{1, 784, 256, 64, true, false, 0, 0, 0}, "the gradient of its weights"},
      {{1, 64, 784, 256, false, true, 0, 0, 0}, "the gradient of its input"},
      {{1, 1, 1000, 1280, false, false, 0, 0, 0}, "a layer on one row"},
      {{1, 1000, 1, 1280, false, false, 0, 0, 0}, "a matrix times a column"},
      {{12, 64, 64, 64, false, true, 64 * 64, 64 * 64, 64 * 64}, "a batch"},
      {{8, 64, 64, 64, false, true, 64, 64, 64, Packing::kNone, 512, 512, 512},
       "a batch side by side"},
      {{1, 2, 9000, 300, false, false, 0, 0, 0}, "two rows, many columns"},
      {{1, 3000, 10, 300, false, false, 0, 0, 0}, "few columns"},
  };
  for (const auto& one : cases) {
    const Products& p = one.sizes;
    const std::vector<float> left = Values(p.batch * p.rows * p.depth);
    const std::vector<float> right = Values(p.batch * p.depth * p.columns);
    ExpectSameBits(p.batch * p.rows * p.columns, one.what,
                   [&](float* out, ThreadPool* threads) {
                     TFAOT_ISA::RunProducts<float>(p, left.data(), right.data(),
                                                   out, threads);
                   });
  }
}

void TestConvolutions() {
  struct {
    Images sizes;
    const char* what;
  } const cases[] = {
      {{1, 64, 64, 64, 1, {28, 3, 28, 1, 1, 1, 1}, {28, 3, 28, 1, 1, 1, 1}},
       "many outputs"},
      {{1, 256, 256, 512, 1, {7, 3, 7, 1, 1, 1, 1}, {7, 3, 7, 1, 1, 1, 1}},
       "many filters"},
      {{1, 3, 3, 32, 1, {112, 3, 56, 2, 0, 1, 1}, {112, 3, 56, 2, 0, 1, 1}},
       "few channels"},
      {{2, 96, 1, 96, 96, {56, 3, 28, 2, 0, 1, 1}, {56, 3, 28, 2, 0, 1, 1}},
       "depthwise"},
      {{1, 960, 1, 960, 960, {7, 3, 7, 1, 1, 1, 1}, {7, 3, 7, 1, 1, 1, 1}},
       "depthwise, small"},
      {{2, 64, 64, 32, 1, {14, 3, 28, 1, 1, 2, 1}, {14, 3, 28, 1, 1, 2, 1}},
       "the gradient of the input"},
      {{32, 64, 64, 32, 1, {14, 12, 3, 1, 0, 1, 1}, {14, 12, 3, 1, 0, 1, 1}},
       "the gradient of the kernel"},
  };
  for (const auto& one : cases) {
    const Images& c = one.sizes;
    const std::vector<float> input =
        Values(c.batch * c.x.input * c.y.input * c.input_channels);
    const std::vector<float> kernel =
        Values(c.x.kernel * c.y.kernel * c.kernel_channels * c.filters);
    ExpectSameBits(c.batch * c.x.output * c.y.output * c.filters, one.what,
                   [&](float* out, ThreadPool* threads) {
                     TFAOT_ISA::RunConvolution<float>(
                         c, input.data(), kernel.data(), out, threads);
                   });
  }
}

// Parts have separate scratch memory, and there is enough for all.
void TestWinograd() {
  struct {
    Images sizes;
    const char* what;
  } const cases[] = {
      {{1, 64, 64, 64, 1, {56, 3, 56, 1, 1, 1, 1}, {56, 3, 56, 1, 1, 1, 1}},
       "Winograd, many tiles"},
      {{1, 128, 128, 1100, 1, {7, 3, 7, 1, 1, 1, 1}, {7, 3, 7, 1, 1, 1, 1}},
       "Winograd, many filters"},
  };
  for (const auto& one : cases) {
    const Images& c = one.sizes;
    const std::vector<float> input =
        Values(c.batch * c.x.input * c.y.input * c.input_channels);
    const std::vector<float> kernel =
        fuzz::WinogradKernel(Values(9 * c.kernel_channels * c.filters).data(),
                             c.kernel_channels, c.filters);
    ExpectSameBits(
        c.batch * c.x.output * c.y.output * c.filters, one.what,
        [&](float* out, ThreadPool* threads) {
          std::vector<unsigned char> scratch(WinogradScratchBytes(c));
          TFAOT_ISA::RunWinograd<float>(c, input.data(), kernel.data(), out,
                                        scratch.data(), threads);
        });
  }
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
        TFAOT_ISA::RunProducts<float>(p, left.data(), right.data(), out.data(),
                                      &threads);
      }
      bool right_values = true;
      for (const float value : out) {
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        right_values = right_values && (bits == 0) == flush;
      }
      Expect(right_values, "parts have the caller's floating-point mode");
    }
  }
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  tfaot::kernels::TestCuts();
  tfaot::kernels::TestProducts();
  tfaot::kernels::TestConvolutions();
  tfaot::kernels::TestWinograd();
  tfaot::kernels::TestFloatMode();
  return tfaot::kernels::failed == 0 ? 0 : 1;
}
