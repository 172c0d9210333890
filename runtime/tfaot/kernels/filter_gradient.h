// The gradient of a 2-D convolution with respect to its kernel, on one thread.
//
//   out[c][kx][ky][f] = sum over images and outputs (ox, oy) of
//       input[image][ox * stride_x + kx - padding_x][...y...][c] *
//       gradient[image][ox][oy][f]
//
// Both operands are read where they lie, with channels last. Sums stay in
// registers while they go through a piece of all outputs, so short a piece that
// the caches keep it for all values of the kernel.
//
// Nothing here allocates or has state. A sum's order depends only on sizes and
// the target.
#ifndef TFAOT_KERNELS_FILTER_GRADIENT_H_
#define TFAOT_KERNELS_FILTER_GRADIENT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/part.h"
#include "tfaot/kernels/tile.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// A tile has up to kGradientRows values of a row of the kernel, times one or
// two vectors of filters.
constexpr int kGradientVectors = 2;
constexpr int kGradientRows =
    std::min(12, kTileRows* kTileVectors / kGradientVectors);

// How many bytes of both operands a piece has.
constexpr int64_t kPieceBytes = 32 << 10;
// The most lines of outputs in a piece.
constexpr int64_t kPieceLines = 64;

// The outputs of a line that meet the same taps along y, which begin with
// `tap`.
struct Meeting {
  int64_t tap;
  int64_t taps;
  int64_t begin;  // the first output
  int64_t outputs;
};

// What tiles of a piece share.
struct GradientPiece {
  const float* const* input;     // a row of pixels for each line
  const float* const* gradient;  // a line of outputs
  int64_t lines;
  int64_t outputs;   // of a line
  int64_t input_at;  // the first value in each row
  int64_t input_step;
  int64_t gradient_at;
  int64_t filters;  // of the whole gradient
};

// Adds the products of kRows adjacent values of the input and of kVectors
// vectors of filters to `out`.
template <int kRows, int kVectors>
TFAOT_NOINLINE void GradientTile(const GradientPiece& piece,
                                 float* const* out) {
  using V = Vector<float>;
  constexpr int kWidth = kLanes<float>;
  V sum[kRows][kVectors] = {};
  for (int64_t line = 0; line < piece.lines; ++line) {
    const float* x = piece.input[line] + piece.input_at;
    const float* g = piece.gradient[line] + piece.gradient_at;
#pragma GCC unroll 2
    for (int64_t i = 0; i < piece.outputs; ++i) {
      V gradient[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) gradient[v] = Load(g + v * kWidth);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const V value = x[r] - V{};
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sum[r][v] = MultiplyAdd(value, gradient[v], sum[r][v]);
        }
      }
      x += piece.input_step;
      g += piece.filters;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      float* const to = out[r] + v * kWidth;
      Store(to, Load(to) + sum[r][v]);
    }
  }
}

// The most values of a tile of few filters.
constexpr int kFewGradientRows = 8;

// Like GradientTile, for filters of which a vector has several outputs' at
// once.
template <int kRows>
TFAOT_NOINLINE void FewGradientTile(const GradientPiece& piece,
                                    int64_t in_vector, float* const* out) {
  using V = Vector<float>;
  constexpr int kWidth = kLanes<float>;
  constexpr int kSums = kRows <= 4 ? 4 : 2;
  const int64_t filters = piece.filters;
  const int64_t step = in_vector * piece.input_step;
  const int64_t whole = in_vector * filters;
  const int64_t span = (in_vector - 1) * piece.input_step + kRows;
  const int64_t rest = piece.outputs % in_vector;
  // The first value of each lane, for whole vectors, and for the rest of a
  // line. The rest has fewer values, so its last lane is zero. Lanes without an
  // output get that, because other values could be NaN.
  Vector<int32_t> index, rest_index;
  for (int l = 0; l < kWidth; ++l) {
    const int64_t output = std::min(l / filters, in_vector - 1);
    index[l] = static_cast<int32_t>(output * piece.input_step);
    rest_index[l] = output < rest ? index[l] : kWidth - 1;
  }
  V sum[kSums][kRows] = {};
  for (int64_t line = 0; line < piece.lines; ++line) {
    const float* x = piece.input[line] + piece.input_at;
    const float* g = piece.gradient[line] + piece.gradient_at;
    const auto add = [&](V(&to)[kRows], int64_t outputs, Vector<int32_t> at,
                         int64_t values) {
      const V gradient = LoadSome(g, outputs);
      const V value = LoadSome(x, values);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vector<int32_t> last = kWidth - 1 - Vector<int32_t>{};
        to[r] = MultiplyAdd(Permute(value, Min(at + r, last)), gradient, to[r]);
      }
      x += step;
      g += whole;
    };
    int64_t left = piece.outputs / in_vector;
    for (; left >= kSums; left -= kSums) {
#pragma GCC unroll 4
      for (int s = 0; s < kSums; ++s) add(sum[s], whole, index, span);
    }
    for (; left > 0; --left) add(sum[0], whole, index, span);
    if (rest > 0) {
      add(sum[0], rest * filters, rest_index,
          (rest - 1) * piece.input_step + kRows);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    V total = sum[0][r];
#pragma GCC unroll 4
    for (int s = 1; s < kSums; ++s) total += sum[s][r];
    for (int64_t f = 0; f < filters; ++f) {
      float all = 0;
      for (int64_t o = 0; o < in_vector; ++o) all += total[o * filters + f];
      out[r][f] += all;
    }
  }
}

