// Draws from a chain of NumPyro in C++: each call of Run() is a step of
// Hamiltonian Monte Carlo, whose state is in the object. In the data, the slope
// of the line is 0.7.
#include <cmath>
#include <cstdio>

#include "examples/jax/numpyro_hmc_aot.h"

int main() {
  examples::jax::Chain chain;
  double sum = 0;
  const int warmup = 200, draws = 2000;
  for (int step = 0; step < warmup + draws; ++step) {
    if (!chain.Run()) {
      std::fprintf(stderr, "%s\n", chain.error());
      return 1;
    }
    if (step >= warmup) sum += *chain.slope();
  }
  std::printf("slope %.3f\n", sum / draws);
  return std::fabs(sum / draws - 0.7) < 0.1 ? 0 : 1;
}
