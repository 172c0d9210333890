// Trains a model of JAX in C++, and saves its parameters:
//
//   ./bazelw run //examples/jax:train -- [OUT [STEPS]]
//
// In the data, y is the sine of the sum of the four values of x. The program
// fails unless the loss falls.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "examples/jax/mlp_aot.h"

int main(int argc, char** argv) {
  const int steps = argc > 2 ? std::atoi(argv[2]) : 400;
  examples::jax::Mlp model;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.5f);
  float first = 0;
  for (int step = 0; step < steps; ++step) {
    for (int row = 0; row < decltype(model.train_x())::dim(0); ++row) {
      float sum = 0;
      for (int i = 0; i < decltype(model.train_x())::dim(1); ++i) {
        sum += model.train_x()(row, i) = normal(random);
      }
      model.train_y()(row, 0) = std::sin(sum);
    }
    if (!model.train()) {
      std::fprintf(stderr, "%s\n", model.error());
      return 1;
    }
    if (step == 0) first = *model.train_loss();
  }
  const float last = *model.train_loss();
  std::printf("loss %.4f, then %.4f\n", first, last);
  if (!(last < first / 4)) return 1;

  for (int i = 0; i < decltype(model.predict_x())::dim(1); ++i) {
    model.predict_x()(0, i) = 0.1f;
  }
  if (!model.predict()) return 1;
  std::printf("sine of 0.4: %.4f\n", model.predict_y()(0, 0));
  if (argc > 1) {
    const tfaot::Status saved = model.Save(argv[1]);
    if (!saved.ok()) {
      std::fprintf(stderr, "%s\n", saved.message());
      return 1;
    }
  }
  return 0;
}
