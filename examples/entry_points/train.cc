// Initializes, trains, and reads a model in C++, and exchanges its weights with
// TensorFlow as a safetensors file.
//
//   ./bazelw run //examples/entry_points:train                   # 200 steps
//   ./bazelw run //examples/entry_points:train -- OUT [STEPS [IN]]
//
// IN is a file of weights to start from, instead of new ones. OUT is the file
// for the trained weights. In the data, y is the sum of the four values of x.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "examples/entry_points/entry_points_aot.h"

namespace {

using examples::Regressor;

int Fail(const char* what, const Regressor& model) {
  std::fprintf(stderr, "%s: %s\n", what, model.error());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[argc - 1], "--help") == 0) {
    std::puts("usage: train [OUT [STEPS [IN]]]");
    return 0;
  }
  const int steps = argc > 2 ? std::atoi(argv[2]) : 200;
  Regressor model;
  if (argc > 3) {
    if (!model.Load(argv[3])) return Fail("loading", model);
  } else {
    model.init_seed()[0] = 1;
    model.init_seed()[1] = 2;
    if (!model.init()) return Fail("init", model);
  }

  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int step = 0; step < steps; ++step) {
    for (int row = 0; row < decltype(model.train_x())::dim(0); ++row) {
      float sum = 0;
      for (int i = 0; i < decltype(model.train_x())::dim(1); ++i) {
        sum += model.train_x()(row, i) = normal(random);
      }
      model.train_y()[row] = sum;
    }
    if (!model.train()) return Fail("train", model);
    if (step % 20 == 0) {
      std::printf("step %4d  loss %.5f\n", step, *model.train_loss());
    }
  }

  if (!model.read()) return Fail("read", model);
  std::printf("%lld steps, norm of the weights %.5f\n",
              static_cast<long long>(*model.read_steps()), *model.read_norm());

  // Predicts a ramp. exchange_test.py compares the result with TensorFlow's.
  for (std::size_t i = 0; i < model.forward_x().size(); ++i) {
    model.forward_x()[i] = 0.01f * static_cast<float>(i);
  }
  if (!model.forward()) return Fail("forward", model);
  std::printf("predictions:");
  for (const float value : model.forward_y()) std::printf(" %.9g", value);
  std::printf("\n");
  if (argc > 1) {
    const tfaot::Status saved = model.Save(argv[1]);
    if (!saved) {
      std::fprintf(stderr, "saving: %s\n", saved.message());
      return 1;
    }
  }
  return 0;
}
