// Protects real-time audio: what comes out doesn't depend on the sizes that the
// host asks for, a reset forgets everything, and the thread that plays neither
// asks for memory, nor releases any, nor takes a lock, nor makes a system call,
// also when another thread has exchanged the weights.
#include "examples/audio/player.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "examples/audio/calls.h"
#include "examples/audio/gate_aot.h"

namespace {

using examples::Gate;
using examples::Player;

constexpr std::size_t kSamples = 4096;

int failed = 0;

void Expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  ++failed;
}

std::vector<float> Signal() {
  std::vector<float> signal(kSamples);
  for (std::size_t i = 0; i < kSamples; ++i) {
    signal[i] = std::sin(0.03f * static_cast<float>(i % 977));
  }
  return signal;
}

std::vector<float> Play(Player& player, const std::vector<float>& signal,
                        std::size_t size) {
  std::vector<float> out(signal.size());
  for (std::size_t at = 0; at < signal.size(); at += size) {
    player.Process(&signal[at], &out[at], std::min(size, signal.size() - at));
  }
  return out;
}

void TestSizes(const tfaot::LiveWeights& live) {
  const std::vector<float> signal = Signal();
  Player player(live);
  Expect(player.ready(), player.error());
  const std::vector<float> out = Play(player, signal, 512);
  Expect(Play(player, signal, 512) != out, "the state stays between blocks");
  for (const std::size_t size : {1, 100, 64, 4096}) {
    Expect(player.Reset() && Play(player, signal, size) == out,
           "the same samples in other blocks");
  }

  // The same stream in blocks of 256.
  Gate gate;
  bool close = true;
  for (std::size_t at = 0; at + 256 <= kSamples - Player::kBlock; at += 256) {
    std::copy_n(&signal[at], 256, gate.block_256_samples().begin());
    close = close && gate.block_256();
    for (std::size_t i = 0; i < 256; ++i) {
      const float late = out[at + i + Player::kBlock];
      close = close && std::abs(gate.block_256_out()[i] - late) < 1e-5f;
    }
  }
  Expect(close, "blocks of 256 continue the stream, too");
}

// Prints what a thread called while it played.
void ExpectNone(const calls::Counts& made, const char* when) {
  if (!made.Any()) return;
  std::printf("%s: %ld allocations, %ld frees, %ld maps, %ld locks\n", when,
              made.allocations, made.frees, made.maps, made.locks);
  Expect(false, "a call that may take any time");
}

void TestCalls(tfaot::LiveWeights& live, const char* path) {
  const std::vector<float> signal = Signal();
  std::vector<float> out(kSamples);
  Player player(live);
  for (int change = 0; change < 6; ++change) {
    // By turns a file, which is mapped, and values.
    std::thread([&] {
      const std::vector<float> values(8, static_cast<float>(change));
      Expect(change % 2 == 0 ? live.Load(tfaot::Source::Path(path)).ok()
                             : live.Update({{"out", values.data(), 32}}).ok(),
             "new weights");
    }).join();
    const calls::Counts before = calls::OfThisThread();
    player.Process(signal.data(), out.data(), 1000);
    ExpectNone(calls::OfThisThread() - before, "with new weights");
  }
  const calls::Counts before = calls::OfThisThread();
  player.Process(signal.data(), out.data(), kSamples);
  const bool reset = player.Reset();
  ExpectNone(calls::OfThisThread() - before, "between changes");
  Expect(reset && player.ready(), player.error());
}

// A child that may only exit plays, with new weights: Linux ends it at any
// other system call.
void TestSystemCalls(tfaot::LiveWeights& live, const char* path) {
  if (!calls::kCounts) return;
  const std::vector<float> signal = Signal();
  std::vector<float> out(kSamples);
  Player player(live);
  Expect(live.Load(tfaot::Source::Path(path)).ok(), "new weights");
  const pid_t child = fork();
  if (child == 0) {
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) _exit(2);
    player.Process(signal.data(), out.data(), kSamples);
    syscall(SYS_exit, player.ready() && out[kSamples - 1] != 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const bool emulated = WIFEXITED(status) && WEXITSTATUS(status) == 2;
  if (emulated) std::puts("no seccomp here");
  Expect(emulated || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
         "a thread that may make no system call plays");
}

// Each count is of something.
void TestCounts(const tfaot::LiveWeights& live) {
  if (!calls::kCounts) return;
  std::mutex mutex;
  const calls::Counts before = calls::OfThisThread();
  std::free(std::malloc(1));
  {
    const std::lock_guard<std::mutex> lock(mutex);
  }
  munmap(mmap(nullptr, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1);
  const calls::Counts made = calls::OfThisThread() - before;
  Expect(made.allocations == 1 && made.frees == 1 && made.maps == 2 &&
             made.locks == 1,
         "calls are counted");
  const calls::Counts empty = calls::OfThisThread();
  const tfaot::Weights current = live.Current();
  ExpectNone(calls::OfThisThread() - empty, "a handle");
}

}  // namespace

int main() {
  const char* const folder = std::getenv("TEST_TMPDIR");
  const std::string path =
      std::string(folder != nullptr ? folder : ".") + "/gate.safetensors";
  Gate first;
  Expect(first.Save(path.c_str()).ok(), "the weights are saved");
  tfaot::LiveWeights live(Gate::InitialWeights());
  TestSizes(live);
  TestCounts(live);
  TestCalls(live, path.c_str());
  TestSystemCalls(live, path.c_str());
  return failed == 0 ? 0 : 1;
}
