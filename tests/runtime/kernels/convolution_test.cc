// Compares the convolution with plain loops, exactly, on random shapes.
#include "tfaot/kernels/convolution.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <utility>

#include "tests/runtime/kernels/finishing.h"
#include "tests/runtime/kernels/fuzz.h"
#include "tests/runtime/kernels/panels.h"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Finishing;
using fuzz::InPanels;
using fuzz::Random;
using fuzz::Require;

// Returns the input that an output and a tap meet, or -1.
int64_t Meets(const Axis& axis, int64_t output, int64_t tap) {
  const int64_t at =
      output * axis.stride + tap * axis.kernel_dilation - axis.padding;
  if (at < 0 || at % axis.input_dilation != 0) return -1;
  return at / axis.input_dilation < axis.input ? at / axis.input_dilation : -1;
}

Array<float> Reference(const Convolution& c, const Array<float>& input,
                       const Array<float>& kernel) {
  Array<float> out(c.batch * c.x.output * c.y.output * c.filters, 0);
  float* to = out.data();
  const int64_t group_filters = c.filters / c.groups;
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t ox = 0; ox < c.x.output; ++ox) {
      for (int64_t oy = 0; oy < c.y.output; ++oy, to += c.filters) {
        for (int64_t f = 0; f < c.filters; ++f) to[f] = 0;
        for (int64_t kx = 0; kx < c.x.kernel; ++kx) {
          const int64_t px = Meets(c.x, ox, kx);
          for (int64_t ky = 0; ky < c.y.kernel && px >= 0; ++ky) {
            const int64_t py = Meets(c.y, oy, ky);
            if (py < 0) continue;
            const float* pixel =
                input.data() +
                ((n * c.x.input + px) * c.y.input + py) * c.input_channels;
            const float* tap = kernel.data() + (kx * c.y.kernel + ky) *
                                                   c.kernel_channels *
                                                   c.filters;
            for (int64_t k = 0; k < c.kernel_channels; ++k) {
              for (int64_t f = 0, g = 0; f < c.filters; ++g) {
                const float value = pixel[g * c.kernel_channels + k];
                for (const int64_t end = f + group_filters; f < end; ++f) {
                  to[f] += value * tap[k * c.filters + f];
                }
              }
            }
          }
        }
      }
    }
  }
  return out;
}

std::string ToString(const Axis& axis) {
  return "(" + std::to_string(axis.input) + ", kernel " +
         std::to_string(axis.kernel) + ", output " +
         std::to_string(axis.output) + ", stride " +
         std::to_string(axis.stride) + ", padding " +
         std::to_string(axis.padding) + ", dilations " +
         std::to_string(axis.input_dilation) + " " +
         std::to_string(axis.kernel_dilation) + ")";
}

std::string ToString(const Convolution& c) {
  return "batch " + std::to_string(c.batch) + ", channels " +
         std::to_string(c.input_channels) + " in " + std::to_string(c.groups) +
         ", filters " + std::to_string(c.filters) + ", x " + ToString(c.x) +
         ", y " + ToString(c.y);
}

// Returns whether the kernel can be packed.
bool HasPanels(const Convolution& c) {
  return c.groups == 1 && c.x.input_dilation == 1 && c.y.input_dilation == 1;
}

void Check(Random& random, Convolution c) {
  const Array<float> input = Array<float>::Filled(
      random, c.batch * c.x.input * c.y.input * c.input_channels);
  const Array<float> kernel = Array<float>::Filled(
      random, c.x.kernel * c.y.kernel * c.kernel_channels * c.filters);
  const Array<float> expected = Reference(c, input, kernel);
  for (const bool packed : {false, true}) {
    if (packed && !HasPanels(c)) continue;
    c.packed_kernel = packed;
    const Array<float> given =
        packed
            ? InPanels(random, kernel,
                       c.x.kernel * c.y.kernel * c.kernel_channels, c.filters)
            : kernel;
    Array<float> out = Array<float>::Poisoned(
        random, c.batch * c.x.output * c.y.output * c.filters);
    const Finishing<float> finishing(random, out.data(), out.size(), c.filters);
    const int64_t parts = random.OneIn(3) ? 3 : 1;
    for (int64_t i = 0; i < parts; ++i) {
      Convolve(c, input.data(), given.data(), out.data(), {{}, {}, {i, parts}},
               finishing.get());
    }
    Require(finishing.IsRight(expected, out,
                              ToString(c) + (packed ? ", packed" : "")));
  }
}

