// Protects users of results whose size is known at run time: values have their
// true shape, and nothing past them is visible.
#undef NDEBUG  // checks of a debug build are under test, too

#include "tfaot/bounded_view.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <type_traits>

#include "tests/runtime/expect.h"

using tfaot::BoundedView;

using Rows = BoundedView<float, 8, 3>;

static_assert(Rows::kRank == 2 && Rows::bound_bytes() == 96);
static_assert(Rows::bound(0) == 8 && Rows::bound(1) == 3);
static_assert(std::is_trivially_copyable_v<Rows>);
static_assert(std::is_same_v<BoundedView<const float, 2>::value_type, float>);

// Mutable views convert to const views, but not back, and never to another
// bound or type.
static_assert(std::is_convertible_v<Rows, BoundedView<const float, 8, 3>>);
static_assert(!std::is_convertible_v<BoundedView<const float, 8, 3>, Rows>);
static_assert(!std::is_convertible_v<Rows, BoundedView<float, 9, 3>>);
static_assert(!std::is_convertible_v<Rows, BoundedView<double, 8, 3>>);

// Usable in constant expressions.
constexpr std::int32_t kValues[] = {1, 2, 3, 4, 0, 0};
constexpr std::int32_t kDims[] = {2, 2};
constexpr BoundedView<const std::int32_t, 3, 2> kView(kValues, kDims);
static_assert(kView(1, 0) == 3 && kView[3] == 4 && kView.size() == 4);

namespace {

float Sum(BoundedView<const float, 8, 3> view) {
  return std::accumulate(view.begin(), view.end(), 0.0f);
}

// Returns whether an assert ends a process that does `work`.
template <typename Work>
bool Aborts(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    std::fclose(stderr);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

}  // namespace

int main() {
  float values[24];
  std::iota(values, values + 24, 0.0f);
  std::int32_t dims[] = {4, 2};
  const Rows rows(values, dims);
  EXPECT(rows.dim(0) == 4 && rows.dim(1) == 2);
  EXPECT(rows.size() == 8 && rows.size_bytes() == 32 && !rows.empty());
  EXPECT(rows.data() == values && rows.end() - rows.begin() == 8);
  // Rows are adjacent, without the gaps that the bound would leave.
  EXPECT(rows(0, 1) == 1 && rows(1, 0) == 2 && rows(3, 1) == 7);
  EXPECT(&rows[5] == &rows(2, 1));
  EXPECT(Sum(rows) == 28);
  rows(2, 1) = 105;
  EXPECT(values[5] == 105);

  // The shape is copied, like the pointer.
  const Rows copy = rows;
  dims[0] = 1;
  EXPECT(rows.dim(0) == 4 && copy.size() == 8);
  EXPECT(copy(std::size_t{2}, std::int64_t{1}) == 105);

  // No results, and the maximum number.
  const std::int32_t none[] = {0, 3};
  const Rows empty(nullptr, none);
  EXPECT(empty.empty() && empty.begin() == empty.end() && empty.dim(1) == 3);
  EXPECT(std::count(empty.begin(), empty.end(), 0.0f) == 0);
  const std::int32_t all[] = {8, 3};
  EXPECT(Rows(values, all).size_bytes() == Rows::bound_bytes());

  std::uint8_t cube[24];
  std::iota(cube, cube + 24, std::uint8_t{0});
  const std::int32_t deep[] = {2, 2, 3};
  const BoundedView<std::uint8_t, 2, 3, 4> view(cube, deep);
  EXPECT(view(1, 1, 2) == 11 && view(1, 0, 0) == 6 && view(0, 1, 0) == 3);

  // A debug build detects indices that are out of range, even within the bound.
  EXPECT(Aborts([&] { rows(4, 0) = 0; }));
  EXPECT(Aborts([&] { rows(0, 2) = 0; }));
  EXPECT(Aborts([&] { rows(-1, 0) = 0; }));
  EXPECT(Aborts([&] { rows[8] = 0; }));
  const std::int32_t large[] = {9, 3};
  const std::int32_t negative[] = {-1, 3};
  EXPECT(Aborts([&] { Rows(values, large); }));
  EXPECT(Aborts([&] { Rows(values, negative); }));
  EXPECT(!Aborts([&] { rows(3, 1) = 0; }));
  return failed == 0 ? 0 : 1;
}
