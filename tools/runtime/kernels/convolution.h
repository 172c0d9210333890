// 2-D convolution, for one thread.
//
//   tfaot::kernels::Convolution c;
//   c.batch = 1, c.input_x = 224, ...;
//   Convolve(c, input, kernel, output);
//
// The input is [batch][input_x][input_y][input_channels], the kernel
// [kernel_x][kernel_y][kernel_channels][filters], the output
// [batch][output_x][output_y][filters], all in rows. With dilations, strides,
// and padding of either sign it is also the gradient of a convolution by its
// input (a dilated input) and by its kernel (a dilated kernel as large as the
// image).
//
// The products of a tap that lies in the padding count as zeros, or as
// the kernel's value times zero, which differ for infinities and NaN in the
// kernel alone; no product with a value of the input is left out. Holes of a
// dilated input are skipped.
//
// A call allocates nothing, takes no lock, and has no state: concurrent calls
// are safe if their outputs are apart. It uses up to 128 KiB of stack. The
// output must not overlap the operands.
#ifndef TFAOT_KERNELS_CONVOLUTION_H_
#define TFAOT_KERNELS_CONVOLUTION_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "tfaot/kernels/matmul.h"
#include "tfaot/kernels/tile.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels {
namespace {

// One spatial axis: output o and tap t meet input
// (o * stride + t * kernel_dilation - padding) / input_dilation, if that is a
// whole number and within the input.
struct Axis {
  int64_t input = 1;
  int64_t kernel = 1;
  int64_t output = 1;
  int64_t stride = 1;
  int64_t padding = 0;  // before the first; may be negative
  int64_t input_dilation = 1;
  int64_t kernel_dilation = 1;
};

struct Convolution {
  int64_t batch = 1;
  int64_t input_channels = 1;
  int64_t kernel_channels = 1;  // input_channels / groups
  int64_t filters = 1;          // of all groups
  int64_t groups = 1;
  Axis x;
  Axis y;
};

// Those outputs of an axis that meet the same taps of the kernel, and these
// taps: output first_output + o * output_step and tap first_tap + t * tap_step
// meet input base + o * stride + t * dilation, if that is within the input. An
// axis with an undilated input is one such phase.
struct Phase {
  int64_t input;
  int64_t first_output;
  int64_t output_step;
  int64_t outputs;
  int64_t first_tap;
  int64_t tap_step;
  int64_t taps;
  int64_t base;
  int64_t stride;
  int64_t dilation;

  // True if every tap of every output is within the input.
  bool Inside() const {
    return base >= 0 &&
           base + (outputs - 1) * stride + (taps - 1) * dilation < input;
  }
};

// The number of phases of an axis.
inline int64_t PhaseCount(const Axis& axis) {
  return axis.input_dilation / std::gcd(axis.input_dilation, axis.stride);
}

inline Phase GetPhase(const Axis& axis, int64_t index) {
  Phase phase = {};
  phase.input = axis.input;
  phase.first_output = index;
  phase.output_step = PhaseCount(axis);
  phase.outputs =
      index < axis.output
          ? (axis.output - 1 - index) / phase.output_step + 1
          : 0;
  phase.tap_step = axis.input_dilation /
                   std::gcd(axis.input_dilation, axis.kernel_dilation);
  phase.stride = phase.output_step * axis.stride / axis.input_dilation;
  phase.dilation = phase.tap_step * axis.kernel_dilation / axis.input_dilation;
  // Whether a tap meets an input recurs after tap_step taps.
  for (int64_t tap = 0; tap < std::min(axis.kernel, phase.tap_step); ++tap) {
    const int64_t at =
        index * axis.stride + tap * axis.kernel_dilation - axis.padding;
    if (at % axis.input_dilation == 0) {
      phase.first_tap = tap;
      phase.taps = (axis.kernel - 1 - tap) / phase.tap_step + 1;
      phase.base = at / axis.input_dilation;
      break;
    }
  }
  return phase;
}

// A convolution of one phase by axis and one group.
template <typename T>
struct DensePart {
  int64_t batch;
  Phase x;
  Phase y;
  // Of one group, and the distances from a pixel to the next.
  int64_t channels;
  int64_t filters;
  int64_t input_pixel;
  int64_t kernel_row;  // from one channel of the kernel to the next
  int64_t output_pixel;
  int64_t output_x;  // of all phases
  int64_t output_y;
  int64_t kernel_y;
  const T* input;
  const T* kernel;
  T* output;

