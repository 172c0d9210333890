// Shared by the kernels' fuzz tests: random sizes and values, operands at any
// address between poisoned margins, and counting of failures.
#ifndef TFAOT_TESTS_RUNTIME_KERNELS_FUZZ_H_
#define TFAOT_TESTS_RUNTIME_KERNELS_FUZZ_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

namespace tfaot::fuzz {

// Whether this CPU runs what the test is compiled for. A machine without
// AVX-512 can't test the kernels for it, and the test says so.
inline bool CanRun() {
#if defined(__AVX512F__)
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512vl")) {
    std::puts("nothing was tested: this CPU has no AVX-512");
    return false;
  }
#endif
  return true;
}

// How many of a test's random cases to run: on ARM a tenth, because an emulator
// takes minutes for all. x86-64 without AVX2 has vectors of the same size, and
// runs all cases through the same code. ThreadSanitizer sees a race the first
// time that threads share a kernel.
inline int Cases(int cases) {
#if defined(__SANITIZE_THREAD__) || defined(__aarch64__)
  return cases / 10;
#else
  return cases;
#endif
}

// Reproducible: a test's cases depend only on its seed.
class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  // Returns a value from `low` to `high`, both inclusive.
  int64_t Between(int64_t low, int64_t high) {
    // Not std::uniform_int_distribution, which differs between libraries.
    return low +
           static_cast<int64_t>(Bits() % static_cast<uint32_t>(high - low + 1));
  }
  uint32_t Bits() { return static_cast<uint32_t>(engine_()); }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }

 private:
  std::mt19937 engine_;
};

// An array that begins `shift` values past an aligned address, in its own
// block, so that AddressSanitizer sees reads and writes outside it.
template <typename T>
class Array {
 public:
  Array(int64_t size, int64_t shift)
      : size_(size), shift_(shift), block_(new T[Total()]) {
    // A margin in front, which AddressSanitizer would consider part of the
    // array.
    for (int64_t i = 0; i < shift_; ++i) block_[i] = kMargin;
  }

  Array(const Array& other) : Array(other.size_, other.shift_) {
    for (int64_t i = 0; i < size_; ++i) data()[i] = other.data()[i];
  }

  // Small integers: sums of products of these are exact in any order.
  static Array Filled(Random& random, int64_t size) {
    Array array(size, random.Between(0, 3));
    uint32_t digits = 0;  // base 9; ten of them fit
    for (int64_t i = 0; i < size; ++i) {
      digits = i % 10 == 0 ? random.Bits() : digits / 9;
      array.data()[i] = static_cast<T>(static_cast<int>(digits % 9) - 4);
    }
    return array;
  }

  // Memory for a kernel to overwrite, with values that no correct result has.
  static Array Poisoned(Random& random, int64_t size) {
    Array array(size, random.Between(0, 3));
    for (int64_t i = 0; i < size; ++i) array.data()[i] = kMargin;
    return array;
  }

  T* data() { return block_.get() + shift_; }
  const T* data() const { return block_.get() + shift_; }
  int64_t size() const { return size_; }

  bool MarginsAreIntact() const {
    for (int64_t i = 0; i < shift_; ++i) {
      if (block_[i] != kMargin) return false;
    }
    return true;
  }

 private:
  static constexpr T kMargin = static_cast<T>(123456789);
  std::size_t Total() const { return static_cast<std::size_t>(size_ + shift_); }

  int64_t size_;
  int64_t shift_;
  std::unique_ptr<T[]> block_;
};

// Compares exactly. Prints the first difference, with the name `what`.
template <typename T>
bool Same(const Array<T>& expected, const Array<T>& got,
          const std::string& what) {
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (!(expected.data()[i] == got.data()[i])) {
      std::fprintf(stderr, "%s: value %lld is %g, not %g\n", what.c_str(),
                   static_cast<long long>(i),
                   static_cast<double>(got.data()[i]),
                   static_cast<double>(expected.data()[i]));
      return false;
    }
  }
  if (!got.MarginsAreIntact()) {
    std::fprintf(stderr, "%s: wrote before the output\n", what.c_str());
    return false;
  }
  return true;
}

// Ends the process with a failure after the first wrong case.
inline void Require(bool ok) {
  if (!ok) std::exit(1);
}

}  // namespace tfaot::fuzz

#endif  // TFAOT_TESTS_RUNTIME_KERNELS_FUZZ_H_
