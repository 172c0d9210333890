// Compares products with streamed weights with three plain loops, exactly, on
// random sizes.
#include "tfaot/kernels/stream.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/runtime/kernels/finishing.h"
#include "tests/runtime/kernels/fuzz.h"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Finishing;
using fuzz::Random;
using fuzz::Require;
using fuzz::Same;

// A matrix in a packing's bytes, and the values that they mean.
struct Packed {
  Array<float> values;           // [depth][columns]
  std::vector<float> in_floats;  // aligned for the factors

  const unsigned char* bytes() const {
    return reinterpret_cast<const unsigned char*>(in_floats.data());
  }
};

// Packs by definition, like py/tfaot/compile/program/narrow.py. The bytes that
// no column has are zero.
template <typename Panels>
Packed Pack(Random& random, int64_t depth, int64_t columns) {
  Packed packed = {Array<float>(depth * columns, 0), {}};
  const int64_t panels = (columns + kStreamColumns - 1) / kStreamColumns;
  const int64_t blocks = (depth + Panels::kBlockRows - 1) / Panels::kBlockRows;
  const int64_t factors = Panels::kScaled ? panels * kStreamColumns : 0;
  const int64_t size = factors * 4 + panels * blocks * Panels::kBlock;
  // One more byte than the kernel may read would be outside the vector.
  packed.in_floats.assign(static_cast<std::size_t>(size / 4), 0.0f);
  auto* const to = reinterpret_cast<unsigned char*>(packed.in_floats.data());
  for (int64_t j = 0; j < columns; ++j) {
    const float factor =
        Panels::kScaled
            ? std::ldexp(1.0f, static_cast<int>(random.Between(-3, 3)))
            : 1.0f;
    if (Panels::kScaled) {
      packed.in_floats[static_cast<std::size_t>(j)] = std::ldexp(factor, -24);
    }
    const int64_t panel = j / kStreamColumns;
    const int64_t word = j % 16;
    const int64_t half = j % kStreamColumns / 16;
    for (int64_t k = 0; k < depth; ++k) {
      const auto integer = static_cast<int>(
          random.OneIn(20) ? random.Between(-127, 127) : random.Between(-4, 4));
      const float value = static_cast<float>(integer) * factor;
      packed.values.data()[k * columns + j] = value;
      const int64_t block = panel * blocks + k / Panels::kBlockRows;
      unsigned char* const at =
          to + factors * 4 + block * Panels::kBlock + word * 4;
      if constexpr (std::is_same_v<Panels, Float32Panels>) {
        std::memcpy(at + half * 64, &value, 4);
      } else if constexpr (Panels::kScaled) {
        at[2 * (k % 2) + half] = static_cast<unsigned char>(integer & 0xff);
      } else {
        std::uint32_t bits;
        std::memcpy(&bits, &value, 4);
        Require((bits & 0xffffu) == 0);
        at[2 * half] = static_cast<unsigned char>(bits >> 16 & 0xff);
        at[2 * half + 1] = static_cast<unsigned char>(bits >> 24);
      }
    }
  }
  return packed;
}

template <typename Panels>
void Check(Random& random, const StreamProduct& product) {
  const int64_t rows = product.rows;
  const int64_t columns = product.columns;
  const Array<float> left = Array<float>::Filled(random, rows * product.depth);
  const Packed right = Pack<Panels>(random, product.depth, columns);
  Array<float> expected(rows * columns, 0);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < product.depth; ++k) {
        sum += left.data()[product.transposed_left ? k * rows + i
                                                   : i * product.depth + k] *
               right.values.data()[k * columns + j];
      }
      expected.data()[i * columns + j] = sum;
    }
  }
  Array<float> out = Array<float>::Poisoned(random, rows * columns);
  const Finishing<float> finishing(random, out.data(), out.size(), columns);
  const int64_t row_parts = random.OneIn(3) ? 2 : 1;
  const int64_t parts = random.OneIn(3) ? 3 : 1;
  for (int64_t r = 0; r < row_parts; ++r) {
    for (int64_t i = 0; i < parts; ++i) {
      MultiplyStream<Panels>(product, left.data(), right.bytes(), out.data(),
                             {{}, {r, row_parts}, {i, parts}}, finishing.get());
    }
  }
  Require(finishing.IsRight(
      expected, out,
      std::to_string(rows) + " x " + std::to_string(product.depth) + " x " +
          std::to_string(columns) +
          (product.transposed_left ? ", left transposed" : "") +
          (Panels::kScaled        ? ", int8"
           : Panels::kBlock == 64 ? ", bfloat16"
                                  : ", float32")));
}

