// Compares a compiled model with TensorFlow's numbers. Generated tests use it.
#ifndef TFAOT_VERIFY_H_
#define TFAOT_VERIFY_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "tfaot/bounded_view.h"
#include "tfaot/goldens.h"
#include "tfaot/half.h"
#include "tfaot/isa.h"
#include "tfaot/values.h"
#include "tfaot/view.h"

namespace tfaot {

// What `--help` prints after the program's name.
inline constexpr char kVerifyHelp[] =
    R"([GOLDENS] [VARIABLES] [--values=FILE]

Runs a compiled model, and compares each output and each written variable with
TensorFlow's numbers, on every CPU level of the model that this machine runs.
Exits with status 1 if a comparison fails.

  GOLDENS    the file with inputs and TensorFlow's numbers, which Bazel passes
  VARIABLES  the file with the variables of a target that doesn't embed them,
             which Bazel passes
  --values=FILE  also write all compared values to FILE, in the order of
             execution, for //tools:values. The last CPU level wins.
  --help     print this text

Columns: the largest absolute error of a tensor, and in units in the last place;
the largest share of a value's tolerance; by how many tolerances other inputs and
variables would move half of the values or more; and the share of the values for
which a wrong one would fail. With weights in another dtype, a line for each
output has the largest change, relative to the output's largest value.
To see the table: bazel test --test_output=all TARGET
)";

// 16-bit floats, which are compared as floats.
template <typename T>
struct IsHalf : std::bool_constant<std::is_same_v<T, Float16> ||
                                   std::is_same_v<T, BFloat16>> {};

// The largest errors of one tensor, and whether all of them are tolerated.
struct Errors {
  double absolute = 0;
  double ulp = 0;      // units in the last place of the expected value
  double share = 0;    // fraction of the value's tolerance
  std::size_t at = 0;  // flat index of the largest share
  bool tolerated = true;
};

// CRC-32 as in zlib (polynomial 0xedb88320). It detects any flipped bit.
inline std::uint32_t Crc32(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::uint32_t table[256];
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (0xedb88320u & -(c & 1u));
    table[i] = c;
  }
  std::uint32_t crc = ~std::uint32_t{0};
  for (std::size_t i = 0; i < size; ++i) {
    crc = table[(crc ^ bytes[i]) & 0xffu] ^ (crc >> 8);
  }
  return ~crc;
}

// Compares `got` with `want`, with a tolerance for each value. NaN equals NaN,
// and an infinity equals only itself. An infinite tolerance accepts anything.
template <typename T>
Errors Compare(const T* got, const T* want, const float* tolerance,
               std::size_t size) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Errors errors;
  for (std::size_t i = 0; i < size; ++i) {
    if (got[i] == want[i]) continue;
    double difference =
        std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    double ulp = difference;
    if constexpr (!std::is_floating_point_v<T>) {
      // Different large integers can be equal as doubles.
      ulp = difference = std::max(difference, 1.0);
    } else {
      if (std::isnan(got[i]) && std::isnan(want[i])) continue;
      // A NaN on one side is infinitely far off, or later values would hide it.
      if (std::isnan(difference)) difference = kInfinity;
      const T magnitude =
          std::max(std::abs(want[i]), std::numeric_limits<T>::min());
      ulp = difference /
            static_cast<double>(
                std::nextafter(magnitude, std::numeric_limits<T>::infinity()) -
                magnitude);
    }
    const double allowed = static_cast<double>(tolerance[i]);
    if (std::isinf(allowed)) continue;
    const bool tolerated = difference <= allowed;
    const double share = allowed > 0 ? difference / allowed : kInfinity;
    if (!tolerated) errors.tolerated = false;
    errors.absolute = std::max(errors.absolute, difference);
    errors.ulp = std::max(errors.ulp, ulp);
    if (share > errors.share) {
      errors.share = share;
      errors.at = i;
    }
  }
  return errors;
}

// How much of a large result the goldens keep. py/tfaot/verify/digest.py has
// the same numbers, and the reasons.
inline constexpr std::size_t kFull = 16384;
inline constexpr std::size_t kSamples = 1024;
inline constexpr std::size_t kBlock = 64;

