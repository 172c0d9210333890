#include <cstdint>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/filter_gradient.h"
#include "tfaot/kernels/parallel.h"

namespace tfaot::kernels::TFAOT_ISA {

template <>
void RunFilterGradient<float>(const Images& images, const void* input,
                              const void* gradient, void* out,
                              ThreadPool* threads) {
  const auto run = [&](const Part& part) {
    FilterGradient(images, static_cast<const float*>(input),
                   static_cast<const float*>(gradient),
                   static_cast<float*>(out), part);
  };
  if (threads == nullptr) return run(Part{});
  const std::int64_t units = GradientUnits(images);
  const double operations =
      static_cast<double>(images.batch * images.x.output * images.y.output) *
      static_cast<double>(images.x.kernel * images.y.kernel *
                          images.input_channels * images.filters);
  InParts(*threads,
          {1, units, images.filters, 1, kGradientVectors * kLanes<float>,
           operations},
          run);
}

}  // namespace tfaot::kernels::TFAOT_ISA
