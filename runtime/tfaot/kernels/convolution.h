// 2-D convolution on one thread.
//
//   tfaot::kernels::Convolution c;
//   c.batch = 1, c.input_x = 224, ...;
//   Convolve(c, input, kernel, output);
//
// The input is [batch][input_x][input_y][input_channels], the kernel is
// [kernel_x][kernel_y][kernel_channels][filters], and the output is
// [batch][output_x][output_y][filters], all row-major. With dilations, strides,
// and padding of either sign, this also computes the gradient of a convolution
// with respect to its input (a dilated input) and to its kernel (a dilated
// kernel as large as the image).
//
// A tap in the padding adds nothing, or the kernel's value times zero, which
// differ only if that value is infinite or NaN. The tap adds nothing if it is
// in the padding for all outputs of a tile. A tap between the values of a
// dilated input adds nothing. Every product with an input value is computed and
// added.
//
// A call doesn't allocate or lock, and has no state: concurrent calls are safe
// if their outputs are disjoint. It uses up to 104 KiB of stack. The output
// must not overlap the operands. A result's bits don't depend on whether it is
// computed at once or in parts, or finished (tile.h) or not, unless the kernel
// has such values.
#ifndef TFAOT_KERNELS_CONVOLUTION_H_
#define TFAOT_KERNELS_CONVOLUTION_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

#include "tfaot/kernels/matmul.h"
#include "tfaot/kernels/part.h"
#include "tfaot/kernels/tile.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// One spatial axis. Output o and tap t meet input
// (o * stride + t * kernel_dilation - padding) / input_dilation if that is an
// integer and within the input.
struct Axis {
  int64_t input = 1;
  int64_t kernel = 1;
  int64_t output = 1;
  int64_t stride = 1;
  int64_t padding = 0;  // before the first; can be negative
  int64_t input_dilation = 1;
  int64_t kernel_dilation = 1;
};

struct Convolution {
  int64_t batch = 1;
  int64_t input_channels = 1;
  int64_t kernel_channels = 1;  // input_channels / groups
  int64_t filters = 1;          // in all groups
  int64_t groups = 1;
  Axis x;
  Axis y;
  // Whether the kernel, as a matrix of x * y * kernel_channels rows, is in
  // panels (tile.h). Then there is only one group, and the input isn't dilated.
  bool packed_kernel = false;
};

// The outputs of an axis that meet the same taps of the kernel, and these taps:
// output first_output + o * output_step and tap first_tap + t * tap_step meet
// input base + o * stride + t * dilation if that is within the input. An axis
// with an undilated input is a single phase.
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

  // Returns whether every tap of every output is within the input.
  bool Inside() const {
    return base >= 0 &&
           base + (outputs - 1) * stride + (taps - 1) * dilation < input;
  }
};

// Returns the number of phases of an axis.
inline int64_t PhaseCount(const Axis& axis) {
  return axis.input_dilation / std::gcd(axis.input_dilation, axis.stride);
}

