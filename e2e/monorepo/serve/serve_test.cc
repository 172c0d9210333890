// Two models and abseil in one program.
#include <cstdio>

#include "absl/types/span.h"
#include "models/ranker_aot.h"
#include "scale/scale_aot.h"

int main() {
  models::Ranker ranker;
  other::Scale scale;
  ranker.items()(1, 2) = 3.0f;
  if (!ranker.Run()) {
    std::fprintf(stderr, "%s\n", ranker.error());
    return 1;
  }
  const absl::Span<const float> scores(ranker.scores().data(), 4);
  for (std::size_t i = 0; i < scores.size(); ++i) scale.x()[i] = scores[i];
  if (!scale.Run()) {
    std::fprintf(stderr, "%s\n", scale.error());
    return 1;
  }
  std::printf("%g %g\n", scale.y()[0], scale.y()[1]);
  return scale.y()[0] == 0.0f && scale.y()[1] == 20.0f && *ranker.calls() == 1
             ? 0
             : 1;
}
