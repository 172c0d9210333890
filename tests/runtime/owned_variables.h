// Shared by tests of variables: an instance's variables with memory for them,
// and the error of the latest call.
#ifndef TFAOT_TESTS_RUNTIME_OWNED_VARIABLES_H_
#define TFAOT_TESTS_RUNTIME_OWNED_VARIABLES_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "tfaot/instance.h"
#include "tfaot/variables.h"

namespace tests {

class Variables : public tfaot::Variables {
 public:
  Variables(const tfaot::VariableInfo* infos, std::size_t count,
            const unsigned char* embedded)
      : Variables(tfaot::InitialWeights(infos, count, embedded)) {}
  explicit Variables(const tfaot::Weights& weights)
      : Variables(weights, Memory(tfaot::AllocateInstance(
                               tfaot::Variables::MemoryBytes(
                                   weights.set()->infos, weights.set()->count) +
                                   1,
                               nullptr))) {}

  bool Load(const tfaot::Source& source) {
    return Keep(tfaot::Variables::Load(source));
  }
  bool Load(const char* path) { return Load(tfaot::Source::Path(path)); }
  bool Save(const char* path) const {
    return Keep(tfaot::Variables::Save(path));
  }
  const char* error() const { return status_.message(); }
  tfaot::Code code() const { return status_.code(); }

 private:
  struct Memory {
    explicit Memory(const tfaot::InstanceMemory& block)
        : data(block.data, Free{block}) {}
    struct Free {
      tfaot::InstanceMemory block;
      void operator()(unsigned char*) const { tfaot::FreeInstance(block); }
    };
    std::unique_ptr<unsigned char, Free> data;
  };

  Variables(const tfaot::Weights& weights, Memory memory)
      : tfaot::Variables(weights, memory.data.get(),
                         memory.data.get_deleter().block.zeroed),
        memory_(std::move(memory)) {}

  bool Keep(tfaot::Status status) const {
    status_ = std::move(status);
    return status_.ok();
  }

  Memory memory_;
  mutable tfaot::Status status_;
};

}  // namespace tests

#endif  // TFAOT_TESTS_RUNTIME_OWNED_VARIABLES_H_
