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
#include "tfaot/kernels/packing.h"
#include "tfaot/thread_pool.h"

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
  Packing packing = Packing::kNone;  // of the right side
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
  Packing packing = Packing::kNone;  // of the kernel
};

// What else becomes of a result, after it is written to the call's `out`:
//   out = min(max((result + bias) + (addend + addend_bias), low), high)
// where each column or filter has a bias. The addend, and `out` here, are laid
// out as the result; `out` may be the call's, or the addend, and is apart from
// all other operands. NaN stays NaN. Values are the call's T; integers have no
// epilogue.
struct Epilogue {
  const void* bias;         // may be null
  const void* addend;       // may be null
  const void* addend_bias;  // may be null
  void* out;                // null means no epilogue
  double low;
  double high;
};

// In fast code for the level that the caller is compiled for. products_*.cc and
// convolution_*.cc define these, compiled for the same level. Those that are
// worth it are cut into parts for the pool, if there is one; the bits of
// results do not depend on it.
namespace TFAOT_ISA {

// T is float, double, or std::uint32_t, whose sums wrap.
template <typename T>
void RunProducts(const Products& products, const void* left, const void* right,
                 void* out, ThreadPool* threads = nullptr,
                 const Epilogue& epilogue = {});

// T is float.
template <typename T>
void RunConvolution(const Images& images, const void* input, const void* kernel,
                    void* out, ThreadPool* threads = nullptr,
                    const Epilogue& epilogue = {});

// As RunConvolution, of a kernel that is packed as kWinograd. `scratch` has
// WinogradScratchBytes(images), aligned to 64.
template <typename T>
void RunWinograd(const Images& images, const void* input, const void* kernel,
                 void* out, void* scratch, ThreadPool* threads = nullptr,
                 const Epilogue& epilogue = {});

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
