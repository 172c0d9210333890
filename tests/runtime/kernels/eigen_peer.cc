// Must come first: XLA's headers need these, but don't include them.
#include <string>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tests/runtime/kernels/peer.h"
// gcc 12 fails on Eigen's own AVX-512 kernels.
#define EIGEN_USE_AVX512_GEMM_KERNELS 0
#include "xla/backends/cpu/runtime/convolution_lib.h"
#include "xla/backends/cpu/runtime/dot_lib.h"
// A grouped convolution calls this.
#include "xla/tsl/concurrency/async_value.cc"
#include "xla/tsl/concurrency/async_value_ref.cc"

template void xla::cpu::internal::TypedMatMul<float, float, float>(
    const Eigen::ThreadPoolDevice*, void*, void*, void*, int64_t, int64_t,
    int64_t, bool, bool, DoneCallback);
XLA_CPU_DEFINE_CONV2D(float);

namespace tfaot::peer {

const char kName[] = "Eigen";
const bool kConvolves = true;
const bool kPacks = false;

void MatMul(float* out, float* lhs, float* rhs, int64_t m, int64_t n, int64_t k,
            bool transpose_lhs, bool transpose_rhs, bool /*packed*/) {
  xla::cpu::internal::TypedMatMul<float, float, float>(
      nullptr, out, lhs, rhs, m, n, k, transpose_lhs, transpose_rhs, [] {});
}

void Convolve(float* out, const float* lhs, const float* rhs, int64_t batch,
              int64_t input_x, int64_t input_y, int64_t input_channels,
              int64_t kernel_x, int64_t kernel_y, int64_t kernel_channels,
              int64_t filters, int64_t output_x, int64_t output_y,
              int64_t x_stride, int64_t y_stride, int64_t padding_x_before,
              int64_t padding_x_after, int64_t padding_y_before,
              int64_t padding_y_after, int64_t lhs_x_dilation,
              int64_t lhs_y_dilation, int64_t rhs_x_dilation,
              int64_t rhs_y_dilation, int64_t groups, bool /*packed*/) {
  xla::cpu::internal::EigenConv2D<float>(
      nullptr, out, lhs, rhs, batch, input_x, input_y, input_channels, kernel_x,
      kernel_y, kernel_channels, filters, output_x, output_y, x_stride,
      y_stride, padding_x_before, padding_x_after, padding_y_before,
      padding_y_after, lhs_x_dilation, lhs_y_dilation, rhs_x_dilation,
      rhs_y_dilation, groups, [] {});
}

}  // namespace tfaot::peer
