// Trains the convolutional network of Flax and Optax in C++ to tell which
// quarter of an image is bright, and classifies others. The program fails
// unless most of them are right.
#include <cstdio>
#include <random>

#include "examples/jax/flax_nnx_aot.h"

namespace {

std::mt19937 random_bits(7);

template <typename Images>
int Draw(Images images, int row) {
  std::normal_distribution<float> noise(0, 0.3f);
  const int label = static_cast<int>(random_bits() % 4),
            half = Images::dim(1) / 2;
  for (int i = 0; i < Images::dim(1); ++i) {
    for (int j = 0; j < Images::dim(2); ++j) {
      const bool bright = label == i / half * 2 + j / half;
      images(row, i, j, 0) = noise(random_bits) + (bright ? 1.0f : 0.0f);
    }
  }
  return label;
}

}  // namespace

int main() {
  examples::jax::Classifier model;
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
