// Runs a compiled function's kernels; generated code uses it.
//
// What a function needs is known when it is compiled, and is constant data: a
// Program. An Executor is one instance of it. It allocates once, when it is
// made; after that nothing here allocates, takes a lock, or fails.
#ifndef TFAOT_EXECUTOR_H_
#define TFAOT_EXECUTOR_H_

#include <cstddef>
#include <cstdint>

#include "tfaot/thread_pool.h"

namespace tfaot {

// How XLA's kernels are called. It is the ABI that the header
// xla/backends/cpu/runtime/kernel_c_api.h, of the TensorFlow wheel that
// compiled them, gives as XLA_CPU_KernelCallFrame and its parts.
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

// A call of a kernel takes `num_args` arguments, after those of the call
// before.
struct KernelCallPlace {
  KernelDims workgroups;
  std::uint32_t num_args;
};

// A generator's state. Each use yields it, and adds the delta.
struct RngState {
  std::uint64_t low;
  std::uint64_t high;
  std::int64_t delta;
};

// What a run of a Program works on.
struct Instance {
  unsigned char* const* buffers;
  const KernelCall* calls;
  RngState* rng;
  unsigned char* scratch;
  ThreadPool* threads;  // null for none
};

// A compiled function. Buffers are its arguments, then those that lie in an
// instance's memory, then its constants.
struct Program {
  bool (*run)(const Instance& instance);

  std::uint32_t num_args;
  std::uint32_t num_memory;
  std::uint32_t num_constants;
  std::uint32_t num_results;
  std::uint32_t num_kernel_args;
  std::uint32_t num_calls;
  std::uint32_t num_rng;

  // Multiples of 64, each.
  std::size_t memory_bytes;
  std::size_t scratch_bytes;

  const std::size_t* memory;              // offsets in the instance's memory
  const unsigned char* const* constants;  // data
  const std::uint32_t* results;           // buffers of the results
  const KernelArgPlace* kernel_args;
  const KernelCallPlace* calls;
  // Kernel arguments in argument i: uses[first_use[i]] to, excluded,
  // uses[first_use[i + 1]].
  const std::uint32_t* uses;
  const std::uint32_t* first_use;
  const std::int64_t* rng_deltas;
};

// An instance of a Program. Neither copied nor moved. Thread-compatible; two
// instances share nothing that changes.
class Executor {
 public:
  static constexpr std::size_t kAlignment = 64;

  // The program must outlive this. Throws std::bad_alloc.
  explicit Executor(const Program& program);
  ~Executor();

  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Says where an argument is; it is not owned. Every argument must be set
  // before the first run, to a multiple of kAlignment. One that the program
  // writes may change.
  void set_arg_data(std::size_t index, const void* data) noexcept {
    if (instance_.buffers[index] != data) Bind(index, data);
  }

  // Where a result is: in an argument if it is written in place. Values last
  // until the next run.
  void* result_data(std::size_t index) const noexcept {
    return instance_.buffers[program_->results[index]];
  }

  // From the next run on; null for none, as at first. It is not owned.
  void set_thread_pool(ThreadPool* threads) noexcept {
    instance_.threads = threads;
  }

  // Returns whether every kernel succeeded.
  bool Run() noexcept { return program_->run(instance_); }

 private:
  void Bind(std::size_t index, const void* data) noexcept;

  const Program* program_;
  void* block_;
  KernelArg* args_;
  unsigned char** buffers_;
  Instance instance_;
};

// Calls a kernel for every workgroup; false if it failed.
bool RunWorkgroups(Kernel* kernel, const KernelCall& call) noexcept;

// Writes the 16 bytes of a generator's state, and moves it on.
void NextRngState(RngState& state, unsigned char* out) noexcept;

}  // namespace tfaot

#endif  // TFAOT_EXECUTOR_H_
