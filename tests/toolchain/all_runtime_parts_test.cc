// Protects every part of the runtime that tfcompile can call: each compiles
// alone, links, and is right on a small case.
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "xla/backends/cpu/runtime/convolution_lib.h"
#include "xla/backends/cpu/runtime/dot_lib.h"
#include "xla/backends/cpu/runtime/sort_lib.h"

namespace {

namespace runtime = xla::cpu::internal;

int failures = 0;

void Expect(bool ok, const char* what) {
  if (!ok) {
    std::fprintf(stderr, "failed: %s\n", what);
    ++failures;
  }
}

// (1 2) times (1 1)^T, in columns.
template <typename In, typename Out>
void Dot(const char* what) {
  alignas(64) In lhs[2] = {In(1), In(2)};
  alignas(64) In rhs[2] = {In(1), In(1)};
  alignas(64) Out out[1] = {Out(0)};
  bool done = false;
  runtime::TypedMatMul<In, In, Out>(nullptr, out, lhs, rhs, 1, 1, 2, false,
                                    false, [&done] { done = true; });
  Expect(done && out[0] == Out(3), what);
}

// A kernel of one weight doubles its one input.
template <typename T>
void Convolve2D(const char* what) {
  alignas(64) T lhs[1] = {T(3)};
  alignas(64) T rhs[1] = {T(2)};
  alignas(64) T out[1] = {T(0)};
  bool done = false;
  runtime::EigenConv2D<T>(nullptr, out, lhs, rhs, /*input*/ 1, 1, 1, 1,
                          /*kernel*/ 1, 1, 1, 1, /*output*/ 1, 1, /*strides*/ 1,
                          1,
                          /*padding*/ 0, 0, 0, 0, /*dilations*/ 1, 1, 1, 1,
                          /*groups*/ 1, [&done] { done = true; });
  Expect(done && out[0] == T(6), what);
}

template <typename T>
void Convolve3D(const char* what) {
  alignas(64) T lhs[1] = {T(3)};
  alignas(64) T rhs[1] = {T(2)};
  alignas(64) T out[1] = {T(0)};
  bool done = false;
  runtime::EigenConv3D<T>(nullptr, out, lhs, rhs, /*input*/ 1, 1, 1, 1, 1,
                          /*kernel*/ 1, 1, 1, 1, 1, /*output*/ 1, 1, 1,
                          /*strides*/ 1, 1, 1, /*padding*/ 0, 0, 0, 0, 0, 0,
                          /*dilations*/ 1, 1, 1, 1, 1, 1, /*groups*/ 1,
                          [&done] { done = true; });
  Expect(done && out[0] == T(6), what);
}

}  // namespace

int main() {
  Dot<Eigen::half, Eigen::half>("dot_lib_f16");
  Dot<float, float>("dot_lib_f32");
  Dot<double, double>("dot_lib_f64");
  Dot<int32_t, int32_t>("dot_lib_s32");
  Dot<int8_t, int32_t>("dot_lib_s8");
  Dot<std::complex<float>, std::complex<float>>("dot_lib_c64");
  Dot<std::complex<double>, std::complex<double>>("dot_lib_c128");
  Convolve2D<Eigen::half>("convolution_lib_f16_2d");
  Convolve2D<float>("convolution_lib_f32_2d");
  Convolve3D<Eigen::half>("convolution_lib_f16_3d");
  Convolve3D<float>("convolution_lib_f32_3d");

  std::array<float, 3> values = {3, 1, 2};
  std::array<std::byte*, 1> data = {
      reinterpret_cast<std::byte*>(values.data())};
  const std::array<size_t, 1> sizes = {sizeof(float)};
  runtime::LessThan less_than = [](const void** pair) {
    return *static_cast<const float*>(pair[0]) <
           *static_cast<const float*>(pair[1]);
  };
  runtime::SortInplace({1, 3, 1}, absl::MakeSpan(data), sizes,
                       /*is_stable=*/true, &less_than);
  Expect(values == std::array<float, 3>{1, 2, 3}, "sort_lib");
  return failures == 0 ? 0 : 1;
}
