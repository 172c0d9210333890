// Replicas as threads: what each collective gives, and that none waits for one
// that has ended.
#include "tfaot/thread_replicas.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/collective_kinds.h"

#define EXPECT(condition)                                         \
  do {                                                            \
    if (!(condition)) {                                           \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                               \
    }                                                             \
  } while (false)

namespace {

using Clock = std::chrono::steady_clock;

// Calls `run` in a thread for each rank.
template <typename Function>
void Together(int size, Function run) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

template <typename T>
tfaot_collective Call(int id, int op, int dtype, std::vector<T>& data) {
  return {id, TFAOT_ALL_REDUCE, op, dtype, data.data(), data.size(), nullptr};
}

// All replicas get the sum in the order of ranks, bit by bit, also of values
// for which the order matters and of fewer values than replicas.
void TestSums() {
  for (const int size : {1, 2, 3, 5}) {
    for (const std::size_t count : {1u, 2u, 7u, 1000u}) {
      tfaot::ThreadReplicas replicas(size);
      std::vector<std::vector<float>> values(static_cast<std::size_t>(size));
      std::vector<float> sums(count);
      for (std::size_t rank = 0; rank < values.size(); ++rank) {
        for (std::size_t i = 0; i < count; ++i) {
          values[rank].push_back(1.0f / static_cast<float>(3 + i + 7 * rank));
          sums[i] = rank == 0 ? values[rank][i] : sums[i] + values[rank][i];
        }
      }
      Together(size, [&](int rank) {
        const tfaot_collectives& own = *replicas.collectives(rank);
        EXPECT(own.rank == rank && own.size == size);
        EXPECT(own.version == TFAOT_COLLECTIVES_VERSION);
        auto& mine = values[static_cast<std::size_t>(rank)];
        const auto call = Call(0, TFAOT_ADD, TFAOT_FLOAT32, mine);
        EXPECT(own.start(own.context, &call) == 0);
        EXPECT(own.wait(own.context, &call) == 0);
        EXPECT(mine == sums);
      });
    }
  }
}

template <typename T>
void TestOps(int dtype) {
  const T wanted[] = {5, 6, 2, 3};
  for (const int op : {TFAOT_ADD, TFAOT_MUL, TFAOT_MIN, TFAOT_MAX}) {
    tfaot::ThreadReplicas replicas(2);
    Together(2, [&](int rank) {
      const tfaot_collectives& own = *replicas.collectives(rank);
      std::vector<T> data = {static_cast<T>(rank == 0 ? 3 : 2)};
      const auto call = Call(op, op, dtype, data);
      EXPECT(own.start(own.context, &call) == 0);
      EXPECT(own.wait(own.context, &call) == 0);
      EXPECT(data[0] == wanted[op - 1]);
    });
  }
}

// Each kind gives what the interface says, also to a single replica.
void TestExchanges() {
  for (const int size : {1, 2, 3, 4}) {
    tfaot::ThreadReplicas replicas(size);
    Together(size, [&](int rank) {
      EXPECT(collective_kinds::CheckAll(*replicas.collectives(rank)));
    });
  }
}

// NaN isn't lost, whichever replica has it.
void TestNan() {
  for (const int op : {TFAOT_MIN, TFAOT_MAX}) {
    for (const int odd : {0, 1}) {
      tfaot::ThreadReplicas replicas(2);
      Together(2, [&](int rank) {
        const tfaot_collectives& own = *replicas.collectives(rank);
        std::vector<float> data = {
            rank == odd ? std::numeric_limits<float>::quiet_NaN() : 1.0f};
        const auto call = Call(0, op, TFAOT_FLOAT32, data);
        EXPECT(own.start(own.context, &call) == 0);
        EXPECT(own.wait(own.context, &call) == 0);
        EXPECT(data[0] != data[0]);
      });
    }
  }
}

// Many rounds with several collectives under way, at different speeds.
void TestSeveral() {
  tfaot::ThreadReplicas replicas(4);
  Together(4, [&](int rank) {
    const tfaot_collectives& own = *replicas.collectives(rank);
    for (int round = 0; round < 300; ++round) {
      std::vector<std::int64_t> a = {rank, round}, b = {rank * round}, c = {1};
      const tfaot_collective calls[] = {Call(0, TFAOT_ADD, TFAOT_INT64, a),
                                        Call(1, TFAOT_MAX, TFAOT_INT64, b),
                                        Call(2, TFAOT_ADD, TFAOT_INT64, c)};
      if (rank == round % 4) std::this_thread::yield();
      for (const auto& call : calls) EXPECT(own.start(own.context, &call) == 0);
      for (const auto& call : calls) EXPECT(own.wait(own.context, &call) == 0);
      EXPECT(a[0] == 6 && a[1] == 4 * round && b[0] == 3 * round && c[0] == 4);
    }
  });
}

// A replica whose run ends ends those that wait for it, and all later ones.
void TestAbort() {
  tfaot::ThreadReplicas replicas(3);
  const auto begin = Clock::now();
  Together(3, [&](int rank) {
    const tfaot_collectives& own = *replicas.collectives(rank);
    if (rank == 1) return own.abort(own.context);
    std::vector<float> data = {1};
    const auto call = Call(0, TFAOT_ADD, TFAOT_FLOAT32, data);
    EXPECT(own.start(own.context, &call) != 0 ||
           own.wait(own.context, &call) != 0);
    EXPECT(own.error(own.context) ==
           std::string("replica 1: its run has ended"));
  });
  EXPECT(Clock::now() - begin < std::chrono::minutes(1));
}

// A replica that never comes is waited for as long as the program says.
void TestTimeout() {
  tfaot::ThreadReplicas replicas(2, std::chrono::milliseconds(50));
  const tfaot_collectives& own = *replicas.collectives(0);
  std::vector<float> data = {1};
  const auto call = Call(0, TFAOT_ADD, TFAOT_FLOAT32, data);
  EXPECT(own.start(own.context, &call) == 0);
  EXPECT(own.wait(own.context, &call) != 0);
  EXPECT(own.error(own.context) ==
         std::string("replica 0: it has waited too long for another replica"));
}

// Different collectives in two replicas are an error, not a wrong sum.
void TestDifferent() {
  tfaot::ThreadReplicas replicas(2);
  std::vector<float> data = {1, 2};
  tfaot_collective call = Call(0, TFAOT_ADD, TFAOT_FLOAT32, data);
  const tfaot_collectives& one = *replicas.collectives(0);
  const tfaot_collectives& other = *replicas.collectives(1);
  EXPECT(one.start(one.context, &call) == 0);
  call.count = 1;
  EXPECT(other.start(other.context, &call) != 0);
  EXPECT(one.wait(one.context, &call) != 0);
  EXPECT(one.error(one.context) ==
         std::string("replica 1: replicas run different models or functions"));
}

}  // namespace

int main() {
  TestSums();
  TestOps<float>(TFAOT_FLOAT32);
  TestOps<double>(TFAOT_FLOAT64);
  TestOps<std::int32_t>(TFAOT_INT32);
  TestOps<std::int64_t>(TFAOT_INT64);
  TestExchanges();
  TestNan();
  TestSeveral();
  TestAbort();
  TestTimeout();
  TestDifferent();
}
