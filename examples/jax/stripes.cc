// Trains the vision transformer in C++ to tell the direction of stripes, and
// classifies others. The program fails unless most of them are right.
#include <cmath>
#include <cstdio>
#include <random>

#include "examples/jax/vit_aot.h"

namespace {

std::mt19937 random_bits(5);

template <typename Images>
int Draw(Images images, int row) {
  std::normal_distribution<float> noise(0, 0.3f);
  std::uniform_real_distribution<float> phase(0, 6.2831853f);
  const int label = static_cast<int>(random_bits() % 4);
  const float down = label == 1 ? 0.0f : 1.0f;
  const float right = label == 0 ? 0.0f : label == 3 ? -1.0f : 1.0f;
  const float start = phase(random_bits);
  for (int i = 0; i < Images::dim(1); ++i) {
    for (int j = 0; j < Images::dim(2); ++j) {
      const float turn =
          down * static_cast<float>(i) + right * static_cast<float>(j);
      images(row, i, j) = std::sin(start + turn) + noise(random_bits);
    }
  }
  return label;
}

}  // namespace

int main() {
  examples::jax::Vit model;
  const int rows = decltype(model.train_images())::dim(0);
  for (int step = 0; step < 200; ++step) {
    for (int row = 0; row < rows; ++row) {
      model.train_labels()(row) = Draw(model.train_images(), row);
    }
    if (!model.train()) {
      std::fprintf(stderr, "%s\n", model.error());
      return 1;
    }
  }
  int right = 0, all = 0;
  for (int step = 0; step < 20; ++step) {
    int labels[decltype(model.predict_images())::dim(0)];
    for (int row = 0; row < rows; ++row) {
      labels[row] = Draw(model.predict_images(), row);
    }
    if (!model.predict()) return 1;
    for (int row = 0; row < rows; ++row, ++all) {
      right += model.predict_label()(row) == labels[row];
    }
  }
  std::printf("loss %.4f, %d of %d are right\n", *model.train_loss(), right,
              all);
  return right * 10 > all * 9 ? 0 : 1;
}
