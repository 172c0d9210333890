// The threads that a compiled model can use, provided by the caller.
//
//   tfaot::Threads threads(4);  // from tfaot/threads.h, or your own pool
//   model.set_thread_pool(&threads);
//   model.Run();                // the same bits as on one thread
//
// A model has no threads of its own. To use your own pool, derive an adapter
// from ThreadPool.
#ifndef TFAOT_THREAD_POOL_H_
#define TFAOT_THREAD_POOL_H_

namespace tfaot {

// Runs the parts of one piece of work in parallel.
//
// A model doesn't own its pool, which must outlive the model's last run.
// Several models may share a pool and run in several threads at the same time.
// ParallelFor() must then be thread-safe, and must also finish when one of the
// pool's own threads calls it. In that case, it can run all parts itself. No
// part of a model calls ParallelFor().
class ThreadPool {
 public:
  virtual ~ThreadPool() = default;

  // How many threads work at the same time, including the caller's. It decides
  // how work is divided, and never affects results.
  virtual int threads() const noexcept = 0;

  // Calls run(context, part) once for each part from 0 to parts - 1, in any
  // order, on any threads, and returns when all calls have returned. The parts
  // see the caller's earlier writes, and the caller then sees theirs. A part
  // sets the floating-point mode that it needs and restores the previous one.
  // It doesn't throw, block, or allocate, and it uses up to 128 KiB of stack.
  virtual void ParallelFor(int parts, void (*run)(void* context, int part),
                           void* context) noexcept = 0;
};

}  // namespace tfaot

#endif  // TFAOT_THREAD_POOL_H_