// Sums of kBlock consecutive values, with fixed signs.
template <typename T>
std::vector<double> BlockSums(const T* values, std::size_t size) {
  std::vector<double> sums((size + kBlock - 1) / kBlock);
  for (std::size_t i = 0; i < size; ++i) {
    const bool negative = (i * std::uint64_t{0x9E3779B97F4A7C15}) >> 63;
    const auto value = static_cast<double>(values[i]);
    sums[i / kBlock] += negative ? -value : value;
  }
  return sums;
}

// Collects the results of a test and prints one line per tensor.
class Verifier {
 public:
  // `isa` is the CPU level of the model's code, and `argv[1]` the goldens file.
  Verifier(const char* model, const char* isa, int argc, char** argv)
      : model_(model),
        isa_(isa),
        goldens_(argc > 1 ? argv[1] : "(no goldens file)"),
        values_(ValuesFile::Path(argc, argv)) {
    std::printf(
        "%s, %s, against TensorFlow\n%-5s %-44s %10s %10s %10s %10s %8s\n",
        model, isa, "step", "tensor", "max abs", "max ulp", "tolerance", "sees",
        "checked");
  }

  // Checks that a variable starts with TensorFlow's initial value, bit by bit.
  // Returns the checksum.
  template <typename T, std::int64_t... kDims>
  std::uint32_t Initial(const char* name, View<T, kDims...> got) {
    const auto want = goldens_.Read<std::uint32_t>();
    Unchanged(name, got, want);
    return want;
  }

  // Checks that a read-only variable keeps its initial value.
  template <typename T, std::int64_t... kDims>
  void Unchanged(const char* name, View<T, kDims...> got, std::uint32_t want) {
    ++compared_;
    if (Crc32(got.data(), got.size_bytes()) == want) return;
    ++failed_;
    std::printf("      %-44s isn't TensorFlow's initial value  FAILED\n", name);
  }

  // Sets an input, or its first `rows` rows; or a variable, which gets
  // TensorFlow's values from before a call.
  template <typename T, std::int64_t... kDims>
  void Feed(View<T, kDims...> input) {
    goldens_.Feed(input);
  }
  template <typename T, std::int64_t... kDims>
  void Feed(View<T, kDims...> input, std::int64_t rows) {
    goldens_.Feed(input, rows);
  }

  // Says whose results are compared next, if the model has replicas.
  void Replica(int rank) {
    replica_ = " (replica " + std::to_string(rank) + ")";
  }

  // The same for the first `used` values of each dimension. Behind them is what
  // a program may have left there: NaN, or huge values.
  template <typename T, std::int64_t... kDims>
  void Feed(View<T, kDims...> input,
            const std::int64_t (&used)[sizeof...(kDims)], int step) {
    const int garbage = std::is_same_v<T, bool> ? 1
                        : step % 2 == 0         ? 0xFF
                                                : 0x7F;
    std::memset(static_cast<void*>(input.data()), garbage, input.size_bytes());
    goldens_.FeedUsed(input, used);
  }

  // Checks that a run succeeded.
  void Ran(int step, bool ok, const char* error) {
    ++compared_;
    if (ok) return;
    ++failed_;
    std::printf("%-5d Run() failed: %s  FAILED\n", step, error);
  }

  // Reads the expected values and compares all, or the first `rows` rows.
  template <typename T, std::int64_t... kDims>
  void Check(int step, const char* name, View<T, kDims...> got) {
    Keep(step, name, {kDims...}, got.data(), got.size());
    Values(step, name, got.data(), got.size());
  }
  template <typename T, std::int64_t... kDims>
  void Check(int step, const char* name, View<T, kDims...> got,
             std::int64_t rows) {
    std::vector<std::int64_t> shape = {kDims...};
    shape[0] = rows;
    Keep(step, name, shape, got.data(), Rows(got, rows));
    Values(step, name, got.data(), Rows(got, rows));
  }

