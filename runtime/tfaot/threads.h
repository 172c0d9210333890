// A pool of threads for compiled models, for programs that have none.
//
//   tfaot::Threads threads;
//   model.set_thread_pool(&threads);
#ifndef TFAOT_THREADS_H_
#define TFAOT_THREADS_H_

#include <memory>

#include "tfaot/thread_pool.h"

namespace tfaot {

// Threads that look for work for a moment after they had some, and then sleep.
//
// Neither copied nor moved. Thread-safe. One call of ParallelFor() has the
// threads at a time: one that comes meanwhile, from another thread or from a
// part, runs its parts in its own thread. A call allocates nothing, and locks
// only to wake sleepers.
class Threads final : public ThreadPool {
 public:
  // So many threads, of which one is whichever calls ParallelFor(); by default
  // as many as the process may use cores. Throws std::system_error and
  // std::bad_alloc.
  explicit Threads(int threads = Cores());

  // No call may be running.
  ~Threads() override;

  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // Cores that the calling thread may run on, at least 1: as its affinity and
  // the quotas of its control groups say. Throws std::bad_alloc.
  static int Cores();

  // The same, if quotas allow so many cores' worth of time; 0 for any.
  static int Cores(double allowed) noexcept;

  int threads() const noexcept override;
  void ParallelFor(int parts, void (*run)(void* context, int part),
                   void* context) noexcept override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tfaot

#endif  // TFAOT_THREADS_H_