// Sets the output's size to what fits, with padding on both sides.
void SetOutput(Random& random, Axis& axis) {
  const int64_t after = random.Between(-1, axis.kernel);
  const int64_t input = (axis.input - 1) * axis.input_dilation + 1;
  const int64_t kernel = (axis.kernel - 1) * axis.kernel_dilation + 1;
  const int64_t room = input + axis.padding + after - kernel;
  axis.output = room < 0 ? 0 : room / axis.stride + 1;
}

Axis AnyAxis(Random& random, bool dilated) {
  Axis axis;
  axis.input = random.Between(1, random.OneIn(6) ? 30 : 14);
  axis.kernel = random.Between(1, random.OneIn(4) ? 9 : 4);
  axis.stride = random.OneIn(2) ? 1 : random.Between(1, 4);
  axis.padding = random.OneIn(3) ? 0 : random.Between(-1, axis.kernel);
  if (dilated) {
    axis.input_dilation = random.OneIn(2) ? 1 : random.Between(1, 4);
    axis.kernel_dilation = random.OneIn(2) ? 1 : random.Between(1, 4);
  }
  SetOutput(random, axis);
  return axis;
}

bool IsSmall(const Convolution& c, int64_t limit) {
  return c.batch * c.x.output * c.y.output * c.x.kernel * c.y.kernel *
             c.kernel_channels * c.filters <=
         limit;
}

void RandomShapes(Random& random, int cases, bool dilated, bool grouped) {
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    Convolution c;
    c.batch = random.Between(1, 3);
    c.groups = grouped ? random.Between(1, 5) : 1;
    c.kernel_channels =
        random.OneIn(3) ? random.Between(1, 40) : random.Between(1, 4);
    c.input_channels = c.groups * c.kernel_channels;
    c.filters = c.groups * (random.OneIn(3) ? random.Between(1, 40)
                                            : random.Between(1, 4));
    c.x = AnyAxis(random, dilated);
    c.y = AnyAxis(random, dilated);
    if (!IsSmall(c, 400000)) continue;
    Check(random, c);
  }
}

// Protects forward passes: strides, padding of either sign, and kernels larger
// than the image.
void Forward(Random& random) { RandomShapes(random, 4000, false, false); }

// Protects gradients with respect to the input, whose input is dilated, and
// dilated convolutions, in all combinations with strides and padding.
void Dilated(Random& random) { RandomShapes(random, 6000, true, false); }

// Protects the distances between pixels if a group has only some channels.
void Grouped(Random& random) { RandomShapes(random, 3000, true, true); }

// Protects the direct loops for one channel per group, with edges on all sides
// and channels that don't fill a vector.
void Depthwise(Random& random) {
  for (int i = 0; i < fuzz::Cases(4000); ++i) {
    Convolution c;
    c.batch = random.Between(1, 2);
    c.groups = c.input_channels = random.Between(1, 70);
    c.kernel_channels = 1;
    c.filters = c.groups * (random.OneIn(4) ? random.Between(2, 5) : 1);
    c.x = AnyAxis(random, random.OneIn(3));
    c.y = AnyAxis(random, random.OneIn(3));
    if (!IsSmall(c, 400000)) continue;
    Check(random, c);
  }
}

