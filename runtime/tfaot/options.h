// What an instance of a compiled model is made with.
#ifndef TFAOT_OPTIONS_H_
#define TFAOT_OPTIONS_H_

#include <cstddef>

namespace tfaot {

class Weights;  // tfaot/weights.h

// Provides an instance's memory. It must outlive its instances. Its members
// must be thread-safe if several threads create or destroy instances.
class Allocator {
 public:
  virtual ~Allocator() = default;

  // Returns memory at a multiple of `alignment`, which is a power of two, or
  // nullptr if there is none. The memory needn't be initialized. An address
  // that isn't aligned is freed, and counts as none.
  virtual void* Allocate(std::size_t bytes, std::size_t alignment) noexcept = 0;

  // Takes back what Allocate() returned for as many bytes.
  virtual void Free(void* memory, std::size_t bytes) noexcept = 0;
};

// Nothing here is owned. Only the allocator is used after construction.
struct Options {
  // The CPU level to run; nullptr for the environment variable TFAOT_ISA, or
  // else the highest that this machine can run.
  const char* isa = nullptr;

  // The values to start with; nullptr for the model's own. The instance shares
  // those of variables that the model only reads, and copies the others.
  const Weights* weights = nullptr;

  // Where the instance's one block of memory comes from; nullptr for the
  // program's own memory.
  Allocator* allocator = nullptr;
};

}  // namespace tfaot

#endif  // TFAOT_OPTIONS_H_
