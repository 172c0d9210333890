// Replicas of a model that are processes of MPI.
//
//   MPI_Init(&argc, &argv);
//   {
//     tfaot::MpiReplicas replicas(MPI_COMM_WORLD);
//     Model model;
//     if (!model.set_collectives(replicas.collectives())) ...
//   }
//   MPI_Finalize();
//
// For any library of MPI 3 or later, whose <mpi.h> the program provides.
// Whether communication goes on during computations depends on the library:
// some need a setting for that (MPICH_ASYNC_PROGRESS).
#ifndef TFAOT_MPI_REPLICAS_H_
#define TFAOT_MPI_REPLICAS_H_

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "tfaot/c_api.h"
#include "tfaot/collectives.h"

namespace tfaot {

// Must outlive the runs of its instance, and end before MPI_Finalize(). Neither
// copyable nor movable. Used by one thread at a time.
class MpiReplicas {
 public:
  // All processes of `communicator` make one at the same time. A run that waits
  // longer than `timeout` for another process fails. A run that fails ends all
  // processes with MPI_Abort(), because others wait for it. `bucket_bytes` is
  // that of tfaot/collectives.h.
  explicit MpiReplicas(
      MPI_Comm communicator,
      std::chrono::milliseconds timeout = std::chrono::minutes(5),
      std::uint64_t bucket_bytes = 0)
      : timeout_(timeout) {
    MPI_Comm_dup(communicator, &communicator_);
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    int rank = 0, size = 0;
    MPI_Comm_rank(communicator_, &rank);
    MPI_Comm_size(communicator_, &size);
    collectives_ = {TFAOT_COLLECTIVES_VERSION,
                    rank,
                    size,
                    this,
                    &Start,
                    &Wait,
                    &Abort,
                    &Error,
                    bucket_bytes};
  }

  ~MpiReplicas() {
    for (Groups& groups : groups_) MPI_Comm_free(&groups.own);
    MPI_Comm_free(&communicator_);
  }

  MpiReplicas(const MpiReplicas&) = delete;
  MpiReplicas& operator=(const MpiReplicas&) = delete;

  const tfaot_collectives* collectives() const noexcept {
    return &collectives_;
  }
  int rank() const noexcept { return collectives_.rank; }
  int size() const noexcept { return collectives_.size; }

  // Gives all processes the values of rank 0, such as a variable's after
  // Load().
  bool Broadcast(void* data, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += kMost) {
      const std::size_t part = bytes - at < kMost ? bytes - at : kMost;
      if (!Succeeded(MPI_Bcast(static_cast<char*>(data) + at,
                               static_cast<int>(part), MPI_BYTE, 0,
                               communicator_))) {
        return false;
      }
    }
    return true;
  }

 private:
  // MPI counts with int.
  static constexpr std::size_t kMost = std::size_t{1} << 30;

  static std::int32_t Start(void* context, const tfaot_collective* call) {
    auto& self = *static_cast<MpiReplicas*>(context);
    const MPI_Datatype dtype = Dtype(call->dtype);
    const std::int32_t kind = Kind(*call);
    const bool in_parts = kind == TFAOT_ALL_REDUCE || kind == TFAOT_BROADCAST;
    if (kind < TFAOT_ALL_REDUCE || kind > TFAOT_PERMUTE ||
        dtype == MPI_DATATYPE_NULL) {
      self.error_ = "tfaot/mpi_replicas.h is older than the model";
      return 1;
    }
    if (!in_parts && call->count > kMost) {
      self.error_ = "a block of more than 2^30 values";
      return 1;
    }
    // Most libraries communicate only while they are called.
    if (!self.pending_.empty() && !self.pending_.front().requests.empty()) {
      int done = 0;
      MPI_Request& request = self.pending_.front().requests.front();
      if (!self.Succeeded(MPI_Test(&request, &done, MPI_STATUS_IGNORE))) {
        return 1;
      }
    }
    int bytes = 1;
    MPI_Type_size(dtype, &bytes);
    self.pending_.push_back({call->id, {}});
    MPI_Comm group = self.communicator_;
    if (call->kind != kind && !self.Split(*call, group)) return 1;
    for (std::size_t at = 0; at < call->count; at += kMost) {
      const std::size_t part =
          call->count - at < kMost ? call->count - at : kMost;
      char* const data =
          static_cast<char*>(call->data) + at * static_cast<std::size_t>(bytes);
      if (!self.StartPart(*call, data, static_cast<int>(part), dtype, group)) {
        return 1;
      }
    }
    return 0;
  }

  static std::int32_t Kind(const tfaot_collective& call) {
    return call.kind & ~std::int32_t{TFAOT_IN_GROUPS};
  }

