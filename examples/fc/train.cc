// Trains the compiled model on generated data, and prints the falling loss.
//
//   ./bazelw run //examples/fc:train             # 300 steps
//   ./bazelw run //examples/fc:train -- 1000
//
// The data has ten classes, each with a fixed random pattern of 784 values. An
// example is a pattern with noise. The whole optimizer is inside Run(), and
// this program only fills the inputs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "examples/fc/fc_aot.h"

namespace {

constexpr int kClasses = 10;

// Owns the patterns and the source of randomness.
class Data {
 public:
  Data() : random_(1) {
    std::normal_distribution<float> normal;
    patterns_.resize(kClasses * kFeatures);
    for (float& value : patterns_) value = normal(random_);
  }

  // Fills a model's inputs with a new batch.
  void NextBatch(examples::fc::Fc& model) {
    std::uniform_int_distribution<int> classes(0, kClasses - 1);
    std::normal_distribution<float> noise;
    for (int row = 0; row < kBatch; ++row) {
      const int label = classes(random_);
      for (int i = 0; i < kFeatures; ++i) {
        model.x()(row, i) = patterns_[label * kFeatures + i] + noise(random_);
      }
      for (int i = 0; i < kClasses; ++i) {
        model.y()(row, i) = i == label ? 1.0f : 0.0f;
      }
    }
  }

 private:
  static constexpr int kBatch = 64;
  static constexpr int kFeatures = 784;

  std::mt19937 random_;
  std::vector<float> patterns_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[argc - 1], "--help") == 0) {
    std::puts("usage: train [STEPS]");
    return 0;
  }
  const int steps = argc > 1 ? std::atoi(argv[1]) : 300;
  if (steps < 1) {
    std::fprintf(stderr, "usage: train [STEPS], at least 1\n");
    return 2;
  }
  examples::fc::Fc model;
  Data data;
  float first = 0;
  for (int step = 0; step < steps; ++step) {
    data.NextBatch(model);
    if (!model.Run()) {
      std::fprintf(stderr, "step %d: %s\n", step, model.error());
      return 1;
    }
    if (step == 0) first = *model.loss();
    if (step % 20 == 0 || step == steps - 1) {
      const float loss = *model.loss();
      std::printf("step %4d  loss %.4f  ", step, loss);
      for (int i = 0; i < 60 * loss / first && i < 72; ++i) std::printf("#");
      std::printf("\n");
    }
  }
  return *model.loss() < first ? 0 : 1;
}
