#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/schur.h"

namespace tfaot::kernels::TFAOT_ISA {

template <>
void RunLinear<float>(const Linear& linear, bool is_complex, void* scratch,
                      void* data, ThreadPool* threads) {
  using C = Complex<float>;
  if (is_complex) {
    return RunLinearOf(linear, static_cast<C*>(scratch), static_cast<C*>(data),
                       threads);
  }
  RunLinearOf(linear, static_cast<float*>(scratch), static_cast<float*>(data),
              threads);
}

}  // namespace tfaot::kernels::TFAOT_ISA