  const T* Pixel(int64_t image, int64_t px, int64_t py) const {
    return input +
           ((image * x.input + px) * y.input + py) * input_pixel;
  }
  // The kernel's rows at tap (tx, ty).
  const T* Tap(int64_t tx, int64_t ty) const {
    return kernel + ((x.first_tap + tx * x.tap_step) * kernel_y +
                     y.first_tap + ty * y.tap_step) *
                        channels * kernel_row;
  }
  T* Out(int64_t image, int64_t ox, int64_t oy) const {
    return output + ((image * output_x + x.first_output + ox * x.output_step) *
                         output_y +
                     y.first_output + oy * y.output_step) *
                        output_pixel;
  }
};

// Rows of a part's product: for each output, where it is and where the input is
// that its first tap meets, be that in the input or beside it.
template <typename T>
struct Outputs {
  static constexpr int64_t kMax = 32 * kTileRows;
  T* out[kMax];
  int64_t offset[kMax];  // in the input
  int64_t x[kMax];
  int64_t y[kMax];

  int64_t next_image = 0;
  int64_t next_x = 0;
  int64_t next_y = 0;

  // Goes on to the next `count` outputs.
  void Fill(const DensePart<T>& part, int64_t count) {
    const Phase& px = part.x;
    const Phase& py = part.y;
    for (int64_t r = 0; r < count;) {
      const int64_t run = std::min(count - r, py.outputs - next_y);
      T* to = part.Out(next_image, next_x, next_y);
      const int64_t to_step = py.output_step * part.output_pixel;
      const int64_t at_x = px.base + next_x * px.stride;
      const int64_t at_y = py.base + next_y * py.stride;
      const int64_t from =
          ((next_image * px.input + at_x) * py.input + at_y) *
          part.input_pixel;
      for (int64_t i = 0; i < run; ++i) {
        out[r + i] = to + i * to_step;
        offset[r + i] = from + i * py.stride * part.input_pixel;
        x[r + i] = at_x;
        y[r + i] = at_y + i * py.stride;
      }
      r += run;
      next_y += run;
      if (next_y == py.outputs) {
        next_y = 0;
        if (++next_x == px.outputs) {
          next_x = 0;
          ++next_image;
        }
      }
    }
  }
};

// Sets pointers[r] to values [begin, begin + length) of the run of row r that
// starts `tap_x` and `tap_y` inputs after its first. A run that is partly
// beyond the image is put together in `copy`, which moves on.
template <typename T>
void PointAtRuns(const DensePart<T>& part, const Outputs<T>& outputs,
                 int64_t rows, int64_t tap_x, int64_t tap_y, int64_t run,
                 int64_t begin, int64_t length, bool inside, const T* zeros,
                 T** copy, const T** pointers) {
  const int64_t input_x = part.x.input;
  const int64_t input_y = part.y.input;
  const int64_t offset =
      (tap_x * input_y + tap_y) * part.input_pixel + begin;
  if (inside) {
    for (int64_t r = 0; r < rows; ++r) {
      pointers[r] = part.input + (outputs.offset[r] + offset);
    }
    return;
  }
  // Outputs whose run is in the image: y in [0, last_y].
  const int64_t pixels = run / part.channels;
  const int64_t last_y = input_y - pixels;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t x = outputs.x[r] + tap_x;
    const int64_t y = outputs.y[r] + tap_y;
    if (x < 0 || x >= input_x || y >= input_y || y + pixels <= 0) {
      pointers[r] = zeros;
    } else if (y >= 0 && y <= last_y) {
      pointers[r] = part.input + (outputs.offset[r] + offset);
    } else {
      const int64_t first =
          std::clamp<int64_t>(-y * part.channels - begin, 0, length);
      const int64_t end = std::clamp<int64_t>(
          (input_y - y) * part.channels - begin, first, length);
      T* to = *copy;
      std::fill(to, to + first, T(0));
      for (int64_t i = first; i < end; ++i) {
        to[i] = part.input[outputs.offset[r] + offset + i];
      }
      std::fill(to + end, to + length, T(0));
      pointers[r] = to;
      *copy += length;
    }
  }
}

