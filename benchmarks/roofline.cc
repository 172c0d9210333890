// Measures the limits of one core: multiply-adds per second, and bytes read per
// second by working-set size. Prints JSON.
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

template <int kWidth>
struct Vector {
  typedef float Type __attribute__((vector_size(kWidth * sizeof(float))));
};

// Independent chains of multiply-adds that stay in registers, enough to hide
// the latency of a single one.
template <int kWidth>
double FlopsPerSecond() {
  constexpr int kChains = 10;
  constexpr long kSteps = 2'000'000;
  using V = typename Vector<kWidth>::Type;
  double best = 0;
  for (int attempt = 0; attempt < 15; ++attempt) {
    V a[kChains], factor = {}, addend = {};
    factor += 0.999f;
    addend += 0.001f;
    for (int chain = 0; chain < kChains; ++chain) {
      a[chain] = V{} + static_cast<float>(chain);
    }
    const auto begin = Clock::now();
    for (long step = 0; step < kSteps; ++step) {
#pragma GCC unroll 10
      for (int chain = 0; chain < kChains; ++chain) {
        a[chain] = a[chain] * factor + addend;
      }
    }
    const double seconds = Seconds(begin);
    for (int chain = 0; chain < kChains; ++chain) {
      asm volatile("" ::"m"(a[chain]));
    }
    const double flops = 2.0 * kWidth * kChains * kSteps / seconds;
    if (flops > best) best = flops;
  }
  return best;
}

double BytesPerSecond(std::size_t bytes) {
  using V = Vector<8>::Type;
  std::vector<V> values(bytes / sizeof(V));
  for (auto& value : values) value = V{} + 1.0f;
  const std::size_t count = values.size() / 8 * 8;
  const std::size_t repeats = 1 + (std::size_t{256} << 20) / bytes;
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    V sums[8] = {};
    const auto begin = Clock::now();
    for (std::size_t repeat = 0; repeat < repeats; ++repeat) {
      for (std::size_t i = 0; i < count; i += 8) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; ++j) sums[j] += values[i + j];
      }
      asm volatile("" ::: "memory");
    }
    const double seconds = Seconds(begin);
    for (auto& sum : sums) asm volatile("" ::"m"(sum));
    const double rate =
        static_cast<double>(count * sizeof(V)) * repeats / seconds;
    if (rate > best) best = rate;
  }
  return best;
}

#if defined(__x86_64__)
__attribute__((target("avx512f"), flatten)) double FlopsPerSecondAvx512() {
  return FlopsPerSecond<16>();
}
#endif

double Peak() {
  double peak = FlopsPerSecond<8>();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    const double wide = FlopsPerSecondAvx512();
    if (wide > peak) peak = wide;
  }
#endif
  return peak;
}

}  // namespace

int main() {
  std::printf("{\"gflops\": %.1f, \"bandwidth\": [", Peak() / 1e9);
  const char* comma = "";
  for (std::size_t kib = 16; kib <= 128 * 1024; kib *= 2) {
    std::printf("%s{\"kib\": %zu, \"gb_per_s\": %.1f}", comma, kib,
                BytesPerSecond(kib * 1024) / 1e9);
    comma = ", ";
  }
  std::printf("]}\n");
  return 0;
}
