// Pools for tests, like adapters that callers might write.
#ifndef TFAOT_TESTS_RUNTIME_POOLS_H_
#define TFAOT_TESTS_RUNTIME_POOLS_H_

#include <random>
#include <vector>

#include "tfaot/thread_pool.h"

namespace tfaot {

// Claims to have `threads` threads, but runs all parts in the caller's, in a
// different order each time. Counts the calls.
class ShuffledPool final : public ThreadPool {
 public:
  explicit ShuffledPool(int threads) : threads_(threads) {}

  int calls = 0;

  int threads() const noexcept override { return threads_; }

  void ParallelFor(int parts, void (*run)(void* context, int part),
                   void* context) noexcept override {
    ++calls;
    order_.resize(parts);
    for (int i = 0; i < parts; ++i) order_[i] = i;
    for (int i = parts; i > 1; --i) {
      std::swap(order_[i - 1], order_[random_() % i]);
    }
    for (const int part : order_) run(context, part);
  }

 private:
  int threads_;
  std::mt19937 random_;
  std::vector<int> order_;
};

}  // namespace tfaot

#endif  // TFAOT_TESTS_RUNTIME_POOLS_H_
