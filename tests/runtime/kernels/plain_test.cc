// Compares products and convolutions of rare dtypes with plain sums, exactly,
// on random sizes.
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tests/runtime/kernels/fuzz.h"
#include "tfaot/half.h"
#include "tfaot/kernels/calls.h"

namespace tfaot::kernels {
namespace {

using fuzz::Random;
using fuzz::Require;

// Small integers, whose sums are exact in every type.
void Set(Random& random, Float16& value) {
  value = Float16(static_cast<float>(random.Between(-3, 3)));
}
template <typename T>
void Set(Random& random, std::complex<T>& value) {
  value = {static_cast<T>(random.Between(-4, 4)),
           static_cast<T>(random.Between(-4, 4))};
}

template <typename T>
std::vector<T> Values(Random& random, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count) + 1);
  for (T& value : values) Set(random, value);
  return values;
}

std::complex<double> Wide(Float16 value) { return static_cast<double>(value); }
template <typename T>
std::complex<double> Wide(std::complex<T> value) {
  return {static_cast<double>(value.real()), static_cast<double>(value.imag())};
}

template <typename T>
void TestProducts(const char* name) {
  Random random(1);
  for (int i = 0; i < fuzz::Cases(400); ++i) {
    Products p = {};
    p.batch = random.Between(0, 3);
    p.rows = random.Between(0, 9);
    p.columns = random.Between(0, 40);
    p.depth = random.Between(0, 20);
    p.transposed_left = random.OneIn(2);
    p.transposed_right = random.OneIn(2);
    p.left_step = p.rows * p.depth + random.Between(0, 2);
    p.right_step = p.depth * p.columns + random.Between(0, 2);
    p.out_step = p.rows * p.columns + random.Between(0, 2);
    const auto left = Values<T>(random, 3 * p.left_step);
    const auto right = Values<T>(random, 3 * p.right_step);
    auto out = Values<T>(random, 3 * p.out_step);
    std::vector<std::complex<double>> want;
    for (const T& value : out) want.push_back(Wide(value));
    for (std::int64_t b = 0; b < p.batch; ++b) {
      for (std::int64_t r = 0; r < p.rows; ++r) {
        for (std::int64_t c = 0; c < p.columns; ++c) {
          std::complex<double> sum = 0;
          for (std::int64_t k = 0; k < p.depth; ++k) {
            const std::int64_t l =
                b * p.left_step +
                (p.transposed_left ? k * p.rows + r : r * p.depth + k);
            const std::int64_t m =
                b * p.right_step +
                (p.transposed_right ? c * p.depth + k : k * p.columns + c);
            sum += Wide(left[static_cast<std::size_t>(l)]) *
                   Wide(right[static_cast<std::size_t>(m)]);
          }
          want[static_cast<std::size_t>(b * p.out_step + r * p.columns + c)] =
              sum;
        }
      }
    }
    RunPlainProducts<T>(p, left.data(), right.data(), out.data());
    bool same = true;
    for (std::size_t j = 0; j < out.size(); ++j) {
      same = same && Wide(out[j]) == want[j];
    }
    if (!same) std::fprintf(stderr, "%s: case %d is wrong\n", name, i);
    Require(same);
  }
}

ImageAxis AnyAxis(Random& random) {
  ImageAxis axis = {};
  axis.input = random.Between(1, 8);
  axis.kernel = random.Between(1, 4);
  axis.output = random.Between(1, 6);
  axis.stride = random.Between(1, 3);
  axis.padding = random.Between(-2, 3);
  axis.input_dilation = random.Between(1, 3);
  axis.kernel_dilation = random.Between(1, 2);
  return axis;
}

void TestConvolutions() {
  Random random(2);
  for (int i = 0; i < fuzz::Cases(400); ++i) {
    Images c = {};
    c.batch = random.Between(1, 2);
    c.groups = random.Between(1, 3);
    c.kernel_channels = random.Between(1, 3);
    c.input_channels = c.groups * c.kernel_channels;
    c.filters = c.groups * random.Between(1, 3);
    c.x = AnyAxis(random);
    c.y = AnyAxis(random);
    const auto input = Values<Float16>(
        random, c.batch * c.x.input * c.y.input * c.input_channels);
    const auto kernel = Values<Float16>(
        random, c.x.kernel * c.y.kernel * c.kernel_channels * c.filters);
    // The dilated and padded input, scattered into sums.
    const std::int64_t outputs = c.batch * c.x.output * c.y.output * c.filters;
    std::vector<float> want(static_cast<std::size_t>(outputs), 0);
    for (std::int64_t o = 0; o < outputs; ++o) {
      const std::int64_t f = o % c.filters;
      const std::int64_t oy = o / c.filters % c.y.output;
      const std::int64_t ox = o / c.filters / c.y.output % c.x.output;
      const std::int64_t image = o / c.filters / c.y.output / c.x.output;
      const std::int64_t group = f / (c.filters / c.groups);
      for (std::int64_t ix = 0; ix < c.x.input; ++ix) {
        for (std::int64_t iy = 0; iy < c.y.input; ++iy) {
          const std::int64_t from_x =
              ix * c.x.input_dilation + c.x.padding - ox * c.x.stride;
          const std::int64_t from_y =
              iy * c.y.input_dilation + c.y.padding - oy * c.y.stride;
          if (from_x < 0 || from_x % c.x.kernel_dilation != 0) continue;
          if (from_y < 0 || from_y % c.y.kernel_dilation != 0) continue;
          const std::int64_t tx = from_x / c.x.kernel_dilation;
          const std::int64_t ty = from_y / c.y.kernel_dilation;
          if (tx >= c.x.kernel || ty >= c.y.kernel) continue;
          for (std::int64_t k = 0; k < c.kernel_channels; ++k) {
            const std::int64_t a =
                ((image * c.x.input + ix) * c.y.input + iy) * c.input_channels +
                group * c.kernel_channels + k;
            const std::int64_t b =
                ((tx * c.y.kernel + ty) * c.kernel_channels + k) * c.filters +
                f;
            want[static_cast<std::size_t>(o)] +=
                static_cast<float>(input[static_cast<std::size_t>(a)]) *
                static_cast<float>(kernel[static_cast<std::size_t>(b)]);
          }
        }
      }
    }
    auto out = Values<Float16>(random, outputs);
    const float after = out.back();
    RunPlainConvolution<Float16>(c, input.data(), kernel.data(), out.data());
    bool same = static_cast<float>(out.back()) == after;
    for (std::size_t j = 0; j < want.size(); ++j) {
      same = same && static_cast<float>(out[j]) == want[j];
    }
    if (!same) std::fprintf(stderr, "convolution: case %d is wrong\n", i);
    Require(same);
  }
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  tfaot::kernels::TestProducts<tfaot::Float16>("float16");
  tfaot::kernels::TestProducts<std::complex<float>>("complex64");
  tfaot::kernels::TestProducts<std::complex<double>>("complex128");
  tfaot::kernels::TestConvolutions();
  return 0;
}
