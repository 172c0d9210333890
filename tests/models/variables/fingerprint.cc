// Prints what identifies a class's code and its weights.
#include <cinttypes>
#include <cstdio>

#include "tests/models/variables/mixer_aot.h"

int main() {
  std::printf("%016" PRIx64 " %016" PRIx64 "\n", tests::Mixer::fingerprint(),
              tests::Mixer::weights_fingerprint());
  return 0;
}
