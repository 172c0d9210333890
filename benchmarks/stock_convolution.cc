// XLA's own convolutions, with Eigen, as the wheel ships them.
#include <string>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define EIGEN_USE_AVX512_GEMM_KERNELS 0
#include "xla/backends/cpu/runtime/convolution_lib.h"
#include "xla/tsl/concurrency/async_value.cc"
#include "xla/tsl/concurrency/async_value_ref.cc"

XLA_CPU_DEFINE_CONV2D(float);
