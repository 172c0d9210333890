// Generates tokens in C++ with JAX's decoder, twice. The program fails unless
// two objects, each with a cache of its own, generate the same tokens in turns.
#include <cstdio>
#include <vector>

#include "examples/jax/decoder_aot.h"

int main() {
  examples::jax::Decoder decoders[2];
  std::vector<int> tokens[2] = {{3}, {3}};
  for (int step = 0; step < 40; ++step) {
    for (int i = 0; i < 2; ++i) {
      *decoders[i].token() = tokens[i].back();
      if (!decoders[i].Run()) {
        std::fprintf(stderr, "%s\n", decoders[i].error());
        return 1;
      }
      tokens[i].push_back(*decoders[i].next());
    }
  }
  for (const int token : tokens[0]) std::printf("%d ", token);
  std::printf("\n");
  return tokens[0] == tokens[1] ? 0 : 1;
}
