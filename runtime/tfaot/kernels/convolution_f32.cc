#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/convolution.h"
#include "tfaot/kernels/epilogue.h"
#include "tfaot/kernels/parallel.h"

namespace tfaot::kernels::TFAOT_ISA {
namespace {

Axis AxisOf(const ImageAxis& axis) {
  return {axis.input,   axis.kernel,         axis.output,         axis.stride,
          axis.padding, axis.input_dilation, axis.kernel_dilation};
}

}  // namespace

template <typename T>
void RunConvolution(const Images& images, const void* input, const void* kernel,
                    void* out, ThreadPool* threads, const Epilogue& epilogue) {
  const auto run = [&](const Part& part) {
    const Finish<T> finish = FinishOf(epilogue, static_cast<const T*>(out));
    Convolution convolution;
    convolution.batch = images.batch;
    convolution.input_channels = images.input_channels;
    convolution.kernel_channels = images.kernel_channels;
    convolution.filters = images.filters;
    convolution.groups = images.groups;
    convolution.x = AxisOf(images.x);
    convolution.y = AxisOf(images.y);
    convolution.packed_kernel = images.packing == Packing::kPanels;
    Convolve(convolution, static_cast<const T*>(input),
             static_cast<const T*>(kernel), static_cast<T*>(out), part,
             finish.to != nullptr ? &finish : nullptr);
  };
  if (threads == nullptr) return run(Part{});
  const std::int64_t outputs = images.batch * images.x.output * images.y.output;
  // In a depthwise convolution, loading operands takes longer than adding.
  const bool depthwise = images.groups > 1 && images.groups == images.filters &&
                         images.kernel_channels == 1;
  const std::int64_t filters = images.filters / images.groups;
  const Work work = {1,
                     outputs,
                     depthwise ? images.filters : filters,
                     depthwise ? images.y.output : kTileRows,
                     depthwise ? kTileColumns<T> : ColumnGrain<T>(filters),
                     (depthwise ? 4.0 : 1.0) *
                         static_cast<double>(outputs * images.filters) *
                         static_cast<double>(images.x.kernel * images.y.kernel *
                                             images.kernel_channels)};
  InParts(*threads, work, run);
}

template void RunConvolution<float>(const Images&, const void*, const void*,
                                    void*, ThreadPool*, const Epilogue&);

}  // namespace tfaot::kernels::TFAOT_ISA