  // For a result whose size is known only at run time, the size comes first.
  template <typename T, std::int64_t... kDims>
  void Check(int step, const char* name, BoundedView<T, kDims...> got) {
    bool same = true;
    std::string want, found;
    for (std::size_t axis = 0; axis < sizeof...(kDims); ++axis) {
      const auto size = goldens_.Read<std::int32_t>();
      same = same && size == got.dim(axis);
      want += (axis > 0 ? ", " : "") + std::to_string(size);
      found += (axis > 0 ? ", " : "") + std::to_string(got.dim(axis));
    }
    ++compared_;
    if (!same) {
      ++failed_;
      std::printf("%-5d %-44s has the size [%s], expected [%s]  FAILED\n", step,
                  name, found.c_str(), want.c_str());
      Summarize();
      std::exit(1);  // the rest of the file has another size
    }
    std::vector<std::int64_t> shape(sizeof...(kDims));
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      shape[axis] = got.dim(axis);
    }
    Keep(step, name, shape, got.data(), got.size());
    Values(step, name, got.data(), got.size());
  }

  // The same for a free run, in which each call continues from the variables
  // that the previous one left.
  template <typename T, std::int64_t... kDims>
  void CheckFree(int step, const std::string& name, View<T, kDims...> got) {
    Values(step, name + kFree, got.data(), got.size());
  }
  template <typename T, std::int64_t... kDims>
  void CheckFree(int step, const std::string& name, View<T, kDims...> got,
                 std::int64_t rows) {
    Values(step, name + kFree, got.data(), Rows(got, rows));
  }

  // Reads how much weights in another dtype change an output in TensorFlow, and
  // what the target tolerates. Both are relative to its largest value.
  void Deviation(const char* output, const char* dtype) {
    const auto largest = goldens_.Read<double>();
    const auto tolerance = goldens_.Read<double>();
    const bool tolerated = largest <= tolerance;
    ++compared_;
    std::printf("      %-44s weights in %s change it by %.2g, of %.2g  %s\n",
                output, dtype, largest, tolerance, tolerated ? "ok" : "FAILED");
    if (tolerated) return;
    ++failed_;
    if (first_.empty()) first_ = std::string(output) + ", weights in " + dtype;
  }

  // The number of blind comparisons so far.
  int blind() const { return blind_; }

  // The first comparison that failed, as "NAME, step N"; empty if none did.
  const std::string& first() const { return first_; }

  // Reads and prints what isn't verified, a line for each output or variable.
  // Returns the process's exit status.
  int Finish() {
    std::string line(goldens_.Read<std::uint64_t>(), '\n');
    goldens_.Read(line.data(), line.size());
    for (std::size_t end; !line.empty(); line.erase(0, end + 1)) {
      end = std::min(line.find('\n'), line.size() - 1);
      const std::size_t size = line[end] == '\n' ? end : line.size();
      std::printf("      %-44s NOT VERIFIED\n", line.substr(0, size).c_str());
      ++unverified_;
    }
    goldens_.End();
    Summarize();
    if (!values_.Write(model_, isa_)) {
      std::printf("%s can't be written  FAILED\n", values_.path().c_str());
      return 1;
    }
    return failed_ == 0 ? 0 : 1;
  }

 private:
  static constexpr const char* kFree = " (free run)";

  void Summarize() const {
    std::printf("%s, %s: %d of %d comparisons failed", model_, isa_, failed_,
                compared_);
    if (blind_ > 0) std::printf("; %d more are blind", blind_);
    if (values_compared_ > 0) {
      std::printf("; %.0f of %.0f values are checked", values_checked_,
                  values_compared_);
    }
    if (unverified_ > 0) std::printf("; %d not verified", unverified_);
    std::printf("\n");
    if (!first_.empty()) {
      std::printf("first to diverge: %s\n", first_.c_str());
    }
  }

  // Keeps values for --values. Taps have their place in the user's code after
  // their name, which isn't part of it.
  template <typename T>
  void Keep(int step, const char* name, const std::vector<std::int64_t>& shape,
            const T* values, std::size_t size) {
    if (!values_.wanted()) return;
    const std::string text(name);
    values_.Add("step" + std::to_string(step) + "/" +
                    text.substr(0, text.find(" at ")) + replica_,
                shape, values, size);
  }

  // The number of values in `rows` rows of a batch.
  template <typename T, std::int64_t... kDims>
  static std::size_t Rows(View<T, kDims...> view, std::int64_t rows) {
    return view.size() / static_cast<std::size_t>(view.dim(0)) *
           static_cast<std::size_t>(rows);
  }

  template <typename T>
  void Values(int step, const std::string& name, const T* got,
              std::size_t size) {
    if constexpr (IsComplex<T>::value) {
      // As pairs of reals, which the standard guarantees.
      using Real = typename T::value_type;
      Values(step, name, reinterpret_cast<const Real*>(got), 2 * size);
    } else if (size <= kFull) {
      Compared<T>(step, name, "", got, size);
    } else {
      // Not a vector, because std::vector<bool> has no data().
      const auto samples = std::make_unique<T[]>(kSamples);
      for (std::size_t i = 0; i < kSamples; ++i) {
        samples[i] = got[i * size / kSamples];
      }
      Compared<T>(step, name, " (samples)", samples.get(), kSamples);
      const std::vector<double> sums = BlockSums(got, size);
      Compared<double>(step, name, " (block sums)", sums.data(), sums.size());
    }
  }

  template <typename Value>
  void Compared(int step, const std::string& tensor, const char* part,
                const Value* got, std::size_t size) {
    const std::string name = tensor + replica_;
    const auto want = std::make_unique<Value[]>(size);
    goldens_.Read(want.get(), size * sizeof(Value));
    std::vector<float> tolerance(size);
    goldens_.Read(tolerance.data(), size * sizeof(float));
    const auto sees = goldens_.Read<double>();
    const auto checked = goldens_.Read<double>();
    const Errors errors = [&] {
      if constexpr (IsHalf<Value>::value) {
        const std::vector<float> wide(got, got + size);
        const std::vector<float> wanted(want.get(), want.get() + size);
        return Compare<float>(wide.data(), wanted.data(), tolerance.data(),
                              size);
      } else {
        return Compare<Value>(got, want.get(), tolerance.data(), size);
      }
    }();
    const bool blind = checked == 0 && size > 0;
    // A free run compares what the other run has compared, less exactly.
    if (name.find(kFree) == std::string::npos) {
      values_compared_ += static_cast<double>(size);
      values_checked_ += checked;
    }
    if (blind && errors.tolerated) {
      ++blind_;
    } else {
      ++compared_;
    }
    std::printf("%-5d %-44s %10.3g %10.3g %9.3g%% %10.3g %7.4g%%%s\n", step,
                (name + part).c_str(), errors.absolute, errors.ulp,
                100 * errors.share, sees,
                size > 0 ? 100 * checked / static_cast<double>(size) : 100,
                !errors.tolerated ? "  FAILED"
                : blind           ? "  BLIND"
                                  : "");
    if (!errors.tolerated) {
      ++failed_;
      if (first_.empty()) {
        first_ = name + part + ", step " + std::to_string(step);
      }
      std::printf("      at index %zu: got %.9g, expected %.9g +- %.3g\n",
                  errors.at, static_cast<double>(got[errors.at]),
                  static_cast<double>(want[errors.at]),
                  static_cast<double>(tolerance[errors.at]));
    }
  }

  const char* model_;
  const char* isa_;
  Goldens goldens_;
  ValuesFile values_;
  int compared_ = 0;
  int failed_ = 0;
  int blind_ = 0;
  int unverified_ = 0;          // outputs and variables
  double values_compared_ = 0;  // of all comparisons, without free runs
  double values_checked_ = 0;
  std::string first_;  // the first comparison that failed
  std::string replica_;
};

// Copies the values of one instance's input to another's.
template <typename T, std::int64_t... kDims>
void Copy(View<T, kDims...> from, View<T, kDims...> to) {
  std::copy(from.data(), from.data() + from.size(), to.data());
}

// Calls `verify` for each of a model's CPU levels that this machine runs, and
// prints those that it doesn't run. Returns 0 if it runs at least one and all
// calls returned 0; otherwise 1.
template <typename Verify>
int VerifyIsas(const char* model, const char* const* isas, Verify verify) {
  int ran = 0;
  int failed = 0;
  for (; *isas != nullptr; ++isas) {
    if (CpuRuns(*isas)) {
      ++ran;
      if (verify(*isas) != 0) ++failed;
    } else {
      std::printf("%s, %s: NOT RUN, because this machine can't run it\n", model,
                  *isas);
    }
  }
  if (ran == 0) std::printf("%s: nothing was compared  FAILED\n", model);
  return ran > 0 && failed == 0 ? 0 : 1;
}

}  // namespace tfaot

#endif  // TFAOT_VERIFY_H_
