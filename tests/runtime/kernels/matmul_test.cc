// Compares the matrix product with three plain loops, exactly, on random sizes.
#include "tfaot/kernels/matmul.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/runtime/kernels/finishing.h"
#include "tests/runtime/kernels/fuzz.h"
#include "tests/runtime/kernels/panels.h"
#include "tfaot/kernels/panels.h"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Finishing;
using fuzz::InPanels;
using fuzz::Random;
using fuzz::Require;
using fuzz::Same;

template <typename T>
Array<T> Reference(const MatrixProduct& product, const Array<T>& left,
                   const Array<T>& right) {
  const int64_t rows = product.rows;
  const int64_t columns = product.columns;
  const int64_t depth = product.depth;
  Array<T> out(rows * columns, 0);
  std::fill(out.data(), out.data() + out.size(), T(0));
  std::vector<T> row(static_cast<std::size_t>(columns));
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t j = 0; j < columns; ++j) {
      row[j] = right.data()[product.transposed_right ? j * depth + k
                                                     : k * columns + j];
    }
    for (int64_t i = 0; i < rows; ++i) {
      const T value =
          left.data()[product.transposed_left ? k * rows + i : i * depth + k];
      T* const to = out.data() + i * columns;
      for (int64_t j = 0; j < columns; ++j) to[j] += value * row[j];
    }
  }
  return out;
}

template <typename T>
void Check(Random& random, const MatrixProduct& product) {
  const Array<T> left = Array<T>::Filled(random, product.rows * product.depth);
  const Array<T> right =
      Array<T>::Filled(random, product.depth * product.columns);
  Array<T> out = Array<T>::Poisoned(random, product.rows * product.columns);
  const Array<T> panels =
      product.packed_right ? InPanels(random, right, product.depth,
                                      product.columns, product.transposed_right)
                           : Array<T>(0, 0);
  if (product.packed_right) {
    Array<T> packed = Array<T>::Poisoned(random, panels.size());
    PackPanels(right.data(), product.depth, product.columns,
               product.transposed_right, packed.data());
    Require(Same(panels, packed, "panels of a run"));
  }
  const T* const given = product.packed_right ? panels.data() : right.data();
  const std::string what =
      std::to_string(sizeof(T)) + " bytes, " + std::to_string(product.rows) +
      " x " + std::to_string(product.depth) + " x " +
      std::to_string(product.columns) +
      (product.transposed_left ? ", left transposed" : "") +
      (product.transposed_right ? ", right transposed" : "") +
      (product.packed_right ? ", right packed" : "");
  const Array<T> expected = Reference(product, left, right);
  if constexpr (std::is_floating_point_v<T>) {
    const Finishing<T> finishing(random, out.data(), out.size(),
                                 product.columns);
    const int64_t parts = random.OneIn(3) ? 3 : 1;
    for (int64_t i = 0; i < parts; ++i) {
      Multiply(product, left.data(), given, out.data(), {{}, {}, {i, parts}},
               finishing.get());
    }
    Require(finishing.IsRight(expected, out, what));
  } else {
    Multiply(product, left.data(), given, out.data());
    Require(Same(expected, out, what));
  }
}

// Returns a matrix whose rows of `width` values are `stride` apart, with values
// in between that no correct result has.
template <typename T>
Array<T> Spread(Random& random, const Array<T>& dense, int64_t width,
                int64_t stride) {
  const int64_t rows = width == 0 ? 0 : dense.size() / width;
  Array<T> spread =
      Array<T>::Poisoned(random, rows == 0 ? 0 : (rows - 1) * stride + width);
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(dense.data() + i * width, width, spread.data() + i * stride);
  }
  return spread;
}

