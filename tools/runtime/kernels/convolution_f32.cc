#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/convolution.h"

namespace tfaot::kernels::TFAOT_ISA {
namespace {

Axis AxisOf(const ImageAxis& axis) {
  return {axis.input,   axis.kernel,         axis.output,         axis.stride,
          axis.padding, axis.input_dilation, axis.kernel_dilation};
}

}  // namespace

template <typename T>
void RunConvolution(const Images& images, const void* input, const void* kernel,
                    void* out) {
  Convolution convolution;
  convolution.batch = images.batch;
  convolution.input_channels = images.input_channels;
  convolution.kernel_channels = images.kernel_channels;
  convolution.filters = images.filters;
  convolution.groups = images.groups;
  convolution.x = AxisOf(images.x);
  convolution.y = AxisOf(images.y);
  Convolve(convolution, static_cast<const T*>(input),
           static_cast<const T*>(kernel), static_cast<T*>(out));
}

template void RunConvolution<float>(const Images&, const void*, const void*,
                                    void*);

}  // namespace tfaot::kernels::TFAOT_ISA
