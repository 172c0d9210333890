// Compares Winograd's algorithm with the direct convolution on one core, both
// with packed kernels, in interleaved rounds, in time and errors:
//
//   winograd_benchmark [--rounds=N] [--grid]
//
// Times are the minimum CPU time of all rounds, so other programs don't count.
// Errors are differences from sums in float64, for normally distributed inputs
// and kernels, divided by the root mean square of the results: the largest, and
// their root mean square. --grid prints times for many shapes, to see where
// which one is faster.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "tests/runtime/kernels/fuzz.h"
#include "tests/runtime/kernels/panels.h"
#include "tests/runtime/kernels/winograd_kernel.h"
#include "tfaot/kernels/convolution.h"
#include "tfaot/kernels/winograd.h"

namespace tfaot {
namespace {

namespace k = ::tfaot::kernels;
using fuzz::Array;

struct Layer {
  int64_t batch, size, channels, filters;
};

// CPU time of this thread.
double Now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

Array<float> Normal(std::mt19937& engine, int64_t size, double deviation) {
  std::normal_distribution<double> distribution(0, deviation);
  Array<float> array(size, 0);
  for (int64_t i = 0; i < size; ++i) {
    array.data()[i] = static_cast<float>(distribution(engine));
  }
  return array;
}

struct Error {
  double largest;
  double mean;
};

Error ErrorOf(const std::vector<double>& expected, const Array<float>& got) {
  double squares = 0;
  double errors = 0;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = got.data()[i] - expected[i];
    squares += expected[i] * expected[i];
    errors += error * error;
    largest = std::max(largest, std::fabs(error));
  }
  const double scale =
      std::sqrt(squares / static_cast<double>(expected.size()));
  return {largest / scale,
          std::sqrt(errors / static_cast<double>(expected.size())) / scale};
}

std::vector<double> InFloat64(const Layer& layer, const Array<float>& input,
                              const Array<float>& kernel) {
  const int64_t size = layer.size;
  std::vector<double> out(
      static_cast<std::size_t>(layer.batch * size * size * layer.filters));
  double* to = out.data();
  for (int64_t at = 0; at < layer.batch * size * size; ++at) {
    for (int64_t tap = 0; tap < 9; ++tap) {
      const int64_t x = at / size % size + tap / 3 - 1;
      const int64_t y = at % size + tap % 3 - 1;
      if (x < 0 || y < 0 || x >= size || y >= size) continue;
      const float* const pixel =
          input.data() +
          ((at / size / size * size + x) * size + y) * layer.channels;
      const float* row = kernel.data() + tap * layer.channels * layer.filters;
      for (int64_t c = 0; c < layer.channels; ++c, row += layer.filters) {
        for (int64_t f = 0; f < layer.filters; ++f) {
          to[f] += static_cast<double>(pixel[c]) * row[f];
        }
      }
    }
    to += layer.filters;
  }
  return out;
}

void Compare(const Layer& layer, int rounds, bool errors) {
  k::Convolution c;
  c.batch = layer.batch;
  c.input_channels = c.kernel_channels = layer.channels;
  c.filters = layer.filters;
  c.x = c.y = {layer.size, 3, layer.size, 1, 1, 1, 1};
  c.packed_kernel = true;
  const k::ImageAxis axis = {layer.size, 3, layer.size, 1, 1, 1, 1};
  const k::Images images = {
      layer.batch, layer.channels, layer.channels, layer.filters,
      1,           axis,           axis,           k::Packing::kWinograd};
  std::mt19937 engine(1);
  fuzz::Random random(1);
  const int64_t outputs = layer.batch * layer.size * layer.size * layer.filters;
  const Array<float> input =
      Normal(engine, layer.batch * layer.size * layer.size * layer.channels, 1);
  const Array<float> kernel =
      Normal(engine, 9 * layer.channels * layer.filters,
             1 / std::sqrt(9.0 * static_cast<double>(layer.channels)));
  const Array<float> panels =
      fuzz::InPanels(random, kernel, 9 * layer.channels, layer.filters);
  const std::vector<float> points =
      fuzz::WinogradKernel(kernel.data(), layer.channels, layer.filters);
  std::vector<float> scratch(
      static_cast<std::size_t>(k::WinogradScratch(layer.channels)));
  Array<float> direct(outputs, 0);
  Array<float> winograd(outputs, 0);
  const double operations =
      9.0 * static_cast<double>(outputs) * static_cast<double>(layer.channels);
  const int repeat = static_cast<int>(std::max(1.0, 1e7 / operations));
  double direct_best = 1e30;
  double winograd_best = 1e30;
  for (int round = 0; round < rounds; ++round) {
    double begin = Now();
    for (int i = 0; i < repeat; ++i) {
      k::Convolve(c, input.data(), panels.data(), direct.data());
    }
    direct_best = std::min(direct_best, (Now() - begin) / repeat);
    begin = Now();
    for (int i = 0; i < repeat; ++i) {
      k::ConvolveWinograd(images, input.data(), points.data(), winograd.data(),
                          scratch.data());
    }
    winograd_best = std::min(winograd_best, (Now() - begin) / repeat);
  }
  std::printf("| %d x %d^2 x %d -> %d | %.1f | %.1f | %.2f |",
              static_cast<int>(layer.batch), static_cast<int>(layer.size),
              static_cast<int>(layer.channels), static_cast<int>(layer.filters),
              direct_best * 1e6, winograd_best * 1e6,
              direct_best / winograd_best);
  if (errors) {
    const std::vector<double> expected = InFloat64(layer, input, kernel);
    for (const Error& error :
         {ErrorOf(expected, direct), ErrorOf(expected, winograd)}) {
      std::printf(" %.1e | %.1e |", error.largest, error.mean);
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  int rounds = 15;
  bool grid = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--rounds=", 9) == 0) {
      rounds = std::max(1, std::atoi(argv[i] + 9));
    } else if (std::strcmp(argv[i], "--grid") == 0) {
      grid = true;
    } else if (std::strcmp(argv[i], "--help") == 0) {
      std::printf(
          "usage: winograd_benchmark [--rounds=N] [--grid]\n\n"
          "Compares Winograd's filtering with direct convolution. --grid\n"
          "prints a table of many shapes.\n");
      return 0;
    } else {
      std::fprintf(stderr, "unknown flag: %s\n", argv[i]);
      return 2;
    }
  }
  if (grid) {
    std::printf("| shape | direct us | us | ratio |\n|---|---|---|---|\n");
    for (const int64_t batch : {1, 16}) {
      for (const int64_t size : {2, 3, 4, 5, 6, 7, 9, 14, 28, 56}) {
        for (const int64_t channels : {8, 16, 32, 64, 256}) {
          for (const int64_t filters : {8, 16, 32, 64, 256}) {
            if (batch * size * size * channels * filters > (1 << 26)) continue;
            Compare({batch, size, channels, filters}, rounds, false);
          }
        }
      }
    }
    return 0;
  }
  std::printf(
      "| shape | direct us | us | ratio | direct error, largest | mean | "
      "error, "
      "largest | mean |\n|---|---|---|---|---|---|---|---|\n");
  for (const Layer& layer :
       {Layer{1, 56, 64, 64}, Layer{1, 28, 128, 128}, Layer{1, 14, 256, 256},
        Layer{1, 7, 512, 512}, Layer{1, 14, 512, 512}, Layer{1, 112, 64, 64},
        Layer{1, 56, 32, 32}, Layer{16, 14, 32, 64}, Layer{16, 8, 64, 64}}) {
    Compare(layer, rounds, true);
  }
  return 0;
}

}  // namespace
}  // namespace tfaot

int main(int argc, char** argv) { return tfaot::Main(argc, argv); }
