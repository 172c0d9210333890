// What both programs train on.
#ifndef EXAMPLES_DISTRIBUTED_ROWS_H_
#define EXAMPLES_DISTRIBUTED_ROWS_H_

#include <cstdint>
#include <random>

// Rows of batches: a class's picture, which is the same in all processes, and
// noise. They depend only on the step and the rank.
class Rows {
 public:
  Rows() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (auto& picture : pictures_) {
      for (float& pixel : picture) pixel = normal(random);
    }
  }

  template <typename Labels>
  void Fill(int step, int rank, float* pixel, Labels&& labels) const {
    std::mt19937 random(static_cast<std::uint32_t>(1 + 1000 * step + rank));
    std::normal_distribution<float> normal;
    for (std::int32_t& label : labels) {
      label = static_cast<std::int32_t>(random() % 10);
      for (const float value : pictures_[label])
        *pixel++ = value + 2 * normal(random);
    }
  }

 private:
  float pictures_[10][28 * 28];
};

#endif  // EXAMPLES_DISTRIBUTED_ROWS_H_
