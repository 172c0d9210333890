// What a stub has in the place of a compiled function. Generated code uses it.
#ifndef TFAOT_STUB_H_
#define TFAOT_STUB_H_

#include <cstddef>

#include "tfaot/collectives.h"
#include "tfaot/hooks.h"
#include "tfaot/instance.h"
#include "tfaot/thread_pool.h"

namespace tfaot {

// A function that can't run. It has memory for the results, which a class's
// accessors refer to. `Function` derives from it, and has kResultBytes.
template <typename Function>
class StubFunction {
 public:
  // No CPU level.
  static constexpr const char* kIsas[] = {nullptr};

  static std::size_t MemoryBytes(std::size_t /*isa*/) noexcept {
    return Offset(Function::kNumResults);
  }

  // The memory isn't owned.
  StubFunction(std::size_t /*isa*/, void* memory) noexcept
      : memory_(static_cast<unsigned char*>(memory)) {}

  void set_arg_data(std::size_t /*index*/, const void* /*data*/) noexcept {}
  void* result_data(std::size_t index) const noexcept {
    return memory_ + Offset(index);
  }
  void set_thread_pool(ThreadPool* /*threads*/) noexcept {}
  void set_hooks(Hooks* /*hooks*/) noexcept {}
  bool PlaceResult(std::size_t /*index*/, void* /*data*/) noexcept {
    return false;
  }
  void set_collectives(const tfaot_collectives* /*collectives*/) noexcept {}
  unsigned replicas() const noexcept { return 0; }
  bool disconnected() const noexcept { return false; }
  bool cancelled() const noexcept { return false; }
  bool Run() noexcept { return false; }

 private:
  static std::size_t Offset(std::size_t index) noexcept {
    std::size_t offset = 0;
    for (std::size_t i = 0; i < index; ++i) {
      offset += Aligned(Function::kResultBytes[i]);
    }
    return offset;
  }

  unsigned char* memory_;
};

}  // namespace tfaot

#endif  // TFAOT_STUB_H_