inline Phase GetPhase(const Axis& axis, int64_t index) {
  Phase phase = {};
  phase.input = axis.input;
  phase.first_output = index;
  phase.output_step = PhaseCount(axis);
  phase.outputs = index < axis.output
                      ? (axis.output - 1 - index) / phase.output_step + 1
                      : 0;
  phase.tap_step =
      axis.input_dilation / std::gcd(axis.input_dilation, axis.kernel_dilation);
  phase.stride = phase.output_step * axis.stride / axis.input_dilation;
  phase.dilation = phase.tap_step * axis.kernel_dilation / axis.input_dilation;
  // The pattern of taps that meet an input repeats after tap_step taps.
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

// A convolution of one phase per axis and one group.
template <typename T>
struct DensePart {
  int64_t batch;
  Phase x;
  Phase y;
  // Sizes of one group, and distances from one pixel to the next.
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
  bool packed_kernel;

  const T* Pixel(int64_t image, int64_t px, int64_t py) const {
    return input + ((image * x.input + px) * y.input + py) * input_pixel;
  }
  // Returns the kernel's rows at tap (tx, ty).
  const T* Tap(int64_t tx, int64_t ty) const {
    return kernel + ((x.first_tap + tx * x.tap_step) * kernel_y + y.first_tap +
                     ty * y.tap_step) *
                        channels * kernel_row;
  }
  T* Out(int64_t image, int64_t ox, int64_t oy) const {
    return output + ((image * output_x + x.first_output + ox * x.output_step) *
                         output_y +
                     y.first_output + oy * y.output_step) *
                        output_pixel;
  }
};

// Rows of a part's product. For each output, stores where it is, and where the
// input of its first tap is, inside or outside the input.
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

  // Moves to an output.
  void Start(const DensePart<T>& part, int64_t output) {
    next_y = output % part.y.outputs;
    next_x = output / part.y.outputs % part.x.outputs;
    next_image = output / part.y.outputs / part.x.outputs;
  }

  // Advances to the next `count` outputs.
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
          ((next_image * px.input + at_x) * py.input + at_y) * part.input_pixel;
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
// starts `tap_x` and `tap_y` inputs after its first. Assembles a run that is
// partly outside the image in `copy`, and advances `copy`.
template <typename T>
void PointAtRuns(const DensePart<T>& part, const Outputs<T>& outputs,
                 int64_t rows, int64_t tap_x, int64_t tap_y, int64_t run,
                 int64_t begin, int64_t length, bool inside, const T* zeros,
                 T** copy, const T** pointers) {
  const int64_t input_x = part.x.input;
  const int64_t input_y = part.y.input;
  const int64_t offset = (tap_x * input_y + tap_y) * part.input_pixel + begin;
  if (inside) {
    for (int64_t r = 0; r < rows; ++r) {
      pointers[r] = part.input + (outputs.offset[r] + offset);
    }
    return;
  }
  // Outputs whose run is inside the image: y in [0, last_y].
  const int64_t pixels = run / part.channels;
  const int64_t last_y = input_y - pixels;
  // Most are inside and along y, so the first and last decide for all between.
  constexpr int64_t kTogether = 8;
  const int64_t apart = (kTogether - 1) * part.y.stride;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t x = outputs.x[r] + tap_x;
    const int64_t y = outputs.y[r] + tap_y;
    if (r + kTogether <= rows && x >= 0 && x < input_x && y >= 0 &&
        y + apart <= last_y &&
        outputs.y[r + kTogether - 1] - outputs.y[r] == apart) {
      for (int64_t i = 0; i < kTogether; ++i) {
        pointers[r + i] = part.input + (outputs.offset[r + i] + offset);
      }
      r += kTogether - 1;
      continue;
    }
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

// A range of taps or outputs.
struct Range {
  int64_t begin;
  int64_t end;
};

// Returns the taps of an output that are within the input. `at` is the position
// of its first tap.
inline Range TapsInside(const Phase& phase, int64_t at) {
  Range taps = {0, phase.taps};
  while (taps.begin < taps.end && at + taps.begin * phase.dilation < 0) {
    ++taps.begin;
  }
  while (taps.end > taps.begin &&
         at + (taps.end - 1) * phase.dilation >= phase.input) {
    --taps.end;
  }
  return taps;
}

// Returns the outputs all of whose taps are within the input.
inline Range OutputsInside(const Phase& phase) {
  Range outputs = {0, phase.outputs};
  while (outputs.begin < outputs.end &&
         phase.base + outputs.begin * phase.stride < 0) {
    ++outputs.begin;
  }
  while (outputs.end > outputs.begin &&
         phase.base + (outputs.end - 1) * phase.stride +
                 (phase.taps - 1) * phase.dilation >=
             phase.input) {
    --outputs.end;
  }
  return outputs;
}

// The most taps times channels of a convolution that ConvolveFew computes.
constexpr int64_t kFewTaps = 128;

// Returns how many outputs along y ConvolveFew puts into a vector; at most 1 if
// it can't compute a part, or isn't faster.
template <typename T>
int64_t FewOutputs(const DensePart<T>& part) {
  if (!kPermutes || !std::is_same_v<T, float> || part.packed_kernel) return 0;
  const Phase& y = part.y;
  // Taps along y must be adjacent, and so must outputs.
  if (part.channels >= 16 || part.channels != part.input_pixel ||
      y.dilation != 1 || y.tap_step != 1 || y.output_step != 1 ||
      part.x.taps * y.taps * part.channels > kFewTaps) {
    return 0;
  }
  const int64_t apart = y.stride * part.channels;
  return std::min<int64_t>(kLanes<T> / part.filters,
                           (kLanes<T> - 1) / apart + 1);
}

// What blocks of ConvolveFew share.
struct FewTaps {
  const float* weights;   // a vector for each value of a run, for each line
  Vector<int32_t> index;  // the value of each lane
  int64_t filters;
  int64_t in_vector;  // outputs
  int64_t run;        // values of a line that an output meets
  int64_t lines;
  int64_t step;  // from the values of an output to those of the next
  const Finish<float>* finish;  // with biases for each lane; or null
};

// The most vectors of sums at once.
constexpr int kFewBlocks = 8;

// Computes kBlocks vectors of outputs, of which the last one has `in_last`.
// Reads nothing but their values.
template <int kBlocks>
TFAOT_NOINLINE void FewBlocks(const FewTaps& taps, const float* const* lines,
                              int64_t offset, int64_t in_last, float* out) {
  using V = Vector<float>;
  constexpr int kWidth = kLanes<float>;
  const Vector<int32_t> index = taps.index;
  const int64_t run = taps.run;
  const int64_t apart = taps.in_vector * taps.step;
  const int64_t span = (taps.in_vector - 1) * taps.step + 1;
  const int64_t last_span = (in_last - 1) * taps.step + 1;
  const float* weights = taps.weights;
  V sums[kBlocks] = {};
  for (int64_t line = 0; line < taps.lines; ++line) {
    const float* at = lines[line] + offset;
    for (int64_t k = 0; k < run; ++k) {
      const V weight = Load(weights);
      weights += kWidth;
#pragma GCC unroll 8
      for (int b = 0; b < kBlocks; ++b) {
        const V values =
            LoadSome(at + b * apart, b < kBlocks - 1 ? span : last_span);
        sums[b] = MultiplyAdd(Permute(values, index), weight, sums[b]);
      }
      ++at;
    }
  }
  const auto write = [&](float* to, V values, int64_t count) {
    if (count == kWidth) {
      Store(to, values);
    } else {
      StoreSome(to, values, count);
    }
  };
  const int64_t full = taps.in_vector * taps.filters;
  const int64_t last = in_last * taps.filters;
  if (taps.finish == nullptr) {
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) {
      write(out + b * full, sums[b], b < kBlocks - 1 ? full : last);
    }
    return;
  }
  const Finisher<float> finisher(*taps.finish);
#pragma GCC unroll 8
  for (int b = 0; b < kBlocks; ++b) {
    const int64_t count = b < kBlocks - 1 ? full : last;
    float* const to = out + b * full;
    if (finisher.offset != 0) write(to, sums[b], count);
    write(to + finisher.offset, finisher.Of(sums[b], to, 0, count), count);
  }
}

using FewFunction = void (*)(const FewTaps&, const float* const*, int64_t,
                             int64_t, float*);

template <int... kBlocks>
FewFunction FindFew(int64_t blocks, std::integer_sequence<int, kBlocks...>) {
  constexpr FewFunction kFunctions[] = {&FewBlocks<kBlocks + 1>...};
  return kFunctions[blocks - 1];
}

// Computes a part with few filters, for which FewOutputs is more than 1. A
// vector has all filters of several outputs along y: lane l has filter
// l % filters of output l / filters. Each tap's value is permuted to the lanes
// of its output. Tiles would leave most lanes empty, and spend most of their
// time on finding and writing outputs.
inline void ConvolveFew(const DensePart<float>& part, int64_t in_vector,
                        const Span& outputs, const Finish<float>* finish) {
  constexpr int64_t kWidth = kLanes<float>;
  const Phase& x = part.x;
  const Phase& y = part.y;
  const int64_t filters = part.filters;
  alignas(64) float weights[kFewTaps * kWidth];
  float biases[2][kWidth] = {};
  Finish<float> repeated = {};
  FewTaps taps = {};
  taps.filters = filters;
  taps.in_vector = in_vector;
  taps.run = y.taps * part.channels;
  taps.step = y.stride * part.channels;
  float* to = weights;
  for (int64_t tx = 0; tx < x.taps; ++tx) {
    const float* row = part.Tap(tx, 0);
    for (int64_t k = 0; k < taps.run; ++k, row += part.kernel_row) {
      for (int64_t l = 0; l < kWidth; l += filters) {
        std::copy(row, row + std::min(filters, kWidth - l), to + l);
      }
      to += kWidth;
    }
  }
  for (int64_t l = 0; l < in_vector * filters; ++l) {
    taps.index[l] = static_cast<int32_t>(l / filters * taps.step);
  }
  if (finish != nullptr) {
    repeated = *finish;
    taps.finish = &repeated;
    const auto repeat = [&](const float** bias, float* all) {
      if (*bias == nullptr) return;
      for (int64_t l = 0; l < kWidth; ++l) all[l] = (*bias)[l % filters];
      *bias = all;
    };
    repeat(&repeated.bias, biases[0]);
    repeat(&repeated.addend_bias, biases[1]);
  }
  const int64_t line = y.input * part.input_pixel;
  const Range inside = OutputsInside(y);
  int64_t oy = outputs.begin % y.outputs;
  int64_t ox = outputs.begin / y.outputs % x.outputs;
  int64_t image = outputs.begin / y.outputs / x.outputs;
  for (int64_t r = outputs.begin; r < outputs.end;) {
    const int64_t end = std::min(y.outputs, oy + outputs.end - r);
    r += end - oy;
    const int64_t px = x.base + ox * x.stride;
    const Range taps_x = TapsInside(x, px);
    taps.lines = taps_x.end - taps_x.begin;
    taps.weights = weights + taps_x.begin * taps.run * kWidth;
    const float* lines[kFewTaps];
    for (int64_t t = 0; t < taps.lines; ++t) {
      lines[t] = part.Pixel(image, px + (taps_x.begin + t) * x.dilation, 0);
    }
    float* out = part.Out(image, ox, oy);
    while (oy < end) {
      const int64_t first = (y.base + oy * y.stride) * part.channels;
      int64_t done = 1;
      if (oy < inside.begin || oy >= inside.end) {
        // Assembles the neighborhood of one output, with zeros.
        float copied[kFewTaps];
        const float* copies[kFewTaps];
        for (int64_t t = 0; t < taps.lines; ++t) {
          copies[t] = copied + t * taps.run;
          for (int64_t k = 0; k < taps.run; ++k) {
            const int64_t at = first + k;
            copied[t * taps.run + k] =
                at >= 0 && at < line ? lines[t][at] : 0.0f;
          }
        }
        FewBlocks<1>(taps, copies, 0, 1, out);
      } else {
        done = std::min({end - oy, inside.end - oy, kFewBlocks * in_vector});
        const int64_t blocks = (done + in_vector - 1) / in_vector;
        FindFew(blocks, std::make_integer_sequence<int, kFewBlocks>())(
            taps, lines, first, done - (blocks - 1) * in_vector, out);
      }
      oy += done;
      out += done * filters;
    }
    oy = 0;
    if (++ox == x.outputs) {
      ox = 0;
      ++image;
    }
  }
}

// Computes a part as a product of its outputs' neighborhoods with the kernel.
// Pointers address the neighborhoods without copying, unless there are few
// channels and the image ends within a neighborhood.
template <typename T>
void ConvolveDense(DensePart<T> part, const Part& share,
                   const Finish<T>* finish) {
  constexpr int64_t kMaxPointers = 2048;
  constexpr int64_t kMaxSegments = 64;
  constexpr int64_t kMaxCopied = 12288;
  static const T zeros[std::max(kMostDepth<T>, kPanelDepth<T>)] = {};
  const T* pointers[kMaxPointers];
  const T* right[kMaxSegments];
  alignas(64) T copied[kMaxCopied];
  Outputs<T> outputs;

  const Phase& x = part.x;
  const Phase& y = part.y;
  // With few channels, taps along y form a single run if they are adjacent in
  // both the input and the kernel.
  const bool merged = part.channels < 16 && y.dilation == 1 &&
                      y.tap_step == 1 && part.channels == part.input_pixel;
  const bool inside = x.Inside() && y.Inside();
  const int64_t run = merged ? y.taps * part.channels : part.channels;
  const int64_t runs = merged ? x.taps : x.taps * y.taps;
  // A step of the inner dimension: a few runs, or a part of one.
  const int64_t most =
      part.packed_kernel ? kPanelDepth<T> : DepthOf<T>(part.filters);
  const int64_t length = part.packed_kernel && run > most
                             ? PieceOf(run, most, 8)
                             : std::min(run, most);
  int64_t segments =
      run > length ? 1 : std::min({runs, most / length, kMaxSegments});
  if (part.packed_kernel) segments = PieceOf(runs, segments, 1);
  int64_t block = std::min(Outputs<T>::kMax, kMaxPointers / segments);
  if (merged && !inside) {
    block = std::min(block, kMaxCopied / (segments * length));
  }
  block = std::max<int64_t>(block / kTileRows, 1) * kTileRows;

  const Span rows =
      share.rows.Of(part.batch * x.outputs * y.outputs, kTileRows);
  const Span filters =
      share.columns.Of(part.filters, ColumnGrain<T>(part.filters));
  if (filters.size() == 0) return;
  if constexpr (kPermutes && std::is_same_v<T, float>) {
    if (const int64_t in_vector = FewOutputs(part); in_vector > 1) {
      return ConvolveFew(part, in_vector, rows, finish);
    }
  }
  if (!part.packed_kernel) part.kernel += filters.begin;
  part.output += filters.begin;
  Finish<T> finish_part = {};
  if (finish != nullptr) finish_part = finish->Shifted(filters.begin);
  const bool far =
      !part.packed_kernel && x.taps * y.taps * part.channels * part.filters >=
                                 524288 / static_cast<int64_t>(sizeof(T));
  const int64_t panel_step =
      part.packed_kernel ? runs * run * kPanelColumns<T> : 0;
  outputs.Start(part, rows.begin);
  for (int64_t i = rows.begin; i < rows.end; i += block) {
    const int64_t height = std::min(block, rows.end - i);
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
          right[s] =
              part.packed_kernel
                  ? part.kernel + ((first + s) * run + begin) * kPanelColumns<T>
                  : part.Tap(tx, ty) + begin * part.kernel_row;
          PointAtRuns(part, outputs, height, tx * x.dilation, ty * y.dilation,
                      run, begin, piece, inside, zeros, &copy,
                      pointers + s * height);
        }
        const bool last = first + segments >= runs && begin + length >= run;
        MultiplyRows<T>(
            {pointers, height, height, count, piece, inside ? nullptr : zeros},
            {right, part.kernel_row, 1, far, panel_step, filters.begin},
            filters.size(), outputs.out, accumulate,
            !part.packed_kernel &&
                IsNarrow<T>(part.filters, count * piece, piece),
            last && finish != nullptr ? &finish_part : nullptr);
        accumulate = true;
      }
    }
  }
}

