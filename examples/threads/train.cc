// Trains one model on one thread, on the pool of rules_tfaot, and on a pool
// that the program already has. Prints the time per step.
//
//   ./bazelw run -c opt //examples/threads:train             # 1,000 steps
//   ./bazelw run -c opt //examples/threads:train -- 5000
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <vector>

#include "examples/fc/fc_aot.h"
#include "tfaot/thread_pool.h"
#include "tfaot/threads.h"

namespace {

// Represents the pool that your program already has: anything that runs
// functions.
class Executor {
 public:
  explicit Executor(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] { Serve(); });
    }
  }
  ~Executor() {
    for (std::size_t i = 0; i < threads_.size(); ++i) Schedule(nullptr);
    for (std::thread& thread : threads_) thread.join();
  }

  int size() const { return static_cast<int>(threads_.size()); }

  void Schedule(std::function<void()> work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push(std::move(work));
    ready_.notify_one();
  }

 private:
  void Serve() {
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      ready_.wait(lock, [this] { return !queue_.empty(); });
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop();
      lock.unlock();
      if (!work) return;
      work();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::queue<std::function<void()>> queue_;
  std::vector<std::thread> threads_;
};

// The caller also takes parts, and other threads help if they are free in time.
// So no call waits for a thread that is busy elsewhere.
class ExecutorPool final : public tfaot::ThreadPool {
 public:
  explicit ExecutorPool(Executor& executor) : executor_(executor) {}

  int threads() const noexcept override { return executor_.size() + 1; }

  void ParallelFor(int parts, void (*run)(void* context, int part),
                   void* context) noexcept override {
    // Shared, because a helper may start after the work is done.
    const auto work = std::make_shared<Work>();
    work->parts = parts;
    work->run = run;
    work->context = context;
    for (int i = 1; i < parts && i < threads(); ++i) {
      executor_.Schedule([work] { work->TakeAll(); });
    }
    work->TakeAll();
    while (work->done.load() < parts) std::this_thread::yield();
  }

 private:
  struct Work {
    int parts;
    void (*run)(void* context, int part);
    void* context;
    std::atomic<int> next{0};
    std::atomic<int> done{0};

    void TakeAll() {
      for (int part = next++; part < parts; part = next++) {
        run(context, part);
        ++done;
      }
    }
  };

  Executor& executor_;
};

// Trains on one batch, and returns the losses.
std::vector<float> Train(const char* name, int steps, tfaot::ThreadPool* pool) {
  examples::fc::Fc model;
  model.set_thread_pool(pool);
  for (std::size_t i = 0; i < model.x().size(); ++i) {
    model.x()[i] = static_cast<float>(i * 2654435761u % 1000) / 500.0f - 1.0f;
  }
  for (int row = 0; row < model.y().dim(0); ++row) model.y()(row, row % 10) = 1;
  std::vector<float> losses;
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    if (!model.Run()) {
      std::fprintf(stderr, "step %d: %s\n", step, model.error());
      std::exit(1);
    }
    losses.push_back(*model.loss());
  }
  const std::chrono::duration<double, std::micro> took =
      std::chrono::steady_clock::now() - begin;
  std::printf("%-24s %8.1f us/step, loss %.6f\n", name, took.count() / steps,
              losses.back());
  return losses;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[argc - 1], "--help") == 0) {
    std::puts("usage: train [STEPS]");
    return 0;
  }
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1000;
  if (steps < 1) {
    std::fprintf(stderr, "usage: train [STEPS], at least 1\n");
    return 2;
  }
  const std::vector<float> alone = Train("one thread", steps, nullptr);

  tfaot::Threads threads;
  const std::vector<float> shared = Train("tfaot::Threads", steps, &threads);

  Executor executor(tfaot::Threads::Cores() - 1);
  ExecutorPool pool(executor);
  const std::vector<float> adapted = Train("the program's own", steps, &pool);

  if (shared == alone && adapted == alone) return 0;
  std::fprintf(stderr, "the losses differ\n");
  return 1;
}
