// Replicas of a model that are threads of one process.
//
//   tfaot::ThreadReplicas replicas(2);
//   // In each of two threads, with `rank` 0 and 1:
//   Model model;
//   if (!model.set_collectives(replicas.collectives(rank))) ...
//
// Results don't depend on which thread is faster: each value is reduced in the
// order of ranks, so a run is reproducible bit by bit.
#ifndef TFAOT_THREAD_REPLICAS_H_
#define TFAOT_THREAD_REPLICAS_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "tfaot/c_api.h"
#include "tfaot/collectives.h"

namespace tfaot {

// Must outlive the runs of its replicas. Neither copyable nor movable.
class ThreadReplicas {
 public:
  // A replica that waits longer than `timeout` for another one fails, and then
  // all do. `bucket_bytes` is that of tfaot/collectives.h.
  explicit ThreadReplicas(
      int size, std::chrono::milliseconds timeout = std::chrono::minutes(5),
      std::uint64_t bucket_bytes = 0)
      : timeout_(timeout), replicas_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      Replica& replica = replicas_[static_cast<std::size_t>(rank)];
      replica.all = this;
      replica.collectives = {TFAOT_COLLECTIVES_VERSION,
                             rank,
                             size,
                             &replica,
                             &Start,
                             &Wait,
                             &Abort,
                             &Error,
                             bucket_bytes};
    }
  }

  ThreadReplicas(const ThreadReplicas&) = delete;
  ThreadReplicas& operator=(const ThreadReplicas&) = delete;

  // For the instance of one thread. Each rank is that of one instance.
  const tfaot_collectives* collectives(int rank) const noexcept {
    return &replicas_[static_cast<std::size_t>(rank)].collectives;
  }

 private:
  struct Replica {
    ThreadReplicas* all = nullptr;
    tfaot_collectives collectives = {};
    std::size_t started = 0;   // collectives
    std::size_t finished = 0;  // of them, those that it has waited for
    std::string error;
  };

  // A collective that not all replicas have finished.
  struct Exchange {
    tfaot_collective call = {};  // of the first replica
    std::vector<void*> data;     // of each replica; null before it starts
    std::size_t started = 0;     // replicas
    std::size_t exchanged = 0;   // replicas that have done their part
    std::size_t finished = 0;    // replicas
  };

  static std::int32_t Start(void* context, const tfaot_collective* call) {
    auto& replica = *static_cast<Replica*>(context);
    ThreadReplicas& all = *replica.all;
    const std::lock_guard<std::mutex> lock(all.mutex_);
    if (!all.failure_.empty()) return Fail(replica);
    const std::size_t number = replica.started++;
    if (number - all.first_ == all.exchanges_.size()) {
      all.exchanges_.emplace_back();
      all.exchanges_.back().call = *call;
      all.exchanges_.back().data.resize(all.replicas_.size());
    }
    Exchange& exchange = all.exchanges_[number - all.first_];
    const tfaot_collective& first = exchange.call;
    const std::int32_t kind = Kind(*call);
    if (kind < TFAOT_ALL_REDUCE || kind > TFAOT_PERMUTE ||
        Bytes(call->dtype) == 0) {
      return all.End(replica,
                     "tfaot/thread_replicas.h is older than the model");
    }
    if (first.id != call->id || first.kind != call->kind ||
        first.op != call->op || first.dtype != call->dtype ||
        first.count != call->count) {
      return all.End(replica, "replicas run different models or functions");
    }
    exchange.data[static_cast<std::size_t>(replica.collectives.rank)] =
        call->data;
    if (++exchange.started == all.replicas_.size()) all.changed_.notify_all();
    return 0;
  }

  static std::int32_t Wait(void* context, const tfaot_collective* call) {
    auto& replica = *static_cast<Replica*>(context);
    ThreadReplicas& all = *replica.all;
    std::unique_lock<std::mutex> lock(all.mutex_);
    const std::size_t number = replica.finished++;
    // A deque's elements stay where they are.
    Exchange& exchange = all.exchanges_[number - all.first_];
    const std::size_t size = all.replicas_.size();
    if (!all.Await(lock, replica, exchange.started)) return Fail(replica);
    lock.unlock();
    auto rank = static_cast<std::size_t>(replica.collectives.rank);
    if (call->kind == Kind(*call)) {
      Exchanged(*call, exchange.data, rank);
    } else {
      const std::vector<void*> group = OfGroup(*call, exchange.data, rank);
      Exchanged(*call, group, rank);
    }
    lock.lock();
    if (++exchange.exchanged == size) all.changed_.notify_all();
    if (!all.Await(lock, replica, exchange.exchanged)) return Fail(replica);
    if (Kind(*call) == TFAOT_REDUCE_SCATTER) {  // nobody needs the blocks now
      const std::size_t bytes = BlockBytes(*call);
      std::memmove(call->data, Block(*call, call->data, rank), bytes);
    }
    if (++exchange.finished == size) {
      // Replicas finish in order, so it is the first one.
      all.exchanges_.pop_front();
      ++all.first_;
    }
    return 0;
  }

  static void Abort(void* context) {
    auto& replica = *static_cast<Replica*>(context);
    const std::lock_guard<std::mutex> lock(replica.all->mutex_);
    if (replica.all->failure_.empty()) {
      replica.all->End(replica, "its run has ended");
    }
  }

  static const char* Error(void* context) {
    return static_cast<Replica*>(context)->error.c_str();
  }

  // Waits until a number has reached that of the replicas.
  bool Await(std::unique_lock<std::mutex>& lock, Replica& replica,
             const std::size_t& number) {
    const bool in_time = changed_.wait_for(lock, timeout_, [&] {
      return number == replicas_.size() || !failure_.empty();
    });
    if (!in_time) {
      End(replica, "it has waited too long for another replica");
    }
    return number == replicas_.size() && in_time;
  }

  // Ends the runs of all replicas. Returns 1.
  std::int32_t End(Replica& replica, const char* why) {
    failure_ =
        "replica " + std::to_string(replica.collectives.rank) + ": " + why;
    changed_.notify_all();
    return Fail(replica);
  }

  static std::int32_t Fail(Replica& replica) {
    replica.error = replica.all->failure_;
    return 1;
  }

  static std::size_t Bytes(std::int32_t dtype) {
    switch (dtype) {
      case TFAOT_BOOL:
      case TFAOT_INT8:
      case TFAOT_UINT8:
        return 1;
      case TFAOT_BFLOAT16:
      case TFAOT_FLOAT16:
      case TFAOT_INT16:
      case TFAOT_UINT16:
        return 2;
      case TFAOT_FLOAT32:
      case TFAOT_INT32:
      case TFAOT_UINT32:
        return 4;
      case TFAOT_COMPLEX64:
      case TFAOT_FLOAT64:
      case TFAOT_INT64:
      case TFAOT_UINT64:
        return 8;
      case TFAOT_COMPLEX128:
        return 16;
      default:
        return 0;
    }
  }

  static std::int32_t Kind(const tfaot_collective& call) {
    return call.kind & ~std::int32_t{TFAOT_IN_GROUPS};
  }

  // Returns the data of a replica's group, and makes `rank` its place in it.
  static std::vector<void*> OfGroup(const tfaot_collective& call,
                                    const std::vector<void*>& data,
                                    std::size_t& rank) {
    const auto size = static_cast<std::size_t>(call.peers[0]);
    const std::int32_t* const ranks = call.peers + 1;
    const auto at = static_cast<std::size_t>(
        std::find(ranks, ranks + data.size(), static_cast<std::int32_t>(rank)) -
        ranks);
    rank = at % size;
    std::vector<void*> group;
    for (std::size_t i = at - rank; i < at - rank + size; ++i) {
      group.push_back(data[static_cast<std::size_t>(ranks[i])]);
    }
    return group;
  }

  static std::size_t BlockBytes(const tfaot_collective& call) {
    return static_cast<std::size_t>(call.count) * Bytes(call.dtype);
  }

  static char* Block(const tfaot_collective& call, void* data,
                     std::size_t block) {
    return static_cast<char*>(data) + block * BlockBytes(call);
  }

  // Does the part of a replica, when all have started. Nothing that it writes
  // is part of what another replica uses.
  static void Exchanged(const tfaot_collective& call,
                        const std::vector<void*>& data, std::size_t rank) {
    const std::size_t bytes = BlockBytes(call);
    const auto at = [&](std::size_t replica, std::size_t block) {
      return Block(call, data[replica], block);
    };
    switch (Kind(call)) {
      case TFAOT_ALL_GATHER:
        for (std::size_t other = 0; other < data.size(); ++other) {
          if (other == rank) continue;
          std::memcpy(at(rank, other), at(other, other), bytes);
        }
        return;
      case TFAOT_ALL_TO_ALL:
        for (std::size_t other = rank + 1; other < data.size(); ++other) {
          std::swap_ranges(at(rank, other), at(rank, other) + bytes,
                           at(other, rank));
        }
        return;
      case TFAOT_BROADCAST: {
        const auto root = static_cast<std::size_t>(
            call.kind == TFAOT_BROADCAST ? call.peers[0] : 0);
        if (rank != root) std::memcpy(at(rank, 0), at(root, 0), bytes);
        return;
      }
      case TFAOT_PERMUTE:
        if (call.peers[rank] >= 0) {
          const auto target = static_cast<std::size_t>(call.peers[rank]);
          std::memcpy(at(target, 1), at(rank, 0), bytes);
        }
        return;
      default:
        return Reduce(call, data, rank);
    }
  }

  // Reduces the part of a replica, for all of them, or its own block.
  static void Reduce(const tfaot_collective& call,
                     const std::vector<void*>& data, std::size_t rank) {
    switch (call.dtype) {
      case TFAOT_FLOAT32:
        return ReduceAs<float>(call, data, rank);
      case TFAOT_FLOAT64:
        return ReduceAs<double>(call, data, rank);
      case TFAOT_INT32:
        return ReduceAs<std::int32_t>(call, data, rank);
      default:
        return ReduceAs<std::int64_t>(call, data, rank);
    }
  }

  template <typename T>
  static void ReduceAs(const tfaot_collective& call,
                       const std::vector<void*>& data, std::size_t rank) {
    const auto count = static_cast<std::size_t>(call.count);
    const bool scatter = Kind(call) == TFAOT_REDUCE_SCATTER;
    const std::size_t begin =
        scatter ? count * rank : count * rank / data.size();
    const std::size_t end =
        scatter ? begin + count : count * (rank + 1) / data.size();
    for (std::size_t i = begin; i < end; ++i) {
      T value = static_cast<const T*>(data[0])[i];
      for (std::size_t other = 1; other < data.size(); ++other) {
        value = Reduced(call.op, value, static_cast<const T*>(data[other])[i]);
      }
      if (scatter) {
        static_cast<T*>(data[rank])[i] = value;
        continue;
      }
      for (void* each : data) static_cast<T*>(each)[i] = value;
    }
  }

  // NaN stays NaN.
  template <typename T>
  static T Reduced(std::int32_t op, T a, T b) {
    switch (op) {
      case TFAOT_MUL:
        return static_cast<T>(a * b);
      case TFAOT_MIN:
        return a < b || a != a ? a : b;
      case TFAOT_MAX:
        return a > b || a != a ? a : b;
      default:
        return static_cast<T>(a + b);
    }
  }

  const std::chrono::milliseconds timeout_;
  std::vector<Replica> replicas_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Exchange> exchanges_;
  std::size_t first_ = 0;  // the number of the first of them
  std::string failure_;    // not empty if no run can succeed any more
};

}  // namespace tfaot

#endif  // TFAOT_THREAD_REPLICAS_H_
