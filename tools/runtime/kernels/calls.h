// What compiled models call: matrix products and convolutions.
//
// A call allocates nothing, takes no lock, and has no state: concurrent calls
// are safe if their outputs are apart. Outputs must not overlap operands.
// Arrays are aligned for their values, and all in rows (the last index is the
// one that is adjacent in memory).
#ifndef TFAOT_KERNELS_CALLS_H_
#define TFAOT_KERNELS_CALLS_H_

#include <cstdint>

#include "tfaot/kernels/isa.h"

namespace tfaot::kernels {

// `batch` times out[rows][columns] = left[rows][depth] * right[depth][columns];
// a transposed operand lies as left[depth][rows] or right[columns][depth].
struct Products {
  std::int64_t batch;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  bool transposed_left;
  bool transposed_right;
  // Values from one product to the next.
  std::int64_t left_step;
  std::int64_t right_step;
  std::int64_t out_step;
};

// A spatial axis of a convolution, as in convolution.h.
struct ImageAxis {
  std::int64_t input;
  std::int64_t kernel;
  std::int64_t output;
  std::int64_t stride;
  std::int64_t padding;
  std::int64_t input_dilation;
  std::int64_t kernel_dilation;
};

// The convolution of input[batch][x][y][input_channels] with
// kernel[x][y][kernel_channels][filters].
struct Images {
  std::int64_t batch;
  std::int64_t input_channels;
  std::int64_t kernel_channels;
  std::int64_t filters;
  std::int64_t groups;
  ImageAxis x;
  ImageAxis y;
};

// In fast code for the level that the caller is compiled for. products_*.cc and
// convolution_*.cc define these, compiled for the same level.
namespace TFAOT_ISA {

// T is float, double, or std::uint32_t, whose sums wrap.
template <typename T>
void RunProducts(const Products& products, const void* left, const void* right,
                 void* out);

// T is float.
template <typename T>
void RunConvolution(const Images& images, const void* input, const void* kernel,
                    void* out);

}  // namespace TFAOT_ISA

// In plain loops, for values that models rarely hold. T is std::complex<float>,
// std::complex<double>, or Float16, which is summed up in float.
template <typename T>
void RunPlainProducts(const Products& products, const void* left,
                      const void* right, void* out);

// T is Float16, summed up in float.
template <typename T>
void RunPlainConvolution(const Images& images, const void* input,
                         const void* kernel, void* out);

}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_CALLS_H_
