// Compares Winograd's algorithm with plain loops in float64, on random shapes.
#include "tfaot/kernels/winograd.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/runtime/kernels/finishing.h"
#include "tests/runtime/kernels/fuzz.h"
#include "tests/runtime/kernels/winograd_kernel.h"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Finishing;
using fuzz::Random;
using fuzz::Require;
using fuzz::WinogradKernel;

std::string ToString(const Images& c) {
  const auto axis = [](const ImageAxis& a) {
    return std::to_string(a.input) + " padded by " + std::to_string(a.padding) +
           " -> " + std::to_string(a.output);
  };
  return "batch " + std::to_string(c.batch) + ", channels " +
         std::to_string(c.input_channels) + ", filters " +
         std::to_string(c.filters) + ", x " + axis(c.x) + ", y " + axis(c.y);
}

// Calls add(output, input, tap) for all combinations that meet, with the
// locations of their first channel or filter.
template <typename Add>
void ForEachTap(const Images& c, const Add& add) {
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t ox = 0; ox < c.x.output; ++ox) {
      for (int64_t oy = 0; oy < c.y.output; ++oy) {
        for (int64_t tap = 0; tap < 9; ++tap) {
          const int64_t x = ox + tap / 3 - c.x.padding;
          const int64_t y = oy + tap % 3 - c.y.padding;
          if (x < 0 || y < 0 || x >= c.x.input || y >= c.y.input) continue;
          add(((n * c.x.output + ox) * c.y.output + oy) * c.filters,
              ((n * c.x.input + x) * c.y.input + y) * c.input_channels,
              tap * c.input_channels * c.filters);
        }
      }
    }
  }
}

std::vector<double> Reference(const Images& c, const Array<float>& input,
                              const Array<float>& kernel) {
  std::vector<double> out(c.batch * c.x.output * c.y.output * c.filters);
  ForEachTap(c, [&](int64_t output, int64_t pixel, int64_t tap) {
    for (int64_t k = 0; k < c.input_channels; ++k) {
      const double value = input.data()[pixel + k];
      for (int64_t f = 0; f < c.filters; ++f) {
        out[output + f] += value * kernel.data()[tap + k * c.filters + f];
      }
    }
  });
  return out;
}

// The maximum error of results. For rounding, a sum of `channels` products of
// U = G g G^T, rounded once, with V = B^T d B, two sums deep, of which up to
// nine are added, four sums deep, is equivalent to one of
// |A^T| (|U| * (|B^T| |d| |B|)) |A| with channels + 7 factors of 1 + e each,
// |e| <= 2^-24.
std::vector<double> Bound(const Images& c, const Array<float>& input,
                          const Array<float>& kernel) {
  // Rows of |B^T| and of |A^T|, as sets.
  static constexpr int kB[4][4] = {
      {1, 0, 1, 0}, {0, 1, 1, 0}, {0, 1, 1, 0}, {0, 1, 0, 1}};
  static constexpr int kA[2][4] = {{1, 1, 1, 0}, {0, 1, 1, 1}};
  std::vector<double> points(c.input_channels * c.filters * 16);
  for (int64_t i = 0; i < c.input_channels * c.filters; ++i) {
    const std::vector<double> found =
        fuzz::WinogradPoints(kernel.data() + i, c.input_channels * c.filters);
    std::copy(found.begin(), found.end(), points.begin() + i * 16);
  }
  const double factor =
      static_cast<double>(c.input_channels + 7) * std::ldexp(1.0, -24) * 1.01;
  std::vector<double> bound(c.batch * c.x.output * c.y.output * c.filters);
  std::vector<double> v(c.input_channels * 16);
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t ox = 0; ox < c.x.output; ox += 2) {
      for (int64_t oy = 0; oy < c.y.output; oy += 2) {
        std::fill(v.begin(), v.end(), 0.0);
        for (int64_t i = 0; i < 4; ++i) {
          for (int64_t j = 0; j < 4; ++j) {
            const int64_t x = ox + i - c.x.padding;
            const int64_t y = oy + j - c.y.padding;
            if (x < 0 || y < 0 || x >= c.x.input || y >= c.y.input) continue;
            const float* const pixel =
                input.data() +
                ((n * c.x.input + x) * c.y.input + y) * c.input_channels;
            for (int64_t k = 0; k < c.input_channels; ++k) {
              for (int p = 0; p < 16; ++p) {
                v[k * 16 + p] +=
                    kB[p / 4][i] * kB[p % 4][j] * std::fabs(double{pixel[k]});
              }
            }
          }
        }
        for (int64_t f = 0; f < c.filters; ++f) {
          double sums[16] = {};
          for (int64_t k = 0; k < c.input_channels; ++k) {
            for (int p = 0; p < 16; ++p) {
              sums[p] += std::fabs(points[(k * c.filters + f) * 16 + p]) *
                         v[k * 16 + p];
            }
          }
          for (int64_t i = 0; i < std::min<int64_t>(2, c.x.output - ox); ++i) {
            for (int64_t j = 0; j < std::min<int64_t>(2, c.y.output - oy);
                 ++j) {
              double total = 0;
              for (int p = 0; p < 16; ++p) {
                total += kA[i][p / 4] * kA[j][p % 4] * sums[p];
              }
              bound[((n * c.x.output + ox + i) * c.y.output + oy + j) *
                        c.filters +
                    f] = factor * total;
            }
          }
        }
      }
    }
  }
  return bound;
}

