// The threads that a compiled model may work on, given by the caller.
//
//   tfaot::Threads threads(4);            // tfaot/threads.h, or a pool of
//   yours model.set_thread_pool(&threads); model.Run(); // the same bits as
//   with one thread
//
// A model has no threads of its own, and without a pool it knows of none. Adapt
// any pool by deriving from ThreadPool.
#ifndef TFAOT_THREAD_POOL_H_
#define TFAOT_THREAD_POOL_H_

namespace tfaot {

// Runs the parts of one piece of work side by side.
//
// A model does not own its pool, which must outlive its last run. Several
// models, run by several threads at the same time, may share one: ParallelFor()
// must then be thread-safe, and must finish if it is called from one of the
// pool's own threads, where it may run all parts by itself. No part of a model
// calls ParallelFor().
class ThreadPool {
 public:
  virtual ~ThreadPool() = default;

  // Threads that work at the same time, the caller's included. It says how
  // finely work is cut, and never changes a result.
  virtual int threads() const noexcept = 0;

  // Calls run(context, part) for every part from 0 to, excluded, `parts`, each
  // once, in any order, in any threads, and returns when all have returned.
  // What the caller wrote before is seen by the parts, and what they wrote by
  // the caller after. A part sets the floating-point mode that it needs, and
  // restores what it found; it does not throw, block, or allocate, and uses up
  // to 128 KiB of stack.
  virtual void ParallelFor(int parts, void (*run)(void* context, int part),
                           void* context) noexcept = 0;
};

}  // namespace tfaot

#endif  // TFAOT_THREAD_POOL_H_
