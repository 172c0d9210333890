// XLA's 2-D convolution of float by the kernels here in place of Eigen's.
//
// It defines the symbol that the header written by tfcompile calls. It stands
// for XLA's own source of this name and must not include XLA's
// convolution_lib.h, where the same template is defined with Eigen.
#include <cstddef>
#include <cstdint>

#include "absl/functional/any_invocable.h"
#include "tfaot/kernels/convolution.h"

namespace Eigen {
struct ThreadPoolDevice;
using Index = std::ptrdiff_t;
}  // namespace Eigen

namespace xla::cpu::internal {

using DoneCallback = absl::AnyInvocable<void()>;

// Works in the calling thread, whatever the device, and calls `done` before it
// returns.
template <typename T>
void EigenConv2D(const Eigen::ThreadPoolDevice* /*device*/, T* out,
                 const T* lhs, const T* rhs, Eigen::Index input_batch,
                 Eigen::Index input_x, Eigen::Index input_y,
                 Eigen::Index input_channels, Eigen::Index kernel_x,
                 Eigen::Index kernel_y, Eigen::Index kernel_channels,
                 Eigen::Index kernel_filters, Eigen::Index output_x,
                 Eigen::Index output_y, Eigen::Index x_stride,
                 Eigen::Index y_stride, Eigen::Index padding_x_before,
                 Eigen::Index /*padding_x_after*/,
                 Eigen::Index padding_y_before,
                 Eigen::Index /*padding_y_after*/, Eigen::Index lhs_x_dilation,
                 Eigen::Index lhs_y_dilation, Eigen::Index rhs_x_dilation,
                 Eigen::Index rhs_y_dilation, Eigen::Index feature_group_count,
                 DoneCallback done) {
  tfaot::kernels::Convolution convolution;
  convolution.batch = input_batch;
  convolution.input_channels = input_channels;
  convolution.kernel_channels = kernel_channels;
  convolution.filters = kernel_filters;
  convolution.groups = feature_group_count;
  convolution.x = {input_x,          kernel_x,       output_x,      x_stride,
                   padding_x_before, lhs_x_dilation, rhs_x_dilation};
  convolution.y = {input_y,          kernel_y,       output_y,      y_stride,
                   padding_y_before, lhs_y_dilation, rhs_y_dilation};
  tfaot::kernels::Convolve(convolution, lhs, rhs, out);
  done();
}

template void EigenConv2D<float>(const Eigen::ThreadPoolDevice*, float*,
                                 const float*, const float*, Eigen::Index,
                                 Eigen::Index, Eigen::Index, Eigen::Index,
                                 Eigen::Index, Eigen::Index, Eigen::Index,
                                 Eigen::Index, Eigen::Index, Eigen::Index,
                                 Eigen::Index, Eigen::Index, Eigen::Index,
                                 Eigen::Index, Eigen::Index, Eigen::Index,
                                 Eigen::Index, Eigen::Index, Eigen::Index,
                                 Eigen::Index, Eigen::Index, DoneCallback);

}  // namespace xla::cpu::internal
