// Watches and cancels runs, from kernel to kernel.
//
//   class Trace final : public tfaot::Hooks {
//     void After(const char* kernel) noexcept override { Log(kernel, Now()); }
//   };
//   Trace trace;
//   model.set_hooks(&trace);
#ifndef TFAOT_HOOKS_H_
#define TFAOT_HOOKS_H_

#include <atomic>

namespace tfaot {

// A kernel is a part of a run: a call of a function that XLA compiled, or of
// one of the runtime, such as a matrix product, a convolution, or a sort. Its
// name stays valid. Kernels of other CPU levels and of other builds may have
// other names.
//
// The thread that runs the model calls the members. It doesn't own the hooks,
// which must outlive its last run. If several instances have the same hooks,
// calls come from several threads.
class Hooks {
 public:
  virtual ~Hooks() = default;

  // Before a kernel. If it returns false, the run ends, fails, and has
  // Code::kCancelled.
  virtual bool Before(const char* /*kernel*/) noexcept { return true; }

  // After a kernel that succeeded.
  virtual void After(const char* /*kernel*/) noexcept {}
};

// Ends runs before their next kernel.
class Cancellation : public Hooks {
 public:
  // Runs fail from now on, until Reset(). Thread-safe, and safe in a signal
  // handler.
  void Cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }
  void Reset() noexcept { cancelled_.store(false, std::memory_order_relaxed); }

  bool Before(const char* /*kernel*/) noexcept override {
    return !cancelled_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<bool> cancelled_{false};
};

}  // namespace tfaot

#endif  // TFAOT_HOOKS_H_