using GradientTileFunction = void (*)(const GradientPiece&, float* const*);
using FewGradientTileFunction = void (*)(const GradientPiece&, int64_t,
                                         float* const*);

template <int kVectors, int... kRows>
GradientTileFunction FindGradientTile(int64_t rows,
                                      std::integer_sequence<int, kRows...>) {
  static constexpr GradientTileFunction kTiles[] = {
      &GradientTile<kRows + 1, kVectors>...};
  return kTiles[rows - 1];
}

template <int... kRows>
FewGradientTileFunction FindFewGradientTile(
    int64_t rows, std::integer_sequence<int, kRows...>) {
  static constexpr FewGradientTileFunction kTiles[] = {
      &FewGradientTile<kRows + 1>...};
  return kTiles[rows - 1];
}

// How values of the kernel are split into tiles.
struct GradientPlan {
  int64_t in_vector;  // outputs; above 1 for few filters
  int64_t most_rows;  // of a tile
  bool merged;        // whether a tile can have values of several taps
};

inline GradientPlan PlanOf(const Images& images) {
  GradientPlan plan = {1, kGradientRows, images.input_channels < kGradientRows};
  const int64_t step = images.y.stride * images.input_channels;
  if (kPermutes && images.filters < kLanes<float>) {
    plan.in_vector = std::min<int64_t>(kLanes<float> / images.filters,
                                       (kLanes<float> - 1) / step + 1);
    plan.most_rows = std::min<int64_t>(
        kFewGradientRows, kLanes<float> - (plan.in_vector - 1) * step);
  }
  return plan;
}

// Returns the number of independent parts of the kernel: taps, or rows of them.
inline int64_t GradientUnits(const Images& images) {
  return PlanOf(images).merged ? images.x.kernel
                               : images.x.kernel * images.y.kernel;
}

// Calls run(meeting) for all outputs of a line that meet one of the taps
// [begin, end).
template <typename Run>
void ForMeetings(const ImageAxis& y, int64_t begin, int64_t end,
                 const Run& run) {
  const auto taps_of = [&](int64_t output) {
    const int64_t at = output * y.stride - y.padding;
    const int64_t first = std::max(begin, -at);
    return Span{first, std::max(first, std::min(end, y.input - at))};
  };
  for (int64_t output = 0; output < y.output;) {
    const Span taps = taps_of(output);
    int64_t after = output + 1;
    while (after < y.output) {
      const Span other = taps_of(after);
      if (other.begin != taps.begin || other.end != taps.end) break;
      ++after;
    }
    if (taps.size() > 0) {
      run(Meeting{taps.begin, taps.size(), output, after - output});
    }
    output = after;
  }
}