// Protects all paths and their edges: each combination of rows, columns, and
// inner values goes through other tiles, panels, blocks, and pieces.
template <typename Panels>
void RandomSizes(Random& random, int cases) {
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    StreamProduct product;
    product.rows = random.OneIn(2) ? 1 : random.Between(0, 12);
    product.columns = random.OneIn(10) ? 0 : random.Between(1, 100);
    product.depth = random.OneIn(8)    ? random.Between(500, 1100)
                    : random.OneIn(20) ? 0
                                       : random.Between(1, 60);
    product.transposed_left = random.OneIn(3);
    Check<Panels>(random, product);
  }
}

// Protects addends that lie where the result goes, as XLA places them.
template <typename Panels>
void AddsInPlace(Random& random) {
  for (int i = 0; i < fuzz::Cases(300); ++i) {
    const StreamProduct product = {random.Between(1, 5), random.Between(1, 70),
                                   random.Between(1, 40), false};
    const Array<float> left =
        Array<float>::Filled(random, product.rows * product.depth);
    const Packed right = Pack<Panels>(random, product.depth, product.columns);
    Array<float> sums(product.rows * product.columns, 0);
    MultiplyStream<Panels>(product, left.data(), right.bytes(), sums.data(), {},
                           nullptr);
    Array<float> out =
        Array<float>::Filled(random, product.rows * product.columns);
    for (int64_t j = 0; j < sums.size(); ++j) sums.data()[j] += out.data()[j];
    Finish<float> finish = {};
    finish.sums = finish.to = out.data();
    finish.addend = out.data();
    finish.low = -std::numeric_limits<float>::infinity();
    finish.high = std::numeric_limits<float>::infinity();
    MultiplyStream<Panels>(product, left.data(), right.bytes(), out.data(), {},
                           &finish);
    Require(Same(sums, out, "an addend in place"));
  }
}

// Protects reproducibility: however columns and rows are split, and where
// operands lie, sums have the same bits.
template <typename Panels>
void SameBitsInParts(Random& random) {
  for (int i = 0; i < fuzz::Cases(200); ++i) {
    const StreamProduct product = {random.Between(1, 9), random.Between(1, 200),
                                   random.Between(1, 1200), false};
    Array<float> left(product.rows * product.depth, random.Between(0, 3));
    for (int64_t j = 0; j < left.size(); ++j) {
      left.data()[j] =
          static_cast<float>(random.Between(-1000000, 1000000)) / 999983.0f;
    }
    const Packed right = Pack<Panels>(random, product.depth, product.columns);
    Array<float> whole(product.rows * product.columns, 0);
    MultiplyStream<Panels>(product, left.data(), right.bytes(), whole.data(),
                           {}, nullptr);
    Array<float> parts(product.rows * product.columns, 1);
    for (int64_t part = 0; part < 6; ++part) {
      MultiplyStream<Panels>(product, left.data(), right.bytes(), parts.data(),
                             {{}, {part / 3, 2}, {part % 3, 3}}, nullptr);
    }
    Require(Same(whole, parts, "a product in parts"));
  }
}

// Protects IEEE results: an infinity or NaN of the left side spoils its own row
// and no other.
template <typename Panels>
void InfinityAndNan(Random& random) {
  for (int i = 0; i < fuzz::Cases(200); ++i) {
    const StreamProduct product = {random.Between(1, 6), random.Between(1, 50),
                                   random.Between(1, 30), random.OneIn(2)};
    Array<float> left(product.rows * product.depth, 0);
    for (int64_t j = 0; j < left.size(); ++j) left.data()[j] = 0;
    const int64_t at = random.Between(0, left.size() - 1);
    left.data()[at] = std::numeric_limits<float>::quiet_NaN();
    const int64_t row =
        product.transposed_left ? at % product.rows : at / product.depth;
    const Packed right = Pack<Panels>(random, product.depth, product.columns);
    Array<float> out(product.rows * product.columns, 0);
    MultiplyStream<Panels>(product, left.data(), right.bytes(), out.data(), {},
                           nullptr);
    for (int64_t j = 0; j < out.size(); ++j) {
      const float got = out.data()[j];
      Require(j / product.columns == row ? std::isnan(got) : got == 0);
    }
  }
}

template <typename Panels>
void Run(Random& random) {
  RandomSizes<Panels>(random, 6000);
  AddsInPlace<Panels>(random);
  SameBitsInParts<Panels>(random);
  InfinityAndNan<Panels>(random);
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::fuzz::Random random(20261123);
  tfaot::kernels::Run<tfaot::kernels::Float32Panels>(random);
  tfaot::kernels::Run<tfaot::kernels::Bfloat16Panels>(random);
  tfaot::kernels::Run<tfaot::kernels::Int8Panels>(random);
  return 0;
}
