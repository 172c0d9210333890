// Trains the model of examples/fc on one batch: with CMake (CMakeLists.txt), or
// with pkg-config:
//
//   c++ train.cc $(pkg-config --cflags --libs fc_aot) -o train
#include <cstdio>

#include "examples/fc/fc_aot.h"
#include "tfaot/threads.h"

int main() {
  tfaot::Threads threads(2);
  examples::fc::Fc model;
  model.set_thread_pool(&threads);
  // Each of the 64 rows has a pattern of its own, and one of ten labels.
  float* x = model.x().data();
  float* y = model.y().data();
  for (int row = 0; row < 64; ++row) {
    for (int i = 0; i < 784; ++i) *x++ = (row * 31 + i * 17) % 97 / 97.0f;
    for (int label = 0; label < 10; ++label) *y++ = label == row % 10;
  }
  float first = 0;
  for (int step = 0; step < 30; ++step) {
    if (!model.Run()) {
      std::fprintf(stderr, "%s\n", model.error());
      return 1;
    }
    if (step == 0) first = *model.loss();
  }
  std::printf("loss before: %.4f, after 30 steps: %.4f\n", first,
              *model.loss());
  return *model.loss() < first ? 0 : 1;
}
