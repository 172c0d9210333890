// Our own kernels, at the level that this source is compiled for.
#include "tests/runtime/kernels/peer.h"
#include "tfaot/kernels/convolution.h"
#include "tfaot/kernels/matmul.h"

namespace tfaot::peer {

const char kName[] = "x86-64-v3";
const bool kConvolves = true;
const bool kPacks = true;

void MatMul(float* out, float* lhs, float* rhs, int64_t m, int64_t n, int64_t k,
            bool transpose_lhs, bool transpose_rhs, bool packed) {
  kernels::MatrixProduct product;
  product.rows = n;
  product.columns = m;
  product.depth = k;
  product.transposed_left = transpose_rhs;
  product.transposed_right = transpose_lhs;
  product.packed_right = packed;
  kernels::Multiply<float>(product, rhs, lhs, out);
}

void Convolve(float* out, const float* lhs, const float* rhs, int64_t batch,
              int64_t input_x, int64_t input_y, int64_t input_channels,
              int64_t kernel_x, int64_t kernel_y, int64_t kernel_channels,
              int64_t filters, int64_t output_x, int64_t output_y,
              int64_t x_stride, int64_t y_stride, int64_t padding_x_before,
              int64_t /*padding_x_after*/, int64_t padding_y_before,
              int64_t /*padding_y_after*/, int64_t lhs_x_dilation,
              int64_t lhs_y_dilation, int64_t rhs_x_dilation,
              int64_t rhs_y_dilation, int64_t groups, bool packed) {
  kernels::Convolution c;
  c.batch = batch;
  c.input_channels = input_channels;
  c.kernel_channels = kernel_channels;
  c.filters = filters;
  c.groups = groups;
  c.x = {input_x,          kernel_x,       output_x,      x_stride,
         padding_x_before, lhs_x_dilation, rhs_x_dilation};
  c.y = {input_y,          kernel_y,       output_y,      y_stride,
         padding_y_before, lhs_y_dilation, rhs_y_dilation};
  c.packed_kernel = packed;
  kernels::Convolve<float>(c, lhs, rhs, out);
}

}  // namespace tfaot::peer
