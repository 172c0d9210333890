// Layers of a dense net on a single row, one after another.
//
//   RunDenseNet(Dense<10, 64>{x, w0, b0, h, 0, INFINITY},
//               Dense<64, 1>{h, w1, b1, y, -INFINITY, INFINITY});
//
// Sizes are constants, so a layer's sums are in registers from the first to the
// last product. A result's bits depend only on the sizes, the operands, and the
// target. Every product is computed and added, so infinities and NaN propagate.
//
// A call doesn't allocate or lock, and has no state. Concurrent calls are safe
// if what they write is disjoint.
#ifndef TFAOT_KERNELS_DENSE_NET_H_
#define TFAOT_KERNELS_DENSE_NET_H_

#include <cstdint>
#include <cstring>

#include "tfaot/kernels/lanes.h"
#include "tfaot/kernels/vector.h"

namespace tfaot::kernels::TFAOT_ISA {

// out[kOuts] = clamp(row[kDepth] * matrix[kDepth][kOuts] + bias[kOuts]), where
// a transposed matrix is stored as matrix[kOuts][kDepth]. NaN stays NaN. `out`
// can be the same as `bias`, and overlaps nothing else.
template <int kDepth, int kOuts, bool kTransposed = false>
struct Dense {
  const unsigned char* row;
  const unsigned char* matrix;
  const unsigned char* bias;  // or null
  unsigned char* out;
  float low;
  float high;
};

// A vector of some floats, or one float.
template <int kCount>
struct FloatsOf {
  using Type = typename VectorOf<float, 4 * kCount>::Type;
};
template <>
struct FloatsOf<1> {
  using Type = float;
};
template <int kCount>
using Floats = typename FloatsOf<kCount>::Type;

// A sum waits for the one before it. This many at once keep the multipliers
// busy.
constexpr int kDenseSums = 8;

// Of that many vectors of sums, each has this many, which are added up at the
// end. Seven vectors keep the multipliers busy enough.
constexpr int DenseChains(int vectors) {
  return vectors < kDenseSums - 1 ? (kDenseSums - 1) / vectors + 1 : 1;
}

// The address of the float with a number.
TFAOT_INLINE const unsigned char* Float(const unsigned char* from,
                                        int64_t number) {
  return from + number * static_cast<int64_t>(sizeof(float));
}

// Reads the first kCount values of a V. The rest is zero.
template <typename V, int kCount>
TFAOT_INLINE V LoadFirst(const unsigned char* from) {
  V value = {};
  std::memcpy(&value, from, sizeof(float) * kCount);
  return value;
}

// Adds the bias to the sums of kCount outputs from number `at` on, and writes
// them within their bounds.
template <int kCount, typename V, typename Layer>
TFAOT_INLINE void WriteDense(const Layer& layer, V sum, int64_t at) {
  if (layer.bias != nullptr) {
    sum += LoadFirst<V, kCount>(Float(layer.bias, at));
  }
  const V value = Min(layer.high - V{}, Max(layer.low - V{}, sum));
  std::memcpy(layer.out + at * static_cast<int64_t>(sizeof(float)), &value,
              sizeof(float) * kCount);
}

// Computes the outputs from number `at` on: kVectors vectors, or kCount values
// if there is one.
template <typename V, int kVectors, int kCount, int kDepth, int kOuts>
TFAOT_INLINE void DenseColumns(const Dense<kDepth, kOuts>& layer, int64_t at) {
  constexpr int kWidth = sizeof(V) / sizeof(float);
  static_assert(kVectors == 1 || kCount == kWidth);
  // If a vector has fewer values, it reads some of the next row as well.
  static_assert(kWidth - kCount <= kOuts);
  constexpr int kRows = kCount < kWidth ? kDepth - 1 : kDepth;
  constexpr int kChains = DenseChains(kVectors);
  V sum[kChains][kVectors] = {};
  const unsigned char* const matrix = Float(layer.matrix, at);
  const auto factor = [&](int64_t k) __attribute__((always_inline)) {
    return LoadAs<float>(Float(layer.row, k)) - V{};
  };
  const auto add = [&](int64_t k, int chain) __attribute__((always_inline)) {
    const V a = factor(k);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[chain][v] = MultiplyAdd(
          a, LoadAs<V>(Float(matrix, k * kOuts + v * kWidth)), sum[chain][v]);
    }
  };
  constexpr int kWhole = kRows / kChains * kChains;
#pragma GCC unroll 2
  for (int64_t k = 0; k < kWhole; k += kChains) {
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) add(k + i, i);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows - kWhole; ++i) add(kWhole + i, i);
  if constexpr (kRows < kDepth) {
    sum[0][0] = MultiplyAdd(factor(kRows),
                            LoadFirst<V, kCount>(Float(matrix, kRows * kOuts)),
                            sum[0][0]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 8
    for (int i = 1; i < kChains; ++i) sum[0][v] += sum[i][v];
    WriteDense<kCount>(layer, sum[0][v], at + v * kWidth);
  }
}

