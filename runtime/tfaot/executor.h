// Runs a compiled function's kernels. Generated code uses it.
//
// A function's requirements are known at compile time and are constant data: a
// Program. An Executor is an instance of one. It allocates once, when it is
// constructed. After that, nothing here allocates, locks, or fails.
#ifndef TFAOT_EXECUTOR_H_
#define TFAOT_EXECUTOR_H_

#include <cstddef>
#include <cstdint>

#include "tfaot/collectives.h"
#include "tfaot/hooks.h"
#include "tfaot/thread_pool.h"

namespace tfaot {

// The calling convention of XLA's kernels: the ABI of XLA_CPU_KernelCallFrame
// and its parts in xla/backends/cpu/runtime/kernel_c_api.h, from the TensorFlow
// wheel that compiled the kernels.
struct KernelDims {
  std::uint64_t x;
  std::uint64_t y;
  std::uint64_t z;
};

struct KernelArg {
  void* data;
  std::size_t size;
};

struct KernelCall {
  const KernelDims* workgroups;
  const KernelDims* workgroup;
  std::size_t num_args;
  const KernelArg* args;
};

struct KernelError;  // opaque; none means success

using Kernel = KernelError*(const KernelCall*);

static_assert(sizeof(KernelDims) == 24 && sizeof(KernelArg) == 16 &&
              sizeof(KernelCall) == 32);

// An argument of a kernel: a part of a buffer.
struct KernelArgPlace {
  std::uint64_t offset;
  std::uint64_t size;
  std::uint32_t buffer;
};

// A kernel call. It takes the next `num_args` arguments, after those of the
// previous call.
struct KernelCallPlace {
  KernelDims workgroups;
  std::uint32_t num_args;
};

// A generator's state. Each use returns it and adds the delta.
struct RngState {
  std::uint64_t low;
  std::uint64_t high;
  std::int64_t delta;
};

// The collectives of a run. Those that are side by side are parts of one call.
struct Exchange {
  tfaot_collective* calls;  // of this run, in order
  std::uint32_t begun;      // calls, without one that others can join
  std::uint32_t ended;
  bool open;  // whether others can join the next call
  bool failed;
};

// The memory that a run of a Program works on.
struct Instance {
  unsigned char* const* buffers;
  const KernelCall* calls;
  RngState* rng;
  unsigned char* scratch;
  ThreadPool* threads;                   // null for none
  Hooks* hooks;                          // not null in a run with hooks
  bool* cancelled;                       // set when they end it
  const tfaot_collectives* collectives;  // not null if the program has some
  Exchange* exchange;
};

// A compiled function. Its buffers are its arguments, then those in an
// instance's memory, then its constants.
struct Program {
  bool (*run)(const Instance& instance);
  bool (*run_hooked)(const Instance& instance);

  std::uint32_t num_args;
  std::uint32_t num_memory;
  std::uint32_t num_constants;
  std::uint32_t num_results;
  std::uint32_t num_kernel_args;
  std::uint32_t num_calls;
  std::uint32_t num_rng;
  std::uint32_t num_collectives;
  std::uint32_t replicas;  // that exchange values; 0 if they don't

  // Both are multiples of 64.
  std::size_t memory_bytes;
  std::size_t scratch_bytes;

  const std::size_t* memory;              // offsets in the instance's memory
  const unsigned char* const* constants;  // data
  const std::uint32_t* results;           // buffers of the results
  const KernelArgPlace* kernel_args;
  const KernelCallPlace* calls;
  // Argument i appears in the kernel arguments uses[first_use[i]] up to, but
  // not including, uses[first_use[i + 1]].
  const std::uint32_t* uses;
  const std::uint32_t* first_use;
  const std::int64_t* rng_deltas;
};

// Tells hooks where a run is. Without them, it does nothing.
template <bool kHooked>
class Step {
 public:
  explicit Step(const Instance&) {}
  constexpr bool operator()(const char*) const noexcept { return true; }
  void Finish() const noexcept {}
};

template <>
class Step<true> {
 public:
  explicit Step(const Instance& instance) : instance_(instance) {}

