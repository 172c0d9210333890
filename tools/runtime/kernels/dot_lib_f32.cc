// XLA's matrix product of float.
#include "tfaot/kernels/dot_lib.h"

template void xla::cpu::internal::TypedMatMul<float, float, float>(
    const Eigen::ThreadPoolDevice*, void*, void*, void*, int64_t, int64_t,
    int64_t, bool, bool, xla::cpu::internal::DoneCallback);
