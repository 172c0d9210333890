// Breaks the exchange of replicas in a generated test, which must then fail.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

// Whatever the generated test includes afterwards is the broken one.
#define ThreadReplicas SoundReplicas
#include "tfaot/thread_replicas.h"
#undef ThreadReplicas

namespace tfaot {

enum class Fault {
  kNone,
  kDropped,        // one replica skips a collective
  kAveragedTwice,  // a sum is divided once more
  kWrongRank,      // a replica gets what another one had
};

inline Fault fault = Fault::kNone;
inline int faulty = 0;               // the number of the collective
inline bool met = false;             // whether the fault applies to it
constexpr std::uint64_t kApart = 1;  // a call for each collective

inline std::size_t Bytes(const tfaot_collective& call) {
  static const std::size_t kSizes[] = {0, 4, 8, 4, 1, 2, 1,  0, 8, 8, 1, 0,
                                       0, 0, 2, 0, 0, 2, 16, 2, 0, 0, 4, 8};
  return kSizes[call.dtype] * static_cast<std::size_t>(call.count);
}

inline std::int32_t Kind(const tfaot_collective& call) {
  return call.kind & ~std::int32_t{TFAOT_IN_GROUPS};
}

// Breaks what rank 1 has after a collective, given what it had before.
inline bool Break(const tfaot_collective& call,
                  const std::vector<char>& before) {
  auto* const data = static_cast<char*>(call.data);
  auto* const floats = static_cast<float*>(call.data);
  const std::int32_t kind = Kind(call);
  const bool reduces = kind == TFAOT_ALL_REDUCE || kind == TFAOT_REDUCE_SCATTER;
  const std::size_t bytes = Bytes(call);
  switch (fault) {
    case Fault::kNone:
      return false;
    case Fault::kDropped:
      std::memcpy(data, before.data(), before.size());
      return true;
    case Fault::kAveragedTwice:
      if (!reduces || call.dtype != TFAOT_FLOAT32) return false;
      for (std::size_t i = 0; i < call.count; ++i) floats[i] /= 2;
      return true;
    case Fault::kWrongRank:
      if (kind == TFAOT_ALL_REDUCE) {
        if (call.dtype != TFAOT_FLOAT32) return false;
        const auto* const own = reinterpret_cast<const float*>(before.data());
        for (std::size_t i = 0; i < call.count; ++i)
          floats[i] = 2 * (floats[i] - own[i]);
      } else if (kind == TFAOT_PERMUTE) {
        std::memcpy(data + bytes, data, bytes);
      } else if (kind == TFAOT_BROADCAST || kind == TFAOT_REDUCE_SCATTER) {
        return false;  // as kDropped
      } else {
        std::swap_ranges(data, data + bytes, data + bytes);
      }
      return true;
  }
  return false;
}

// As the sound ones, but one collective of each run goes wrong for rank 1.
class ThreadReplicas {
 public:
  explicit ThreadReplicas(int size)
      : sound_(size, std::chrono::minutes(5), kApart) {
    for (int rank = 0; rank < size; ++rank) {
      ranks_.push_back(
          {sound_.collectives(rank), {}, *sound_.collectives(rank)});
    }
    for (Rank& rank : ranks_) {
      rank.broken.context = &rank;
      rank.broken.start = [](void* context, const tfaot_collective* call) {
        auto& own = *static_cast<Rank*>(context);
        const auto* const data = static_cast<const char*>(call->data);
        const bool one =
            Kind(*call) == TFAOT_ALL_REDUCE || Kind(*call) == TFAOT_BROADCAST;
        if (call->id == faulty)
          own.before.assign(data, data + (one ? 1 : 2) * Bytes(*call));
        return own.sound->start(own.sound->context, call);
      };
      rank.broken.wait = [](void* context, const tfaot_collective* call) {
        auto& own = *static_cast<Rank*>(context);
        const int status = own.sound->wait(own.sound->context, call);
        if (call->id == faulty && own.sound->rank == 1 &&
            Break(*call, own.before))
          met = true;
        return status;
      };
      rank.broken.abort = [](void* context) {
        auto& own = *static_cast<Rank*>(context);
        own.sound->abort(own.sound->context);
      };
      rank.broken.error = [](void* context) {
        auto& own = *static_cast<Rank*>(context);
        return own.sound->error(own.sound->context);
      };
    }
  }

  const tfaot_collectives* collectives(int rank) const noexcept {
    return &ranks_[static_cast<std::size_t>(rank)].broken;
  }

 private:
  struct Rank {
    const tfaot_collectives* sound;
    std::vector<char> before;
    tfaot_collectives broken;
  };

  SoundReplicas sound_;
  std::vector<Rank> ranks_;
};

}  // namespace tfaot

#define main generated_main
#include GENERATED_TEST
#undef main

int main(int argc, char** argv) {
  int failed = 0, dropped = 0;
  for (tfaot::faulty = 0; tfaot::faulty < 2 * COLLECTIVES; ++tfaot::faulty) {
    for (const auto fault :
         {tfaot::Fault::kNone, tfaot::Fault::kDropped,
          tfaot::Fault::kAveragedTwice, tfaot::Fault::kWrongRank}) {
      tfaot::fault = fault;
      tfaot::met = false;
      const bool passed = generated_main(argc, argv) == 0;
      dropped += tfaot::met && fault == tfaot::Fault::kDropped;
      if (passed != tfaot::met) continue;
      std::printf(
          "collective %d, fault %d: the generated test %s\n", tfaot::faulty,
          static_cast<int>(fault),
          passed ? "doesn't notice it  FAILED" : "fails without one  FAILED");
      ++failed;
    }
  }
  if (dropped != COLLECTIVES) {
    std::printf("%d collectives  FAILED\n", dropped);
    ++failed;
  }
  return failed == 0 ? 0 : 1;
}
