// 3x3 convolutions with stride 1 by Winograd's minimal filtering F(2x2, 3x3)
// (A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks",
// 2015): 16 multiplications for 4 outputs instead of 36. Runs on one thread.
//
// The outputs are split into tiles of 2x2. For each tile, the 4x4 inputs d that
// it meets are transformed to B^T d B, 16 values per channel. For each of these
// 16 points, all tiles' channels are multiplied by a matrix
// [channels][filters]. The 16 sums m are transformed to the outputs A^T m A.
//
// The kernel g is stored as these matrices, G g G^T, packed in order of use
// (py/tfaot/compile/program/winograd.py). Filters are in blocks of
// kWinogradFilters; the last block has as many as are left. A block's 16
// matrices follow one another, each in panels (tile.h).
//
// The order in which channels are added depends only on their number, so bits
// don't depend on parts or blocks. Results differ from a direct convolution's
// by rounding (docs/measured/kernels.md says by how much). An input that isn't
// finite, or four inputs whose sum overflows a float, corrupt all four outputs
// of each tile that meets them, and can turn an infinity into NaN.
//
// A call doesn't allocate or lock, and has no state: concurrent calls are safe
// if their outputs and scratch memory are disjoint. It uses up to 40 KiB of
// stack. The output must not overlap the operands.
#ifndef TFAOT_KERNELS_WINOGRAD_H_
#define TFAOT_KERNELS_WINOGRAD_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/part.h"
#include "tfaot/kernels/tile.h"
#include "tfaot/kernels/vector.h"
#include "tfaot/kernels/winograd_scratch.h"

namespace tfaot::kernels::TFAOT_ISA {

// Channels that are added at a time. Sums of pieces have smaller rounding
// errors than long sums, by half for 512 channels, and take no longer.
constexpr int64_t kWinogradDepth = 128;

// A tile's position among all tiles, counted along y, then x, then images.
struct WinogradTile {
  int64_t image;
  int64_t x;  // of its first output
  int64_t y;

  WinogradTile(const Images& images, int64_t index) {
    const int64_t across = (images.y.output + 1) / 2;
    const int64_t down = (images.x.output + 1) / 2;
    y = index % across * 2;
    x = index / across % down * 2;
    image = index / across / down;
  }

  void Next(const Images& images) {
    y += 2;
    if (y < images.y.output) return;
    y = 0;
    x += 2;
    if (x < images.x.output) return;
    x = 0;
    ++image;
  }
};

inline int64_t WinogradTiles(const Images& images) {
  return images.batch * ((images.x.output + 1) / 2) *
         ((images.y.output + 1) / 2);
}

// Writes `count` channels of B^T d B, a vector or less, to `to`, where points
// are `plane` apart. load(i, j) returns those channels of d's pixel.
template <typename LoadPixel>
TFAOT_INLINE void TransformPixels(const LoadPixel& load, float* to,
                                  int64_t plane, int64_t count) {
  using V = Vector<float>;
  V t[4][4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const V d0 = load(0, j);
    const V d1 = load(1, j);
    const V d2 = load(2, j);
    const V d3 = load(3, j);
    t[0][j] = d0 - d2;
    t[1][j] = d1 + d2;
    t[2][j] = d2 - d1;
    t[3][j] = d1 - d3;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const V points[] = {t[i][0] - t[i][2], t[i][1] + t[i][2], t[i][2] - t[i][1],
                        t[i][1] - t[i][3]};
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      float* const at = to + (4 * i + j) * plane;
      if (count == kLanes<float>) {
        Store(at, points[j]);
      } else {
        StoreSome(at, points[j], count);
      }
    }
  }
}

// Writes B^T d B for all channels. pixel(i, j) is the address of the channels
// of d's pixel.
template <typename Pixel>
TFAOT_INLINE void TransformInput(const Pixel& pixel, int64_t channels,
                                 float* to, int64_t plane) {
  constexpr int64_t kWidth = kLanes<float>;
  int64_t c = 0;
  for (; c + kWidth <= channels; c += kWidth) {
    TransformPixels([&](int i, int j) { return Load(pixel(i, j) + c); }, to + c,
                    plane, kWidth);
  }
  if (c == channels) return;
  const int64_t rest = channels - c;
  TransformPixels([&](int i, int j) { return LoadSome(pixel(i, j) + c, rest); },
                  to + c, plane, rest);
}

