// Solves Diffrax's differential equation in C++. The program fails unless the
// state at a time is the same whichever other times are asked for.
#include <cmath>
#include <cstdio>

#include "examples/jax/diffrax_ode_aot.h"

int main() {
  examples::jax::Ode ode;
  float states[2][2] = {};
  for (int run = 0; run < 2; ++run) {
    ode.start()(0) = 0.5f;
    ode.start()(1) = -0.25f;
    const int count = decltype(ode.times())::dim(0);
    // The last time is 1.5 in both runs.
    for (int i = 0; i < count; ++i) {
      ode.times()(i) = 1.5f - 0.3f * (count - 1 - i) * (run == 0 ? 1.0f : 0.5f);
    }
    if (!ode.Run()) {
      std::fprintf(stderr, "%s\n", ode.error());
      return 1;
    }
    for (int i = 0; i < 2; ++i) states[run][i] = ode.states()(count - 1, i);
  }
  std::printf("%.4f %.4f\n", states[0][0], states[0][1]);
  for (int i = 0; i < 2; ++i) {
    if (!(std::fabs(states[0][i] - states[1][i]) < 1e-3f)) return 1;
    if (!(std::fabs(states[0][i]) < 10)) return 1;
  }
  return 0;
}
