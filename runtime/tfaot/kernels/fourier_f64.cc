#include <algorithm>
#include <cstdint>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/fourier.h"

namespace tfaot::kernels::TFAOT_ISA {

template <>
void RunFourier<double>(const Fourier& fourier, const void* roots,
                        void* scratch, void* data, ThreadPool* threads) {
  RunFourierOn(fourier, static_cast<const double*>(roots),
               static_cast<double*>(scratch), static_cast<double*>(data),
               threads);
}

}  // namespace tfaot::kernels::TFAOT_ISA
