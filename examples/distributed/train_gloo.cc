// Trains a model in several processes, which find each other through a folder.
//
//   train_gloo RANK SIZE FOLDER [STEPS [FAILING]]
//
// The process of rank 1 cancels its run in the step FAILING.
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>

#include MODEL_HEADER
#include "examples/distributed/rows.h"
#include "tfaot/gloo_replicas.h"
#include "tfaot/hooks.h"
#include "tfaot/info.h"

namespace {

using Model = MODEL_CLASS;

int Train(int rank, int size, const char* folder, int steps, int failing) {
  gloo::transport::tcp::attr address;
  address.hostname = "127.0.0.1";
  auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);

  tfaot::GlooReplicas replicas(context);
  tfaot::Cancellation cancellation;
  Model model;
  model.set_hooks(&cancellation);
  if (!model.set_collectives(replicas.collectives())) return 1;
  for (const tfaot::TensorInfo& variable : Model::Info().variables) {
    if (!replicas.Broadcast(tfaot::Values(model, variable), variable.bytes))
      return 1;
  }
  const Rows rows;
  for (int step = 0; step < steps; ++step) {
    if (step == failing && rank == 1) cancellation.Cancel();
    rows.Fill(step, rank, model.images().data(), model.labels());
    if (!model.train()) {
      std::fprintf(stderr, "%d: %s\n", rank, model.error());
      return 1;
    }
    if (rank != 0) continue;
    std::printf("%d %.9g\n", step, static_cast<double>(*model.loss()));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    return Train(std::atoi(argv[1]), std::atoi(argv[2]), argv[3],
                 argc > 4 ? std::atoi(argv[4]) : 20,
                 argc > 5 ? std::atoi(argv[5]) : -1);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