// Adjacent outputs of a depthwise convolution along y, all of whose taps are
// within the input: where they begin, and the distances from one to the next.
template <typename T>
struct DepthwiseRun {
  const T* input;
  int64_t input_x_tap;
  int64_t input_y_tap;
  int64_t input_step;  // from the first tap of an output to that of the next
  const T* kernel;
  int64_t kernel_x_tap;
  int64_t kernel_y_tap;
  int64_t taps_x;
  int64_t taps_y;
  T* out;
  int64_t out_step;
  const Finish<T>* finish;  // only bias and bounds, in place; or null

  void Advance(int64_t outputs) {
    input += outputs * input_step;
    out += outputs * out_step;
  }
};

// Moves a pointer. Keeps a compiler from computing all multiples of a distance
// ahead, for which it would run out of registers.
template <typename T>
TFAOT_INLINE void Move(T** at, int64_t values) {
  *at += values;
  __asm__("" : "+r"(*at));
}

// Keeps a compiler from reading a value again each time that it is used.
template <typename V>
TFAOT_INLINE void Keep(V& value) {
#if defined(__x86_64__)
  __asm__("" : "+v"(value));
#elif defined(__aarch64__)
  __asm__("" : "+w"(value));
#endif
}

// Computes kVectors vectors of channels, starting at `channel`, of kPixels
// outputs. Unless kTaps is 0, it is the number of taps along y, the taps are
// adjacent, and kStride is the stride in pixels. Values that several outputs
// use are then read once.
template <typename T, int kPixels, int kVectors, int kTaps, int kStride>
TFAOT_INLINE void DepthwiseBlock(const DepthwiseRun<T>& run, int64_t channel,
                                 Vector<T> low, Vector<T> high) {
  using V = Vector<T>;
  constexpr int kWidth = kLanes<T>;
  V sum[kPixels][kVectors] = {};
  const T* input = run.input + channel;
  const T* kernel = run.kernel + channel;
  for (int64_t tx = 0; tx < run.taps_x; ++tx) {
    if constexpr (kTaps > 0) {
      V w[kTaps][kVectors];
#pragma GCC unroll 8
      for (int t = 0; t < kTaps; ++t) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          w[t][v] = Load(kernel + t * run.kernel_y_tap + v * kWidth);
        }
      }
      const T* at = input;
#pragma GCC unroll 32
      for (int i = 0; i < (kPixels - 1) * kStride + kTaps; ++i) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          V value = Load(at + v * kWidth);
          Keep(value);
#pragma GCC unroll 8
          for (int p = 0; p < kPixels; ++p) {
            const int t = i - p * kStride;
            if (t >= 0 && t < kTaps) {
              sum[p][v] = MultiplyAdd(value, w[t][v], sum[p][v]);
            }
          }
        }
        Move(&at, run.input_y_tap);
      }
    } else {
      const T* from = input;
      const T* weights = kernel;
      for (int64_t ty = 0; ty < run.taps_y; ++ty) {
        V w[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) w[v] = Load(weights + v * kWidth);
#pragma GCC unroll 8
        for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) {
            sum[p][v] = MultiplyAdd(
                Load(from + p * run.input_step + v * kWidth), w[v], sum[p][v]);
          }
        }
        from += run.input_y_tap;
        weights += run.kernel_y_tap;
      }
    }
    input += run.input_x_tap;
    kernel += run.kernel_x_tap;
  }
  if (run.finish != nullptr) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const V bias = Load(run.finish->bias + channel + v * kWidth);
