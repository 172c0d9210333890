// A thread pool for compiled models, for programs that have none.
//
//   tfaot::Threads threads;
//   model.set_thread_pool(&threads);
#ifndef TFAOT_THREADS_H_
#define TFAOT_THREADS_H_

#include <memory>

#include "tfaot/thread_pool.h"

namespace tfaot {

// Threads that spin briefly after they had work, and then sleep.
//
// Neither copyable nor movable. Thread-safe. Only one call of ParallelFor()
// uses the threads at a time. Another call in the meantime, from another thread
// or from a part, runs its parts in its own thread. A call doesn't allocate,
// and locks only to wake sleeping threads.
//
// A child of fork() has none of its parent's threads: there, calls run on the
// calling thread, threads() is 1, and the destructor leaves some memory behind.
class Threads final : public ThreadPool {
 public:
  // Uses `threads` threads, including the one that calls ParallelFor(). By
  // default, uses as many as the process can use cores. Throws
  // std::system_error and std::bad_alloc.
  explicit Threads(int threads = Cores());

  // No call may be running.
  ~Threads() override;

  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  // Returns how many cores the calling thread can use, at least 1, according to
  // its affinity and its control groups' quotas. Throws std::bad_alloc.
  static int Cores();

  // The same for a quota of `allowed` cores; 0 for no limit.
  static int Cores(double allowed) noexcept;

  int threads() const noexcept override;
  void ParallelFor(int parts, void (*run)(void* context, int part),
                   void* context) noexcept override;

  // Sends threads to sleep that look for more work. For a caller who knows that
  // there is none for a while, and who needs their cores.
  void Rest() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tfaot

#endif  // TFAOT_THREADS_H_
