// The parts of XLA's runtime that every class in stock tfcompile output needs,
// from the sources in the wheel.
#include <string>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "tensorflow/compiler/tf2xla/allocator.cc"
#include "tensorflow/compiler/tf2xla/xla_compiled_cpu_function.cc"
#include "xla/backends/cpu/runtime/rng_state_lib.cc"
#include "xla/executable_run_options.cc"
