// The values of a model's variables, shared by any number of instances, and
// exchanged while they run.
//
//   tfaot::Weights weights;
//   tfaot::Status loaded = models::Scorer::LoadWeights(
//       tfaot::Source::Path("weights.safetensors"), &weights);
//   tfaot::LiveWeights live(weights);
//   ...
//   model.Follow(&live);  // in each thread, on its own instance
//   ...
//   loaded = live.Load(tfaot::Source::Path("new.safetensors"));  // in any
//   thread
#ifndef TFAOT_WEIGHTS_H_
#define TFAOT_WEIGHTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tfaot/status.h"

namespace tfaot {

struct WeightSet;  // private

// Where a safetensors file is. It owns nothing: what it refers to must stay
// until the call that takes it returns, and memory that isn't copied as long as
// the weights are used.
//
// The values of a path or a descriptor are mapped, not read. You can delete the
// file, or replace it by rename, but not change it in place: changed bytes show
// in the values, and if the file is truncated, or a network disk is gone, the
// next use of a missing page ends the process with SIGBUS. Copied() avoids
// that: all values are read before the call returns.
struct Source {
  enum class Kind { kPath, kDescriptor, kMemory };

  static Source Path(const char* path) noexcept {
    return {Kind::kPath, path, -1, nullptr, 0, false};
  }
  // A descriptor of a regular file, which is read from its start. It isn't
  // closed, and its position doesn't change.
  static Source Descriptor(int fd) noexcept {
    return {Kind::kDescriptor, nullptr, fd, nullptr, 0, false};
  }
  // A whole file in memory. Values at multiples of 64 bytes are used in place.
  static Source Memory(const void* data, std::size_t bytes) noexcept {
    return {Kind::kMemory, nullptr, -1, data, bytes, false};
  }
  // The same, with values that don't depend on the source after the call.
  Source Copied() const noexcept {
    Source source = *this;
    source.copied = true;
    return source;
  }

  Kind kind;
  const char* path;
  int fd;
  const void* data;
  std::size_t bytes;
  bool copied;
};

// A value for a variable: TensorFlow's name, and all its values, row-major.
struct NamedValue {
  const char* name;
  const void* data;
  std::size_t bytes;
};

// One version of a model's values: immutable, and shared by reference count.
// Copying a handle copies no values. The memory is released with the last
// handle and the last instance that uses it.
//
// Thread-safe like std::shared_ptr: several threads may use handles to the same
// values, but not assign to a handle that another thread uses.
class Weights {
 public:
  Weights() noexcept = default;  // refers to none

  explicit operator bool() const noexcept { return set_ != nullptr; }

  // A number that no other weights in this process have; 0 for none.
  std::uint64_t version() const noexcept;

  // Makes weights that have new values for some variables and share all others.
  // On failure, `*updated` doesn't change.
  Status Update(const NamedValue* values, std::size_t count,
                Weights* updated) const;

  // For generated code and the runtime.
  explicit Weights(std::shared_ptr<const WeightSet> set) noexcept
      : set_(std::move(set)) {}
  const std::shared_ptr<const WeightSet>& set() const noexcept { return set_; }

 private:
  std::shared_ptr<const WeightSet> set_;
};

// The version that is current. Instances that follow it take the current values
// at the start of a run, so each run uses one version as a whole. Neither waits
// for the other: a run takes no lock, and publishing waits for no run.
//
// A run never releases memory. This object also owns each version that was
// current, and threads that publish release those that nobody else uses
// anymore. So the version before the current one stays until the next
// publication, or until Reclaim().
//
// It must outlive the instances that follow it. All members are thread-safe.
class LiveWeights {
 public:
  explicit LiveWeights(Weights weights) noexcept;
  LiveWeights(const LiveWeights&) = delete;
  LiveWeights& operator=(const LiveWeights&) = delete;

  // Takes no lock.
  Weights Current() const noexcept;

  // The number of the current version.
  std::uint64_t version() const noexcept {
    return version_.load(std::memory_order_acquire);
  }

  // Makes other weights of the same model current. Sets `*previous`, if it
  // isn't nullptr, to those that were.
  Status Swap(Weights next, Weights* previous = nullptr);

  // Maps or copies a file, checks it, and makes it current. On failure, nothing
  // changes.
  Status Load(const Source& source);

  // Gives some variables new values. Of two updates at the same time, none is
  // lost. On failure, nothing changes.
  Status Update(const NamedValue* values, std::size_t count);
  Status Update(std::initializer_list<NamedValue> values) {
    return Update(values.begin(), values.size());
  }

  // Releases old versions that nobody else uses anymore, on the calling thread.
  // Swap(), Load(), and Update() do so, too.
  void Reclaim() noexcept;

 private:
  Status Publish(Weights next, Weights* previous);
  void ReleaseUnused() noexcept;

  std::mutex publishing_;         // guards the next two
  Weights newest_;                // owns what is current
  std::vector<Weights> retired_;  // those before, each once
  std::atomic<const WeightSet*> current_;
  mutable std::atomic<int> takers_{0};  // may have current_, but don't own it
  std::atomic<std::uint64_t> version_;
};

}  // namespace tfaot

#endif  // TFAOT_WEIGHTS_H_
