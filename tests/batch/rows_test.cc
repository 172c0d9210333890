// Protects what compiled code sees of a part of a batch: aligned rows, zeros
// after them, and nothing of other rows; and where its results go.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>

#include "tests/verify/expect.h"
#include "tfaot/batch.h"

namespace {

constexpr int kColumns = 3;
constexpr int kRows = 11;
constexpr std::int64_t kSize = 4;
constexpr std::size_t kRowBytes = kColumns * sizeof(float);
constexpr std::size_t kInput = 0, kOutput = 192, kPadded = 384;

// Negates kSize rows, as a compiled function would: argument 1, result 0.
class Negate {
 public:
  void set_arg_data(std::size_t index, const void* data) {
    EXPECT(index == 1);
    data_ = static_cast<const float*>(data);
  }
  void Run() {
    EXPECT(reinterpret_cast<std::uintptr_t>(data_) % tfaot::Arena::kAlignment ==
           0);
    for (int i = 0; i < kSize * kColumns; ++i) result_[i] = -data_[i];
  }
  const void* result_data(std::size_t index) const {
    EXPECT(index == 0);
    return result_;
  }
  const float* data() const { return data_; }

 private:
  const float* data_ = nullptr;
  float result_[kSize * kColumns];
};

float* Floats(const tfaot::Arena& arena, std::size_t offset) {
  return reinterpret_cast<float*>(arena.at(offset));
}

}  // namespace

int main() {
  const tfaot::Arena arena(576);
  const tfaot::BatchedTensor input{1, kInput, kRowBytes, kPadded};
  const tfaot::BatchedTensor output{0, kOutput, kRowBytes, 0};
  float* in = Floats(arena, kInput);
  float* out = Floats(arena, kOutput);
  for (std::int64_t first = 0; first < kRows; ++first) {
    for (std::int64_t rows = 1; rows <= kSize && first + rows <= kRows;
         ++rows) {
      // What is not to be seen is no number.
      for (int i = 0; i < kRows * kColumns; ++i) {
        in[i] = std::numeric_limits<float>::quiet_NaN();
        out[i] = -1;
      }
      std::memset(arena.at(kPadded), 0xff, 192);
      for (std::int64_t i = first * kColumns; i < (first + rows) * kColumns;
           ++i) {
        in[i] = static_cast<float>(i + 1);
      }
      Negate negate;
      tfaot::FeedRows(negate, arena, input, first, rows, kSize);
      // Whole and aligned, they stay where they are.
      const bool in_place = rows == kSize && first * kRowBytes % 64 == 0;
      EXPECT((negate.data() == in + first * kColumns) == in_place);
      negate.Run();
      tfaot::FetchRows(negate, arena, output, first, rows);
      for (std::int64_t i = 0; i < kRows * kColumns; ++i) {
        const bool fed = i >= first * kColumns && i < (first + rows) * kColumns;
        EXPECT(out[i] == (fed ? -static_cast<float>(i + 1) : -1.0f));
      }
      for (std::int64_t i = rows * kColumns; i < kSize * kColumns; ++i) {
        EXPECT(negate.data()[i] == 0.0f);
      }
    }
  }
  std::printf("%d checks failed\n", failed);
  return failed == 0 ? 0 : 1;
}
