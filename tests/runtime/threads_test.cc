// Protects our thread pool: every part runs once and has ended when the call
// returns, sleeping threads wake, and calls can come from anywhere. Run with
// TSan:
// ./bazelw test --config=tsan //tests/runtime:threads_test
// //tests/runtime/kernels:bits_test_x86-64-v3 //tests/models/threads/...
#include "tfaot/threads.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/runtime/expect.h"

namespace {

// Calls run(part) for each part. The pool takes functions without state.
template <typename Run>
void For(tfaot::ThreadPool& pool, int parts, Run run) {
  pool.ParallelFor(
      parts,
      [](void* context, int part) { (*static_cast<Run*>(context))(part); },
      &run);
}

// Plain memory, so that ThreadSanitizer checks whether calls order the parts.
void CountParts(tfaot::ThreadPool& pool, int calls, const char* what) {
  std::vector<int> counts(1000);
  for (int call = 1; call <= calls; ++call) {
    const int parts = call % 7 == 0 ? 1000 : call % 5;
    std::fill(counts.begin(), counts.end(), 0);
    For(pool, parts, [&](int part) { counts[part] += call; });
    bool each = true;
    for (int i = 0; i < 1000; ++i) {
      each = each && counts[i] == (i < parts ? call : 0);
    }
    Expect(each, what);
  }
}

// Consecutive calls, like the products in a run, with pauses after which all
// threads sleep.
void TestEveryPartRunsOnce() {
  for (const int size : {1, 2, 3, 8}) {
    tfaot::Threads threads(size);
    Expect(threads.threads() == size,
           "the pool is as large as it was asked to");
    for (int round = 0; round < 5; ++round) {
      CountParts(threads, 200, "every part runs once");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

// More than one thread works if the work takes long enough.
void TestPartsRunSideBySide() {
  tfaot::Threads threads(4);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::vector<std::thread::id> ids(4);
  std::atomic<int> arrived{0};
  // Each part waits for all others, so this ends only if all run concurrently.
  For(threads, 4, [&](int part) {
    ids[part] = std::this_thread::get_id();
    ++arrived;
    while (arrived.load() < 4) std::this_thread::yield();
  });
  Expect(std::set<std::thread::id>(ids.begin(), ids.end()).size() == 4,
         "sleeping threads wake, and each takes a part");
}

// Rest() may come at any time, also while another caller's parts run.
void TestRest() {
  tfaot::Threads threads(3);
  std::atomic<bool> done{false};
  std::thread resting([&] {
    while (!done.load()) threads.Rest();
  });
  CountParts(threads, 300, "a pool that is sent to sleep works");
  done.store(true);
  resting.join();
  threads.Rest();
  std::atomic<int> arrived{0};
  For(threads, 3, [&](int) {
    ++arrived;
    while (arrived.load() < 3) std::this_thread::yield();
  });
  Expect(arrived == 3, "resting threads wake, and each takes a part");
}

// Several concurrent callers: instances that share a pool.
void TestCallersShareThePool() {
  tfaot::Threads threads(3);
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back(
        [&] { CountParts(threads, 300, "callers don't disturb each other"); });
  }
  for (std::thread& caller : callers) caller.join();
}

// A caller can itself be a part: a program that runs models on its own pool.
void TestCallsFromParts() {
  tfaot::Threads threads(3);
  std::atomic<int> ran{0};
  For(threads, 5, [&](int) { For(threads, 7, [&](int) { ++ran; }); });
  Expect(ran == 35, "a call from a part runs all of its own");
}

// Pools come and go, whatever their threads are doing.
void TestPoolsEnd() {
  for (int i = 0; i < 50; ++i) {
    tfaot::Threads threads(3);
    if (i % 3 == 1) CountParts(threads, 2, "a young pool works");
    if (i % 3 == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// A child of fork(), whose threads, locks, and pending work are as its parent's
// were: asleep, looking for work, or in a call of another thread.
void TestForkedChildren() {
  std::atomic<bool> ends{false};
  auto threads = std::make_unique<tfaot::Threads>(4);
  std::thread caller([&] {
    // Threads fall asleep and wake all the time. Nothing here allocates,
    // because AddressSanitizer's allocator would stay locked in a child.
    while (!ends) {
      std::atomic<int> ran{0};
      For(*threads, 9, [&](int) { ++ran; });
      Expect(ran == 9, "the parent's calls go on");
      threads->Rest();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  for (int round = 0; round < 200 && failed == 0; ++round) {
    auto idle = std::make_unique<tfaot::Threads>(3);
    CountParts(*idle, 3, "the parent's pool works");
    if (round % 4 == 0) idle->Rest();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);  // instead of a wait without an end
      CountParts(*threads, 7, "the child runs all parts of a busy pool");
      CountParts(*idle, 7, "the child runs all parts");
      Expect(idle->threads() == 1, "a child has only its own thread");
      idle.reset();
      threads.reset();
#if !defined(__SANITIZE_THREAD__)  // with which a child can't make threads
      tfaot::Threads own(3);
      CountParts(own, 7, "a pool that the child makes works");
      Expect(own.threads() == 3, "and has threads");
#endif
      _exit(failed == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    Expect(status == 0, "the child ends without a crash");
    Expect(idle->threads() == 3, "the parent keeps its threads");
  }
  ends = true;
  caller.join();
}

}  // namespace

int main() {
  Expect(tfaot::Threads::Cores() >= 1, "there is a core");
  TestEveryPartRunsOnce();
  TestPartsRunSideBySide();
  TestRest();
  TestCallersShareThePool();
  TestCallsFromParts();
  TestPoolsEnd();
  TestForkedChildren();
  return failed == 0 ? 0 : 1;
}