#pragma GCC unroll 8
      for (int p = 0; p < kPixels; ++p) {
        sum[p][v] = Min(high, Max(low, sum[p][v] + bias));
      }
    }
  }
  T* out = run.out + channel;
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) Store(out + v * kWidth, sum[p][v]);
    Move(&out, run.out_step);
  }
}

// Computes all channels of `outputs` outputs, at least kPixels.
template <typename T, int kPixels, int kTaps, int kStride>
TFAOT_NOINLINE void DepthwiseOutputs(DepthwiseRun<T> run, int64_t channels,
                                     int64_t outputs) {
  constexpr int kWidth = kLanes<T>;
  constexpr int kVectors = kPixels == 1 ? 4 : 2;
  Vector<T> low = {};
  Vector<T> high = {};
  if (run.finish != nullptr) {
    low += run.finish->low;
    high += run.finish->high;
  }
  for (int64_t done = 0; done < outputs;) {
    // If too few outputs or channels are left, computes some twice.
    const int64_t count = std::min<int64_t>(kPixels, outputs - done);
    run.Advance(count - kPixels);
    int64_t c = 0;
    for (; c + kVectors * kWidth <= channels; c += kVectors * kWidth) {
      DepthwiseBlock<T, kPixels, kVectors, kTaps, kStride>(run, c, low, high);
    }
    for (; c + kWidth <= channels; c += kWidth) {
      DepthwiseBlock<T, kPixels, 1, kTaps, kStride>(run, c, low, high);
    }
    if (c < channels && channels > kWidth) {
      DepthwiseBlock<T, kPixels, 1, kTaps, kStride>(run, channels - kWidth, low,
                                                    high);
    } else if (c < channels) {
      for (int64_t p = 0; p < kPixels; ++p) {
        Vector<T> sum = {};
        for (int64_t tx = 0; tx < run.taps_x; ++tx) {
          for (int64_t ty = 0; ty < run.taps_y; ++ty) {
            sum = MultiplyAdd(
                LoadSome(run.input + p * run.input_step + tx * run.input_x_tap +
                             ty * run.input_y_tap,
                         channels),
                LoadSome(
                    run.kernel + tx * run.kernel_x_tap + ty * run.kernel_y_tap,
                    channels),
                sum);
          }
        }
        if (run.finish != nullptr) {
          sum += LoadSome(run.finish->bias, channels);
          sum = Min(high, Max(low, sum));
        }
        StoreSome(run.out + p * run.out_step, sum, channels);
      }
    }
    run.Advance(kPixels);
    done += count;
  }
}

