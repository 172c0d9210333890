// Protects a model on a pool: the same bits as on one thread, whatever the pool
// does, and no allocation in a run.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "examples/audio/calls.h"
#include "tests/models/threads/norms_aot.h"
#include "tests/models/threads/rows_aot.h"
#include "tests/models/threads/wide_aot.h"
#include "tests/runtime/expect.h"
#include "tests/runtime/pools.h"
#include "tfaot/isa.h"
#include "tfaot/threads.h"

namespace {

using threads::Norms;
using threads::Rows;
using threads::Wide;

// Rows of a batch that runs once in code for 8, and several times in code
// for 1.
constexpr std::int64_t kBatch = 13;

// Results of two runs of each entry point, and the allocations of the second.
struct Results {
  std::vector<float> values;
  long allocations;
};

template <typename View>
void Append(const View& view, std::vector<float>& values) {
  values.insert(values.end(), view.data(), view.data() + view.size());
}

template <typename View>
void Fill(View view) {
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < view.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    view[i] = static_cast<float>(state >> 8) / 8388608.0f - 1.0f;
  }
}

Results Run(tfaot::ThreadPool* pool) {
  Wide model;
  Rows rows;
  model.set_thread_pool(pool);
  rows.set_thread_pool(pool);
  Fill(model.train_images());
  Fill(model.predict_images());
  Fill(rows.images());
  for (std::size_t i = 0; i < model.train_labels().size(); ++i) {
    model.train_labels()[i] = static_cast<std::int32_t>(37 * i);
  }
  Results results = {};
  for (int step = 0; step < 2; ++step) {
    const long before = calls::allocations;
    Expect(model.train() && model.predict() && rows.Run(kBatch), "models run");
    results.allocations = calls::allocations - before;
    Append(model.train_loss(), results.values);
    Append(model.predict_scores(), results.values);
    Append(rows.scores(), results.values);
  }
  const Wide& trained = model;
  Append(trained.conv(), results.values);
  Append(trained.depthwise(), results.values);
  Append(trained.strided(), results.values);
  Append(trained.hidden(), results.values);
  Append(trained.out(), results.values);
  return results;
}

// A chain of norms, at a CPU level.
Results RunNorms(const char* level, tfaot::ThreadPool* pool) {
  tfaot::Options options;
  options.isa = level;
  Norms model(options);
  model.set_thread_pool(pool);
  Fill(model.x());
  Fill(model.y());
  Expect(model.Run(), "norms run");
  Results results = {};
  Append(model.z(), results.values);
  Append(model.most(), results.values);
  Append(model.shares(), results.values);
  return results;
}

bool Same(const Results& a, const Results& b) {
  return a.values.size() == b.values.size() &&
         std::memcmp(a.values.data(), b.values.data(),
                     a.values.size() * sizeof(float)) == 0;
}

}  // namespace

int main() {
  const Results alone = Run(nullptr);
  Expect(!calls::kCounts || calls::allocations > 0, "allocations are counted");
  Expect(alone.allocations == 0, "a run allocates nothing");
  for (const int count : {1, 2, 3, 8}) {
    tfaot::Threads pool(count);
    const Results shared = Run(&pool);
    Expect(Same(alone, shared), "any number of threads gives the same results");
    Expect(shared.allocations == 0, "a run on a pool allocates nothing");

    tfaot::ShuffledPool shuffled(count);
    Expect(Same(alone, Run(&shuffled)),
           "parts in any order give the same results");
    // Both convolutions, the depthwise one, the four products, and gradients.
    Expect(count == 1 || shuffled.calls > 20, "a pool gets the large calls");
  }

  for (const char* const* level = Norms::isas(); *level != nullptr; ++level) {
    if (!tfaot::CpuRuns(*level)) continue;
    const Results one = RunNorms(*level, nullptr);
    for (const int count : {2, 3, 4, 7, 16}) {
      tfaot::ShuffledPool shuffled(count);
      Expect(Same(one, RunNorms(*level, &shuffled)),
             "norms have the same bits, wherever rows are cut");
      Expect(shuffled.calls > 0, "a pool gets norms");
    }
  }

  // Several instances, each running on its own thread, share a pool.
  tfaot::Threads pool(3);
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back(
        [&] { Expect(Same(alone, Run(&pool)), "instances may share a pool"); });
  }
  for (std::thread& caller : callers) caller.join();

  // A pool can be removed, and an instance moved.
  Wide model;
  {
    tfaot::Threads short_lived(2);
    model.set_thread_pool(&short_lived);
    Expect(model.train(), "runs on the pool");
    model.set_thread_pool(nullptr);
  }
  Wide moved(std::move(model));
  Expect(moved.train(), "runs without the pool");
  return failed == 0 ? 0 : 1;
}
