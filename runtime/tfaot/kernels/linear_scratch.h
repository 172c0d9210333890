// The memory of decompositions and linear systems (linear.h,
// spectral.h, schur.h).
#ifndef TFAOT_KERNELS_LINEAR_SCRATCH_H_
#define TFAOT_KERNELS_LINEAR_SCRATCH_H_

#include <cstddef>
#include <cstdint>

#include "tfaot/kernels/calls.h"

namespace tfaot::kernels {
namespace {

constexpr std::int64_t Least(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
constexpr std::int64_t Most(std::int64_t a, std::int64_t b) {
  return a < b ? b : a;
}

// The distance between rows in scratch memory isn't a multiple of a large power
// of two, at which they would evict each other from the first-level cache.
constexpr std::int64_t ReflectorStride(std::int64_t length) {
  return (length + 15) / 16 * 16 + 16;
}

// Float matrices of no more rows have their Schur decomposition in float64.
constexpr std::int64_t kWidened = 16;

// Values of a batch item's memory.
constexpr std::int64_t LinearRow(const Linear& linear) {
  using Op = Linear::Op;
  const std::int64_t rows = linear.rows, columns = linear.columns;
  const std::int64_t least = Least(rows, columns), values = rows * columns;
  switch (linear.op) {
    case Op::kCholesky:
      return values;
    case Op::kTriangle:
    case Op::kSolve:
      return values + rows * linear.others;
    case Op::kLu:
      return values + rows + least + 1;
    case Op::kReflectors:
      return values + least;
    case Op::kOrthogonal:
      return Most(values + columns, rows * linear.others);
    case Op::kEigen:
      return values + rows;
    case Op::kSingular: {
      const std::int64_t left = linear.others != 0 ? rows : least;
      const std::int64_t right = linear.others != 0 ? columns : least;
      return rows * left + least + right * columns;
    }
    case Op::kRoot:
      return values;
    case Op::kGeneral:
      return values + rows;
  }
  return 0;
}

// Bytes of scratch memory, aligned to 64, of a batch item, for values of this
// size.
constexpr std::int64_t LinearItemBytes(const Linear& linear,
                                       std::int64_t size) {
  const std::int64_t rows = linear.rows, columns = linear.columns;
  const std::int64_t most = Most(Most(rows, columns), linear.others);
  const std::int64_t least = Least(rows, columns);
  const std::int64_t stride = ReflectorStride(rows);
  // Rows of reflectors, their block, and sums.
  const auto reflectors = [](std::int64_t length, std::int64_t count) {
    return (32 + count) * ReflectorStride(length) + 32 * 32 + 64 * count;
  };
  std::int64_t values = 0;
  using Op = Linear::Op;
  switch (linear.op) {
    case Op::kCholesky:
      values = rows * rows;
      break;
    case Op::kTriangle:
    case Op::kSolve:
    case Op::kLu:
      // A product's result, or a panel of LU decomposition, and pivots.
      values = Most(rows * Most(columns, linear.others), 16 * (rows + 64)) + 8 +
               2 * most;
      break;
    case Op::kReflectors:
      values = columns * stride + reflectors(rows, columns);
      break;
    case Op::kOrthogonal:
      values = (columns + linear.others) * stride + columns +
               reflectors(rows, linear.others);
      break;
    case Op::kEigen:
      values =
          2 * rows * stride + 70 * stride + reflectors(rows, rows) + 80 * rows;
      break;
    case Op::kSingular: {
      const std::int64_t tall = Most(rows, columns);
      const std::int64_t wide = ReflectorStride(tall);
      const std::int64_t left = linear.others != 0 ? tall : least;
      values = (2 * least + left + 8) * wide + least * ReflectorStride(least) +
               reflectors(tall, left) + 102 * tall;
      break;
    }
    case Op::kRoot:
    case Op::kGeneral:
      values = 3 * rows * stride + 64 * stride + 32 * 32 + 66 * rows;
      // All of it, and the item itself, can be float64.
      if (rows <= kWidened) values = 2 * (values + rows * rows + 2 * rows + 8);
      break;
  }
  return (values * size + 63) / 64 * 64;
}

// How many batch items a thread pool can work on at once, in up to 4 MiB.
constexpr std::int64_t LinearSlots(const Linear& linear, std::int64_t size) {
  const std::int64_t bytes = Most(LinearItemBytes(linear, size), 64);
  return Most(1,
              Least(Least(linear.batch, 16), (std::int64_t{4} << 20) / bytes));
}

constexpr std::size_t LinearScratchBytes(const Linear& linear,
                                         std::int64_t size) {
  return static_cast<std::size_t>(LinearSlots(linear, size) *
                                  LinearItemBytes(linear, size));
}

}  // namespace
}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_LINEAR_SCRATCH_H_
