// XLA's own matrix products, with Eigen, as the wheel ships them.
#include <string>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "xla/backends/cpu/runtime/dot_lib.h"

template void xla::cpu::internal::TypedMatMul<float, float, float>(
    const Eigen::ThreadPoolDevice*, void*, void*, void*, int64_t, int64_t,
    int64_t, bool, bool, DoneCallback);
