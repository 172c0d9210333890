// Balances a pendulum in C++, whose controller is JAX's. The program fails if
// the pendulum falls, or if the torque is beyond its limit.
#include <cmath>
#include <cstdio>
#include <random>

#include "examples/jax/control_aot.h"

int main() {
  examples::jax::Controller controller;
  std::mt19937 random(4);
  std::normal_distribution<float> noise(0, 0.02f);
  float angle = 0.2f, speed = 0, worst = 0;
  for (int step = 0; step < 400; ++step) {
    controller.measured()(0) = angle + noise(random);
    controller.measured()(1) = speed + noise(random);
    if (!controller.Run()) {
      std::fprintf(stderr, "%s\n", controller.error());
      return 1;
    }
    const float torque = *controller.torque();
    if (!(std::fabs(torque) <= 2)) return 1;
    const float before = angle;
    angle += 0.05f * speed;
    speed += 0.4f * std::sin(before) + 0.1f * torque;
    if (step >= 200) worst = std::fmax(worst, std::fabs(angle));
  }
  std::printf("at most %.3f away\n", worst);
  return worst < 0.1f ? 0 : 1;
}