// Transforms `count` tiles, starting at `tile`, into rows that are `row` apart.
// Writes the addresses of their four outputs to `pixels`, null for those
// outside the image. `zeros` has one zero per channel.
TFAOT_NOINLINE inline void TransformInputs(const Images& images,
                                           const float* input, float* output,
                                           WinogradTile tile, int64_t count,
                                           const float* zeros, float* to,
                                           int64_t row, int64_t plane,
                                           float** pixels) {
  const ImageAxis& x_axis = images.x;
  const ImageAxis& y_axis = images.y;
  const int64_t channels = images.input_channels;
  const int64_t line = y_axis.input * channels;
  for (int64_t r = 0; r < count; ++r, tile.Next(images)) {
    const int64_t x = tile.x - x_axis.padding;
    const int64_t y = tile.y - y_axis.padding;
    const float* const image = input + tile.image * x_axis.input * line;
    if (x >= 0 && y >= 0 && x + 4 <= x_axis.input && y + 4 <= y_axis.input) {
      const float* const first = image + x * line + y * channels;
      TransformInput(
          [&](int i, int j) { return first + i * line + j * channels; },
          channels, to + r * row, plane);
    } else {
      const float* from[16];
      for (int64_t i = 0; i < 4; ++i) {
        const bool inside = x + i >= 0 && x + i < x_axis.input;
        for (int64_t j = 0; j < 4; ++j) {
          from[4 * i + j] = inside && y + j >= 0 && y + j < y_axis.input
                                ? image + (x + i) * line + (y + j) * channels
                                : zeros;
        }
      }
      TransformInput([&](int i, int j) { return from[4 * i + j]; }, channels,
                     to + r * row, plane);
    }
    float* const out =
        output +
        ((tile.image * x_axis.output + tile.x) * y_axis.output + tile.y) *
            images.filters;
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t j = 0; j < 2; ++j) {
        *pixels++ = tile.x + i < x_axis.output && tile.y + j < y_axis.output
                        ? out + (i * y_axis.output + j) * images.filters
                        : nullptr;
      }
    }
  }
}

// Writes A^T m A for `filters` filters, starting at `column`, with their
// epilogue, to a tile's outputs. m's points are `plane` apart.
template <bool kFinish>
TFAOT_INLINE void TransformSums(const float* m, int64_t plane,
                                float* const* pixels, int64_t column,
                                int64_t filters,
                                const Finisher<float>* finisher) {
  using V = Vector<float>;
  constexpr int64_t kWidth = kLanes<float>;
  for (int64_t f = 0; f < filters; f += kWidth) {
    // Zero columns follow the last filter.
    V s[2][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const float* const from = m + j * plane + f;
      const V m1 = Load(from + 4 * plane);
      const V m2 = Load(from + 8 * plane);
      s[0][j] = Load(from) + m1 + m2;
      s[1][j] = m1 - m2 - Load(from + 12 * plane);
    }
    const V outputs[] = {
        s[0][0] + s[0][1] + s[0][2], s[0][1] - s[0][2] - s[0][3],
        s[1][0] + s[1][1] + s[1][2], s[1][1] - s[1][2] - s[1][3]};
    const int64_t count = std::min(kWidth, filters - f);
    const auto store = [&](float* at, V value) {
      if (count == kWidth) {
        Store(at, value);
      } else {
        StoreSome(at, value, count);
      }
    };
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if (pixels[i] == nullptr) continue;
      float* const at = pixels[i] + column + f;
      if constexpr (kFinish) {
        if (finisher->offset != 0) store(at, outputs[i]);
        store(at + finisher->offset,
              finisher->Of(outputs[i], at, column + f, count));
      } else {
        store(at, outputs[i]);
      }
    }
  }
}

