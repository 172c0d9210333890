// Replicas of a model that are processes of Gloo.
//
//   auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
//   context->connectFullMesh(store, device);
//   tfaot::GlooReplicas replicas(context);
//   Model model;
//   if (!model.set_collectives(replicas.collectives())) ...
//
// A thread of its own communicates, so that a run computes meanwhile. The
// program provides Gloo, which needs exceptions.
#ifndef TFAOT_GLOO_REPLICAS_H_
#define TFAOT_GLOO_REPLICAS_H_

#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/math.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "tfaot/c_api.h"
#include "tfaot/collectives.h"

namespace tfaot {

// Must outlive the runs of its instance. Neither copyable nor movable. Used by
// one thread at a time, and nothing else uses the context.
class GlooReplicas {
 public:
  // A run that waits longer than `timeout` for another process fails. A run
  // that fails closes the connections, so that those of the others fail, too.
  // `bucket_bytes` is that of tfaot/collectives.h.
  explicit GlooReplicas(
      std::shared_ptr<gloo::Context> context,
      std::chrono::milliseconds timeout = std::chrono::minutes(5),
      std::uint64_t bucket_bytes = 0)
      : context_(std::move(context)), timeout_(timeout) {
    collectives_ = {TFAOT_COLLECTIVES_VERSION,
                    context_->rank,
                    context_->size,
                    this,
                    &Start,
                    &Wait,
                    &Abort,
                    &Error,
                    bucket_bytes};
    thread_ = std::thread([this] { Communicate(); });
  }

  ~GlooReplicas() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  GlooReplicas(const GlooReplicas&) = delete;
  GlooReplicas& operator=(const GlooReplicas&) = delete;

  const tfaot_collectives* collectives() const noexcept {
    return &collectives_;
  }
  int rank() const noexcept { return collectives_.rank; }
  int size() const noexcept { return collectives_.size; }

  // Gives all processes the values of rank 0, such as a variable's after
  // Load(). No run is under way.
  bool Broadcast(void* data, std::size_t bytes) {
    return Succeeds([&] {
      gloo::BroadcastOptions options(context_);
      options.setOutput(static_cast<char*>(data), bytes);
      options.setRoot(0);
      options.setTag(tag_++);
      options.setTimeout(timeout_);
      gloo::broadcast(options);
    });
  }

 private:
  static std::int32_t Start(void* context, const tfaot_collective* call) {
    auto& self = *static_cast<GlooReplicas*>(context);
    {
      const std::lock_guard<std::mutex> lock(self.mutex_);
      if (!self.failure_.empty()) return 1;
      self.calls_.push_back(*call);
    }
    self.changed_.notify_all();
    return 0;
  }

  static std::int32_t Wait(void* context, const tfaot_collective*) {
    auto& self = *static_cast<GlooReplicas*>(context);
    std::unique_lock<std::mutex> lock(self.mutex_);
    const std::size_t number = ++self.waited_;
    self.changed_.wait(lock, [&] {
      return self.finished_ >= number || !self.failure_.empty();
    });
    return self.finished_ >= number ? 0 : 1;
  }

  static void Abort(void* context) {
    auto& self = *static_cast<GlooReplicas*>(context);
    {
      const std::lock_guard<std::mutex> lock(self.mutex_);
      if (self.failure_.empty()) self.failure_ = "its run has ended";
    }
    self.changed_.notify_all();
    self.Succeeds([&] { self.context_->closeConnections(); });
    // Until nothing uses the values any more.
    std::unique_lock<std::mutex> lock(self.mutex_);
    self.changed_.wait(lock, [&] { return !self.busy_; });
  }

  static const char* Error(void* context) {
    return static_cast<GlooReplicas*>(context)->failure_.c_str();
  }

  // What the thread does.
  void Communicate() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ended_ || !calls_.empty(); });
      if (ended_) return;
      const tfaot_collective call = calls_.front();
      calls_.pop_front();
      if (failure_.empty()) {
        busy_ = true;
        lock.unlock();
        const bool ok = Exchange(call);
        lock.lock();
        busy_ = false;
        if (ok) ++finished_;
      }
      changed_.notify_all();
    }
  }

  bool Exchange(const tfaot_collective& call) {
    if (call.kind != TFAOT_ALL_REDUCE) return Fail(kOther);
    switch (call.dtype) {
      case TFAOT_FLOAT32:
        return Reduce<float>(call);
      case TFAOT_FLOAT64:
        return Reduce<double>(call);
      case TFAOT_INT32:
        return Reduce<std::int32_t>(call);
      case TFAOT_INT64:
        return Reduce<std::int64_t>(call);
      default:
        return Fail(kOther);
    }
  }

  template <typename T>
  bool Reduce(const tfaot_collective& call) {
    return Succeeds([&] {
      gloo::AllreduceOptions options(context_);
      options.setOutput(static_cast<T*>(call.data),
                        static_cast<std::size_t>(call.count));
      void (*reduce)(void*, const void*, const void*, std::size_t) =
          &gloo::sum<T>;
      if (call.op == TFAOT_MUL) reduce = &gloo::product<T>;
      if (call.op == TFAOT_MIN) reduce = &gloo::min<T>;
      if (call.op == TFAOT_MAX) reduce = &gloo::max<T>;
      options.setReduceFunction(reduce);
      options.setTag(tag_++);
      options.setTimeout(timeout_);
      gloo::allreduce(options);
    });
  }

  template <typename Function>
  bool Succeeds(Function function) {
    try {
      function();
      return true;
    } catch (const std::exception& error) {
      return Fail(error.what());
    }
  }

  bool Fail(const char* why) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (failure_.empty()) failure_ = why;
    return false;
  }

  static constexpr const char* kOther =
      "tfaot/gloo_replicas.h only reduces over all replicas, and "
      "tfaot/mpi_replicas.h does more";

  const std::shared_ptr<gloo::Context> context_;
  const std::chrono::milliseconds timeout_;
  tfaot_collectives collectives_ = {};
  std::uint32_t tag_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<tfaot_collective> calls_;  // that the thread hasn't begun
  std::size_t finished_ = 0;
  std::size_t waited_ = 0;
  std::string failure_;  // not empty if no run can succeed any more
  bool busy_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace tfaot

#endif  // TFAOT_GLOO_REPLICAS_H_
