// Protects users' indexing: views are row-major, typed, and cost nothing.
#include "tfaot/view.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <type_traits>

#include "tests/runtime/expect.h"

using tfaot::View;

using Matrix = View<float, 2, 3>;
using Scalar = View<std::int64_t>;
using Empty = View<double, 4, 0>;

// What the compiler can check about shapes and types.
static_assert(Matrix::kRank == 2 && Matrix::kSize == 6);
static_assert(Matrix::size() == 6 && Matrix::size_bytes() == 24);
static_assert(Matrix::dim(0) == 2 && Matrix::dim(1) == 3);
static_assert(Scalar::kRank == 0 && Scalar::kSize == 1);
static_assert(Scalar::size_bytes() == 8);
static_assert(Empty::size() == 0 && Empty::size_bytes() == 0);
static_assert(std::is_same_v<View<const float, 2>::value_type, float>);

// A view is a pointer.
static_assert(sizeof(Matrix) == sizeof(float*));
static_assert(std::is_trivially_copyable_v<Matrix>);

// Mutable views convert to const views, but not back, and never to another
// shape or type.
static_assert(std::is_convertible_v<Matrix, View<const float, 2, 3>>);
static_assert(!std::is_convertible_v<View<const float, 2, 3>, Matrix>);
static_assert(!std::is_convertible_v<Matrix, View<float, 3, 2>>);
static_assert(!std::is_convertible_v<Matrix, View<double, 2, 3>>);
static_assert(!std::is_convertible_v<float*, Matrix>, "says what it views");

// Usable in constant expressions.
constexpr std::int32_t kValues[] = {1, 2, 3, 4};
constexpr View<const std::int32_t, 2, 2> kView(kValues);
static_assert(kView(1, 0) == 3 && kView[3] == 4);

float Sum(View<const float, 2, 3> view) {
  return std::accumulate(view.begin(), view.end(), 0.0f);
}

int main() {
  float values[6];
  Matrix matrix(values);
  std::iota(matrix.begin(), matrix.end(), 0.0f);
  EXPECT(matrix(0, 0) == 0 && matrix(0, 2) == 2);
  EXPECT(matrix(1, 0) == 3 && matrix(1, 2) == 5);
  EXPECT(matrix[4] == 4 && &matrix[4] == &matrix(1, 1));
  EXPECT(matrix.data() == values && matrix.end() - matrix.begin() == 6);
  EXPECT(Sum(matrix) == 15);

  matrix(1, 1) = 10;
  const Matrix copy = matrix;  // copies the pointer
  copy(0, 0) = 1;
  EXPECT(values[4] == 10 && values[0] == 1);
  EXPECT(matrix(std::size_t{1}, std::int64_t{2}) == 5);

  std::int64_t value = 7;
  Scalar scalar(&value);
  EXPECT(*scalar == 7 && scalar() == 7 && scalar[0] == 7);
  *scalar = 8;
  EXPECT(value == 8);
  EXPECT(*View<float, 1, 1>(values) == 1);

  std::uint8_t cube[24];
  View<std::uint8_t, 2, 3, 4> deep(cube);
  std::iota(deep.begin(), deep.end(), std::uint8_t{0});
  EXPECT(deep(1, 2, 3) == 23 && deep(1, 0, 0) == 12 && deep(0, 1, 0) == 4);

  Empty empty(nullptr);
  EXPECT(empty.begin() == empty.end());
  EXPECT(std::count(empty.begin(), empty.end(), 0.0) == 0);
  return failed == 0 ? 0 : 1;
}
