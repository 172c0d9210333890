// Trains a model in several threads, and prints the loss of each step.
//
//   train_threads [STEPS [SIZE]]
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include MODEL_HEADER
#include "examples/distributed/rows.h"
#include "tfaot/thread_replicas.h"

namespace {

using Model = MODEL_CLASS;

// All instances start with the weights in the library. Returns whether all runs
// succeeded; if one fails, those of the others do, too.
bool Train(tfaot::ThreadReplicas& replicas, int rank, int steps) {
  Model model;
  bool ok = model.set_collectives(replicas.collectives(rank));
  const Rows rows;
  for (int step = 0; ok && step < steps; ++step) {
    rows.Fill(step, rank, model.images().data(), model.labels());
    ok = model.train();
    if (ok && rank == 0) {
      std::printf("%d %.9g\n", step, static_cast<double>(*model.loss()));
    }
  }
  if (!ok) std::fprintf(stderr, "replica %d: %s\n", rank, model.error());
  return ok;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 20;
  const int size = argc > 2 ? std::atoi(argv[2]) : 2;
  tfaot::ThreadReplicas replicas(size);
  std::vector<char> ok(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      ok[static_cast<std::size_t>(rank)] = Train(replicas, rank, steps);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const char own : ok) {
    if (own == 0) return 1;
  }
}
