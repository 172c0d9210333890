// Measures what one core can do at most: float32 multiply-adds, and bytes from
// memory and from its caches. Prints a line of JSON.
//
// The roofline in NAME_report compares kernels with these rates.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <vector>

namespace {

constexpr int kTries = 7;

double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Keeps the compiler from computing nothing.
volatile float sink;

template <typename Vector>
[[gnu::always_inline]] inline double MultiplyAdds() {
  constexpr int kChains = 12;  // latency times throughput of current CPUs
  constexpr int kSteps = 2'000'000;
  constexpr int kWidth = sizeof(Vector) / sizeof(float);
  Vector sums[kChains] = {};
  Vector factor{};
  Vector term{};
  for (int i = 0; i < kWidth; ++i) {
    factor[i] = 0.999F;
    term[i] = 0.001F * static_cast<float>(i);
  }
  const double begin = Seconds();
  for (int step = 0; step < kSteps; ++step) {
    for (int chain = 0; chain < kChains; ++chain) {
      sums[chain] = sums[chain] * factor + term;
    }
  }
  const double seconds = Seconds() - begin;
  float total = 0;
  for (const Vector& sum : sums) total += sum[0];
  sink = total;
  return 2.0 * kSteps * kChains * kWidth / seconds;
}

using Vector16 = float __attribute__((vector_size(16)));
using Vector32 = float __attribute__((vector_size(32)));
using Vector64 = float __attribute__((vector_size(64)));

#if defined(__x86_64__)
__attribute__((target("avx512f,fma"))) double Wide() {
  return MultiplyAdds<Vector64>();
}
__attribute__((target("avx2,fma"))) double Middle() {
  return MultiplyAdds<Vector32>();
}
#endif

double Flops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return Wide();
  if (__builtin_cpu_supports("avx2")) return Middle();
#endif
  return MultiplyAdds<Vector16>();
}

// Bytes per second of a copy, which reads and writes each byte once.
double Copied(std::size_t size, int times) {
  std::vector<char> from(size, 1);
  std::vector<char> to(size, 2);
  const double begin = Seconds();
  for (int i = 0; i < times; ++i) {
    std::memcpy(to.data(), from.data(), size);
    from[static_cast<std::size_t>(i) % size] = to[size / 2];
  }
  const double seconds = Seconds() - begin;
  sink = static_cast<float>(to[size - 1]);
  return 2.0 * static_cast<double>(size) * times / seconds;
}

template <typename Function>
double Best(Function function) {
  double best = 0;
  for (int i = 0; i < kTries; ++i) best = std::max(best, function());
  return best;
}

}  // namespace

int main() {
  const double flops = Best(Flops);
  const double memory = Best([] { return Copied(std::size_t{128} << 20, 2); });
  const double cache = Best([] { return Copied(std::size_t{96} << 10, 4000); });
  std::printf("{\"flops\": %.4g, \"memory\": %.4g, \"cache\": %.4g}\n", flops,
              memory, cache);
}
