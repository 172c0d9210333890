// Protects the code that runs compiled functions: where kernels find their
// arguments, that one block contains everything, and that it reports
// failures.
#include "tfaot/executor.h"

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/runtime/expect.h"
#include "tfaot/c_api.h"
#include "tfaot/collectives.h"

namespace {

using tfaot::KernelCall;
using tfaot::KernelError;

KernelError* const kError = reinterpret_cast<KernelError*>(&failed);

// out = in + constant.
KernelError* Add(const KernelCall* call) {
  const auto at = [call](int i) {
    return static_cast<std::int32_t*>(call->args[i].data);
  };
  if (call->num_args != 3 || call->args[2].size != 4) return kError;
  if (call->workgroup->x + call->workgroup->y + call->workgroup->z != 0) {
    return kError;
  }
  *at(2) = *at(0) + *at(1);
  return nullptr;
}

// Counts workgroups, each once. Fails at the one that the argument names.
KernelError* Count(const KernelCall* call) {
  auto* const counts = static_cast<std::int32_t*>(call->args[0].data);
  const tfaot::KernelDims& at = *call->workgroup;
  const tfaot::KernelDims& end = *call->workgroups;
  const std::uint64_t index = (at.z * end.y + at.y) * end.x + at.x;
  if (counts[index] == 100) return kError;
  ++counts[index];
  return nullptr;
}

// Buffers: two arguments, a temporary, a result, a constant.
template <bool kHooked>
bool Run(const tfaot::Instance& instance) {
  tfaot::Step<kHooked> step(instance);
  if (!step("first")) return false;
  if (Add(instance.calls + 0) != nullptr) return false;
  if (!step("second")) return false;
  if (Add(instance.calls + 1) != nullptr) return false;
  if (!step("rng")) return false;
  tfaot::NextRngState(instance.rng[0], instance.buffers[3] + 16);
  if (!step("count")) return false;
  if (!tfaot::RunWorkgroups(&Count, instance.calls[2])) return false;
  step.Finish();
  return true;
}

alignas(64) const unsigned char kConstant[4] = {100, 0, 0, 0};
const std::size_t kMemory[] = {0, 64};
const unsigned char* const kConstants[] = {kConstant};
const std::uint32_t kResults[] = {3, 1};
const tfaot::KernelArgPlace kKernelArgs[] = {
    {4, 4, 0},  {0, 4, 4}, {8, 4, 2},  // temp[2] = a[1] + 100
    {8, 4, 2},  {0, 4, 0}, {0, 4, 3},  // result[0] = temp[2] + a[0]
    {0, 96, 1},
};
const tfaot::KernelCallPlace kCalls[] = {
    {{1, 1, 1}, 3}, {{1, 1, 1}, 3}, {{2, 3, 4}, 1}};
const std::uint32_t kUses[] = {0, 4, 6};
const std::uint32_t kFirstUse[] = {0, 2, 3};
const std::int64_t kRngDeltas[] = {-3};

const tfaot::Program kProgram = {
    &Run<false>, &Run<true>, 2,           2,      1,     2,         7,
    3,           1,          0,           0,      192,   0,         kMemory,
    kConstants,  kResults,   kKernelArgs, kCalls, kUses, kFirstUse, kRngDeltas,
};

constexpr std::size_t kMemoryBytes = 1024;

void TestRun() {
  alignas(64) std::int32_t a[] = {1, 2};
  alignas(64) std::int32_t other[] = {10, 20};
  alignas(64) std::int32_t counts[24] = {};
  alignas(64) unsigned char memory[2][kMemoryBytes];
  Expect(tfaot::Executor::MemoryBytes(kProgram) <= kMemoryBytes, "room");
  tfaot::Executor executor(kProgram, memory[0]);
  tfaot::Executor second(kProgram, memory[1]);
  executor.set_arg_data(0, a);
  executor.set_arg_data(1, counts);
  const auto* const result =
      static_cast<const std::int32_t*>(executor.result_data(0));
  Expect(reinterpret_cast<std::uintptr_t>(result) % 64 == 0, "alignment");
  Expect(executor.Run() && *result == 103, "values reach kernels");
  Expect(executor.result_data(1) == counts, "a result in an argument");
  bool each = true;
  for (int count : counts) each = each && count == 1;
  Expect(each, "each workgroup runs once");
  a[0] = 2;
  Expect(executor.Run() && *result == 104, "arguments are read by each run");
  executor.set_arg_data(0, other);
  Expect(executor.Run() && *result == 130, "an argument may move");
  executor.set_arg_data(0, other);
  Expect(executor.Run() && *result == 130, "or stay");
  counts[23] = 100;
  Expect(!executor.Run(), "a kernel's error ends the run");
  Expect(second.result_data(0) != executor.result_data(0),
         "instances have memory of their own");
}

void TestRngState() {
  // Like XLA's 128-bit integer: carries, and borrows for a negative delta.
  struct {
    tfaot::RngState state;
    std::uint64_t low, high;
  } const cases[] = {
      {{5, 0, 3}, 8, 0},
      {{~std::uint64_t{0}, 7, 2}, 1, 8},
      {{1, 1, -2}, ~std::uint64_t{0}, 0},
      {{5, 4, -5}, 0, 4},
      {{0, 0, -1}, ~std::uint64_t{0}, ~std::uint64_t{0}},
  };
  for (const auto& one : cases) {
    tfaot::RngState state = one.state;
    std::uint64_t out[2];
    tfaot::NextRngState(state, reinterpret_cast<unsigned char*>(out));
    Expect(out[0] == one.state.low && out[1] == one.state.high,
           "a state is given as it was");
    Expect(state.low == one.low && state.high == one.high,
           "a state moves on by its delta");
  }
  alignas(64) std::int32_t a[] = {1, 2};
  alignas(64) std::int32_t counts[24] = {};
  alignas(64) unsigned char memory[kMemoryBytes];
  tfaot::Executor executor(kProgram, memory);
  executor.set_arg_data(0, a);
  executor.set_arg_data(1, counts);
  std::uint64_t state[2];
  constexpr std::uint64_t kWant[] = {0x7012395, 0x7012392};
  for (const std::uint64_t want : kWant) {
    Expect(executor.Run(), "runs");
    std::memcpy(state, static_cast<const char*>(executor.result_data(0)) + 16,
                16);
    Expect(state[0] == want && state[1] == 0, "the first states are XLA's");
  }
}

// Writes down what it is told, and ends the run before a kernel.
class Log final : public tfaot::Hooks {
 public:
  explicit Log(const char* last) : last_(last) {}
  bool Before(const char* kernel) noexcept override {
    text += std::string("+") + kernel;
    return kernel != std::string(last_);
  }
  void After(const char* kernel) noexcept override {
    text += std::string("-") + kernel;
  }
  std::string text;

