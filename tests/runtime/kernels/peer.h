// The kernels' peers in benchmarks: Eigen's kernels, as XLA calls them on one
// thread, a library that has only matrix products, or our own kernels at
// another CPU level. A program links one.
#ifndef TFAOT_TESTS_RUNTIME_KERNELS_PEER_H_
#define TFAOT_TESTS_RUNTIME_KERNELS_PEER_H_

#include <cstdint>

namespace tfaot::peer {

extern const char kName[];
extern const bool kConvolves;
extern const bool kPacks;

// Column-major, like XLA's TypedMatMul. All pointers are aligned to 64 bytes.
// If `packed`, the left side, which is the right side of the row-major product,
// is in panels (tile.h); only if kPacks.
void MatMul(float* out, float* lhs, float* rhs, int64_t m, int64_t n, int64_t k,
            bool transpose_lhs, bool transpose_rhs, bool packed);

// The arguments of XLA's EigenConv2D, starting at input_batch. If `packed`, the
// kernel is in panels. Call it only if kConvolves.
void Convolve(float* out, const float* lhs, const float* rhs, int64_t batch,
              int64_t input_x, int64_t input_y, int64_t input_channels,
              int64_t kernel_x, int64_t kernel_y, int64_t kernel_channels,
              int64_t filters, int64_t output_x, int64_t output_y,
              int64_t x_stride, int64_t y_stride, int64_t padding_x_before,
              int64_t padding_x_after, int64_t padding_y_before,
              int64_t padding_y_after, int64_t lhs_x_dilation,
              int64_t lhs_y_dilation, int64_t rhs_x_dilation,
              int64_t rhs_y_dilation, int64_t groups, bool packed);

}  // namespace tfaot::peer

#endif  // TFAOT_TESTS_RUNTIME_KERNELS_PEER_H_
