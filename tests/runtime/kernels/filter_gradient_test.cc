// Protects gradients of convolutions by their kernels: any sizes, beside their
// definition, and what isn't a number.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "tests/runtime/kernels/fuzz.h"
#include "tfaot/kernels/filter_gradient_f32.cc"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Random;
using fuzz::Require;
using fuzz::Same;

ImageAxis RandomAxis(Random& random) {
  ImageAxis axis = {};
  axis.kernel = random.OneIn(3) ? 1 : random.Between(1, 7);
  axis.stride = random.OneIn(2) ? 1 : random.Between(1, 3);
  // Usually as far as TensorFlow pads, but also more, or less than nothing.
  axis.padding =
      random.OneIn(8) ? random.Between(-2, 9) : random.Between(0, axis.kernel);
  axis.input = random.Between(1, 20);
  axis.output = random.Between(1, 20);
  axis.input_dilation = axis.kernel_dilation = 1;
  return axis;
}

Images RandomSizes(Random& random) {
  Images images = {};
  images.batch = random.Between(1, 5);
  images.x = RandomAxis(random);
  images.y = RandomAxis(random);
  images.groups = 1;
  if (random.OneIn(2)) {
    images.filters = random.OneIn(2) ? 4 : 8;
    images.input_channels = random.Between(1, 7 / images.y.stride);
  } else {
    images.filters = 16 * random.Between(1, 5);
    images.input_channels =
        random.OneIn(2) ? random.Between(1, 5) : random.Between(1, 40);
  }
  images.kernel_channels = images.input_channels;
  return images;
}

std::int64_t InputSize(const Images& i) {
  return i.batch * i.x.input * i.y.input * i.input_channels;
}
std::int64_t GradientSize(const Images& i) {
  return i.batch * i.x.output * i.y.output * i.filters;
}
std::int64_t KernelSize(const Images& i) {
  return i.input_channels * i.x.kernel * i.y.kernel * i.filters;
}

std::string Name(const Images& i) {
  std::string name = std::to_string(i.batch) + " images, " +
                     std::to_string(i.input_channels) + " channels, " +
                     std::to_string(i.filters) + " filters";
  for (const ImageAxis& axis : {i.x, i.y}) {
    name += "; " + std::to_string(axis.input) + " to " +
            std::to_string(axis.output) + " by " + std::to_string(axis.kernel) +
            " with stride " + std::to_string(axis.stride) + ", padding " +
            std::to_string(axis.padding);
  }
  return name;
}

void Define(const Images& i, const float* input, const float* gradient,
            float* out) {
  const ImageAxis &x = i.x, &y = i.y;
  for (std::int64_t at = 0; at < KernelSize(i); at += i.filters) {
    const std::int64_t ky = at / i.filters % y.kernel;
    const std::int64_t kx = at / i.filters / y.kernel % x.kernel;
    const std::int64_t c = at / i.filters / y.kernel / x.kernel;
    std::fill_n(out + at, i.filters, 0.0f);
    for (std::int64_t n = 0; n < i.batch; ++n) {
      for (std::int64_t ox = 0; ox < x.output; ++ox) {
        const std::int64_t ix = ox * x.stride + kx - x.padding;
        if (ix < 0 || ix >= x.input) continue;
        for (std::int64_t oy = 0; oy < y.output; ++oy) {
          const std::int64_t iy = oy * y.stride + ky - y.padding;
          if (iy < 0 || iy >= y.input) continue;
          const float value =
              input[((n * x.input + ix) * y.input + iy) * i.input_channels + c];
          const float* const row =
              gradient + ((n * x.output + ox) * y.output + oy) * i.filters;
          for (std::int64_t f = 0; f < i.filters; ++f) {
            out[at + f] += value * row[f];
          }
        }
      }
    }
  }
}

// Small integers, whose sums are exact in any order.
void TestSizes() {
  Random random(1);
  for (int test = 0; test < fuzz::Cases(1200); ++test) {
    const Images images = RandomSizes(random);
    const Array<float> input = Array<float>::Filled(random, InputSize(images));
    const Array<float> gradient =
        Array<float>::Filled(random, GradientSize(images));
    Array<float> want(KernelSize(images), 0);
    Define(images, input.data(), gradient.data(), want.data());
    Array<float> got = Array<float>::Poisoned(random, KernelSize(images));
    RunFilterGradient<float>(images, input.data(), gradient.data(), got.data());
    Require(Same(want, got, Name(images)));
  }
}

// A NaN or infinity spoils the sums that it belongs to, and no others.
void TestNotFinite() {
  Random random(2);
  for (int test = 0; test < fuzz::Cases(400); ++test) {
    const Images images = RandomSizes(random);
    Array<float> input = Array<float>::Filled(random, InputSize(images));
    Array<float> gradient = Array<float>::Filled(random, GradientSize(images));
    Array<float>& spoiled = random.OneIn(2) ? input : gradient;
    spoiled.data()[random.Between(0, spoiled.size() - 1)] =
        random.OneIn(2) ? std::numeric_limits<float>::quiet_NaN()
                        : std::numeric_limits<float>::infinity();
    Array<float> want(KernelSize(images), 0);
    Define(images, input.data(), gradient.data(), want.data());
    Array<float> got = Array<float>::Poisoned(random, KernelSize(images));
    RunFilterGradient<float>(images, input.data(), gradient.data(), got.data());
    for (std::int64_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want.data()[i]) && std::isnan(got.data()[i])) {
        want.data()[i] = got.data()[i] = 0;
      }
    }
    Require(Same(want, got, Name(images)));
  }
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::kernels::TestSizes();
  tfaot::kernels::TestNotFinite();
}
