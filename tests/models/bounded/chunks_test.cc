// Protects streaming: chunks of random lengths give the results, and the
// states, of one run of the whole sequence.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "examples/lengths/decoder_aot.h"
#include "examples/lengths/speech_aot.h"
#include "tests/models/bounded/gru_aot.h"

namespace {

constexpr int kDraws = 40;

bool Near(const std::vector<float>& values, const std::vector<float>& wanted,
          const char* what) {
  if (values.size() != wanted.size()) {
    return std::printf("%s: %zu values, not %zu\n", what, values.size(),
                       wanted.size()),
           false;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!(std::fabs(values[i] - wanted[i]) <= 1e-5F)) {
      return std::printf("%s: value %zu is %g, not %g\n", what, i, values[i],
                         wanted[i]),
             false;
    }
  }
  return true;
}

template <typename View>
void Append(const View& view, std::vector<float>* values) {
  values->insert(values->end(), view.begin(), view.end());
}

// Runs a sequence in chunks of these lengths. `Stream` has a model of its own;
// `Run(first, length)` makes a run, and adds results; `State` adds variables.
template <typename Stream>
bool Same(const char* what, int longest) {
  std::mt19937 random(0);
  Stream whole;
  if (!whole.Run(0, longest)) return false;
  for (int draw = 0; draw < kDraws; ++draw) {
    Stream chunks;
    for (int first = 0; first < longest;) {
      const int length = draw == 0 ? 1
                                   : std::uniform_int_distribution<>(
                                         1, longest - first)(random);
      if (!chunks.Run(first, length)) return false;
      first += length;
    }
    if (!Near(chunks.results(), whole.results(), what)) return false;
    if (!Near(chunks.State(), whole.State(), what)) return false;
  }
  return true;
}

float Value(int row, int place, int index) {
  return std::sin(1.7F * static_cast<float>(97 * row + 13 * place + index));
}

constexpr float kBehind = std::numeric_limits<float>::quiet_NaN();

class Gru {
 public:
  bool Run(int first, int length) {
    std::fill(model_.x().begin(), model_.x().end(), kBehind);
    std::fill(model_.mask().begin(), model_.mask().end(), kBehind);
    for (int row = 0; row < 2; ++row) {
      for (int i = 0; i < length; ++i) {
        for (int j = 0; j < 6; ++j) {
          model_.x()(row, i, j) = Value(row, first + i, j);
        }
        model_.mask()(row, i) = Value(row, first + i, 9) > 0 ? 1.0F : 0.0F;
      }
    }
    if (!model_.Run(length)) return false;
    for (int i = 0; i < length; ++i) {
      for (int row = 0; row < 2; ++row) {
        for (int j = 0; j < 8; ++j) {
          results_.push_back(model_.states()(row, i, j));
        }
      }
    }
    return true;
  }
  std::vector<float> State() {
    std::vector<float> values;
    Append(model_.hidden(), &values);
    return values;
  }
  const std::vector<float>& results() const { return results_; }

 private:
  bounded::Gru model_;
  std::vector<float> results_;
};

class FrontEnd {
 public:
  bool Run(int first, int length) {
    std::fill(model_.frames().begin(), model_.frames().end(), kBehind);
    for (int i = 0; i < length; ++i) {
      for (int j = 0; j < 20; ++j) {
        model_.frames()(0, i, j) = Value(0, first + i, j);
      }
    }
    if (!model_.Run(length)) return false;
    Append(model_.states(), &results_);
    return true;
  }
  std::vector<float> State() {
    std::vector<float> values;
    Append(model_.hidden(), &values);
    Append(model_.tail(), &values);
    return values;
  }
  const std::vector<float>& results() const { return results_; }

 private:
  examples::FrontEnd model_;
  std::vector<float> results_;
};

class Decoder {
 public:
  bool Run(int first, int length) {
    std::fill(model_.tokens().begin(), model_.tokens().end(), 1 << 30);
    for (int i = 0; i < length; ++i) {
      model_.tokens()[static_cast<std::size_t>(i)] = (first + i) * 37 % 100;
    }
    if (!model_.Run(length)) return false;
    Append(model_.scores(), &results_);
    return true;
  }
  std::vector<float> State() {
    std::vector<float> values;
    Append(model_.keys(), &values);
    Append(model_.values(), &values);
    values.push_back(static_cast<float>(model_.used()[0]));
    return values;
  }
  const std::vector<float>& results() const { return results_; }

 private:
  examples::Decoder model_;
  std::vector<float> results_;
};

}  // namespace

int main() {
  const bool same = Same<Gru>("gru", 16) && Same<FrontEnd>("front end", 32) &&
                    Same<Decoder>("decoder", 64);
  return same ? 0 : 1;
}