// Writes the outputs of `count` tiles whose sums are in rows of a block's
// filters.
TFAOT_NOINLINE inline void TransformOutputs(const float* m, int64_t plane,
                                            int64_t count, float* const* pixels,
                                            int64_t column, int64_t filters,
                                            const Finish<float>* finish) {
  if (finish == nullptr) {
    for (int64_t r = 0; r < count; ++r) {
      TransformSums<false>(m + r * kWinogradFilters, plane, pixels + 4 * r,
                           column, filters, nullptr);
    }
    return;
  }
  const Finisher<float> finisher(*finish);
  for (int64_t r = 0; r < count; ++r) {
    TransformSums<true>(m + r * kWinogradFilters, plane, pixels + 4 * r, column,
                        filters, &finisher);
  }
}

// Computes sums[rows][a block's filters] = rows * one point's panels.
TFAOT_NOINLINE inline void MultiplyPoint(const float* left, int64_t left_row,
                                         int64_t rows, int64_t channels,
                                         const float* panels, int64_t filters,
                                         float* sums) {
  const float* pointers[kWinogradTiles];
  float* out[kWinogradTiles];
  for (int64_t r = 0; r < rows; ++r) {
    pointers[r] = left + r * left_row;
    out[r] = sums + r * kWinogradFilters;
  }
  const int64_t piece = PieceOf(channels, kWinogradDepth, 16);
  for (int64_t c = 0; c < channels; c += piece) {
    const float* const right = panels + c * kPanelColumns<float>;
    MultiplyRows<float>({pointers, 0, rows, 1, std::min(piece, channels - c)},
                        {&right, 0, 1, false, channels * kPanelColumns<float>},
                        filters, out, c > 0, false, nullptr);
    for (int64_t r = 0; r < rows; ++r) pointers[r] += piece;
  }
}

// Writes a part of the output. Its rows are tiles, and its columns are filters.
// The part has its own scratch memory of WinogradScratch values.
inline void ConvolveWinograd(const Images& images, const float* input,
                             const float* kernel, float* output, float* scratch,
                             const Part& part = {},
                             const Finish<float>* finish = nullptr) {
  const Span tiles = part.rows.Of(WinogradTiles(images), kTileRows);
  const Span filters = part.columns.Of(images.filters, kWinogradFilters);
  if (tiles.size() == 0 || filters.size() == 0) return;
  const int64_t channels = images.input_channels;
  const int64_t row = WinogradPlane(channels);
  const int64_t plane = WinogradPlane(kWinogradTiles * row);
  const int64_t sums_plane = WinogradPlane(kWinogradTiles * kWinogradFilters);
  float* const zeros = scratch;
  float* const inputs = zeros + row;
  float* const sums = inputs + 16 * plane;
  float* pixels[4 * kWinogradTiles];
  std::fill(zeros, zeros + channels, 0.0f);
  const int64_t blocks = (tiles.size() + kWinogradTiles - 1) / kWinogradTiles;
  for (int64_t block = 0; block < blocks; ++block) {
    const Span in_block = Share{block, blocks}.Of(tiles.size(), 1);
    TransformInputs(images, input, output,
                    WinogradTile(images, tiles.begin + in_block.begin),
                    in_block.size(), zeros, inputs, row, plane, pixels);
    for (int64_t f = filters.begin; f < filters.end; f += kWinogradFilters) {
      const int64_t count = std::min(kWinogradFilters, filters.end - f);
      const int64_t panels =
          (count + kPanelColumns<float> - 1) / kPanelColumns<float>;
      const float* matrix = kernel + 16 * f * channels;
      for (int64_t point = 0; point < 16; ++point) {
        MultiplyPoint(inputs + point * plane, row, in_block.size(), channels,
                      matrix, count, sums + point * sums_plane);
        matrix += panels * channels * kPanelColumns<float>;
      }
      TransformOutputs(sums, sums_plane, in_block.size(), pixels, f, count,
                       finish);
    }
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_WINOGRAD_H_