  // The last kernel is done, and this is the next. Returns whether to call it.
  bool operator()(const char* kernel) noexcept;

  // The last kernel is done.
  void Finish() const noexcept;

 private:
  const Instance& instance_;
  const char* kernel_ = nullptr;
};

// An instance of a Program. Neither copyable nor movable. Thread-compatible;
// two instances share no mutable state.
class Executor {
 public:
  static constexpr std::size_t kAlignment = 64;

  // The size in bytes of the memory that an instance of a program needs.
  static std::size_t MemoryBytes(const Program& program) noexcept;

  // The program and the memory, at a multiple of kAlignment, must outlive this.
  Executor(const Program& program, void* memory) noexcept;

  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Sets the address of an argument, without taking ownership. Every argument
  // must be set before the first run, to a multiple of kAlignment. A run
  // modifies the arguments that the program writes.
  void set_arg_data(std::size_t index, const void* data) noexcept {
    if (instance_.buffers[index] != data) Bind(index, data);
  }

  // The address of a result: that of an argument if it is written in place.
  // Values are valid until the next run.
  void* result_data(std::size_t index) const noexcept {
    return instance_.buffers[program_->results[index]];
  }

  // Applies from the next run on. Null (the default) for no pool. Not owned.
  void set_thread_pool(ThreadPool* threads) noexcept {
    instance_.threads = threads;
  }

  // Applies from the next run on. Null (the default) for no hooks. Not owned.
  void set_hooks(Hooks* hooks) noexcept { instance_.hooks = hooks; }

  // The number of replicas that exchange values in a run; 0 if none do.
  std::uint32_t replicas() const noexcept { return program_->replicas; }

  // Applies from the next run on. Not owned. A program with replicas needs some
  // of as many.
  void set_collectives(const tfaot_collectives* collectives) noexcept {
    instance_.collectives = collectives;
  }

  // Makes runs write a result to `data`, which isn't owned, at a multiple of
  // kAlignment, and which has the room of the result's buffer. Null for the
  // executor's own memory. Returns false, and changes nothing, if the result
  // can't be elsewhere, because it is that of an argument or of two results.
  bool PlaceResult(std::size_t index, void* data) noexcept;

  // Returns whether every kernel succeeded.
  bool Run() noexcept {
    exchange_.begun = exchange_.ended = 0;
    exchange_.open = exchange_.failed = false;
    if (instance_.hooks == nullptr) return program_->run(instance_);
    cancelled_ = false;
    return program_->run_hooked(instance_);
  }

  // Whether hooks have ended the latest run that had some.
  bool cancelled() const noexcept { return cancelled_; }

  // Whether a collective of the latest run failed.
  bool disconnected() const noexcept { return exchange_.failed; }

 private:
  void Bind(std::size_t index, const void* data) noexcept;

  const Program* program_;
  unsigned char* memory_;
  bool cancelled_ = false;
  Exchange exchange_ = {};
  KernelArg* args_;
  unsigned char** buffers_;
  Instance instance_;
};

// Calls a kernel for every workgroup. Returns false if it failed.
bool RunWorkgroups(Kernel* kernel, const KernelCall& call) noexcept;

// Begin and end a collective. They return false if it failed. If `joined`, the
// next one's data is behind this one's, and it starts before this one is waited
// for, so that both can be parts of one call.
bool StartCollective(const Instance& instance, const tfaot_collective& call,
                     bool joined) noexcept;
bool WaitCollective(const Instance& instance,
                    const tfaot_collective& call) noexcept;

// Writes the 16 bytes of a generator's state, and advances it.
void NextRngState(RngState& state, unsigned char* out) noexcept;

}  // namespace tfaot

#endif  // TFAOT_EXECUTOR_H_
