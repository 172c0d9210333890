// Scores eight rows with the compiled model.
//
//   ./bazelw run //examples/dict_inputs:score
#include <cstdio>

#include "examples/dict_inputs/dict_inputs_aot.h"

int main() {
  examples::DictInputs model;
  for (int row = 0; row < 8; ++row) {
    model.age()(row, 0) = 0.25f * static_cast<float>(row);
    model.clicks()(row, row % 4) = 1;
    model.place()(row, row % 2) = 0.5;
  }
  if (!model.Run()) {
    std::fprintf(stderr, "%s\n", model.error());
    return 1;
  }
  for (int row = 0; row < 8; ++row) {
    const int best = static_cast<int>(model.best()[row]);
    std::printf("row %d: class %d, probability %.3f\n", row, best,
                model.probability()(row, best));
  }
  return 0;
}
