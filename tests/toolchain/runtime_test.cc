// Protects the small parts of the runtime: they compile alone, link to the
// abseil that the toolchain names, and nothing else.
#include <cstdint>
#include <cstdio>
#include <string>

#include "tensorflow/compiler/tf2xla/allocator.h"
#include "xla/backends/cpu/runtime/rng_state_lib.h"
#include "xla/backends/cpu/runtime/topk_lib.h"
#include "xla/executable_run_options.h"
#include "xla/tsl/concurrency/async_value_ref.h"

namespace {

int failures = 0;

void Expect(bool ok, const char* what) {
  if (!ok) {
    std::fprintf(stderr, "failed: %s\n", what);
    ++failures;
  }
}

}  // namespace

int main() {
  xla::cpu::RngState rng(1);
  uint64_t first[2];
  uint64_t second[2];
  rng.GetAndUpdateState(first);
  rng.GetAndUpdateState(second);
  Expect(second[0] == first[0] + 1,
         "each step moves the state of a random number generator by its delta");

  const float values[] = {1, 4, 2, 3};
  float top[2];
  int32_t indices[2];
  xla::cpu::internal::TopK<float>(1, 4, 2, values, top, indices);
  Expect(top[0] == 4 && top[1] == 3 && indices[0] == 1 && indices[1] == 3,
         "top_k finds the largest values");

  xla::ExecutableRunOptions options;
  Expect(options.set_intra_op_thread_pool(nullptr).intra_op_thread_pool() ==
             nullptr,
         "run options can be set");

  tsl::AsyncValueRef<int> value = tsl::MakeConstructedAsyncValueRef<int>(1);
  bool called = false;
  value.AndThen([&called] { called = true; });
  value.SetStateConcrete();
  Expect(called, "who waits for an asynchronous value is called");

  tensorflow::FreeContiguous(nullptr);
  return failures == 0 ? 0 : 1;
}
