// Protects real-time use: Run() doesn't allocate, in models with products,
// convolutions, loops, and batches that are split. And an instance is one block
// of memory, from the allocator that the caller passes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "examples/audio/calls.h"
#include "examples/batch_family/batch_family_aot.h"
#include "examples/fc/fc_aot.h"
#include "examples/study/conv_fc_aot.h"
#include "examples/study/dynamic_rnn_aot.h"

namespace {

int failed = 0;

template <typename Run>
void Check(const char* name, Run run) {
  for (int step = 0; step < 3; ++step) {
    const long before = calls::allocations;
    const bool ok = run();
    const long made = calls::allocations - before;
    if (ok && made == 0) continue;
    std::printf("FAILED: %s, step %d: %s, %ld allocations\n", name, step,
                ok ? "ran" : "did not run", made);
    ++failed;
  }
}

// Counts what it hands out, which is all ones, and can refuse.
class Counter final : public tfaot::Allocator {
 public:
  void* Allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    if (refuses) return nullptr;
    ++blocks;
    held += bytes;
    void* const memory = std::aligned_alloc(alignment, bytes);
    std::memset(memory, 0xff, bytes);
    return memory;
  }
  void Free(void* memory, std::size_t bytes) noexcept override {
    held -= bytes;
    std::free(memory);
  }

  bool refuses = false;
  int blocks = 0;
  std::size_t held = 0;
};

template <typename Model>
void CheckOneBlock(const char* name) {
  Counter counter;
  tfaot::Options options;
  options.allocator = &counter;
  const long before = calls::allocations;
  {
    Model first(options), second(options);
    // The allocator's own calls are all.
    const long made = calls::allocations - before;
    const bool counted = !calls::kCounts || made == 2;
    Model same;
    const bool equal = second.Run() && same.Run() &&
                       std::memcmp(second.loss().data(), same.loss().data(),
                                   sizeof(float)) == 0;
    if (counter.blocks != 2 || counter.held == 0 || !counted || !equal) {
      std::printf("FAILED: %s: %d blocks, %ld allocations, %s results\n", name,
                  counter.blocks, made, equal ? "the same" : "other");
      ++failed;
    }
  }
  counter.refuses = true;
  tfaot::Status status;
  const Model none = Model::Create(options, &status);
  if (none || status.code() != tfaot::Code::kOutOfMemory ||
      std::strcmp(status.message(), "out of memory") != 0 ||
      counter.held != 0) {
    std::printf("FAILED: %s: %s, %zu bytes left\n", name, status.message(),
                counter.held);
    ++failed;
  }
  bool thrown = false;
  try {
    const Model model(options);
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  if (!thrown) {
    std::printf("FAILED: %s: no exception\n", name);
    ++failed;
  }
}

}  // namespace

int main() {
  const long before = calls::allocations;
  std::free(std::malloc(1));
  examples::fc::Fc fc;
  if (calls::kCounts && calls::allocations == before) {
    std::printf("FAILED: allocations are not counted\n");
    ++failed;
  }
  examples::conv_fc::ConvFc conv_fc;
  examples::dynamic_rnn::DynamicRnn dynamic_rnn;
  examples::Classifier family;
  Check("fc", [&] { return fc.Run(); });
  Check("conv_fc", [&] { return conv_fc.Run(); });
  Check("dynamic_rnn", [&] { return dynamic_rnn.Run(); });
  Check("batch_family, one row", [&] { return family.Run(1); });
  Check("batch_family, 77 rows", [&] { return family.Run(77); });
  CheckOneBlock<examples::fc::Fc>("fc");
  CheckOneBlock<examples::conv_fc::ConvFc>("conv_fc");
  return failed == 0 ? 0 : 1;
}
