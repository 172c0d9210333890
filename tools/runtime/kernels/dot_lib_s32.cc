// XLA's matrix product of int32_t.
#include "tfaot/kernels/dot_lib.h"

template void xla::cpu::internal::TypedMatMul<int32_t, int32_t, int32_t>(
    const Eigen::ThreadPoolDevice*, void*, void*, void*, int64_t, int64_t,
    int64_t, bool, bool, xla::cpu::internal::DoneCallback);