// Computes all outputs, a row of the matrix at a time.
template <int kDepth, int kOuts>
TFAOT_INLINE void RunDense(const Dense<kDepth, kOuts>& layer) {
  constexpr int kWidth = kLanes<float>;
  constexpr int kWhole = kOuts / kWidth;
  if constexpr (kWhole > 0) {
    constexpr int kBlocks = (kWhole + kDenseSums - 1) / kDenseSums;
    constexpr int kVectors = (kWhole + kBlocks - 1) / kBlocks;
    constexpr int kOthers = kWhole % kVectors;
    int64_t at = 0;
    for (; at + kVectors * kWidth <= kWhole * kWidth; at += kVectors * kWidth) {
      DenseColumns<Vector<float>, kVectors, kWidth>(layer, at);
    }
    if constexpr (kOthers > 0) {
      DenseColumns<Vector<float>, kOthers, kWidth>(layer, at);
    }
  }
  constexpr int kRest = kOuts % kWidth;
  if constexpr (kRest > 0) {
    using V = Floats<(kRest > 8 ? 16 : kRest > 4 ? 8 : kRest > 1 ? 4 : 1)>;
    DenseColumns<V, 1, kRest>(layer, kWhole * kWidth);
  }
}

// Computes kCount outputs from number `at` on.
template <int kCount, int kDepth, int kOuts>
TFAOT_INLINE void DenseRows(const Dense<kDepth, kOuts, true>& layer,
                            int64_t at) {
  using V = Vector<float>;
  constexpr int kWidth = kLanes<float>;
  constexpr int kChains = DenseChains(kCount);
  V sum[kChains][kCount] = {};
  const unsigned char* const matrix = Float(layer.matrix, at * kDepth);
  const auto add = [&](int64_t k, int chain) __attribute__((always_inline)) {
    const V a = LoadAs<V>(Float(layer.row, k));
#pragma GCC unroll 4
    for (int j = 0; j < kCount; ++j) {
      sum[chain][j] = MultiplyAdd(a, LoadAs<V>(Float(matrix, j * kDepth + k)),
                                  sum[chain][j]);
    }
  };
  constexpr int kWhole = kDepth / kWidth;
  constexpr int kInChains = kWhole / kChains * kChains;
  for (int64_t k = 0; k < kInChains; k += kChains) {
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) add((k + i) * kWidth, i);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kWhole - kInChains; ++i) {
    add((kInChains + i) * kWidth, i);
  }
  constexpr int kRest = kDepth % kWidth;
  if constexpr (kRest > 0) {
    constexpr int64_t k = kWhole * kWidth;
    const auto load =
        [](const unsigned char* from) __attribute__((always_inline)) {
          return LoadSome(reinterpret_cast<const float*>(from), kRest);
        };
    const V a = load(Float(layer.row, k));
#pragma GCC unroll 4
    for (int j = 0; j < kCount; ++j) {
      sum[0][j] =
          MultiplyAdd(a, load(Float(matrix, j * kDepth + k)), sum[0][j]);
    }
  }
#pragma GCC unroll 4
  for (int j = 0; j < kCount; ++j) {
#pragma GCC unroll 8
    for (int i = 1; i < kChains; ++i) sum[0][j] += sum[i][j];
  }
  constexpr int kRoom = kCount > 1 ? 4 : 1;
  float totals[kRoom] = {};
  Sums<float, kCount>(sum[0], totals);
  WriteDense<kCount>(layer, LoadAs<Floats<kRoom>>(totals), at);
}

// Computes all outputs, some rows of the transposed matrix at a time.
template <int kDepth, int kOuts>
TFAOT_INLINE void RunDense(const Dense<kDepth, kOuts, true>& layer) {
  constexpr int kRest = kOuts % 4;
  for (int64_t at = 0; at < kOuts - kRest; at += 4) DenseRows<4>(layer, at);
  if constexpr (kRest > 0) DenseRows<kRest>(layer, kOuts - kRest);
}

// Computes the only output.
template <int kDepth>
TFAOT_INLINE void RunDense(const Dense<kDepth, 1>& layer) {
  // A column is a row of the transposed matrix.
  RunDense(Dense<kDepth, 1, true>{layer.row, layer.matrix, layer.bias,
                                  layer.out, layer.low, layer.high});
}

// Computes layers, in order.
template <typename... Layers>
TFAOT_NOINLINE void RunDenseNet(const Layers&... layers) {
  // Copies, because stores could modify what is in memory.
  (RunDense(Layers(layers)), ...);
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_DENSE_NET_H_
