#include "tests/linking/between.h"

#include <algorithm>

#include "tests/linking/fed.h"
#include "tfaot/threads.h"
#include "tfaot/weights.h"

float Between(float weight) {
  const float w[] = {weight, 2, -1};
  tfaot::Weights changed;
  const tfaot::NamedValue value{"w", w, sizeof(w)};
  if (!trigger::Anomaly::InitialWeights().Update(&value, 1, &changed)) {
    return -1;
  }
  tfaot::LiveWeights live(changed);
  tfaot::Threads threads(2);
  trigger::Anomaly model;
  model.set_thread_pool(&threads);
  auto x = model.x();
  std::fill(x.begin(), x.end(), 1.0f);
  return model.Follow(&live) && model.Run() ? model.output()(0, 0) : -1;
}
