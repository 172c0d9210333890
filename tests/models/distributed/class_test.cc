// Replicas in a program: that several do what one does with all rows, and what
// happens if they don't fit or one ends.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/models/distributed/pair_aot.h"
#include "tests/models/distributed/scaled_aot.h"
#include "tests/models/distributed/step_1_aot.h"
#include "tests/models/distributed/step_2_aot.h"
#include "tests/models/distributed/step_4_aot.h"
#include "tests/runtime/expect.h"
#include "tfaot/gradients.h"
#include "tfaot/hooks.h"
#include "tfaot/info.h"
#include "tfaot/thread_replicas.h"

namespace {

constexpr int kSteps = 20;
constexpr int kRows = 8;
constexpr int kColumns = 5;

// The rows of all replicas.
std::vector<float> Rows(int step) {
  std::vector<float> rows(kRows * kColumns);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = std::sin(
        static_cast<float>(7 * i + 31 * static_cast<std::size_t>(step)));
  }
  return rows;
}

// Trains, and returns the losses.
template <typename Model>
std::vector<float> Train(Model& model, int rank, int size) {
  std::vector<float> losses;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> rows = Rows(step);
    const std::size_t own = rows.size() / static_cast<std::size_t>(size);
    EXPECT(model.train_x().size() == own);
    std::memcpy(model.train_x().data(),
                &rows[own * static_cast<std::size_t>(rank)],
                own * sizeof(float));
    EXPECT(model.train());
    losses.push_back(*model.train_loss());
  }
  return losses;
}

// Trains with replicas. Returns the losses of each.
template <typename Model>
std::vector<std::vector<float>> TrainTogether(int size,
                                              std::uint64_t bucket_bytes = 0) {
  tfaot::ThreadReplicas replicas(size, std::chrono::minutes(1), bucket_bytes);
  std::vector<std::vector<float>> losses(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Model model;
      EXPECT(model.set_collectives(replicas.collectives(rank)));
      losses[static_cast<std::size_t>(rank)] = Train(model, rank, size);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return losses;
}

// Replicas with parts of a batch learn what one model learns with all of it.
template <typename Model>
void TestLikeOne(const std::vector<float>& alone, int size) {
  const auto losses = TrainTogether<Model>(size);
  for (const auto& own : losses) {
    EXPECT(own == losses[0]);
    for (std::size_t step = 0; step < alone.size(); ++step) {
      EXPECT(std::abs(own[step] - alone[step]) < 1e-6f);
    }
  }
  // Bit by bit, however many reductions a call has.
  EXPECT(TrainTogether<Model>(size) == losses);
  EXPECT(TrainTogether<Model>(size, 1) == losses);
}

// Without collectives, with others than the model's, or with too few replicas.
void TestErrors() {
  tests::DistributedStep2 model;
  EXPECT(!model.train());
  EXPECT(model.error_code() == tfaot::Code::kInvalidArgument);
  EXPECT(std::strstr(model.error(), "call set_collectives() first") != nullptr);
  EXPECT(model.predict());  // it needs no other replica
  tfaot::ThreadReplicas four(4);
  EXPECT(!model.set_collectives(four.collectives(1)));
  EXPECT(std::strstr(
             model.error(),
             "found: replica 1 of 4; the model is for 2 replicas, 0 to 1") !=
         nullptr);
  EXPECT(!model.set_collectives(nullptr));
  EXPECT(!model.train());
}

// A run that a hook ends, ends the other replica's, too, and soon.
void TestCancelled() {
  tfaot::ThreadReplicas replicas(2);
  tests::DistributedStep2 one, other;
  EXPECT(one.set_collectives(replicas.collectives(0)));
  EXPECT(other.set_collectives(replicas.collectives(1)));
  tfaot::Cancellation cancellation;
  cancellation.Cancel();
  other.set_hooks(&cancellation);
  const auto begin = std::chrono::steady_clock::now();
  std::thread waiting([&] { EXPECT(!one.train()); });
  EXPECT(!other.train());
  waiting.join();
  EXPECT(std::chrono::steady_clock::now() - begin < std::chrono::minutes(1));
  EXPECT(other.error_code() == tfaot::Code::kCancelled);
  EXPECT(one.error_code() == tfaot::Code::kExchangeFailed);
  EXPECT(std::strstr(one.error(), "replica 1: its run has ended") != nullptr);
}

// Gradients of two replicas that a program adds up in one block, for an
// optimizer that clips them by the norm of all.
void TestGradients() {
  using Model = tests::Pair;
  Model models[3];
  tfaot::Gradients<Model> own(models[0]), other(models[1]), whole(models[2]);
  EXPECT(Model::Info().gradients.size() == 8);
  for (const tfaot::GradientInfo& gradient : Model::Info().gradients) {
    EXPECT(std::strstr(gradient.variable->name, "sequential/") != nullptr);
    EXPECT(gradient.output->bytes == gradient.variable->bytes);
  }
  EXPECT(own.ok() && own.count() == whole.count() && own.count() % 16 == 0);
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> rows = Rows(step);
    const int last = step == kSteps - 1 ? 1 : 4;  // rows of the second one
    for (int rank = 0; rank < 2; ++rank) {
      std::memcpy(models[rank].grad_x().data(),
                  &rows[static_cast<std::size_t>(rank) * rows.size() / 2],
                  rows.size() / 2 * sizeof(float));
      for (int row = 0; row < 4; ++row) {
        models[rank].grad_weights().data()[row] =
            rank == 0 || row < last ? 1.0f : 0.0f;
      }
      EXPECT(models[rank].grad());
    }
    if (last == 1) {  // what is behind the rows doesn't matter
      const std::vector<float> before(other.data(),
                                      other.data() + other.count());
      for (std::size_t i = kColumns; i < models[1].grad_x().size(); ++i) {
        models[1].grad_x().data()[i] = 100;
      }
      EXPECT(models[1].grad());
      EXPECT(std::memcmp(before.data(), other.data(),
                         before.size() * sizeof(float)) == 0);
    }
    for (std::size_t i = 0; i < whole.count(); ++i) {
      whole.data()[i] =
          (own.data()[i] + other.data()[i]) / static_cast<float>(4 + last);
    }
    std::memcpy(own.data(), whole.data(), own.count() * sizeof(float));
    std::memcpy(other.data(), whole.data(), own.count() * sizeof(float));
    float square = 0;
    for (std::size_t i = 0; i < whole.count(); ++i) {
      square += whole.data()[i] * whole.data()[i];
    }
    for (Model& model : models) EXPECT(model.apply());
    EXPECT(std::abs(*models[0].apply_norm() - std::sqrt(square)) < 1e-5f);
  }
  for (const tfaot::GradientInfo& gradient : Model::Info().gradients) {
    for (Model& model : models) {
      EXPECT(std::memcmp(tfaot::Values(model, *gradient.variable),
                         tfaot::Values(models[0], *gradient.variable),
                         gradient.variable->bytes) == 0);
    }
  }
}