// Protects rows at any distance: a product reads and writes rows alone, and
// computes the same.
template <typename T>
void CheckStrides(Random& random, const MatrixProduct& product) {
  const int64_t rows = product.rows;
  const int64_t columns = product.columns;
  const int64_t depth = product.depth;
  const Array<T> left = Array<T>::Filled(random, rows * depth);
  const Array<T> matrix = Array<T>::Filled(random, depth * columns);
  const Array<T> right =
      product.packed_right
          ? InPanels(random, matrix, depth, columns, product.transposed_right)
          : matrix;
  const Array<T> bias = Array<T>::Filled(random, columns);
  const int64_t left_width = product.transposed_left ? rows : depth;
  const int64_t right_width = product.transposed_right ? depth : columns;
  const auto stride = [&](int64_t width) {
    return random.OneIn(4) ? width : width + random.Between(1, 40);
  };
  MatrixProduct apart = product;
  apart.left_stride = stride(left_width);
  if (!product.packed_right) apart.right_stride = stride(right_width);
  apart.out_stride = stride(columns);
  Array<T> dense = Array<T>::Poisoned(random, rows * columns);
  Array<T> got = Spread(random, dense, columns, apart.out_stride);
  const Array<T> apart_left =
      Spread(random, left, left_width, apart.left_stride);
  const Array<T> apart_right =
      product.packed_right
          ? right
          : Spread(random, right, right_width, apart.right_stride);
  const int64_t parts = random.OneIn(3) ? 3 : 1;
  const bool finished = std::is_floating_point_v<T> && random.OneIn(2);
  const auto run = [&](const MatrixProduct& sizes, const Array<T>& a,
                       const Array<T>& b, Array<T>& out) {
    Finish<T> finish = {};
    finish.sums = out.data();
    finish.to = out.data();
    finish.bias = bias.data();
    finish.low = T(0);
    finish.high = T(99);
    for (int64_t i = 0; i < parts; ++i) {
      Multiply(sizes, a.data(), b.data(), out.data(), {{}, {}, {i, parts}},
               finished ? &finish : nullptr);
    }
  };
  run(product, left, right, dense);
  run(apart, apart_left, apart_right, got);
  const std::string what =
      std::to_string(sizeof(T)) + " bytes, " + std::to_string(rows) + " x " +
      std::to_string(depth) + " x " + std::to_string(columns) +
      ", rows apart: " + std::to_string(apart.left_stride) + ", " +
      std::to_string(apart.right_stride) + ", " +
      std::to_string(apart.out_stride) +
      (product.transposed_left ? ", left transposed" : "") +
      (product.transposed_right ? ", right transposed" : "") +
      (product.packed_right ? ", right packed" : "");
  Require(Same(Spread(random, dense, columns, apart.out_stride), got, what));
}

int64_t AnySize(Random& random) {
  if (random.OneIn(20)) return 0;
  if (random.OneIn(4)) return random.Between(1, 3);
  if (random.OneIn(12)) return random.Between(100, 400);
  return random.Between(1, 40);
}

// Protects all paths and their edges: each combination of few, some, and many
// rows, columns, and inner values goes through different tiles, strips, and
// blocks.
template <typename T>
void RandomSizes(Random& random, int cases) {
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    MatrixProduct product;
    product.rows = AnySize(random);
    product.columns = AnySize(random);
    product.depth = AnySize(random);
    if (product.rows * product.columns * product.depth > 3000000) continue;
    product.transposed_left = random.OneIn(2);
    product.transposed_right = random.OneIn(2);
    product.packed_right = random.OneIn(3);
    Check<T>(random, product);
    CheckStrides<T>(random, product);
  }
}

// Protects the sizes at which the kernels switch: tiles, blocks of rows, and
// blocks of the inner dimension end there.
void SizesAtBounds(Random& random) {
  for (const int64_t rows :
       {1, 2, 3, 4, 7, 11, 12, 13, 48, 49, 193, 257, 289, 577}) {
    for (const int64_t columns : {1, 2, 8, 15, 16, 17, 23, 24, 40, 49}) {
      for (const int64_t depth : {1, 7, 8, 9, 128, 129, 256, 257, 513}) {
        for (int transposes = 0; transposes < 4; ++transposes) {
          if (rows * columns * depth > 1500000) continue;
          if (!random.OneIn(10 / fuzz::Cases(10))) continue;
          MatrixProduct product;
          product.rows = rows;
          product.columns = columns;
          product.depth = depth;
          product.transposed_left = (transposes & 1) != 0;
          product.transposed_right = (transposes & 2) != 0;
          Check<float>(random, product);
          CheckStrides<float>(random, product);
          product.packed_right = true;
          Check<float>(random, product);
          CheckStrides<float>(random, product);
        }
      }
    }
  }
}

// Protects few rows times a wide matrix, where the inner dimension is split
// further so that a piece fits in the second-level cache.
void FewRowsAndManyColumns(Random& random) {
  for (const int64_t rows : {1, 2, 3, 5, 12}) {
    for (const int64_t columns : {3000, 4001, 9000}) {
      MatrixProduct product;
      product.rows = rows;
      product.columns = columns;
      product.depth = random.Between(20, 40);
      Check<float>(random, product);
      product.transposed_left = true;
      Check<float>(random, product);
      product.transposed_right = true;
      Check<float>(random, product);
      product.packed_right = true;
      Check<float>(random, product);
    }
  }
}

