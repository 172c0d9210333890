// What each kind of collective gives, for a replica of any adapter.
#ifndef TFAOT_TESTS_RUNTIME_COLLECTIVE_KINDS_H_
#define TFAOT_TESTS_RUNTIME_COLLECTIVE_KINDS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tfaot/c_api.h"
#include "tfaot/collectives.h"

namespace collective_kinds {

constexpr std::size_t kCount = 37;  // of a block's values

// What the replica of a rank has first as the value `i` of a block.
template <typename T>
T Value(int rank, std::size_t block, std::size_t i) {
  return static_cast<T>(1 + static_cast<std::size_t>(rank) * 5 + block * 3 +
                        i % 7);
}

// Runs a collective of `blocks` blocks. Returns all of them, or nothing if it
// failed.
template <typename T>
std::vector<T> Run(const tfaot_collectives& own, int kind, int op, int dtype,
                   std::size_t blocks, const std::int32_t* peers) {
  std::vector<T> data;
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t i = 0; i < kCount; ++i) {
      data.push_back(Value<T>(own.rank, block, i));
    }
  }
  const tfaot_collective call = {kind,        kind,   op,   dtype,
                                 data.data(), kCount, peers};
  if (own.start(own.context, &call) != 0) return {};
  if (own.wait(own.context, &call) != 0) return {};
  return data;
}

// Returns whether each kind gives a replica what tfaot/collectives.h says. All
// replicas call it.
template <typename T>
bool Right(const tfaot_collectives& own, int dtype, bool reduces) {
  const auto size = static_cast<std::size_t>(own.size);
  const auto me = static_cast<std::size_t>(own.rank);
  const std::int32_t root = own.size - 1;
  // The first replica sends to the last one, that one to itself if it is alone,
  // and each other one to the one before it.
  std::vector<std::int32_t> peers(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    peers[rank] = static_cast<std::int32_t>((rank + size - 1) % size);
  }
  const auto gathered = Run<T>(own, TFAOT_ALL_GATHER, 0, dtype, size, nullptr);
  const auto dealt = Run<T>(own, TFAOT_ALL_TO_ALL, 0, dtype, size, nullptr);
  const auto sent = Run<T>(own, TFAOT_BROADCAST, 0, dtype, 1, &root);
  const auto moved = Run<T>(own, TFAOT_PERMUTE, 0, dtype, 2, peers.data());
  peers[0] = -1;  // so nobody sends to the last one
  const auto shifted = Run<T>(own, TFAOT_PERMUTE, 0, dtype, 2, peers.data());
  if (gathered.empty() || dealt.empty() || sent.empty() || moved.empty() ||
      shifted.empty()) {
    return false;
  }
  bool right = true;
  for (std::size_t i = 0; i < kCount; ++i) {
    for (std::size_t other = 0; other < size; ++other) {
      const int from = static_cast<int>(other);
      right &= gathered[other * kCount + i] == Value<T>(from, other, i);
      right &= dealt[other * kCount + i] == Value<T>(from, me, i);
    }
    right &= sent[i] == Value<T>(root, 0, i);
    const int source = static_cast<int>((me + 1) % size);
    right &= moved[i] == Value<T>(own.rank, 0, i);
    right &= moved[kCount + i] == Value<T>(source, 0, i);
    right &= shifted[kCount + i] == (own.rank == root ? Value<T>(own.rank, 1, i)
                                                      : Value<T>(source, 0, i));
  }
  if (!reduces) return right;
  const auto scattered =
      Run<T>(own, TFAOT_REDUCE_SCATTER, TFAOT_ADD, dtype, size, nullptr);
  const auto reduced =
      Run<T>(own, TFAOT_ALL_REDUCE, TFAOT_MAX, dtype, 1, nullptr);
  if (scattered.empty() || reduced.empty()) return false;
  for (std::size_t i = 0; i < kCount; ++i) {
    T sum = 0;
    for (int other = 0; other < own.size; ++other)
      sum += Value<T>(other, me, i);
    right &= scattered[i] == sum;
    right &= reduced[i] == Value<T>(root, 0, i);
  }
  return right;
}

// Returns whether groups do what all replicas do: pairs of neighbors, in
// descending order, if the number of replicas is even, and else one of all.
inline bool InGroups(const tfaot_collectives& own) {
  const std::int32_t group = own.size % 2 == 0 ? 2 : own.size;
  std::vector<std::int32_t> peers = {group};
  for (std::int32_t i = 0; i < own.size; ++i) {
    peers.push_back(i - i % group + group - 1 - i % group);
  }
  const auto size = static_cast<std::size_t>(group);
  const std::int32_t first = own.rank - own.rank % group;
  const auto me = static_cast<std::size_t>(first + group - 1 - own.rank);
  const auto run = [&](int kind, int op, std::size_t blocks) {
    return Run<float>(own, kind | TFAOT_IN_GROUPS, op, TFAOT_FLOAT32, blocks,
                      peers.data());
  };
  const auto reduced = run(TFAOT_ALL_REDUCE, TFAOT_ADD, 1);
  const auto gathered = run(TFAOT_ALL_GATHER, 0, size);
  const auto scattered = run(TFAOT_REDUCE_SCATTER, TFAOT_ADD, size);
  const auto dealt = run(TFAOT_ALL_TO_ALL, 0, size);
  const auto sent = run(TFAOT_BROADCAST, 0, 1);
  if (reduced.empty() || gathered.empty() || scattered.empty() ||
      dealt.empty() || sent.empty()) {
    return false;
  }
  bool right = true;
  for (std::size_t i = 0; i < kCount; ++i) {
    float sum = 0, own_sum = 0;
    for (std::size_t place = 0; place < size; ++place) {
      const int from = first + group - 1 - static_cast<int>(place);
      sum += Value<float>(from, 0, i);
      own_sum += Value<float>(from, me, i);
      right &= gathered[place * kCount + i] == Value<float>(from, place, i);
      right &= dealt[place * kCount + i] == Value<float>(from, me, i);
    }
    right &= reduced[i] == sum && scattered[i] == own_sum;
    right &= sent[i] == Value<float>(first + group - 1, 0, i);
  }
  return right;
}

inline bool CheckAll(const tfaot_collectives& own) {
  return InGroups(own) && Right<float>(own, TFAOT_FLOAT32, true) &&
         Right<double>(own, TFAOT_FLOAT64, true) &&
         Right<std::int32_t>(own, TFAOT_INT32, true) &&
         Right<std::int64_t>(own, TFAOT_INT64, true) &&
         Right<std::uint8_t>(own, TFAOT_BOOL, false) &&
         Right<std::uint16_t>(own, TFAOT_BFLOAT16, false) &&
         Right<std::uint32_t>(own, TFAOT_UINT32, false) &&
         Right<std::uint64_t>(own, TFAOT_COMPLEX64, false);
}

}  // namespace collective_kinds

#endif  // TFAOT_TESTS_RUNTIME_COLLECTIVE_KINDS_H_
