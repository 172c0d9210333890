// The values of one instance's variables. Generated code uses it.
//
// An instance has its own values of the variables that the model writes. It
// shares the others with all instances that use the same Weights.
#ifndef TFAOT_VARIABLES_H_
#define TFAOT_VARIABLES_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tfaot/files.h"
#include "tfaot/status.h"
#include "tfaot/weight_set.h"
#include "tfaot/weights.h"

namespace tfaot {

// All values are at multiples of 64 bytes, which XLA's kernels need. A pointer
// to values that the model writes stays valid. Others are valid until the
// instance takes other weights: by Load(), SetWeights(), or Refresh().
//
// Thread-compatible: const members can run at the same time in several threads.
// Anything else needs exclusive access to the instance.
class Variables {
 public:
  // The size in bytes of an instance's own memory for the variables in this
  // table.
  static std::size_t MemoryBytes(const VariableInfo* infos,
                                 std::size_t count) noexcept;

  // Starts with the values of `weights`, in memory at a multiple of 64 bytes.
  // If that contains zeros, `zeroed` avoids writing them again. Doesn't own the
  // memory.
  Variables(Weights weights, unsigned char* memory, bool zeroed) noexcept;

  // Move-only, so that values have one owner. A moved-from instance can only be
  // destroyed or assigned to.
  Variables(Variables&&) noexcept = default;
  Variables& operator=(Variables&&) noexcept = default;

  const void* data(std::size_t index) const noexcept { return values_[index]; }

  // For a variable that the model only reads, the first call makes a copy for
  // this instance, which replaces the shared values until the instance takes
  // other weights. Its memory then waits for the next call. Throws
  // std::bad_alloc.
  void* mutable_data(std::size_t index);

  // The same for a variable that the model writes: the instance's own.
  void* own_data(std::size_t index) const noexcept {
    return const_cast<unsigned char*>(values_[index]);
  }

  // Whether there are values: the embedded ones, or those of a loaded file.
  bool loaded() const noexcept { return weights_.set()->loaded; }

  // The shared values. Without those of mutable_data().
  const Weights& weights() const noexcept { return weights_; }

  // Takes all values from a file. On failure, nothing changes. Written values
  // that are optional and missing stay.
  Status Load(const Source& source);

  // Uses other weights for what the model only reads. What it writes stays.
  // Fails if they are of another model.
  Status SetWeights(const Weights& weights);

  // From now on, Refresh() takes the weights that are current. Not owned; null
  // for none. Load() and SetWeights() end it.
  Status Follow(const LiveWeights* live);

  // Takes the current weights, if they have changed since the last time. Takes
  // no lock, and neither allocates nor releases memory.
  void Refresh() noexcept {
    if (live_ != nullptr && live_->version() != weights_.set()->version) {
      Take(live_->Current());
    }
  }

  // Writes all values to a safetensors file, in the layout that
  // py/tfaot/core/safetensors.py uses for variables. Fails if loaded() is
  // false, because there are no values.
  //
  // An existing file or link is replaced atomically after everything is
  // written, even if it is the loaded file. The new file keeps the old one's
  // permissions, metadata, and tensors that the model lacks. So it fails if the
  // old file is neither empty nor a safetensors file, or if its tensors don't
  // fit the model. On failure, `path` is unchanged. Of two concurrent saves to
  // one path, one is lost.
  Status Save(const char* path) const;

 private:
  // Memory for an instance's own values of a variable that the model only
  // reads.
  struct Copy {
    std::size_t index;
    files::Block values;
  };

  const VariableInfo* infos() const noexcept { return weights_.set()->infos; }
  std::size_t count() const noexcept { return weights_.set()->count; }
  void Take(Weights weights) noexcept;

  Weights weights_;  // refers to some
  const LiveWeights* live_ = nullptr;
  const unsigned char** values_;  // in the instance's memory
  std::vector<Copy> copies_;
};

}  // namespace tfaot

#endif  // TFAOT_VARIABLES_H_