ImageAxis AnyAxis(Random& random) {
  const int64_t padding = random.OneIn(3) ? 0 : random.Between(0, 3);
  const int64_t input = random.Between(1, 13);
  const int64_t output = input + padding + random.Between(0, 3) - 2;
  return {input, 3, std::max<int64_t>(output, 0), 1, padding, 1, 1};
}

Images AnyImages(Random& random) {
  const auto size = [&] {
    return random.OneIn(3) ? random.Between(1, 200) : random.Between(1, 40);
  };
  Images c = {random.Between(1, 3),
              size(),
              0,
              size(),
              1,
              AnyAxis(random),
              AnyAxis(random),
              Packing::kWinograd};
  c.kernel_channels = c.input_channels;
  return c;
}

Array<float> Rough(Random& random, int64_t size) {
  Array<float> array(size, random.Between(0, 3));
  for (int64_t i = 0; i < size; ++i) {
    array.data()[i] =
        static_cast<float>(random.Between(-1000000, 1000000)) / 999983;
  }
  return array;
}

int64_t InputSize(const Images& c) {
  return c.batch * c.x.input * c.y.input * c.input_channels;
}

int64_t OutputSize(const Images& c) {
  return c.batch * c.x.output * c.y.output * c.filters;
}

// A part's scratch memory, of its exact size.
Array<float> Scratch(Random& random, const Images& c) {
  return Array<float>::Poisoned(random, WinogradScratch(c.input_channels));
}

// Protects the algorithm, the use of each value, and epilogues. With integers,
// and kernels that are multiples of four, everything is exact.
void Exact(Random& random, int cases) {
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    const Images c = AnyImages(random);
    const Array<float> input = Array<float>::Filled(random, InputSize(c));
    Array<float> kernel =
        Array<float>::Filled(random, 9 * c.input_channels * c.filters);
    for (int64_t j = 0; j < kernel.size(); ++j) kernel.data()[j] *= 4;
    const std::vector<double> reference = Reference(c, input, kernel);
    Array<float> expected(OutputSize(c), 0);
    std::copy(reference.begin(), reference.end(), expected.data());
    Array<float> out = Array<float>::Poisoned(random, OutputSize(c));
    Array<float> scratch = Scratch(random, c);
    const Finishing<float> finishing(random, out.data(), out.size(), c.filters);
    const std::vector<float> packed =
        WinogradKernel(kernel.data(), c.input_channels, c.filters);
    ConvolveWinograd(c, input.data(), packed.data(), out.data(), scratch.data(),
                     {}, finishing.get());
    Require(scratch.MarginsAreIntact());
    Require(finishing.IsRight(expected, out, ToString(c)));
  }
}

// Protects accuracy: no result has a larger error than rounding can cause.
void Rounding(Random& random, int cases) {
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    const Images c = AnyImages(random);
    const Array<float> input = Rough(random, InputSize(c));
    const Array<float> kernel = Rough(random, 9 * c.input_channels * c.filters);
    const std::vector<double> expected = Reference(c, input, kernel);
    const std::vector<double> bound = Bound(c, input, kernel);
    const std::vector<float> packed =
        WinogradKernel(kernel.data(), c.input_channels, c.filters);
    Array<float> out = Array<float>::Poisoned(random, OutputSize(c));
    Array<float> scratch = Scratch(random, c);
    ConvolveWinograd(c, input.data(), packed.data(), out.data(),
                     scratch.data());
    for (int64_t j = 0; j < out.size(); ++j) {
      if (!(std::fabs(out.data()[j] - expected[j]) <= bound[j])) {
        std::fprintf(stderr, "%s: value %lld is %g, not within %g of %g\n",
                     ToString(c).c_str(), static_cast<long long>(j),
                     static_cast<double>(out.data()[j]), bound[j], expected[j]);
        Require(false);
      }
    }
  }
}

