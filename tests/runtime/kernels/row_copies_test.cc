// Protects copies of rows in another order: any loops, beside their definition.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/runtime/kernels/fuzz.h"
#include "tfaot/kernels/row_copies_f32.cc"

namespace tfaot::kernels {
namespace {

using fuzz::Array;
using fuzz::Random;
using fuzz::Require;
using fuzz::Same;

struct Case {
  RowOrder order;
  std::int64_t size;    // of what is read from
  std::int64_t copied;  // values
};

// Rows of an array with four dimensions of rows, in any order, without some
// values at the ends.
Case RandomCase(Random& random) {
  Case one = {};
  one.order.row = random.OneIn(3) ? std::int64_t{1} << random.Between(1, 4)
                                  : random.Between(1, 70);
  std::int64_t sizes[RowOrder::kLoops], steps[RowOrder::kLoops];
  int places[RowOrder::kLoops];
  one.size = one.order.row + random.Between(0, 2);
  one.copied = one.order.row;
  for (int i = RowOrder::kLoops - 1; i >= 0; --i) {
    places[i] = i;
    steps[i] = one.size;
    sizes[i] = random.OneIn(3) ? 1 : random.Between(1, 9);
    one.size *= sizes[i];
  }
  for (int i = RowOrder::kLoops - 1; i > 0; --i) {
    std::swap(places[i], places[random.Between(0, i)]);
  }
  for (int i = 0; i < RowOrder::kLoops; ++i) {
    const int place = places[i];
    const std::int64_t skipped =
        random.OneIn(4) ? random.Between(0, sizes[place] - 1) : 0;
    one.order.first += skipped * steps[place];
    one.order.loops[i] = {sizes[place] - skipped, steps[place]};
    one.copied *= sizes[place] - skipped;
  }
  return one;
}

std::string Name(const RowOrder& order) {
  std::string name =
      std::to_string(order.row) + " values from " + std::to_string(order.first);
  for (const RowOrder::Loop& loop : order.loops) {
    name +=
        ", " + std::to_string(loop.count) + " of " + std::to_string(loop.step);
  }
  return name;
}

void Define(const RowOrder& order, int loop, const float* from, float*& to) {
  if (loop == RowOrder::kLoops) {
    for (std::int64_t i = 0; i < order.row; ++i) *to++ = from[i];
    return;
  }
  for (std::int64_t i = 0; i < order.loops[loop].count; ++i) {
    Define(order, loop + 1, from + i * order.loops[loop].step, to);
  }
}

void TestOrders() {
  Random random(1);
  for (int test = 0; test < fuzz::Cases(4000); ++test) {
    const Case one = RandomCase(random);
    Array<float> in(one.size, random.Between(0, 3));
    for (std::int64_t i = 0; i < one.size; ++i) {
      in.data()[i] = static_cast<float>(i);
    }
    Array<float> want(one.copied, 0);
    float* to = want.data();
    Define(one.order, 0, in.data() + one.order.first, to);
    Array<float> got = Array<float>::Poisoned(random, one.copied);
    RunRowCopies<float>(one.order, in.data(), got.data());
    Require(Same(want, got, Name(one.order)));
  }
}

// Bits that aren't numbers stay what they are.
void TestBits() {
  for (const std::int64_t row : {1, 4, 5, 16, 21}) {
    std::vector<float> in(static_cast<std::size_t>(4 * row)), out(in.size());
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto bits = 0x7f800001u + static_cast<std::uint32_t>(i) * 0x10203u;
      std::memcpy(&in[i], &bits, sizeof(bits));
    }
    RunRowCopies<float>({0, {{1, 0}, {1, 0}, {2, row}, {2, 2 * row}}, row},
                        in.data(), out.data());
    for (int i = 0; i < 4; ++i) {
      Require(
          std::memcmp(&out[static_cast<std::size_t>(i * row)],
                      &in[static_cast<std::size_t>((i % 2 * 2 + i / 2) * row)],
                      static_cast<std::size_t>(row) * 4) == 0);
    }
  }
}

}  // namespace
}  // namespace tfaot::kernels

int main() {
  if (!tfaot::fuzz::CanRun()) return 0;
  tfaot::kernels::TestOrders();
  tfaot::kernels::TestBits();
}
