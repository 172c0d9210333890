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
  // For RunNarrow (narrow.h): a matrix of kNarrowColumns columns in each panel.
  // kBfloat16 has the upper 16 bits of each value. kInt8 has a factor for each
  // column of all panels, as floats, and then integers from -127 to 127.
  kBfloat16,
  kInt8,
};

// Bytes per row of a panel, filters per block of kWinograd, and columns per
// panel and bytes per block of the narrow packings. Generated code asserts that
// the compile stage uses the same numbers.
inline constexpr std::int64_t kPanelBytes = 64;
inline constexpr std::int64_t kWinogradFilters = 64;
inline constexpr std::int64_t kNarrowColumns = 32;
inline constexpr std::int64_t kNarrowBlock = 64;

}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_PACKING_H_
