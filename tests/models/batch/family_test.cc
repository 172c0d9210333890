// Protects the class of a batch family: it takes any batch up to the maximum,
// ignores the rows after it, and reports a batch that it can't take.
// family_aot_test compares its numbers with TensorFlow's, for every batch.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/models/batch/family_aot.h"
#include "tests/runtime/expect.h"

using family::Family;

static_assert(Family::kMaxBatch == 13);

namespace {

// Inputs for all rows: the same numbers every time.
void Fill(Family& model) {
  for (std::size_t i = 0; i < model.x().size(); ++i) {
    model.x()[i] = 0.25f * static_cast<float>(i % 17) - 2;
  }
  for (std::size_t i = 0; i < model.ids().size(); ++i) {
    model.ids()[i] = static_cast<std::int64_t>(100 * i);
  }
  *model.scale() = 1.5f;
}

// The results of the first `rows` rows, byte for byte.
std::string Results(const Family& model, std::int64_t rows) {
  std::string bytes;
  const auto add = [&](const void* data, std::size_t row_bytes) {
    bytes.append(static_cast<const char*>(data),
                 row_bytes * static_cast<std::size_t>(rows));
  };
  add(model.large().data(), sizeof(bool));
  add(model.next().data(), sizeof(std::int64_t));
  add(model.turned().data(), 2 * sizeof(float));
  add(model.y().data(), 5 * sizeof(float));
  return bytes;
}

void TestStaleRows() {
  for (std::int64_t batch = 1; batch <= Family::kMaxBatch; ++batch) {
    Family model;
    Fill(model);
    EXPECT(model.Run(batch));
    const std::string clean = Results(model, batch);
    for (const float stale : {std::numeric_limits<float>::quiet_NaN(),
                              std::numeric_limits<float>::infinity()}) {
      // A full run fills every buffer.
      std::fill(model.x().begin(), model.x().end(), stale);
      EXPECT(model.Run());
      Fill(model);
      std::fill(model.x().begin() + batch * 3, model.x().end(), stale);
      EXPECT(model.Run(batch));
      EXPECT(Results(model, batch) == clean);
    }
  }
}

void TestRowsAlone() {
  Family whole, alone;
  Fill(whole);
  EXPECT(whole.Run());
  for (std::int64_t row = 0; row < Family::kMaxBatch; ++row) {
    Fill(alone);
    std::memcpy(alone.x().data(), whole.x().data() + 3 * row, 12);
    alone.ids()[0] = whole.ids()[static_cast<std::size_t>(row)];
    EXPECT(alone.Run(1));
    EXPECT(alone.next()[0] == whole.next()[static_cast<std::size_t>(row)]);
    for (int i = 0; i < 5; ++i) {
      EXPECT(std::abs(alone.y()(0, i) - whole.y()(row, i)) <= 1e-6f);
    }
  }
}

void TestBatchesThatItDoesNotTake() {
  Family model;
  Fill(model);
  for (const std::int64_t batch : {0, -1, 14}) {
    EXPECT(!model.Run(batch));
    EXPECT(model.error() ==
           "family::Family::Run(): a batch of " + std::to_string(batch) +
               " rows\n  found: this class takes 1 to 13\n"
               "  to do: split it, or raise the target's max_batch");
    EXPECT(model.Run(2));
    EXPECT(std::strlen(model.error()) == 0);
  }
}

}  // namespace

int main() {
  TestStaleRows();
  TestRowsAlone();
  TestBatchesThatItDoesNotTake();
  std::printf("%d checks failed\n", failed.load());
  return failed == 0 ? 0 : 1;
}
