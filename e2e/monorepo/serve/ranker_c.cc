// A C function for programs in other languages.
#include <algorithm>

#include "models/ranker_aot.h"

extern "C" bool Rank(const float* items, float* scores) {
  static models::Ranker ranker;
  std::copy_n(items, ranker.items().size(), ranker.items().begin());
  if (!ranker.Run()) return false;
  std::copy(ranker.scores().begin(), ranker.scores().end(), scores);
  return true;
}