template <typename T>
using DepthwiseFunction = void (*)(DepthwiseRun<T>, int64_t, int64_t);

// Number of outputs that are computed together.
constexpr int kDepthwisePixels = 4;

// Returns the function for at least kDepthwisePixels outputs.
template <typename T>
DepthwiseFunction<T> FindDepthwise(const Phase& y) {
  if (y.dilation == 1 && y.stride == 1) {
    if (y.taps == 3) return &DepthwiseOutputs<T, kDepthwisePixels, 3, 1>;
  }
  if (y.dilation == 1 && y.stride == 2) {
    if (y.taps == 3) return &DepthwiseOutputs<T, kDepthwisePixels, 3, 2>;
  }
  return &DepthwiseOutputs<T, kDepthwisePixels, 0, 0>;
}

// Channels that are computed from a copy: as many as a cache line has.
template <typename T>
constexpr int kLine = 64 / static_cast<int>(sizeof(T));

// The taps along y, and the most along x, of a depthwise convolution that is
// computed from a copy. With fewer taps, the copy takes as long as it gains.
constexpr int kCopiedTaps = 5;

// Computes a cache line of channels of kPixels adjacent outputs along y, from
// copies: value c of pixel y of the line of tap x is at
// lines[x][y * kLine + c], and that of tap (x, y) of the kernel at
// kernel[(x * kCopiedTaps + y) * kLine + c].
template <typename T, int kPixels, int kStride>
TFAOT_INLINE void CopiedBlock(const T* const* lines, int64_t taps_x,
                              int64_t pixel, const T* kernel,
                              const Finish<T>* finish, T* out,
                              int64_t out_step) {
  using V = Vector<T>;
  for (int at = 0; at < kLine<T>; at += kLanes<T>) {
    V sum[kPixels] = {};
    const T* weights = kernel + at;
    for (int64_t tx = 0; tx < taps_x; ++tx) {
      const T* const from = lines[tx] + pixel * kLine<T> + at;
      V w[kCopiedTaps];
#pragma GCC unroll 8
      for (int t = 0; t < kCopiedTaps; ++t) w[t] = Load(weights + t * kLine<T>);
#pragma GCC unroll 32
      for (int i = 0; i < (kPixels - 1) * kStride + kCopiedTaps; ++i) {
        V value = Load(from + i * kLine<T>);
        Keep(value);
#pragma GCC unroll 8
        for (int p = 0; p < kPixels; ++p) {
          const int t = i - p * kStride;
          if (t >= 0 && t < kCopiedTaps) {
            sum[p] = MultiplyAdd(value, w[t], sum[p]);
          }
        }
      }
      weights += kCopiedTaps * kLine<T>;
    }
    if (finish != nullptr) {
      const V bias = Load(finish->bias + at);
      const V low = finish->low - V{};
      const V high = finish->high - V{};
#pragma GCC unroll 8
      for (int p = 0; p < kPixels; ++p) {
        sum[p] = Min(high, Max(low, sum[p] + bias));
      }
    }
    T* to = out + at;
#pragma GCC unroll 8
    for (int p = 0; p < kPixels; ++p) {
      Store(to, sum[p]);
      to += out_step;
    }
  }
}

