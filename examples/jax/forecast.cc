// Trains the recurrent network of Flax and Optax in C++ to continue sine waves.
// The program fails unless the loss falls.
#include <cmath>
#include <cstdio>
#include <random>

#include "examples/jax/flax_linen_aot.h"

int main() {
  examples::jax::Forecaster model;
  std::mt19937 random(5);
  std::uniform_real_distribution<float> phase(0, 6.28f);
  float first = 0, last = 0;
  for (int step = 0; step < 400; ++step) {
    for (int row = 0; row < decltype(model.x())::dim(0); ++row) {
      for (int wave = 0; wave < decltype(model.x())::dim(2); ++wave) {
        const int length = decltype(model.x())::dim(1);
        const float start = phase(random);
        for (int t = 0; t < length; ++t) {
          model.x()(row, t, wave) = std::sin(start + 0.4f * t);
        }
        model.y()(row, wave) = std::sin(start + 0.4f * length);
      }
    }
    if (!model.Run()) {
      std::fprintf(stderr, "%s\n", model.error());
      return 1;
    }
    last = *model.output_2();
    if (step == 0) first = last;
  }
  std::printf("loss %.4f, then %.4f\n", first, last);
  return last < first / 4 ? 0 : 1;
}
