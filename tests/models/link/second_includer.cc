#include "tests/models/link/one_aot.h"
#include "tests/models/link/other_aot.h"

#if defined(EIGEN_WORLD_VERSION) || defined(ABSL_BASE_CONFIG_H_) || \
    defined(TFCOMPILE_GENERATED_H_) ||                              \
    defined(TENSORFLOW_COMPILER_TF2XLA_XLA_COMPILED_CPU_FUNCTION_H_)
#error "a public header brings TensorFlow, Eigen, or abseil along"
#endif
#if __has_include("absl/base/config.h") || \
                  __has_include("Eigen/Core") || __has_include("xla/types.h")
#error "a library's include paths lead to TensorFlow, Eigen, or abseil"
#endif

float SecondIncluder() {
  a::b_c model;
  model.x()(1) = 1;
  return model.Run() ? model.y()(1) : -1;
}
