// Scores two rows, and prints the scores.
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "scorer_aot.h"

int main() {
  smoke::Scorer scorer;
  const float rows[] = {1, 2, 3, 4, 5, 6};
  std::copy(std::begin(rows), std::end(rows), scorer.rows().begin());
  if (!scorer.Run()) {
    std::fprintf(stderr, "%s\n", scorer.error());
    return 1;
  }
  for (int row = 0; row < 2; ++row)
    std::printf("%g\n", scorer.scores()(row, 0));
}
