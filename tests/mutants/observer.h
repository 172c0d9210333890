// What a model computes, as its user sees it: the ground truth about a mutant.
//
// It knows nothing about goldens and tolerances. It runs the class on the
// verified inputs, keeps every output and written variable in full, and reports
// how far a mutant's differ from them.
#ifndef TFAOT_TESTS_MUTANTS_OBSERVER_H_
#define TFAOT_TESTS_MUTANTS_OBSERVER_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "mutation.h"
#include "tfaot/bounded_view.h"
#include "tfaot/drawn.h"
#include "tfaot/half.h"
#include "tfaot/view.h"

namespace tfaot::mutants {

// How a run differs from the original's.
struct Change {
  bool any = false;    // any bit differs
  double largest = 0;  // over all tensors: difference / largest value, where it
                       // exceeds the effect of rounding
  char name[120] = "";  // the tensor that it is in
  int call = 0;         // the call after which it appears
};

// One result of one call.
struct Result {
  std::string bytes;
  double scale = 0;  // largest finite value
  double noise = 0;  // largest difference due to rounding
};

// Observes the code for one level. Not thread-safe.
class Observer {
 public:
  enum class Mode { kRecord, kRounding, kCompare };

  explicit Observer(const std::string& inputs) : inputs_(inputs) {}

  // Starts a run of all calls.
  void Begin(Mode mode) {
    mode_ = mode;
    at_ = result_ = 0;
    call_ = -1;
    change_ = Change();
  }

  const Change& change() const { return change_; }

  // Sets the next values of an input, or of its first `rows` rows.
  template <typename Input>
  void Feed(Input input, std::int64_t rows = -1) {
    const std::size_t size = Size(input, rows);
    std::uint64_t drawn[2];  // as in goldens: a seed, or 0, and a limit
    Take(drawn, sizeof(drawn));
    if (drawn[0] == 0) {
      Take(input.data(), size * sizeof(*input.data()));
    } else {
      Draw(drawn[0], drawn[1], input.data(), size);
    }
    if (mode_ == Mode::kRounding) Rounded(input.data(), size);
  }

  template <typename Variable>
  void Start(Variable variable) {
    if (mode_ == Mode::kRounding) Rounded(variable.data(), variable.size());
  }

  void Ran(bool ok) {
    ++call_;
    if (!ok) Found("Run()", std::numeric_limits<double>::infinity());
  }

  template <typename View>
  void Seen(const char* name, View view, std::int64_t rows = -1) {
    const std::size_t size = Size(view, rows);
    using T = typename View::value_type;
    if constexpr (std::is_same_v<T, std::complex<float>> ||
                  std::is_same_v<T, std::complex<double>>) {
      using Real = typename T::value_type;
      Compared(name, reinterpret_cast<const Real*>(view.data()), 2 * size);
    } else {
      Compared(name, view.data(), size);
    }
  }

 private:
  void Take(void* target, std::size_t bytes) {
    if (bytes > inputs_.size() - at_) std::abort();
    if (bytes > 0) std::memcpy(target, inputs_.data() + at_, bytes);
    at_ += bytes;
  }

  template <typename T>
  static constexpr bool kFloating =
      std::is_floating_point_v<T> || std::is_same_v<T, Float16> ||
      std::is_same_v<T, BFloat16>;

  template <typename View>
  static std::size_t Size(const View& view, std::int64_t rows) {
    if (rows < 0) return view.size();
    return view.size() / static_cast<std::size_t>(view.dim(0)) *
           static_cast<std::size_t>(rows);
  }

  template <typename T>
  static void Rounded(T* values, std::size_t count) {
    // Views of what a model only reads are const.
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      Round(values, count);
    }
  }

  template <typename T>
  static double Double(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(value);
    } else {
      return static_cast<double>(static_cast<float>(value));
    }
  }

  template <typename T>
  void Compared(const char* name, const T* got, std::size_t size) {
    const std::size_t bytes = size * sizeof(T);
    if (mode_ == Mode::kRecord) {
      Result result;
      result.bytes.assign(reinterpret_cast<const char*>(got), bytes);
      if constexpr (kFloating<T>) {
        for (std::size_t i = 0; i < size; ++i) {
          const double value = std::abs(Double(got[i]));
          if (std::isfinite(value)) {
            result.scale = std::max(result.scale, value);
          }
        }
      }
      results_.push_back(result);
      return;
    }
    if (result_ == results_.size()) std::abort();
    Result& result = results_[result_++];
    double difference = 0;
    if (bytes != result.bytes.size()) {
      difference = std::numeric_limits<double>::infinity();
    } else if (std::memcmp(got, result.bytes.data(), bytes) != 0) {
      if constexpr (kFloating<T>) {
        for (std::size_t i = 0; i < size; ++i) {
          T was;
          std::memcpy(&was, result.bytes.data() + i * sizeof(T), sizeof(T));
          const double a = Double(got[i]);
          const double b = Double(was);
          if (a == b || (std::isnan(a) && std::isnan(b))) continue;
          const double d = std::abs(a - b);
          difference = std::max(
              difference,
              std::isnan(d) ? std::numeric_limits<double>::infinity() : d);
        }
      } else {
        difference = std::numeric_limits<double>::infinity();
      }
    }
    if (mode_ == Mode::kRounding) {
      result.noise = std::max(result.noise, difference);
      return;
    }
    if (difference == 0) return;
    change_.any = true;
    if (difference <= kNoise * result.noise) return;
    Found(name, difference /
                    std::max(result.scale, std::numeric_limits<double>::min()));
  }

  // A difference isn't rounding if it exceeds one-ULP effects by this factor.
  static constexpr double kNoise = 10;

  void Found(const char* name, double change) {
    change_.any = true;
    if (!(change > change_.largest)) return;
    change_.largest = change;
    change_.call = call_;
    std::strncpy(change_.name, name, sizeof(change_.name) - 1);
  }

  const std::string inputs_;
  std::vector<Result> results_;
  Mode mode_ = Mode::kRecord;
  std::size_t at_ = 0;
  std::size_t result_ = 0;
  int call_ = -1;
  Change change_;
};

// In the generated source: runs all calls in code for a CPU level. `variables`
// is the file with initial values.
void Observe(const char* isa, const char* variables, Observer& observer);

}  // namespace tfaot::mutants

#endif  // TFAOT_TESTS_MUTANTS_OBSERVER_H_