// Computes a part: units of taps as `rows`, and filters as `columns`.
inline void FilterGradient(const Images& images, const float* input,
                           const float* gradient, float* out,
                           const Part& share) {
  const ImageAxis& x = images.x;
  const ImageAxis& y = images.y;
  const int64_t channels = images.input_channels;
  const int64_t filters = images.filters;
  const GradientPlan plan = PlanOf(images);
  const Span units = share.rows.Of(GradientUnits(images), 1);
  const Span columns =
      share.columns.Of(filters, kGradientVectors * kLanes<float>);
  if (units.size() <= 0 || columns.size() <= 0) return;
  const int64_t taps = plan.merged ? y.kernel : 1;  // of a unit
  const auto row_of = [&](int64_t tap_x, int64_t value) {
    const int64_t tap = value / channels;
    const int64_t channel = value % channels;
    return out + ((channel * x.kernel + tap_x) * y.kernel + tap) * filters;
  };
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const int64_t tap_x = plan.merged ? unit : unit / y.kernel;
    const int64_t first = plan.merged ? 0 : unit % y.kernel * channels;
    for (int64_t value = 0; value < taps * channels; ++value) {
      float* const row = row_of(tap_x, first + value);
      std::fill(row + columns.begin, row + columns.end, 0.0f);
    }
  }
  const int64_t line_bytes =
      static_cast<int64_t>(sizeof(float)) *
      (y.output * filters + x.stride * y.input * channels);
  const int64_t most =
      std::clamp<int64_t>(kPieceBytes / line_bytes, 1, kPieceLines);
  const int64_t lines = images.batch * x.output;
  const int64_t pixels = x.input * y.input;
  for (int64_t begin = 0; begin < lines; begin += most) {
    const int64_t end = std::min(begin + most, lines);
    const float* input_lines[kPieceLines];
    const float* gradient_lines[kPieceLines];
    int64_t there = -1;  // the tap along x that the lines are for
    GradientPiece piece = {input_lines, gradient_lines, 0, 0, 0, 0, 0, filters};
    piece.input_step = y.stride * channels;
    for (int64_t unit = units.begin; unit < units.end; ++unit) {
      const int64_t tap_x = plan.merged ? unit : unit / y.kernel;
      const int64_t tap_y = plan.merged ? 0 : unit % y.kernel;
      if (there != tap_x) {
        there = tap_x;
        piece.lines = 0;
        const float* image = input + begin / x.output * pixels * channels;
        int64_t output = begin % x.output;
        for (int64_t line = begin; line < end; ++line) {
          const int64_t at = output * x.stride + tap_x - x.padding;
          if (at >= 0 && at < x.input) {
            input_lines[piece.lines] = image + at * y.input * channels;
            gradient_lines[piece.lines++] =
                gradient + line * y.output * filters;
          }
          if (++output == x.output) {
            output = 0;
            image += pixels * channels;
          }
        }
      }
      if (piece.lines == 0) continue;
      ForMeetings(y, tap_y, tap_y + taps, [&](const Meeting& meeting) {
        const int64_t values = meeting.taps * channels;
        const int64_t tiles = (values + plan.most_rows - 1) / plan.most_rows;
        piece.outputs = meeting.outputs;
        for (int64_t tile = 0; tile < tiles; ++tile) {
          const Span rows = Share{tile, tiles}.Of(values, 1);
          float* to[kGradientRows > kFewGradientRows ? kGradientRows
                                                     : kFewGradientRows];
          for (int64_t r = 0; r < rows.size(); ++r) {
            to[r] = row_of(tap_x, meeting.tap * channels + rows.begin + r) +
                    columns.begin;
          }
          piece.input_at =
              (meeting.begin * y.stride - y.padding + meeting.tap) * channels +
              rows.begin;
          piece.gradient_at = meeting.begin * filters + columns.begin;
          if (plan.in_vector > 1) {
            FindFewGradientTile(
                rows.size(),
                std::make_integer_sequence<int, kFewGradientRows>())(
                piece, plan.in_vector, to);
            continue;
          }
          for (int64_t column = columns.begin; column < columns.end;) {
            constexpr int64_t kTwo = kGradientVectors * kLanes<float>;
            const bool two = columns.end - column >= kTwo;
            constexpr auto kRows =
                std::make_integer_sequence<int, kGradientRows>();
            const auto compute =
                two ? FindGradientTile<kGradientVectors>(rows.size(), kRows)
                    : FindGradientTile<1>(rows.size(), kRows);
            compute(piece, to);
            const int64_t width = two ? kTwo : kLanes<float>;
            for (int64_t r = 0; r < rows.size(); ++r) to[r] += width;
            piece.gradient_at += width;
            column += width;
          }
        }
      });
    }
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_FILTER_GRADIENT_H_