// Computes a line of outputs like CopiedBlock.
template <typename T, int kStride>
TFAOT_NOINLINE void CopiedLine(const T* const* lines, int64_t taps_x,
                               const T* kernel, const Finish<T>* finish, T* out,
                               int64_t out_step, int64_t outputs) {
  int64_t done = 0;
  const auto block = [&](auto pixels) {
    constexpr int kPixels = decltype(pixels)::value;
    CopiedBlock<T, kPixels, kStride>(lines, taps_x, done * kStride, kernel,
                                     finish, out + done * out_step, out_step);
    done += kPixels;
  };
  while (outputs - done >= 8) block(std::integral_constant<int, 8>());
  if (outputs - done >= 4) block(std::integral_constant<int, 4>());
  if (outputs - done >= 2) block(std::integral_constant<int, 2>());
  if (outputs - done >= 1) block(std::integral_constant<int, 1>());
}

// How many values DepthwiseCopied has room for: half of a first-level cache.
template <typename T>
constexpr int64_t kCopied = (24 << 10) / static_cast<int64_t>(sizeof(T));

template <typename T>
using CopiedFunction = void (*)(const T* const*, int64_t, const T*,
                                const Finish<T>*, T*, int64_t, int64_t);

// Returns the function that computes lines from copies, or null if they are
// computed in place.
template <typename T>
CopiedFunction<T> FindCopied(const Phase& x, const Phase& y, int64_t channels) {
  if (channels < kLine<T> || x.dilation != 1 || y.dilation != 1 ||
      x.taps > kCopiedTaps || y.taps != kCopiedTaps) {
    return nullptr;
  }
  return y.stride == 1   ? &CopiedLine<T, 1>
         : y.stride == 2 ? &CopiedLine<T, 2>
                         : nullptr;
}

