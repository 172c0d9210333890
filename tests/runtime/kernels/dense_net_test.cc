// Protects small dense nets: layers of all kinds of sizes beside their
// definition, where they read and write, bounds, and what isn't a number.
#include "tfaot/kernels/dense_net.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "tests/runtime/kernels/fuzz.h"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Random;
using fuzz::Require;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Fails unless an output is what it should be: the same, or neither a number.
void Expect(float got, float want, const std::string& what) {
  const bool same = got == want || (got != got && want != want);
  if (!same) {
    std::fprintf(stderr, "%s is %g, not %g\n", what.c_str(),
                 static_cast<double>(got), static_cast<double>(want));
  }
  Require(same);
}

unsigned char* Bytes(Array<float>& array) {
  return reinterpret_cast<unsigned char*>(array.data());
}
const unsigned char* Bytes(const Array<float>& array) {
  return reinterpret_cast<const unsigned char*>(array.data());
}

// Which values of a layer are infinite or not a number, and its other sides.
enum class Odd { kNone, kRow, kMatrix, kLastOfMatrix, kBias };

// Values are small integers, whose sums are exact in any order.
template <int kDepth, int kOuts, bool kTransposed>
void TestLayer(Random& random, bool biased, Odd odd) {
  auto row = Array<float>::Filled(random, kDepth);
  auto matrix = Array<float>::Filled(random, kDepth * kOuts);
  auto bias = Array<float>::Filled(random, kOuts);
  auto out = Array<float>::Poisoned(random, kOuts);
  const float value = random.OneIn(2) ? kNan : kInfinity;
  if (odd == Odd::kRow) row.data()[random.Between(0, kDepth - 1)] = value;
  if (odd == Odd::kMatrix) {
    matrix.data()[random.Between(0, kDepth * kOuts - 1)] = value;
  }
  if (odd == Odd::kLastOfMatrix) matrix.data()[kDepth * kOuts - 1] = value;
  if (odd == Odd::kBias) bias.data()[random.Between(0, kOuts - 1)] = value;
  const bool in_place = biased && random.OneIn(4);
  if (in_place) std::copy_n(bias.data(), kOuts, out.data());
  const float low = random.OneIn(2) ? 0 : -kInfinity;
  const float high = random.OneIn(2) ? 6 : kInfinity;
  RunDenseNet(Dense<kDepth, kOuts, kTransposed>{Bytes(row), Bytes(matrix),
                                                !biased    ? nullptr
                                                : in_place ? Bytes(out)
                                                           : Bytes(bias),
                                                Bytes(out), low, high});
  for (int j = 0; j < kOuts; ++j) {
    float sum = biased ? bias.data()[j] : 0;
    for (int k = 0; k < kDepth; ++k) {
      sum += row.data()[k] *
             matrix.data()[kTransposed ? j * kDepth + k : k * kOuts + j];
    }
    const float want = sum < low ? low : sum > high ? high : sum;
    Expect(out.data()[j], want,
           "output " + std::to_string(j) + " of " + std::to_string(kDepth) +
               "x" + std::to_string(kOuts) +
               (kTransposed ? ", transposed," : ""));
  }
  Require(out.MarginsAreIntact());
}

template <int kDepth, int kOuts>
void TestSize(Random& random) {
  for (int i = 0; i < 20; ++i) {
    for (const Odd odd : {Odd::kNone, Odd::kRow, Odd::kMatrix,
                          Odd::kLastOfMatrix, Odd::kBias}) {
      TestLayer<kDepth, kOuts, false>(random, i % 3 != 0, odd);
      TestLayer<kDepth, kOuts, true>(random, i % 3 != 0, odd);
    }
  }
}

// Fewer values than a vector has, one more or less than some vectors, pieces of
// equal and of different widths, and one or two steps of all chains of sums.
void TestSizes() {
  Random random(1);
  TestSize<1, 1>(random);
  TestSize<1, 3>(random);
  TestSize<1, 64>(random);
  TestSize<2, 9>(random);
  TestSize<2, 228>(random);  // of each width, 57 vectors: 7 blocks and one
  TestSize<2, 456>(random);
  TestSize<2, 912>(random);
  TestSize<3, 2>(random);
  TestSize<4, 128>(random);
  TestSize<5, 4>(random);
  TestSize<6, 145>(random);
  TestSize<7, 8>(random);
  TestSize<8, 5>(random);
  TestSize<9, 7>(random);
  TestSize<10, 64>(random);
  TestSize<12, 112>(random);
  TestSize<15, 2>(random);
  TestSize<16, 16>(random);
  TestSize<17, 15>(random);
  TestSize<19, 12>(random);
  TestSize<31, 3>(random);
  TestSize<33, 17>(random);
  TestSize<40, 67>(random);
  TestSize<64, 64>(random);
  TestSize<65, 6>(random);
  TestSize<101, 1>(random);
  TestSize<257, 1>(random);
}

// A layer reads what the layer before it wrote.
void TestNet() {
  Random random(2);
  auto x = Array<float>::Filled(random, 3);
  auto first = Array<float>::Filled(random, 3 * 20);
  auto second = Array<float>::Filled(random, 20);
  Array<float> hidden(20, 1), y(1, 1);
  RunDenseNet(Dense<3, 20>{Bytes(std::as_const(x)), Bytes(first), nullptr,
                           Bytes(hidden), 0, kInfinity},
              Dense<20, 1>{Bytes(std::as_const(hidden)), Bytes(second), nullptr,
                           Bytes(y), -kInfinity, kInfinity});
  float want = 0;
  for (int j = 0; j < 20; ++j) {
    float sum = 0;
    for (int k = 0; k < 3; ++k) sum += x.data()[k] * first.data()[k * 20 + j];
    want += std::max(0.0f, sum) * second.data()[j];
  }
  Expect(y.data()[0], want, "a net of two layers");
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::kernels::TestSizes();
  tfaot::kernels::TestNet();
}
