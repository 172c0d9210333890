// XLA's matrix product of double.
#include "tfaot/kernels/dot_lib.h"

template void xla::cpu::internal::TypedMatMul<double, double, double>(
    const Eigen::ThreadPoolDevice*, void*, void*, void*, int64_t, int64_t,
    int64_t, bool, bool, xla::cpu::internal::DoneCallback);
