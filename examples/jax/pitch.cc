// Finds the pitch of tones with overtones. The program fails unless each is
// right to half a percent.
#include <cmath>
#include <cstdio>

#include "examples/jax/pitch_aot.h"

int main() {
  examples::jax::Pitch pitch;
  for (const double hertz : {82.4, 110.0, 261.6, 440.0, 880.0}) {
    for (int i = 0; i < decltype(pitch.samples())::dim(0); ++i) {
      const double turn = 6.283185307179586 * hertz * i / 16000;
      pitch.samples()(i) =
          static_cast<float>(std::sin(turn) + 0.5 * std::sin(2 * turn + 1) +
                             0.3 * std::sin(3 * turn + 2));
    }
    if (!pitch.Run()) {
      std::fprintf(stderr, "%s\n", pitch.error());
      return 1;
    }
    std::printf("%.1f Hz: %.1f\n", hertz, *pitch.frequency());
    if (!(std::fabs(*pitch.frequency() / hertz - 1) < 0.005)) return 1;
  }
  return 0;
}