// A part as a product of its outputs' surroundings with the kernel. The former
// are found by pointers and are not copied, unless channels are few and the
// image ends within them.
template <typename T>
void ConvolveDense(const DensePart<T>& part) {
  constexpr int64_t kMaxPointers = 2048;
  constexpr int64_t kMaxSegments = 64;
  constexpr int64_t kMaxCopied = 12288;
  static const T zeros[kDepth<T>] = {};
  const T* pointers[kMaxPointers];
  const T* right[kMaxSegments];
  alignas(64) T copied[kMaxCopied];
  Outputs<T> outputs;

  const Phase& x = part.x;
  const Phase& y = part.y;
  // Where channels are few, the taps along y make one run with them if they are
  // adjacent both in the input and in the kernel.
  const bool merged = part.channels < 16 && y.dilation == 1 &&
                      y.tap_step == 1 && part.channels == part.input_pixel;
  const bool inside = x.Inside() && y.Inside();
  const int64_t run = merged ? y.taps * part.channels : part.channels;
  const int64_t runs = merged ? x.taps : x.taps * y.taps;
  // A step of the inner dimension: a few runs, or a piece of one.
  const int64_t length = std::min(run, kDepth<T>);
  const int64_t segments =
      run > length ? 1
                   : std::min({runs, kDepth<T> / length, kMaxSegments});
  int64_t block = std::min(Outputs<T>::kMax, kMaxPointers / segments);
  if (merged && !inside) {
    block = std::min(block, kMaxCopied / (segments * length));
  }
  block = std::max<int64_t>(block / kTileRows, 1) * kTileRows;

  const int64_t rows = part.batch * x.outputs * y.outputs;
  for (int64_t i = 0; i < rows; i += block) {
    const int64_t height = std::min(block, rows - i);
    outputs.Fill(part, height);
    bool accumulate = false;
    for (int64_t first = 0; first < runs; first += segments) {
      const int64_t count = std::min(segments, runs - first);
      for (int64_t begin = 0; begin < run; begin += length) {
        const int64_t piece = std::min(length, run - begin);
        T* copy = copied;
        for (int64_t s = 0; s < count; ++s) {
          const int64_t tx = merged ? first + s : (first + s) / y.taps;
          const int64_t ty = merged ? 0 : (first + s) % y.taps;
          right[s] = part.Tap(tx, ty) + begin * part.kernel_row;
          PointAtRuns(part, outputs, height, tx * x.dilation, ty * y.dilation,
                      run, begin, piece, inside, zeros, &copy,
                      pointers + s * height);
        }
        MultiplyRows<T>({pointers, height, height, count, piece},
                        {right, part.kernel_row, 1}, part.filters, outputs.out,
                        accumulate);
        accumulate = true;
      }
    }
  }
}

// Pixels of a depthwise convolution's row that are done together.
constexpr int kDepthwisePixels = 4;

