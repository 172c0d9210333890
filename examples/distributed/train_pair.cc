// Trains a model in several processes, which reduce gradients by themselves,
// and prints the loss of each step.
//
//   mpirun -n 4 train_pair [STEPS]
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "examples/distributed/pair_aot.h"
#include "examples/distributed/rows.h"
#include "tfaot/gradients.h"
#include "tfaot/info.h"

namespace {

using Model = examples::distributed::Pair;

int Train(int steps) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Model model;
  tfaot::Gradients<Model> gradients(model);
  if (!gradients.ok()) return 1;
  for (const tfaot::TensorInfo& variable : Model::Info().variables) {
    MPI_Bcast(tfaot::Values(model, variable), static_cast<int>(variable.bytes),
              MPI_BYTE, 0, MPI_COMM_WORLD);
  }
  const Rows rows;
  for (int step = 0; step < steps; ++step) {
    rows.Fill(step, rank, model.grad_images().data(), model.grad_labels());
    if (!model.grad()) return 1;
    float loss = *model.grad_loss();
    MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, gradients.data(),
                  static_cast<int>(gradients.count()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    for (std::size_t i = 0; i < gradients.count(); ++i) {
      gradients.data()[i] /= static_cast<float>(size);
    }
    if (!model.apply()) return 1;
    if (rank != 0) continue;
    std::printf("%d %.9g\n", step, static_cast<double>(loss) / size);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int status = Train(argc > 1 ? std::atoi(argv[1]) : 20);
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);
  MPI_Finalize();
}
