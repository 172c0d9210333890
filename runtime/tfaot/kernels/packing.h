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
  // For RunStream (stream.h): a matrix of kStreamColumns columns in each panel.
  // kFloat32 has the values. kBfloat16 has the upper 16 bits of each. kInt8 has
  // a factor for each column of all panels, as floats, and then integers from
  // -127 to 127.
  kFloat32,
  kBfloat16,
  kInt8,
};

// Bytes per row of a panel, filters per block of kWinograd, and columns per
// panel of the packings for RunStream. Generated code asserts that the compile
// stage uses the same numbers.
inline constexpr std::int64_t kPanelBytes = 64;
inline constexpr std::int64_t kWinogradFilters = 64;
inline constexpr std::int64_t kStreamColumns = 32;

}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_PACKING_H_
