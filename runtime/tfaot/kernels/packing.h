// The memory layouts of constant operands. The compile stage packs the operands
// (py/tfaot/compile/program/packing.py), and the kernels read them.
#ifndef TFAOT_KERNELS_PACKING_H_
#define TFAOT_KERNELS_PACKING_H_

#include <cstdint>

namespace tfaot::kernels {

// The memory layout of a constant right side or of a convolution's kernel.
enum class Packing {
  kNone,      // as described by the structs in calls.h
  kPanels,    // a matrix of `columns` or `filters` columns, in panels (tile.h)
  kWinograd,  // of a 3x3 kernel: for RunWinograd (winograd.h)
};

// Bytes per row of a panel, and filters per block of kWinograd. Generated code
// asserts that the compile stage uses the same numbers.
inline constexpr std::int64_t kPanelBytes = 64;
inline constexpr std::int64_t kWinogradFilters = 64;

}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_PACKING_H_