// Protects products that are computed by their transposes, with sizes around
// tiles, strips, and blocks.
template <typename T>
void TurnedProducts(Random& random, int cases) {
  int turned = 0;
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    MatrixProduct product;
    product.rows = random.Between(1, 8) * kLanes<T>;
    if (random.OneIn(4)) product.rows -= random.Between(1, 2);
    product.columns = random.Between(20, random.OneIn(2) ? 400 : 120);
    product.depth = random.Between(5, random.OneIn(4) ? 60 : 25) * kLanes<T> +
                    random.Between(0, 5);
    product.transposed_right = true;
    if (product.rows * product.columns * product.depth > 4000000 ||
        !IsTurned<T>(product.rows, product.columns, product.depth)) {
      continue;
    }
    ++turned;
    Check<T>(random, product);
    CheckStrides<T>(random, product);
  }
  Require(turned >= fuzz::Cases(cases) / 10);
}

// Protects IEEE results: zero times infinity is NaN as in a plain loop,
// anywhere in the operands, and one such value corrupts only its own row or
// column.
void InfinityAndNan(Random& random) {
  const float kInfinity = std::numeric_limits<float>::infinity();
  for (int i = 0; i < fuzz::Cases(300); ++i) {
    MatrixProduct product;
    product.rows = random.Between(1, 20);
    product.columns = random.Between(1, 40);
    product.depth = random.Between(1, 20);
    product.transposed_left = random.OneIn(2);
    product.transposed_right = random.OneIn(2);
    if (random.OneIn(4)) {
      product.rows = kLanes<float>;
      product.columns = random.Between(70, 120);
      product.depth = 8 * kLanes<float> + random.Between(0, 20);
      product.transposed_left = false;
      product.transposed_right = true;
      Require(IsTurned<float>(product.rows, product.columns, product.depth));
    }
    Array<float> left(product.rows * product.depth, 0);
    Array<float> right(product.depth * product.columns, 0);
    Array<float> out(product.rows * product.columns, 0);
    for (int64_t j = 0; j < left.size(); ++j) left.data()[j] = 0;
    for (int64_t j = 0; j < right.size(); ++j) right.data()[j] = 1;
    const bool in_left = random.OneIn(2);
    Array<float>& array = in_left ? left : right;
    for (int64_t j = 0; j < right.size() && in_left; ++j) right.data()[j] = 0;
    const int64_t at = random.Between(0, array.size() - 1);
    array.data()[at] =
        random.OneIn(2) ? kInfinity : std::numeric_limits<float>::quiet_NaN();
    const int64_t spoiled =
        in_left
            ? (product.transposed_left ? at % product.rows : at / product.depth)
            : (product.transposed_right ? at / product.depth
                                        : at % product.columns);
    Multiply(product, left.data(), right.data(), out.data());
    for (int64_t j = 0; j < out.size(); ++j) {
      const int64_t line = in_left ? j / product.columns : j % product.columns;
      const float got = out.data()[j];
      if (line == spoiled ? !std::isnan(got) : got != 0) {
        std::fprintf(stderr, "infinity or NaN: value %lld is %g\n",
                     static_cast<long long>(j), static_cast<double>(got));
        Require(false);
      }
    }
  }
}

// Protects reproducibility: a second call gives the same bits, even at
// different addresses.
void SameBitsEveryTime(Random& random) {
  for (int i = 0; i < fuzz::Cases(100); ++i) {
    MatrixProduct product;
    product.rows = random.Between(1, 30);
    product.columns = random.Between(1, 60);
    product.depth = random.Between(1, 300);
    product.transposed_left = random.OneIn(2);
    product.transposed_right = random.OneIn(2);
    std::vector<float> values(
        static_cast<std::size_t>(product.depth) *
        static_cast<std::size_t>(product.rows + product.columns));
    for (float& value : values) {
      value = static_cast<float>(random.Between(-1000000, 1000000)) / 999983.0f;
    }
    Array<float> first(product.rows * product.columns, 0);
    for (int64_t shift = 0; shift < 3; ++shift) {
      Array<float> operands(static_cast<int64_t>(values.size()), shift);
      std::copy(values.begin(), values.end(), operands.data());
      Array<float> out(product.rows * product.columns, 2 * shift);
      Multiply(product, operands.data(),
               operands.data() + product.rows * product.depth, out.data());
      if (shift == 0)
        std::copy(out.data(), out.data() + out.size(), first.data());
      Require(Same(first, out, "a repeated product"));
    }
  }
}

void Run() {
  Random random(20240607);
  RandomSizes<float>(random, 12000);
  RandomSizes<double>(random, 3000);
  RandomSizes<uint32_t>(random, 3000);
  SizesAtBounds(random);
  FewRowsAndManyColumns(random);
  TurnedProducts<float>(random, 1000);
  TurnedProducts<double>(random, 500);
  InfinityAndNan(random);
  SameBitsEveryTime(random);
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::kernels::Run();
  return 0;
}