// kVectors vectors of channels of kPixels outputs, `step` values apart in the
// input and `out_step` in the output, all of whose taps are within the input.
// `partial` is the number of channels in the last vector if it is not full,
// otherwise zero.
template <typename T, int kPixels, int kVectors>
TFAOT_INLINE void DepthwisePixels(const T* input, int64_t input_x_step,
                                  int64_t input_y_step, const T* kernel,
                                  int64_t kernel_x_step, int64_t kernel_y_step,
                                  int64_t taps_x, int64_t taps_y, int64_t step,
                                  T* out, int64_t out_step) {
  using V = Vector<T>;
  constexpr int kWidth = kLanes<T>;
  V sum[kPixels][kVectors] = {};
  for (int64_t tx = 0; tx < taps_x; ++tx) {
    for (int64_t ty = 0; ty < taps_y; ++ty) {
      const T* from = input + tx * input_x_step + ty * input_y_step;
      const T* weights = kernel + tx * kernel_x_step + ty * kernel_y_step;
      V w[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) w[v] = Load(weights + v * kWidth);
#pragma GCC unroll 8
      for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          sum[p][v] += Load(from + p * step + v * kWidth) * w[v];
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      Store(out + p * out_step + v * kWidth, sum[p][v]);
    }
  }
}

// A part with one channel and one filter in each of `groups` groups.
template <typename T>
TFAOT_NOINLINE void ConvolveDepthwise(const DensePart<T>& part,
                                      int64_t groups) {
  using V = Vector<T>;
  constexpr int64_t kWidth = kLanes<T>;
  const Phase& x = part.x;
  const Phase& y = part.y;
  const int64_t input_x_step = x.dilation * y.input * part.input_pixel;
  const int64_t input_y_step = y.dilation * part.input_pixel;
  const int64_t kernel_x_step = x.tap_step * part.kernel_y * part.kernel_row;
  const int64_t kernel_y_step = y.tap_step * part.kernel_row;
  const int64_t step = y.stride * part.input_pixel;
  const int64_t out_step = y.output_step * part.output_pixel;
  // The outputs of a row whose taps along y are all within the input.
  int64_t inner_begin = 0;
  while (inner_begin < y.outputs && y.base + inner_begin * y.stride < 0) {
    ++inner_begin;
  }
  int64_t inner_end = y.outputs;
  while (inner_end > inner_begin && y.base + (inner_end - 1) * y.stride +
                                            (y.taps - 1) * y.dilation >=
                                        y.input) {
    --inner_end;
  }
  for (int64_t image = 0; image < part.batch; ++image) {
    for (int64_t ox = 0; ox < x.outputs; ++ox) {
      const int64_t px = x.base + ox * x.stride;
      // The taps along x that are within the input.
      int64_t tx_begin = 0;
      while (tx_begin < x.taps && px + tx_begin * x.dilation < 0) ++tx_begin;
      int64_t tx_end = x.taps;
      while (tx_end > tx_begin && px + (tx_end - 1) * x.dilation >= x.input) {
        --tx_end;
      }
      for (int64_t oy = 0; oy < y.outputs;) {
        const int64_t py = y.base + oy * y.stride;
        int64_t ty_begin = 0;
        int64_t ty_end = y.taps;
        int64_t pixels = 1;
        if (oy >= inner_begin && oy < inner_end) {
          pixels = inner_end - oy >= kDepthwisePixels ? kDepthwisePixels : 1;
        } else {
          while (ty_begin < ty_end && py + ty_begin * y.dilation < 0) {
            ++ty_begin;
          }
          while (ty_end > ty_begin &&
                 py + (ty_end - 1) * y.dilation >= y.input) {
            --ty_end;
          }
        }
        const int64_t taps_x = tx_end - tx_begin;
        const int64_t taps_y = ty_end - ty_begin;
        T* out = part.Out(image, ox, oy);
        if (taps_x <= 0 || taps_y <= 0) {
          std::fill(out, out + groups, T(0));
          ++oy;
          continue;
        }
        const T* from = part.Pixel(image, px + tx_begin * x.dilation,
                                   py + ty_begin * y.dilation);
        const T* weights = part.Tap(tx_begin, ty_begin);
        int64_t c = 0;
        if (pixels == kDepthwisePixels) {
          for (; c + 2 * kWidth <= groups; c += 2 * kWidth) {
            DepthwisePixels<T, kDepthwisePixels, 2>(
                from + c, input_x_step, input_y_step, weights + c,
                kernel_x_step, kernel_y_step, taps_x, taps_y, step, out + c,
                out_step);
          }
          for (; c + kWidth <= groups; c += kWidth) {
            DepthwisePixels<T, kDepthwisePixels, 1>(
                from + c, input_x_step, input_y_step, weights + c,
                kernel_x_step, kernel_y_step, taps_x, taps_y, step, out + c,
                out_step);
          }
        } else {
          for (; c + 4 * kWidth <= groups; c += 4 * kWidth) {
            DepthwisePixels<T, 1, 4>(from + c, input_x_step, input_y_step,
                                     weights + c, kernel_x_step, kernel_y_step,
                                     taps_x, taps_y, step, out + c, out_step);
          }
          for (; c + kWidth <= groups; c += kWidth) {
            DepthwisePixels<T, 1, 1>(from + c, input_x_step, input_y_step,
                                     weights + c, kernel_x_step, kernel_y_step,
                                     taps_x, taps_y, step, out + c, out_step);
          }
        }
        if (c < groups) {
          const int64_t rest = groups - c;
          for (int64_t p = 0; p < pixels; ++p) {
            V sum = {};
            for (int64_t tx = 0; tx < taps_x; ++tx) {
              for (int64_t ty = 0; ty < taps_y; ++ty) {
                sum += LoadSome(from + c + p * step + tx * input_x_step +
                                    ty * input_y_step,
                                rest) *
                       LoadSome(weights + c + tx * kernel_x_step +
                                    ty * kernel_y_step,
                                rest);
              }
            }
            StoreSome(out + c + p * out_step, sum, rest);
          }
        }
        oy += pixels;
      }
    }
  }
}