// If a gradient of one replica isn't finite, both skip the step, halve the
// scale, and go on.
void TestScaled() {
  tfaot::ThreadReplicas replicas(2);
  tests::Scaled models[2];
  float losses[2][kSteps];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      tests::Scaled& model = models[rank];
      EXPECT(model.set_collectives(replicas.collectives(rank)));
      for (int step = 0; step < kSteps; ++step) {
        const std::vector<float> rows = Rows(0);
        std::memcpy(model.x().data(),
                    &rows[static_cast<std::size_t>(rank) * rows.size() / 2],
                    model.x().size() * sizeof(float));
        const bool overflows = step == 3 && rank == 1;
        if (overflows) model.x().data()[0] = 1e30f;
        const std::vector<float> before(model.sequential_dense_kernel().begin(),
                                        model.sequential_dense_kernel().end());
        EXPECT(model.train());
        const bool same =
            std::memcmp(before.data(), model.sequential_dense_kernel().data(),
                        before.size() * sizeof(float)) == 0;
        EXPECT(same == (step == 3));
        EXPECT(*model.scale() == (step < 3 ? 1024.0f : 512.0f));
        losses[rank][step] = *model.loss();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(losses[0][kSteps - 1] < losses[0][0]);
  for (const tfaot::TensorInfo& variable : tests::Scaled::Info().variables) {
    // Batch norm has statistics over all rows, so these are equal, too.
    const bool same =
        std::memcmp(tfaot::Values(models[0], variable),
                    tfaot::Values(models[1], variable), variable.bytes) == 0;
    if (!same) std::printf("%s differs\n", variable.name);
    EXPECT(same);
  }
}

}  // namespace

int main() {
  tests::DistributedStep1 alone;
  const std::vector<float> losses = Train(alone, 0, 1);
  EXPECT(losses.back() < losses.front());
  TestLikeOne<tests::DistributedStep2>(losses, 2);
  TestLikeOne<tests::DistributedStep4>(losses, 4);
  TestErrors();
  TestCancelled();
  TestGradients();
  TestScaled();
  return failed == 0 ? 0 : 1;
}
