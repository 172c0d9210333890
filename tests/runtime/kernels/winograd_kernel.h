// Packs kernels of 3x3 convolutions for tests and benchmarks of Winograd's
// algorithm, as py/tfaot/compile/program/winograd.py does.
#ifndef TFAOT_TESTS_RUNTIME_KERNELS_WINOGRAD_KERNEL_H_
#define TFAOT_TESTS_RUNTIME_KERNELS_WINOGRAD_KERNEL_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tfaot/kernels/winograd.h"

namespace tfaot::fuzz {

// G g G^T of a kernel g, whose tap (x, y) is at g[(3 * x + y) * step]: 16
// points.
inline std::vector<double> WinogradPoints(const float* g, int64_t step) {
  static constexpr double kG[4][3] = {
      {1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  std::vector<double> points(16);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      for (int x = 0; x < 3; ++x) {
        for (int y = 0; y < 3; ++y) {
          points[4 * i + j] += kG[i][x] * kG[j][y] * g[(3 * x + y) * step];
        }
      }
    }
  }
  return points;
}

// kernel[3][3][channels][filters], transformed and packed.
inline std::vector<float> WinogradKernel(const float* kernel, int64_t channels,
                                         int64_t filters) {
  constexpr int64_t kPanel = kernels::kPanelColumns<float>;
  constexpr int64_t kBlock = kernels::kWinogradFilters;
  const int64_t columns = (filters + kPanel - 1) / kPanel * kPanel;
  std::vector<float> packed(static_cast<std::size_t>(16 * channels * columns));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t f = 0; f < filters; ++f) {
      const std::vector<double> points =
          WinogradPoints(kernel + c * filters + f, channels * filters);
      const int64_t block = f / kBlock * kBlock;
      const int64_t in_block = std::min(kBlock, columns - block);
      for (int64_t point = 0; point < 16; ++point) {
        const int64_t at = 16 * block * channels + point * in_block * channels +
                           (f - block) / kPanel * kPanel * channels +
                           c * kPanel + f % kPanel;
        packed[static_cast<std::size_t>(at)] =
            static_cast<float>(points[static_cast<std::size_t>(point)]);
      }
    }
  }
  return packed;
}

}  // namespace tfaot::fuzz

#endif  // TFAOT_TESTS_RUNTIME_KERNELS_WINOGRAD_KERNEL_H_
