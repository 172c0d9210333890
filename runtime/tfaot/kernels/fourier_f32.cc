#include <algorithm>
#include <cstdint>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/fourier.h"

namespace tfaot::kernels::TFAOT_ISA {

template <>
void RunFourier<float>(const Fourier& fourier, const void* roots, void* scratch,
                       void* data, ThreadPool* threads) {
  RunFourierOn(fourier, static_cast<const float*>(roots),
               static_cast<float*>(scratch), static_cast<float*>(data),
               threads);
}

}  // namespace tfaot::kernels::TFAOT_ISA