template <typename T>
void Convolve(const Convolution& c, const T* input, const T* kernel,
              T* output) {
  const int64_t outputs = c.batch * c.x.output * c.y.output * c.filters;
  if (outputs == 0) return;
  const int64_t filters = c.filters / c.groups;
  DensePart<T> part = {};
  part.batch = c.batch;
  part.channels = c.kernel_channels;
  part.filters = filters;
  part.input_pixel = c.input_channels;
  part.kernel_row = c.filters;
  part.output_pixel = c.filters;
  part.output_x = c.x.output;
  part.output_y = c.y.output;
  part.kernel_y = c.y.kernel;
  part.input = input;
  part.kernel = kernel;
  part.output = output;
  for (int64_t phase_x = 0; phase_x < PhaseCount(c.x); ++phase_x) {
    part.x = GetPhase(c.x, phase_x);
    for (int64_t phase_y = 0; phase_y < PhaseCount(c.y); ++phase_y) {
      part.y = GetPhase(c.y, phase_y);
      if (part.x.outputs == 0 || part.y.outputs == 0) continue;
      if (part.x.taps == 0 || part.y.taps == 0 || part.channels == 0) {
        for (int64_t image = 0; image < c.batch; ++image) {
          for (int64_t ox = 0; ox < part.x.outputs; ++ox) {
            for (int64_t oy = 0; oy < part.y.outputs; ++oy) {
              T* out = part.Out(image, ox, oy);
              std::fill(out, out + c.filters, T(0));
            }
          }
        }
        continue;
      }
      if (part.channels == 1 && filters == 1 && c.groups > 1) {
        ConvolveDepthwise(part, c.groups);
        continue;
      }
      DensePart<T> group = part;
      for (int64_t g = 0; g < c.groups; ++g) {
        ConvolveDense(group);
        group.input += c.kernel_channels;
        group.kernel += filters;
        group.output += filters;
      }
    }
  }
}

}  // namespace
}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_CONVOLUTION_H_
