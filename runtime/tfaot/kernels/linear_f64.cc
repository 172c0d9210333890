#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/schur.h"

namespace tfaot::kernels::TFAOT_ISA {

template <>
void RunLinear<double>(const Linear& linear, bool is_complex, void* scratch,
                       void* data, ThreadPool* threads) {
  using C = Complex<double>;
  if (is_complex) {
    return RunLinearOf(linear, static_cast<C*>(scratch), static_cast<C*>(data),
                       threads);
  }
  RunLinearOf(linear, static_cast<double*>(scratch), static_cast<double*>(data),
              threads);
}

}  // namespace tfaot::kernels::TFAOT_ISA