// Protects lines that are computed from copies, in pieces that don't fit all of
// a line.
void WideDepthwise(Random& random) {
  for (int i = 0; i < fuzz::Cases(100); ++i) {
    Convolution c;
    c.batch = random.Between(1, 2);
    c.groups = c.input_channels = c.filters = random.Between(16, 40);
    c.kernel_channels = 1;
    for (Axis* axis : {&c.x, &c.y}) {
      axis->kernel = 5;
      axis->stride = random.Between(1, 2);
      axis->input =
          axis == &c.y ? random.Between(40, 200) : random.Between(4, 9);
      axis->padding = random.Between(0, 4);
      axis->output =
          (axis->input + axis->padding + random.Between(1, 4)) / axis->stride;
    }
    Check(random, c);
  }
}

// Protects images without pixels: every output is what the padding gives.
void EmptyImages(Random& random) {
  for (const int64_t taps : {3, 5}) {
    Convolution c;
    c.groups = c.input_channels = c.filters = 20;
    c.x.kernel = c.y.kernel = taps;
    c.x.input = 2;
    c.y.input = 0;
    c.x.padding = c.y.padding = taps;
    c.x.output = c.y.output = 4;
    Check(random, c);
    std::swap(c.x.input, c.y.input);
    Check(random, c);
  }
}

// Protects gradients with respect to the kernel, whose "kernel" is as large as
// the image and has the batch as its channels: long inner dimensions, which are
// split.
void KernelGradients(Random& random) {
  for (int i = 0; i < fuzz::Cases(60); ++i) {
    Convolution c;
    c.batch = random.Between(1, 4);
    c.input_channels = c.kernel_channels = random.Between(1, 40);
    c.filters = random.Between(1, 20);
    for (Axis* axis : {&c.x, &c.y}) {
      axis->input = random.Between(12, 30);
      axis->output = random.Between(1, 3);
      axis->kernel_dilation = random.OneIn(2) ? 1 : 2;
      axis->padding = random.Between(0, 1);
      axis->kernel = (axis->input + 2 * axis->padding - axis->output) /
                         axis->kernel_dilation +
                     1;
    }
    Check(random, c);
  }
}

// Protects few filters, where a vector has several outputs along y: lines that
// end within a vector or within a block of vectors, with padding on both sides.
void FewFilters(Random& random) {
  for (int i = 0; i < fuzz::Cases(1500); ++i) {
    Convolution c;
    c.batch = random.Between(1, 2);
    c.input_channels = c.kernel_channels = random.Between(1, 5);
    c.filters = random.Between(1, 8);
    c.x = AnyAxis(random, random.OneIn(4));
    c.y.input = random.Between(1, 150);
    c.y.kernel = random.Between(1, 4);
    c.y.stride = random.OneIn(3) ? 2 : 1;
    c.y.padding = random.OneIn(3) ? 0 : random.Between(-2, 6);
    SetOutput(random, c.y);
    if (!IsSmall(c, 1000000)) continue;
    Check(random, c);
  }
}

// Protects padding that is wider than tiles, which skip the taps in it, along
// each axis and on both sides, with taps far apart.
void WidePadding(Random& random) {
  for (int i = 0; i < fuzz::Cases(300); ++i) {
    Convolution c;
    c.batch = random.Between(1, 2);
    c.input_channels = c.kernel_channels =
        random.OneIn(3) ? random.Between(1, 15) : random.Between(16, 80);
    c.filters = random.Between(1, 70);
    Axis* const axis = random.OneIn(3) ? &c.x : &c.y;
    axis->kernel = random.Between(2, 4);
    axis->kernel_dilation = random.Between(5, 40);
    axis->input = random.Between(1, 90);
    axis->padding = random.Between(0, 120);
    axis->stride = random.OneIn(3) ? 2 : 1;
    SetOutput(random, *axis);
    axis->output += random.OneIn(2) ? random.Between(0, 60) : 0;
    (axis == &c.x ? c.y : c.x) = AnyAxis(random, false);
    if (!IsSmall(c, 4000000)) continue;
    Check(random, c);
  }
}

