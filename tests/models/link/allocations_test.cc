// Protects real-time use: Run() doesn't allocate, in models with products,
// convolutions, loops, and batches that are split.
#include "tests/runtime/allocations.h"

#include <cstdio>

#include "examples/batch_family/batch_family_aot.h"
#include "examples/fc/fc_aot.h"
#include "examples/study/conv_fc_aot.h"
#include "examples/study/dynamic_rnn_aot.h"

namespace {

int failed = 0;

template <typename Run>
void Check(const char* name, Run run) {
  for (int step = 0; step < 3; ++step) {
    const long before = tests::allocations;
    const bool ok = run();
    const long made = tests::allocations - before;
    if (ok && made == 0) continue;
    std::printf("FAILED: %s, step %d: %s, %ld allocations\n", name, step,
                ok ? "ran" : "did not run", made);
    ++failed;
  }
}

}  // namespace

int main() {
  const long before = tests::allocations;
  examples::fc::Fc fc;
  if (tests::kCountsAllocations && tests::allocations == before) {
    std::printf("FAILED: allocations are not counted\n");
    ++failed;
  }
  examples::conv_fc::ConvFc conv_fc;
  examples::dynamic_rnn::DynamicRnn dynamic_rnn;
  examples::Classifier family;
  Check("fc", [&] { return fc.Run(); });
  Check("conv_fc", [&] { return conv_fc.Run(); });
  Check("dynamic_rnn", [&] { return dynamic_rnn.Run(); });
  Check("batch_family, one row", [&] { return family.Run(1); });
  Check("batch_family, 77 rows", [&] { return family.Run(77); });
  return failed == 0 ? 0 : 1;
}
