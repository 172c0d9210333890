#include "tfaot/executor.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstring>

#include "tfaot/c_api.h"

namespace tfaot {
namespace {

constexpr KernelDims kFirst = {0, 0, 0};

// XLA's own initial state of a generator: any number except zero.
constexpr std::uint64_t kInitialRngState = 0x7012395;

constexpr std::size_t Aligned(std::size_t size) {
  return (size + Executor::kAlignment - 1) / Executor::kAlignment *
         Executor::kAlignment;
}

// Takes the next `count` values from a block.
template <typename T>
T* Take(unsigned char*& at, std::size_t count) {
  T* const taken = reinterpret_cast<T*>(at);
  at += Aligned(count * sizeof(T));
  return taken;
}

// Asks the system for huge pages of a program's constants. Linux then reads
// them from the program's file in such pages, and maps each at one fault if the
// compile stage has aligned the constants to them. They hold for the page
// cache, so later processes that use the file gain, too. Reading the pages
// ahead (MAP_POPULATE) gains nothing: the time goes to each page.
void UseHugePages([[maybe_unused]] const Program& program) noexcept {
#if defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t kHugePage = std::uintptr_t{1} << 21;
  std::uintptr_t begin = ~std::uintptr_t{0}, end = 0;
  for (std::uint32_t i = 0; i < program.num_constants; ++i) {
    const auto start = reinterpret_cast<std::uintptr_t>(program.constants[i]);
    begin = start < begin ? start : begin;
    end = start > end ? start : end;
  }
  // Only whole pages between the first constant and the last, so that nothing
  // else is in them.
  begin = (begin + kHugePage - 1) / kHugePage * kHugePage;
  end = end / kHugePage * kHugePage;
  // If it fails, the pages are small.
  if (begin < end && end - begin >= 2 * kHugePage) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
#endif
}

std::size_t ValueBytes(std::int32_t dtype) noexcept {
  return dtype == TFAOT_FLOAT32 || dtype == TFAOT_INT32 ? 4 : 8;
}

// Four megabytes take as long as a few hundred latencies of a network.
std::uint64_t BucketBytes(const Instance& instance) noexcept {
  const std::uint64_t bytes = instance.collectives->bucket_bytes;
  return bytes == 0 ? std::uint64_t{4} << 20 : bytes;
}

}  // namespace

std::size_t Executor::MemoryBytes(const Program& program) noexcept {
  const std::size_t num_buffers =
      program.num_args + program.num_memory + program.num_constants;
  return program.memory_bytes + program.scratch_bytes +
         Aligned(num_buffers * sizeof(unsigned char*)) +
         Aligned(program.num_kernel_args * sizeof(KernelArg)) +
         Aligned(program.num_calls * sizeof(KernelCall)) +
         Aligned(program.num_rng * sizeof(RngState)) +
         Aligned(program.num_collectives * sizeof(tfaot_collective));
}

Executor::Executor(const Program& program, void* block) noexcept
    : program_(&program) {
  const std::size_t num_buffers =
      program.num_args + program.num_memory + program.num_constants;
  unsigned char* at = static_cast<unsigned char*>(block);
  memory_ = Take<unsigned char>(at, program.memory_bytes);
  unsigned char* const scratch = Take<unsigned char>(at, program.scratch_bytes);
  buffers_ = Take<unsigned char*>(at, num_buffers);
  args_ = Take<KernelArg>(at, program.num_kernel_args);
  KernelCall* const calls = Take<KernelCall>(at, program.num_calls);
  RngState* const rng = Take<RngState>(at, program.num_rng);
  exchange_.calls = Take<tfaot_collective>(at, program.num_collectives);
  instance_ = {buffers_, calls,       rng,     scratch,   nullptr,
               nullptr,  &cancelled_, nullptr, &exchange_};
  // Calls have the padding between values, too.
  if (program.num_collectives != 0) {
    std::memset(memory_, 0, program.memory_bytes);
  }

  unsigned char** buffer = buffers_;
  for (std::uint32_t i = 0; i < program.num_args; ++i) *buffer++ = nullptr;
  for (std::uint32_t i = 0; i < program.num_memory; ++i) {
    *buffer++ = memory_ + program.memory[i];
  }
  for (std::uint32_t i = 0; i < program.num_constants; ++i) {
    // Kernels only read it.
    *buffer++ = const_cast<unsigned char*>(program.constants[i]);
  }
  for (std::uint32_t i = 0; i < program.num_kernel_args; ++i) {
    const KernelArgPlace& place = program.kernel_args[i];
    unsigned char* const start = buffers_[place.buffer];
    args_[i] = {start == nullptr ? nullptr : start + place.offset, place.size};
  }
  const KernelArg* next = args_;
  for (std::uint32_t i = 0; i < program.num_calls; ++i) {
    const KernelCallPlace& place = program.calls[i];
    calls[i] = {&place.workgroups, &kFirst, place.num_args, next};
    next += place.num_args;
  }
  for (std::uint32_t i = 0; i < program.num_rng; ++i) {
    rng[i] = {kInitialRngState, 0, program.rng_deltas[i]};
  }
  UseHugePages(program);
}

void Executor::Bind(std::size_t index, const void* data) noexcept {
  unsigned char* const start =
      const_cast<unsigned char*>(static_cast<const unsigned char*>(data));
  buffers_[index] = start;
  for (std::uint32_t i = program_->first_use[index];
       i < program_->first_use[index + 1]; ++i) {
    const std::uint32_t use = program_->uses[i];
    args_[use].data = start + program_->kernel_args[use].offset;
  }
}

bool Executor::PlaceResult(std::size_t index, void* data) noexcept {
  const std::uint32_t buffer = program_->results[index];
  const std::uint32_t place = buffer - program_->num_args;
  if (buffer < program_->num_args || place >= program_->num_memory) {
    return false;
  }
  for (std::uint32_t i = 0; i < program_->num_results; ++i) {
    if (i != index && program_->results[i] == buffer) return false;
  }
  unsigned char* const start = data != nullptr
                                   ? static_cast<unsigned char*>(data)
                                   : memory_ + program_->memory[place];
  if (buffers_[buffer] == start) return true;
  buffers_[buffer] = start;
  for (std::uint32_t i = 0; i < program_->num_kernel_args; ++i) {
    const KernelArgPlace& arg = program_->kernel_args[i];
    if (arg.buffer == buffer) args_[i].data = start + arg.offset;
  }
  return true;
}

bool Step<true>::operator()(const char* kernel) noexcept {
  Finish();
  kernel_ = kernel;
  if (instance_.hooks->Before(kernel)) return true;
  *instance_.cancelled = true;
  return false;
}

void Step<true>::Finish() const noexcept {
  if (kernel_ != nullptr) instance_.hooks->After(kernel_);
}

bool RunWorkgroups(Kernel* kernel, const KernelCall& call) noexcept {
  KernelDims workgroup = {0, 0, 0};
  KernelCall one = call;
  one.workgroup = &workgroup;
  const KernelDims end = *call.workgroups;
  for (workgroup.z = 0; workgroup.z < end.z; ++workgroup.z) {
    for (workgroup.y = 0; workgroup.y < end.y; ++workgroup.y) {
      for (workgroup.x = 0; workgroup.x < end.x; ++workgroup.x) {
        if (kernel(&one) != nullptr) return false;
      }
    }
  }
  return true;
}

bool StartCollective(const Instance& instance, const tfaot_collective& call,
                     bool joined) noexcept {
  const tfaot_collectives& all = *instance.collectives;
  Exchange& exchange = *instance.exchange;
  tfaot_collective* const last = exchange.calls + exchange.begun;
  if (!exchange.open) {
    *last = call;
  } else {
    // With the padding in between.
    last->count = static_cast<std::uint64_t>(
                      static_cast<const unsigned char*>(call.data) -
                      static_cast<const unsigned char*>(last->data)) /
                      ValueBytes(call.dtype) +
                  call.count;
  }
  exchange.open =
      joined && last->count * ValueBytes(call.dtype) < BucketBytes(instance);
  if (exchange.open) return true;
  ++exchange.begun;
  if (all.start(all.context, last) == 0) return true;
  exchange.failed = true;
  return false;
}

bool WaitCollective(const Instance& instance,
                    const tfaot_collective& call) noexcept {
  const tfaot_collectives& all = *instance.collectives;
  Exchange& exchange = *instance.exchange;
  if (exchange.ended == exchange.begun) return true;
  const tfaot_collective* const first = exchange.calls + exchange.ended;
  if (first->id != call.id) return true;  // a part of the call before
  const bool ok = all.wait(all.context, first) == 0;
  // In a loop, calls take the same places again.
  if (++exchange.ended == exchange.begun) exchange.begun = exchange.ended = 0;
  exchange.failed = !ok;
  return ok;
}

void NextRngState(RngState& state, unsigned char* out) noexcept {
  std::memcpy(out, &state.low, sizeof(state.low));
  std::memcpy(out + sizeof(state.low), &state.high, sizeof(state.high));
  const std::uint64_t low = state.low + static_cast<std::uint64_t>(state.delta);
  const std::uint64_t carry = low < state.low ? 1 : 0;
  state.high += (state.delta < 0 ? ~std::uint64_t{0} : 0) + carry;
  state.low = low;
}

}  // namespace tfaot