  // Finds the communicator of the process's group. Only the first run makes
  // one, for which the processes wait for one another.
  bool Split(const tfaot_collective& call, MPI_Comm& group) {
    const std::vector<std::int32_t> peers(call.peers, call.peers + 1 + size());
    for (const Groups& groups : groups_) {
      if (groups.peers != peers) continue;
      group = groups.own;
      return true;
    }
    int at = 0;
    while (peers[static_cast<std::size_t>(at) + 1] != rank()) ++at;
    if (!Succeeded(MPI_Comm_split(communicator_, at / peers[0], at % peers[0],
                                  &group))) {
      return false;
    }
    MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN);
    groups_.push_back({peers, group});
    return true;
  }

  // Begins a collective of at most `kMost` values.
  bool StartPart(const tfaot_collective& call, char* data, int count,
                 MPI_Datatype dtype, MPI_Comm group) {
    const auto request = [&] {
      pending_.back().requests.push_back(MPI_REQUEST_NULL);
      return &pending_.back().requests.back();
    };
    switch (Kind(call)) {
      case TFAOT_ALL_GATHER:
        return Succeeded(MPI_Iallgather(MPI_IN_PLACE, 0, dtype, data, count,
                                        dtype, group, request()));
      case TFAOT_REDUCE_SCATTER:
        return Succeeded(MPI_Ireduce_scatter_block(MPI_IN_PLACE, data, count,
                                                   dtype, Operation(call.op),
                                                   group, request()));
      case TFAOT_ALL_TO_ALL:
        return Succeeded(MPI_Ialltoall(MPI_IN_PLACE, 0, dtype, data, count,
                                       dtype, group, request()));
      case TFAOT_BROADCAST:
        return Succeeded(
            MPI_Ibcast(data, count, dtype,
                       call.kind == TFAOT_BROADCAST ? call.peers[0] : 0, group,
                       request()));
      case TFAOT_PERMUTE: {
        int bytes = 1;
        MPI_Type_size(dtype, &bytes);
        char* const received = data + static_cast<std::size_t>(count) *
                                          static_cast<std::size_t>(bytes);
        for (int source = 0; source < size(); ++source) {
          if (call.peers[source] == rank() &&
              !Succeeded(MPI_Irecv(received, count, dtype, source, 0,
                                   communicator_, request()))) {
            return false;
          }
        }
        const int target = call.peers[rank()];
        return target < 0 || Succeeded(MPI_Isend(data, count, dtype, target, 0,
                                                 communicator_, request()));
      }
      default:
        return Succeeded(MPI_Iallreduce(MPI_IN_PLACE, data, count, dtype,
                                        Operation(call.op), group, request()));
    }
  }

  static std::int32_t Wait(void* context, const tfaot_collective* call) {
    auto& self = *static_cast<MpiReplicas*>(context);
    if (self.pending_.empty() || self.pending_.front().id != call->id) {
      self.error_ = "it waits for a collective that it hasn't started";
      return 1;
    }
    const auto begin = std::chrono::steady_clock::now();
    for (MPI_Request& request : self.pending_.front().requests) {
      for (;;) {
        int done = 0;
        if (!self.Succeeded(MPI_Test(&request, &done, MPI_STATUS_IGNORE))) {
          return 1;
        }
        if (done != 0) break;
        const auto waited = std::chrono::steady_clock::now() - begin;
        if (waited > self.timeout_) {
          self.error_ = "it has waited too long for another process";
          return 1;
        }
        // Others may need the core, and whoever is late may be very late.
        if (waited > std::chrono::milliseconds(1)) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
        } else {
          std::this_thread::yield();
        }
      }
    }
    self.pending_.pop_front();
    return 0;
  }

  static void Abort(void* context) {
    auto& self = *static_cast<MpiReplicas*>(context);
    std::fprintf(
        stderr, "replica %d: %s; all processes end\n", self.collectives_.rank,
        self.error_.empty() ? "its run has ended" : self.error_.c_str());
    MPI_Abort(self.communicator_, 1);
  }

  static const char* Error(void* context) {
    return static_cast<MpiReplicas*>(context)->error_.c_str();
  }

  bool Succeeded(int code) {
    if (code == MPI_SUCCESS) return true;
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    error_.assign(text, static_cast<std::size_t>(length));
    return false;
  }

  static MPI_Datatype Dtype(std::int32_t dtype) {
    switch (dtype) {
      case TFAOT_FLOAT32:
        return MPI_FLOAT;
      case TFAOT_FLOAT64:
        return MPI_DOUBLE;
      case TFAOT_INT32:
        return MPI_INT32_T;
      case TFAOT_INT64:
        return MPI_INT64_T;
      // Of the others, the bits, which nothing reduces.
      case TFAOT_BOOL:
      case TFAOT_INT8:
      case TFAOT_UINT8:
        return MPI_UINT8_T;
      case TFAOT_BFLOAT16:
      case TFAOT_FLOAT16:
      case TFAOT_INT16:
      case TFAOT_UINT16:
        return MPI_UINT16_T;
      case TFAOT_UINT32:
        return MPI_UINT32_T;
      case TFAOT_COMPLEX64:
      case TFAOT_UINT64:
        return MPI_UINT64_T;
      case TFAOT_COMPLEX128:
        return MPI_C_DOUBLE_COMPLEX;
      default:
        return MPI_DATATYPE_NULL;
    }
  }

  static MPI_Op Operation(std::int32_t op) {
    switch (op) {
      case TFAOT_MUL:
        return MPI_PROD;
      case TFAOT_MIN:
        return MPI_MIN;
      case TFAOT_MAX:
        return MPI_MAX;
      default:
        return MPI_SUM;
    }
  }

  struct Pending {
    std::int32_t id;
    std::deque<MPI_Request> requests;
  };

  struct Groups {
    std::vector<std::int32_t> peers;
    MPI_Comm own;
  };

  const std::chrono::milliseconds timeout_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  tfaot_collectives collectives_ = {};
  std::deque<Pending> pending_;
  std::vector<Groups> groups_;
  std::string error_;
};

}  // namespace tfaot

#endif  // TFAOT_MPI_REPLICAS_H_