// Protects numbers from threads: parts have the same bits as the whole.
void Parts(Random& random, int cases) {
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    const Images c = AnyImages(random);
    const Array<float> input = Rough(random, InputSize(c));
    const Array<float> kernel = Rough(random, 9 * c.input_channels * c.filters);
    const std::vector<float> packed =
        WinogradKernel(kernel.data(), c.input_channels, c.filters);
    Array<float> scratch = Scratch(random, c);
    Array<float> whole(OutputSize(c), 0);
    ConvolveWinograd(c, input.data(), packed.data(), whole.data(),
                     scratch.data());
    Array<float> parts = Array<float>::Poisoned(random, OutputSize(c));
    const int64_t rows = random.Between(1, 5);
    const int64_t columns = random.Between(1, 4);
    for (int64_t part = rows * columns; part-- > 0;) {
      Array<float> own = Scratch(random, c);
      ConvolveWinograd(c, input.data(), packed.data(), parts.data(), own.data(),
                       {{}, {part / columns, rows}, {part % columns, columns}});
    }
    for (int64_t j = 0; j < whole.size(); ++j) {
      if (std::memcmp(whole.data() + j, parts.data() + j, sizeof(float)) != 0) {
        std::fprintf(stderr, "%s: value %lld differs in parts\n",
                     ToString(c).c_str(), static_cast<long long>(j));
        Require(false);
      }
    }
    Require(parts.MarginsAreIntact());
  }
}

// Protects what we document about infinities and NaN: no output that meets one
// is finite, and no output is corrupted unless its tile meets one.
void NotFinite(Random& random, int cases) {
  for (int i = 0; i < fuzz::Cases(cases); ++i) {
    const Images c = AnyImages(random);
    Array<float> input = Rough(random, InputSize(c));
    const Array<float> kernel = Rough(random, 9 * c.input_channels * c.filters);
    const std::vector<float> packed =
        WinogradKernel(kernel.data(), c.input_channels, c.filters);
    const int64_t bad = random.Between(0, input.size() - 1);
    input.data()[bad] = random.OneIn(2)
                            ? std::numeric_limits<float>::infinity()
                            : std::numeric_limits<float>::quiet_NaN();
    Array<float> out = Array<float>::Poisoned(random, OutputSize(c));
    Array<float> scratch = Scratch(random, c);
    ConvolveWinograd(c, input.data(), packed.data(), out.data(),
                     scratch.data());
    const int64_t pixel = bad / c.input_channels;
    const int64_t bad_y = pixel % c.y.input + c.y.padding;
    const int64_t bad_x = pixel / c.y.input % c.x.input + c.x.padding;
    const int64_t bad_image = pixel / c.y.input / c.x.input;
    for (int64_t j = 0; j < out.size(); ++j) {
      const int64_t at = j / c.filters;
      const int64_t y = at % c.y.output;
      const int64_t x = at / c.y.output % c.x.output;
      const bool same = at / c.y.output / c.x.output == bad_image;
      const bool meets =
          same && bad_x >= x && bad_x <= x + 2 && bad_y >= y && bad_y <= y + 2;
      const int64_t tile_x = x / 2 * 2;
      const int64_t tile_y = y / 2 * 2;
      const bool near = same && bad_x >= tile_x && bad_x <= tile_x + 3 &&
                        bad_y >= tile_y && bad_y <= tile_y + 3;
      const bool finite = std::isfinite(out.data()[j]);
      if ((meets && finite) || (!near && !finite)) {
        std::fprintf(stderr, "%s: value %lld is %g\n", ToString(c).c_str(),
                     static_cast<long long>(j),
                     static_cast<double>(out.data()[j]));
        Require(false);
      }
    }
  }
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::fuzz::Random random(20261121);
  tfaot::kernels::Exact(random, 700);
  tfaot::kernels::Rounding(random, 150);
  tfaot::kernels::Parts(random, 200);
  tfaot::kernels::NotFinite(random, 150);
  return 0;
}
