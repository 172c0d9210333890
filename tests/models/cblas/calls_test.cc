// Protects calls to a library that the build names: a model uses it for its
// large products and for no others, including from the threads of a pool.
#include <dlfcn.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "tests/models/cblas/large_aot.h"
#include "tests/runtime/expect.h"
#include "tfaot/threads.h"

namespace {

std::atomic<int> floats{0};
std::atomic<int> doubles{0};
std::atomic<bool> small{false};
// The library's function, which the program overrides with its own.
template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

void scipy_cblas_sgemm64_(int order, int left, int right, std::int64_t m,
                          std::int64_t n, std::int64_t k, float alpha,
                          const float* a, std::int64_t lda, const float* b,
                          std::int64_t ldb, float beta, float* c,
                          std::int64_t ldc) {
  static auto* const next =
      Next<decltype(scipy_cblas_sgemm64_)>("scipy_cblas_sgemm64_");
  ++floats;
  if (k < 256) small = true;
  next(order, left, right, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void scipy_cblas_dgemm64_(int order, int left, int right, std::int64_t m,
                          std::int64_t n, std::int64_t k, double alpha,
                          const double* a, std::int64_t lda, const double* b,
                          std::int64_t ldb, double beta, double* c,
                          std::int64_t ldc) {
  static auto* const next =
      Next<decltype(scipy_cblas_dgemm64_)>("scipy_cblas_dgemm64_");
  ++doubles;
  next(order, left, right, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

}  // extern "C"

namespace {

// The weights after two steps.
std::vector<float> Trained(tfaot::ThreadPool* pool) {
  cblas::Large model;
  model.set_thread_pool(pool);
  for (std::size_t i = 0; i < model.train_x().size(); ++i) {
    model.train_x()[i] = static_cast<float>(i % 29) / 14.0f - 1.0f;
  }
  Expect(model.train() && model.train(), "the model runs");
  const cblas::Large& trained = model;
  return {trained.hidden().data(),
          trained.hidden().data() + trained.hidden().size()};
}

}  // namespace

int main() {
  const std::vector<float> alone = Trained(nullptr);
  // Per step: the hidden layer, its weight's gradient, and two batches of two,
  // forward and backward.
  const int calls = floats.exchange(0);
  std::printf("%d calls for two steps\n", calls);
  Expect(calls >= 2 * 4 && calls % 2 == 0, "large products go to the library");
  Expect(!small, "small products do not");
  Expect(doubles == 0, "a step has no products of doubles");

  tfaot::Threads pool(3);
  const std::vector<float> shared = Trained(&pool);
  Expect(floats > calls, "a pool's threads call the library for parts");
  float difference = 0;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    difference = std::fmax(difference, std::fabs(alone[i] - shared[i]));
  }
  Expect(difference < 1e-5f, "a pool gives the same numbers");

  cblas::Large model;
  Expect(model.doubles(), "the model runs");
  Expect(doubles == 1, "a product of doubles goes to the library");
  return failed == 0 ? 0 : 1;
}
