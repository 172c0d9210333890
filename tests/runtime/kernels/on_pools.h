// Checks that a kernel's result has the same bits on any pool.
#ifndef TFAOT_TESTS_RUNTIME_KERNELS_ON_POOLS_H_
#define TFAOT_TESTS_RUNTIME_KERNELS_ON_POOLS_H_

#include <cstring>
#include <vector>

#include "tests/runtime/kernels/fuzz.h"
#include "tests/runtime/pools.h"
#include "tfaot/threads.h"

namespace tfaot::kernels {

// Compares run(pool), a vector, with run(nullptr). Ends the process with a
// failure if any bit differs, or if a pool of several threads isn't used once
// when `shares`, and not at all otherwise.
template <typename Run>
void RequireSameOnPools(const Run& run, bool shares) {
  const auto whole = run(nullptr);
  const auto require_same = [&](ThreadPool* pool) {
    const auto got = run(pool);
    fuzz::Require(got.size() == whole.size() &&
                  std::memcmp(got.data(), whole.data(),
                              whole.size() * sizeof(whole[0])) == 0);
  };
  for (const int count : {1, 2, 3, 8}) {
    ShuffledPool shuffled(count);
    require_same(&shuffled);
    fuzz::Require(shuffled.calls == (count > 1 && shares ? 1 : 0));
    Threads threads(count);
    require_same(&threads);
  }
}

}  // namespace tfaot::kernels

#endif  // TFAOT_TESTS_RUNTIME_KERNELS_ON_POOLS_H_
