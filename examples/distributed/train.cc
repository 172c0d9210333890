// Trains a model in several processes, and prints the loss of each step.
//
//   mpirun -n 4 train [STEPS [CHECKPOINT [LAST [HOW]]]]
//
// If the checkpoint exists, training continues from it. Every fifth step writes
// it. The process of rank 1 ends before the step LAST, or if HOW is "cancel",
// it cancels that step.
#include <mpi.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include MODEL_HEADER
#include "examples/distributed/rows.h"
#include "tfaot/hooks.h"
#include "tfaot/info.h"
#include "tfaot/mpi_replicas.h"

namespace {

using Model = MODEL_CLASS;

// Gives all replicas the variables of rank 0.
bool Broadcast(Model& model, tfaot::MpiReplicas& replicas) {
  for (const tfaot::TensorInfo& variable : Model::Info().variables) {
    if (!replicas.Broadcast(tfaot::Values(model, variable), variable.bytes))
      return false;
  }
  return true;
}

int Fail(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  return 1;
}

int Train(int steps, const char* checkpoint, int last, bool cancels) {
  // If a process dies, some versions of mpiexec don't end the others.
  tfaot::MpiReplicas replicas(MPI_COMM_WORLD, std::chrono::seconds(20));
  tfaot::Cancellation cancellation;
  Model model;
  model.set_hooks(&cancellation);
  if (!model.set_collectives(replicas.collectives()))
    return Fail(model.error());
  std::FILE* const file = replicas.rank() == 0 && checkpoint != nullptr
                              ? std::fopen(checkpoint, "rb")
                              : nullptr;
  if (file != nullptr) {
    std::fclose(file);
    if (!model.Load(checkpoint)) return Fail(model.error());
  }
  if (!Broadcast(model, replicas)) return Fail("the weights didn't arrive");
  Rows rows;
  // The optimizer counts steps, so the checkpoint knows where it was written.
  for (int step = static_cast<int>(*model.optimizer_iteration()); step < steps;
       ++step) {
    if (step == last && replicas.rank() == 1) {
      if (!cancels) std::_Exit(1);
      cancellation.Cancel();
    }
    rows.Fill(step, replicas.rank(), model.images().data(), model.labels());
    if (!model.train()) return Fail(model.error());
    if (replicas.rank() != 0) continue;
    std::printf("%d %.9g\n", step, static_cast<double>(*model.loss()));
    std::fflush(stdout);
    if (checkpoint != nullptr && step % 5 == 4) {
      const tfaot::Status saved = model.Save(checkpoint);
      if (!saved) return Fail(saved.message());
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int status =
      Train(argc > 1 ? std::atoi(argv[1]) : 20, argc > 2 ? argv[2] : nullptr,
            argc > 3 ? std::atoi(argv[3]) : -1, argc > 4);
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
}