// Computes lines of outputs for a cache line of channels, for
// ConvolveDepthwise. Pixels of an image are as far apart as its channels are
// many, so the first-level cache can't keep them, and every output would read
// them again from the second level. A copy of the lines that an output's taps
// meet is dense, and has zeros around the image.
template <typename T>
TFAOT_NOINLINE void DepthwiseCopied(const DensePart<T>& part, Span lines,
                                    CopiedFunction<T> compute,
                                    const Finish<T>* finish) {
  alignas(64) T buffer[kCopied<T>];
  alignas(64) T kernel[kCopiedTaps * kCopiedTaps * kLine<T>];
  const Phase& x = part.x;
  const Phase& y = part.y;
  const auto copy = [](const T* from, T* to) {
    for (int c = 0; c < kLine<T>; c += kLanes<T>) Store(to + c, Load(from + c));
  };
  const auto clear = [](T* to, T* end) {
    for (; to < end; to += kLanes<T>) Store(to, Vector<T>{});
  };
  for (int64_t tx = 0; tx < x.taps; ++tx) {
    for (int64_t ty = 0; ty < y.taps; ++ty) {
      copy(part.Tap(tx, ty), kernel + (tx * y.taps + ty) * kLine<T>);
    }
  }
  // Input line i is in slot i % kSlots.
  constexpr int64_t kSlots = 8;
  static_assert(kSlots >= kCopiedTaps && (kSlots & (kSlots - 1)) == 0);
  constexpr int64_t kRoom = kCopied<T> / (kSlots * kLine<T>);  // pixels in it
  const int64_t most = (kRoom - y.taps) / y.stride + 1;
  for (int64_t first = 0; first < y.outputs; first += most) {
    const int64_t outputs = std::min(most, y.outputs - first);
    const int64_t begin = y.base + first * y.stride;
    const int64_t pixels = (outputs - 1) * y.stride + y.taps;
    const int64_t inside = std::clamp<int64_t>(-begin, 0, pixels);
    const int64_t end = std::clamp<int64_t>(y.input - begin, inside, pixels);
    int64_t image = lines.begin / x.outputs;
    int64_t ox = lines.begin - image * x.outputs;
    int64_t copied = 0;  // the first input line that isn't
    for (int64_t line = lines.begin; line < lines.end; ++line) {
      const int64_t px = x.base + ox * x.stride;
      const Range taps = TapsInside(x, px);
      const T* rows[kCopiedTaps];
      for (int64_t t = taps.begin; t < taps.end; ++t) {
        T* const to = buffer + ((px + t) & (kSlots - 1)) * kRoom * kLine<T>;
        rows[t - taps.begin] = to;
        if (px + t < copied) continue;
        copied = px + t + 1;
        clear(to, to + inside * kLine<T>);
        const T* from = part.Pixel(image, px + t, begin + inside);
        for (int64_t i = inside; i < end; ++i) {
          copy(from, to + i * kLine<T>);
          from += part.input_pixel;
        }
        clear(to + end * kLine<T>, to + pixels * kLine<T>);
      }
      compute(rows, taps.end - taps.begin,
              kernel + taps.begin * y.taps * kLine<T>, finish,
              part.Out(image, ox, first), y.output_step * part.output_pixel,
              outputs);
      if (++ox == x.outputs) {
        ox = 0;
        ++image;
        copied = 0;
      }
    }
  }
}