// Protects the speed of wide padding: with a packed kernel, a tap that is in
// the padding for all outputs isn't multiplied, so it can be infinite.
void PaddingIsSkipped(Random& random) {
  for (const int64_t channels : {20, 600}) {
    Convolution c;
    c.input_channels = c.kernel_channels = channels;
    c.filters = 70;
    c.y = {48, 3, 48, 1, 96, 1, 48};
    c.packed_kernel = true;
    const Array<float> input = Array<float>::Filled(random, 48 * channels);
    Array<float> kernel =
        Array<float>::Filled(random, 3 * channels * c.filters);
    const Array<float> expected = Reference(c, input, kernel);
    std::fill(kernel.data(), kernel.data() + 2 * channels * c.filters,
              std::numeric_limits<float>::infinity());
    const Array<float> packed = InPanels(random, kernel, 3 * channels, 70);
    Array<float> out(48 * c.filters, 0);
    Convolve(c, input.data(), packed.data(), out.data());
    Require(std::equal(out.data(), out.data() + out.size(), expected.data()));
  }
}

// Protects long runs, which are split: more channels, or channels times taps,
// than fit in one step.
void LongRuns(Random& random) {
  for (const int64_t channels : {1, 3, 15, 16, 255, 256, 257, 600}) {
    for (const int64_t taps : {1, 3, 90}) {
      Convolution c;
      c.input_channels = c.kernel_channels = channels;
      c.filters = random.Between(1, 17);
      c.x.input = 3;
      c.x.kernel = 2;
      c.x.output = 2;
      c.y.input = taps + 1;
      c.y.kernel = taps;
      c.y.padding = 1;
      c.y.output = 4;
      Check(random, c);
    }
  }
}

// Protects IEEE results: a NaN in the input corrupts the outputs that meet it,
// even where the kernel is zero, and no others.
void NanInInput(Random& random) {
  for (int i = 0; i < fuzz::Cases(500); ++i) {
    Convolution c;
    c.batch = random.Between(1, 2);
    c.groups = random.OneIn(3) ? random.Between(2, 20) : 1;
    c.kernel_channels = c.groups > 1 ? 1 : random.Between(1, 40);
    c.input_channels = c.groups * c.kernel_channels;
    c.filters = c.groups > 1 ? c.groups : random.Between(1, 20);
    c.x = AnyAxis(random, random.OneIn(2));
    c.y = AnyAxis(random, random.OneIn(2));
    Array<float> input(c.batch * c.x.input * c.y.input * c.input_channels, 0);
    Array<float> kernel(c.x.kernel * c.y.kernel * c.kernel_channels * c.filters,
                        0);
    Array<float> out(c.batch * c.x.output * c.y.output * c.filters, 0);
    std::fill(input.data(), input.data() + input.size(), 1.0f);
    std::fill(kernel.data(), kernel.data() + kernel.size(), 0.0f);
    input.data()[random.Between(0, input.size() - 1)] =
        std::numeric_limits<float>::quiet_NaN();
    Convolve(c, input.data(), kernel.data(), out.data());
    const Array<float> expected = Reference(c, input, kernel);
    for (int64_t j = 0; j < out.size(); ++j) {
      if (std::isnan(out.data()[j]) != std::isnan(expected.data()[j]) ||
          (!std::isnan(out.data()[j]) && out.data()[j] != 0)) {
        std::fprintf(stderr, "NaN: value %lld of %s is %g\n",
                     static_cast<long long>(j), ToString(c).c_str(),
                     static_cast<double>(out.data()[j]));
        Require(false);
      }
    }
  }
}

void Run() {
  Random random(20240608);
  Forward(random);
  Dilated(random);
  Grouped(random);
  Depthwise(random);
  WideDepthwise(random);
  EmptyImages(random);
  KernelGradients(random);
  FewFilters(random);
  WidePadding(random);
  PaddingIsSkipped(random);
  LongRuns(random);
  NanInInput(random);
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::kernels::Run();
  return 0;
}