 private:
  const char* last_;
};

void TestHooks() {
  alignas(64) std::int32_t a[] = {1, 2};
  alignas(64) std::int32_t counts[24] = {};
  alignas(64) unsigned char memory[kMemoryBytes];
  tfaot::Executor executor(kProgram, memory);
  executor.set_arg_data(0, a);
  executor.set_arg_data(1, counts);
  Log all("");
  executor.set_hooks(&all);
  Expect(executor.Run() && !executor.cancelled(), "hooks let a run finish");
  Expect(all.text == "+first-first+second-second+rng-rng+count-count",
         "hooks see each kernel");
  Log some("rng");
  executor.set_hooks(&some);
  Expect(!executor.Run() && executor.cancelled(), "hooks end a run");
  Expect(some.text == "+first-first+second-second+rng", "there and then");
  Expect(counts[0] == 1, "nothing runs after that");
  counts[23] = 100;
  executor.set_hooks(&all);
  Expect(!executor.Run() && !executor.cancelled(), "an error is no cancel");
  counts[23] = 1;
  tfaot::Cancellation cancellation;
  executor.set_hooks(&cancellation);
  Expect(executor.Run(), "nobody has cancelled");
  cancellation.Cancel();
  Expect(!executor.Run() && executor.cancelled(), "somebody has");
  cancellation.Reset();
  Expect(executor.Run() && !executor.cancelled(), "and taken it back");
  executor.set_hooks(nullptr);
  Expect(executor.Run(), "without hooks");
}

void TestPlaceResult() {
  alignas(64) std::int32_t a[] = {1, 2};
  alignas(64) std::int32_t counts[24] = {};
  alignas(64) unsigned char memory[kMemoryBytes];
  alignas(64) std::int32_t place[16] = {};
  tfaot::Executor executor(kProgram, memory);
  executor.set_arg_data(0, a);
  executor.set_arg_data(1, counts);
  const auto* const own =
      static_cast<const std::int32_t*>(executor.result_data(0));
  Expect(executor.Run() && *own == 103, "its own memory at first");
  Expect(executor.PlaceResult(0, place), "a result may be elsewhere");
  a[0] = 2;
  Expect(executor.Run() && place[0] == 104 && *own == 103, "it is there");
  Expect(executor.result_data(0) == place, "and that is its address");
  Expect(executor.PlaceResult(0, nullptr), "it may come back");
  a[0] = 3;
  Expect(executor.Run() && place[0] == 104 && *own == 105, "to its own memory");
  Expect(!executor.PlaceResult(1, place), "an argument's result stays");
  const std::uint32_t twice[] = {3, 3};
  tfaot::Program shared = kProgram;
  shared.results = twice;
  tfaot::Executor other(shared, memory);
  Expect(!other.PlaceResult(0, place), "and so do two results in one place");
}

// Three values, of which the last one ends a call.
bool RunCollectives(const tfaot::Instance& instance) {
  unsigned char* const data = instance.buffers[0];
  const tfaot_collective calls[] = {
      {0, TFAOT_ALL_REDUCE, TFAOT_ADD, TFAOT_FLOAT32, data, 3, nullptr},
      {1, TFAOT_ALL_REDUCE, TFAOT_ADD, TFAOT_FLOAT32, data + 64, 1, nullptr},
      {2, TFAOT_ALL_REDUCE, TFAOT_ADD, TFAOT_FLOAT32, data + 128, 16, nullptr}};
  for (const auto& call : calls) {
    if (!tfaot::StartCollective(instance, call, call.id < 2)) return false;
  }
  for (const auto& call : calls) {
    if (!tfaot::WaitCollective(instance, call)) return false;
  }
  return true;
}

// Values that are side by side are reduced in calls of a size.
void TestBuckets() {
  static constexpr std::size_t kOffset = 0;
  tfaot::Program program = kProgram;
  program.run = &RunCollectives;
  program.num_args = program.num_constants = program.num_results = 0;
  program.num_kernel_args = program.num_calls = program.num_rng = 0;
  program.num_memory = 1;
  program.memory = &kOffset;
  program.num_collectives = 3;
  program.replicas = 2;
  std::string text;
  const auto start = [](void* context, const tfaot_collective* call) {
    *static_cast<std::string*>(context) +=
        "+" + std::to_string(call->id) + ":" + std::to_string(call->count);
    return std::int32_t{0};
  };
  const auto wait = [](void* context, const tfaot_collective* call) {
    *static_cast<std::string*>(context) += "-" + std::to_string(call->id);
    return std::int32_t{0};
  };
  const struct {
    std::uint64_t bytes;
    const char* calls;
  } kCases[] = {
      {1, "+0:3+1:1+2:16-0-1-2"}, {64, "+0:17+2:16-0-2"}, {0, "+0:48-0"}};
  for (const auto& one : kCases) {
    alignas(64) unsigned char memory[kMemoryBytes];
    tfaot::Executor executor(program, memory);
    const tfaot_collectives all = {1,    0,       2,       &text,    start,
                                   wait, nullptr, nullptr, one.bytes};
    executor.set_collectives(&all);
    for (int run = 0; run < 2; ++run) {
      text.clear();
      Expect(executor.Run(), "a run with collectives");
      Expect(text == one.calls, one.calls);
    }
  }
}

}  // namespace

int main() {
  TestRun();
  TestBuckets();
  TestHooks();
  TestPlaceResult();
  TestRngState();
  return failed == 0 ? 0 : 1;
}
