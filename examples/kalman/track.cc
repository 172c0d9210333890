// Follows a point that moves on a line through noisy measurements of its place.
#include <cmath>
#include <cstdio>
#include <random>

#include "examples/kalman/kalman_aot.h"

int main() {
  examples::kalman::Kalman filter;
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 0.3);
  double error = 0;
  for (int step = 1; step <= 200; ++step) {
    const double x = 0.1 * step * 1.5, y = 4 - 0.1 * step * 0.5;
    filter.measured()(0) = x + noise(random);
    filter.measured()(1) = y + noise(random);
    filter.update();
    error = std::hypot(filter.estimate()(0) - x, filter.estimate()(1) - y);
    if (step % 50 == 0) {
      std::printf("%d: off by %.3f, velocity %.2f %.2f\n", step, error,
                  filter.estimate()(2), filter.estimate()(3));
    }
  }
  return error < 0.3 && std::abs(filter.estimate()(2) - 1.5) < 0.2 ? 0 : 1;
}
