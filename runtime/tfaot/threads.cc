#include "tfaot/threads.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "tfaot/cgroup.h"

#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tfaot {
namespace {

// How long a thread without work spins before it sleeps. Two pieces of one run
// are microseconds apart; waking a sleeping thread takes about fifty.
constexpr std::chrono::microseconds kLooking(200);

// Spins between two reads of the clock, or two yields of the core.
constexpr int kLooks = 64;

void Pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// The pending work in one word, so that one instruction can take a part: the
// number of the call in the upper half, and the number of untaken parts in the
// lower half.
using Work = std::uint64_t;

constexpr std::uint32_t PartsOf(Work work) {
  return static_cast<std::uint32_t>(work);
}

constexpr Work NextCall(Work work, std::uint32_t parts) {
  return ((work >> 32) + 1) << 32 | parts;
}

// How often this process, and those that it was forked from, have forked. Only
// a forked child counts.
std::atomic<std::uint32_t> forks{0};

// Has this process's children count. Returns its own count.
std::uint32_t Forks() {
#if !defined(_WIN32)
  static const int counts =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  static_cast<void>(counts);
#endif
  return forks.load();
}

}  // namespace

struct Threads::Impl {
  // A child has none of its parent's threads, and locks may be as they held
  // them.
  bool Lost() const noexcept {
    return made_in != forks.load(std::memory_order_relaxed);
  }

  const std::uint32_t made_in = Forks();

  // A call writes these before it publishes its work. A thread that took a part
  // can read them, because the call doesn't return before the part has.
  void (*run)(void*, int) = nullptr;
  void* context = nullptr;

  // On separate cache lines, so spinning threads don't slow down working ones.
  alignas(64) std::atomic<Work> work{0};
  alignas(64) std::atomic<std::uint32_t> running{0};
  alignas(64) std::atomic<bool> busy{false};
  std::atomic<int> sleepers{0};
  std::atomic<bool> ends{false};
  std::atomic<bool> rests{false};
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> workers;

  // Runs parts until all have been taken.
  void TakeAll() noexcept {
    Work seen = work.load(std::memory_order_acquire);
    while (PartsOf(seen) > 0) {
      if (work.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
        run(context, static_cast<int>(PartsOf(seen) - 1));
        running.fetch_sub(1, std::memory_order_release);
        seen = work.load(std::memory_order_acquire);
      }
    }
  }

  // Spins for kLooking, or until Rest(). Returns whether there is work, or the
  // end.
  bool Look() const noexcept {
    const auto until = std::chrono::steady_clock::now() + kLooking;
    do {
      for (int i = 0; i < kLooks; ++i) {
        if (PartsOf(work.load(std::memory_order_acquire)) > 0) return true;
        Pause();
      }
    } while (!rests.load(std::memory_order_relaxed) &&
             std::chrono::steady_clock::now() < until);
    return false;
  }

  void Sleep() {
    std::unique_lock<std::mutex> lock(mutex);
    // Either this sees the work that a call published, or the call sees this
    // sleeping thread.
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    const Work last = work.load(std::memory_order_seq_cst);
    // A call that ends before this wakes also ends the sleep, because more
    // calls will come.
    wake.wait(lock, [this, last] {
      return PartsOf(last) > 0 || work.load() >> 32 != last >> 32 ||
             ends.load();
    });
    sleepers.fetch_sub(1, std::memory_order_relaxed);
  }

  void Serve() {
    while (!ends.load(std::memory_order_relaxed)) {
      if (Look()) {
        TakeAll();
      } else {
        Sleep();
      }
    }
  }

  void WakeAll() {
    const std::lock_guard<std::mutex> lock(mutex);
    wake.notify_all();
  }

  // Also runs if not all threads could be started.
  ~Impl() {
    ends.store(true);
    WakeAll();
    for (std::thread& worker : workers) worker.join();
  }
};

Threads::Threads(int threads) : impl_(new Impl) {
  for (int i = 1; i < threads; ++i) {
    impl_->workers.emplace_back([impl = impl_.get()] { impl->Serve(); });
  }
}

// In a child, the locks can't be destroyed, nor can threads be joined that it
// doesn't have.
Threads::~Threads() {
  if (impl_->Lost()) static_cast<void>(impl_.release());
}

int Threads::Cores() { return Cores(CgroupCores()); }

int Threads::Cores(double allowed) noexcept {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
#endif
  // Rounded down. If threads spin, one too many is enough to use up a group's
  // time before the period ends, and then all of them stall.
  if (allowed > 0 && allowed < cores) cores = static_cast<int>(allowed);
  return cores < 1 ? 1 : cores;
}

int Threads::threads() const noexcept {
  if (impl_->Lost()) return 1;
  return static_cast<int>(impl_->workers.size()) + 1;
}

void Threads::ParallelFor(int parts, void (*run)(void* context, int part),
                          void* context) noexcept {
  Impl& impl = *impl_;
  if (parts <= 1 || impl.workers.empty() || impl.Lost() ||
      impl.busy.exchange(true, std::memory_order_acquire)) {
    for (int part = 0; part < parts; ++part) run(context, part);
    return;
  }
  impl.run = run;
  impl.context = context;
  impl.rests.store(false, std::memory_order_relaxed);
  const std::uint32_t count = static_cast<std::uint32_t>(parts);
  impl.running.store(count, std::memory_order_relaxed);
  impl.work.store(NextCall(impl.work.load(std::memory_order_relaxed), count),
                  std::memory_order_seq_cst);
  if (impl.sleepers.load(std::memory_order_seq_cst) > 0) impl.WakeAll();
  impl.TakeAll();
  for (int looks = 0; impl.running.load(std::memory_order_acquire) > 0;) {
    Pause();
    // A part can be in a thread that has no core.
    if (++looks % kLooks == 0) std::this_thread::yield();
  }
  impl.busy.store(false, std::memory_order_release);
}

void Threads::Rest() noexcept {
  impl_->rests.store(true, std::memory_order_relaxed);
}

}  // namespace tfaot