// Computes a part with one channel and one filter in each of `groups` groups.
template <typename T>
TFAOT_NOINLINE void ConvolveDepthwise(DensePart<T> part, int64_t groups,
                                      const Part& share,
                                      const Finish<T>* finish) {
  // Here, rows are lines of outputs along y.
  const Span lines = share.rows.Of(part.batch * part.x.outputs, 1);
  const Span channels = share.columns.Of(groups, kTileColumns<T>);
  if (channels.size() == 0) return;
  part.input += channels.begin;
  part.kernel += channels.begin;
  part.output += channels.begin;
  groups = channels.size();
  Finish<T> finish_part = {};
  if (finish != nullptr) finish_part = finish->Shifted(channels.begin);
  const Phase& x = part.x;
  const Phase& y = part.y;
  const DepthwiseFunction<T> several = FindDepthwise<T>(y);
  const Range inside = OutputsInside(y);
  DepthwiseRun<T> run = {};
  // Anything beyond that is done line by line.
  const bool at_once = finish != nullptr && finish->to == finish->sums &&
                       finish->bias != nullptr && finish->addend == nullptr;
  if (at_once) run.finish = &finish_part;
  if (const auto compute = FindCopied<T>(x, y, groups)) {
    // The second-level cache keeps the lines of a stripe for all channels.
    constexpr int64_t kStripe = (256 << 10) / static_cast<int64_t>(sizeof(T));
    const int64_t line = x.stride * y.input * part.input_pixel;
    const int64_t stripe =
        std::max<int64_t>(kStripe / std::max<int64_t>(line, 1), 2 * x.taps);
    for (int64_t i = lines.begin; i < lines.end; i += stripe) {
      const Span some = {i, std::min(i + stripe, lines.end)};
      for (int64_t c = 0; c < groups; c += kLine<T>) {
        // If too few channels are left, computes some twice.
        const int64_t channel = std::min(c, groups - kLine<T>);
        DensePart<T> few = part;
        few.input += channel;
        few.kernel += channel;
        few.output += channel;
        const Finish<T> shifted =
            at_once ? finish_part.Shifted(channel) : Finish<T>{};
        DepthwiseCopied(few, some, compute, at_once ? &shifted : nullptr);
      }
      for (int64_t at = some.begin;
           finish != nullptr && !at_once && at < some.end; ++at) {
        FinishRows(finish_part, part.Out(at / x.outputs, at % x.outputs, 0),
                   y.output_step * part.output_pixel, y.outputs, 0, groups);
      }
    }
    return;
  }
  run.input_x_tap = x.dilation * y.input * part.input_pixel;
  run.input_y_tap = y.dilation * part.input_pixel;
  run.input_step = y.stride * part.input_pixel;
  run.kernel_x_tap = x.tap_step * part.kernel_y * part.kernel_row;
  run.kernel_y_tap = y.tap_step * part.kernel_row;
  run.out_step = y.output_step * part.output_pixel;
  for (int64_t line = lines.begin; line < lines.end; ++line) {
    const int64_t image = line / x.outputs;
    const int64_t ox = line % x.outputs;
    const int64_t px = x.base + ox * x.stride;
    const Range taps_x = TapsInside(x, px);
    run.taps_x = taps_x.end - taps_x.begin;
    // Sets everything that depends on the output along y and its taps.
    const auto start = [&](int64_t oy, Range taps_y) {
      run.taps_y = taps_y.end - taps_y.begin;
      run.out = part.Out(image, ox, oy);
      if (run.taps_x <= 0 || run.taps_y <= 0) {
        std::fill(run.out, run.out + groups, T(0));
        if (at_once) FinishRows(finish_part, run.out, 0, 1, 0, groups);
        return false;
      }
      run.input =
          part.Pixel(image, px + taps_x.begin * x.dilation,
                     y.base + oy * y.stride + taps_y.begin * y.dilation);
      run.kernel = part.Tap(taps_x.begin, taps_y.begin);
      return true;
    };
    for (int64_t oy = 0; oy < y.outputs;) {
      if (oy != inside.begin || inside.begin == inside.end || run.taps_x <= 0) {
        if (start(oy, TapsInside(y, y.base + oy * y.stride))) {
          DepthwiseOutputs<T, 1, 0, 0>(run, groups, 1);
        }
        ++oy;
        continue;
      }
      start(oy, {0, y.taps});
      const int64_t outputs = inside.end - inside.begin;
      if (outputs >= kDepthwisePixels) {
        several(run, groups, outputs);
      } else {
        DepthwiseOutputs<T, 1, 0, 0>(run, groups, outputs);
      }
      oy = inside.end;
    }
    if (finish != nullptr && !at_once) {
      FinishRows(finish_part, part.Out(image, ox, 0), run.out_step, y.outputs,
                 0, groups);
    }
  }
}

// Computes a part of the output, and finishes it if `finish` is given.
template <typename T>
void Convolve(const Convolution& c, const T* input, const T* kernel, T* output,
              const Part& share = {}, const Finish<T>* finish = nullptr) {
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
  part.packed_kernel = c.packed_kernel;
  for (int64_t phase_x = 0; phase_x < PhaseCount(c.x); ++phase_x) {
    part.x = GetPhase(c.x, phase_x);
    for (int64_t phase_y = 0; phase_y < PhaseCount(c.y); ++phase_y) {
      part.y = GetPhase(c.y, phase_y);
      if (part.x.outputs == 0 || part.y.outputs == 0) continue;
      if (part.x.taps == 0 || part.y.taps == 0 || part.channels == 0) {
        const Span images = share.rows.Of(c.batch, 1);
        if (share.columns.index > 0) continue;
        for (int64_t image = images.begin; image < images.end; ++image) {
          for (int64_t ox = 0; ox < part.x.outputs; ++ox) {
            for (int64_t oy = 0; oy < part.y.outputs; ++oy) {
              T* out = part.Out(image, ox, oy);
              std::fill(out, out + c.filters, T(0));
              if (finish != nullptr) {
                FinishRows(*finish, out, 0, 1, 0, c.filters);
              }
            }
          }
        }
        continue;
      }
      if (part.channels == 1 && filters == 1 && c.groups > 1) {
        ConvolveDepthwise(part, c.groups, share, finish);
        continue;
      }
      DensePart<T> group = part;
      for (int64_t g = 0; g < c.groups; ++g) {
        Finish<T> finish_group = {};
        if (finish != nullptr) finish_group = finish->Shifted(g * filters);
        ConvolveDense(group, share,
                      finish != nullptr ? &finish_group : nullptr);
        group.input += c.kernel_channels;
        group.kernel += filters;
        group.output += filters;
      }
    }
  }
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_CONVOLUTION_H_
