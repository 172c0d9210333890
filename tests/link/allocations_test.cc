// Protects real-time use: Run() allocates nothing, in models with products,
// convolutions, loops, and batches that are split.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "examples/batch_family/batch_family_aot.h"
#include "examples/conv_fc/conv_fc_aot.h"
#include "examples/dynamic_rnn/dynamic_rnn_aot.h"
#include "examples/fc/fc_aot.h"

namespace {
long allocations = 0;
int failed = 0;
}  // namespace

// Every way to the C library's memory, which operator new takes as well.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  ++allocations;
  return __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  ++allocations;
  *out = __libc_memalign(alignment, size);
  return *out == nullptr;
}
}

namespace {

template <typename Run>
void Check(const char* name, Run run) {
  for (int step = 0; step < 3; ++step) {
    const long before = allocations;
    const bool ok = run();
    const long made = allocations - before;
    if (ok && made == 0) continue;
    std::printf("FAILED: %s, step %d: %s, %ld allocations\n", name, step,
                ok ? "ran" : "did not run", made);
    ++failed;
  }
}

}  // namespace

int main() {
  const long before = allocations;
  examples::fc::Fc fc;
  if (allocations == before) {
    std::printf("FAILED: allocations are not counted\n");
    ++failed;
  }
  examples::conv_fc::ConvFc conv_fc;
  examples::dynamic_rnn::DynamicRnn dynamic_rnn;
  examples::Classifier family;
  Check("fc", [&] { return fc.Run(); });
  Check("conv_fc", [&] { return conv_fc.Run(); });
  Check("dynamic_rnn", [&] { return dynamic_rnn.Run(); });
  Check("batch_family, one row", [&] { return family.Run(1); });
  Check("batch_family, 77 rows", [&] { return family.Run(77); });
  return failed == 0 ? 0 : 1;
}
