// Measures a step in several processes: how many calls reduce its gradients,
// and how long it takes, with and without overlap of communication and
// computation.
//
//   mpirun -n 2 measure [STEPS]
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <thread>
#include <vector>

#include MODEL_HEADER
#include "examples/distributed/rows.h"
#include "tfaot/mpi_replicas.h"

namespace {

using Model = MODEL_CLASS;

using Clock = std::chrono::steady_clock;

// Counts calls. Without overlap, waits for each one as it starts. With a wire,
// a call ends no sooner than a network of 10 Gbit/s and 20 µs would end it that
// needs no core.
class Counted {
 public:
  Counted(const tfaot_collectives* inner, bool overlap, bool wire)
      : inner_(inner), overlap_(overlap), wire_(wire), own_(*inner) {
    own_.context = this;
    own_.start = [](void* context, const tfaot_collective* call) {
      auto& self = *static_cast<Counted*>(context);
      ++self.calls;
      const std::int32_t status =
          self.inner_->start(self.inner_->context, call);
      const double bits = 32.0 * static_cast<double>(call->count);
      const std::chrono::nanoseconds took(20000 + static_cast<long>(bits / 10));
      self.free_ = std::max(self.free_, Clock::now()) + took;
      self.ends_.push_back(self.free_);
      return self.overlap_ || status != 0 ? status : self.Wait(call);
    };
    own_.wait = [](void* context, const tfaot_collective* call) {
      auto& self = *static_cast<Counted*>(context);
      return self.overlap_ ? self.Wait(call) : 0;
    };
    own_.abort = [](void* context) {
      auto& self = *static_cast<Counted*>(context);
      self.inner_->abort(self.inner_->context);
    };
    own_.error = [](void* context) {
      auto& self = *static_cast<Counted*>(context);
      return self.inner_->error(self.inner_->context);
    };
  }

  const tfaot_collectives* collectives() const { return &own_; }

  int calls = 0;

 private:
  std::int32_t Wait(const tfaot_collective* call) {
    const Clock::time_point end = ends_.front();
    ends_.pop_front();
    while (wire_ && Clock::now() < end) std::this_thread::yield();
    return inner_->wait(inner_->context, call);
  }

  const tfaot_collectives* inner_;
  const bool overlap_;
  const bool wire_;
  tfaot_collectives own_;
  Clock::time_point free_;  // when the wire is
  std::deque<Clock::time_point> ends_;
};

// Returns the milliseconds of the fastest tenth of all steps, because others
// may use the machine, too, and says how many calls a step has.
double Measure(int steps, std::uint64_t bucket_bytes, bool overlap, bool wire,
               int& calls) {
  tfaot::MpiReplicas replicas(MPI_COMM_WORLD, std::chrono::minutes(1),
                              bucket_bytes);
  Counted counted(replicas.collectives(), overlap, wire);
  Model model;
  const Rows rows;
  rows.Fill(0, replicas.rank(), model.images().data(), model.labels());
  if (!model.set_collectives(counted.collectives())) return -1;
  std::vector<double> times;
  for (int step = 0; step < steps; ++step) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto begin = Clock::now();
    if (!model.train()) return -1;
    times.push_back(
        std::chrono::duration<double, std::milli>(Clock::now() - begin)
            .count());
  }
  std::sort(times.begin(), times.end());
  calls = counted.calls / steps;
  return times[times.size() / 10];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int steps = argc > 1 ? std::atoi(argv[1]) : 300;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (const int bytes : {1, 1 << 16, 1 << 18, 1 << 20, 1 << 22}) {
    double times[4];
    int calls = 0;
    for (int i = 0; i < 4; ++i) {
      times[i] = Measure(steps, static_cast<std::uint64_t>(bytes), i % 2 == 1,
                         i > 1, calls);
      if (times[i] < 0) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank != 0) continue;
    std::printf("| %d | %d |", bytes, calls);
    for (const double time : times) std::printf(" %.2f |", time);
    std::printf("\n");
  }
  MPI_Finalize();
}
