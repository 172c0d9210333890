// Replicas as processes of MPI: what each collective gives.
#include "tfaot/mpi_replicas.h"

#include <mpi.h>

#include <cstdio>

#include "tests/runtime/collective_kinds.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool right = true;
  {
    tfaot::MpiReplicas replicas(MPI_COMM_WORLD);
    right = collective_kinds::CheckAll(*replicas.collectives());
    std::printf("replica %d of %d: %s\n", replicas.rank(), replicas.size(),
                right ? "right" : "wrong  FAILED");
  }
  MPI_Finalize();
  return right ? 0 : 1;
}
