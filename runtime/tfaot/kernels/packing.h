// How constant operands are packed: what the compile stage, which packs them
// (py/tfaot/prepack.py), and the kernels must know alike.
#ifndef TFAOT_KERNELS_PACKING_H_
#define TFAOT_KERNELS_PACKING_H_

#include <cstdint>

namespace tfaot::kernels {

// How a constant right side, or a convolution's kernel, lies in memory.
enum class Packing {
  kNone,      // as the structs in calls.h say
  kPanels,    // a matrix of `columns` or `filters` columns, in panels (tile.h)
  kWinograd,  // of a 3x3 kernel: for RunWinograd (winograd.h)
};

// Bytes of a row of a panel, and filters of a block of kWinograd. Generated
// code asserts that the compile stage knows the same numbers.
inline constexpr std::int64_t kPanelBytes = 64;
inline constexpr std::int64_t kWinogradFilters = 64;

}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_PACKING_H_
