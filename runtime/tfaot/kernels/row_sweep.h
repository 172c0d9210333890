// Formulas over the rows of arrays: sums and extrema of a row's values, and
// values that need such a number, as in a layer norm or a softmax.
//
// A compiled model's program has a struct for each of its formulas:
//
//   struct Formula {
//     static constexpr std::int64_t kColumns = 64;
//     static constexpr std::size_t kArrays = 2;
//     static constexpr std::size_t kVectors = 1;   // the same for many rows
//     static constexpr std::size_t kValues = 0;    // a value for each row
//     static constexpr std::size_t kScalars = 0;
//     // What each stage combines a row's values by (vector.h).
//     using Stages = std::tuple<std::tuple<Larger>, std::tuple<Add, Add>>;
//     static constexpr bool kWrites = true;        // arrays, in the last stage
//     static constexpr int kCost = 6;              // multiply-adds of a value
//     // What is known of some rows, such as their means.
//     struct Rows { float mean[kMostRows]; };
//     // Computes values of `count` rows from `first` on that need the sums of
//     // the stage before, and in the last one writes values.
//     template <int kStage>
//     static void Begin(const RowSums& sums, const Places<kValues>& values,
//                       const Places<kScalars>& scalars, std::int64_t first,
//                       std::int64_t count, Rows& rows);
//     // Adds to the stage's sums of row r of those in `rows`, which can be
//     // extrema, and in the last stage writes arrays, at index i and column j.
//     // Earlier stages can keep values there for later ones. `row` is the
//     // number of the row among all. Index is std::int64_t, or Tail for the
//     // columns behind the last whole vector. V is float or a vector.
//     template <int kStage, typename V, typename Index>
//     static void At(const Rows& rows, std::int64_t r, std::int64_t row,
//                    const Places<kArrays>& arrays, Index i,
//                    const Places<kVectors>& vectors, Index j,
//                    V* sums);
//   };
//   RunRowSweep<Formula>(rows, {x, y}, {scale}, {}, {}, threads);
#ifndef TFAOT_KERNELS_ROW_SWEEP_H_
#define TFAOT_KERNELS_ROW_SWEEP_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tfaot/kernels/lanes.h"
#include "tfaot/kernels/parallel.h"
#include "tfaot/kernels/part.h"
#include "tfaot/kernels/sweep.h"
#include "tfaot/kernels/vector.h"
#include "tfaot/thread_pool.h"

namespace tfaot::kernels::TFAOT_ISA {

// The most rows that go through a stage before the next one, so that a core
// always has something to do while it waits for a row's sum. A whole number of
// vectors. For layer norms, sizes that are known at compile time gain nothing.
constexpr int kMostRows = 32;

// The shortest rows of which single values at both ends cost less than vectors
// in two cache lines.
constexpr std::int64_t kLong = 256;

// Returns the row of a vector that belongs to a row. Rows of a vector that has
// kPeriod of them are repeated; each kGroup rows have others, if it isn't 0.
template <std::int64_t kGroup, std::int64_t kPeriod>
constexpr std::int64_t Repeated(std::int64_t row) {
  if constexpr (kGroup > 0) {
    return row / kGroup * kPeriod + row % kPeriod;
  } else {
    return row % kPeriod;
  }
}

// A stage's sums, row by row.
using RowSums = const float (*)[kMostRows];

// Where a formula's operands are.
template <typename Formula>
struct Operands {
  Places<Formula::kArrays> arrays;
  Places<Formula::kVectors> vectors;
  Places<Formula::kValues> values;
  Places<Formula::kScalars> scalars;
};

// How a stage combines a row's values. The last stage doesn't.
template <typename Formula, int kStage>
constexpr auto SumsOf() {
  using Stages = typename Formula::Stages;
  if constexpr (kStage < static_cast<int>(std::tuple_size_v<Stages>)) {
    return std::tuple_element_t<kStage, Stages>();
  } else {
    return std::tuple<>();
  }
}

template <typename... Types, typename Function, std::size_t... kIndex>
TFAOT_INLINE void ForEach(const std::tuple<Types...>& all,
                          const Function& function,
                          std::index_sequence<kIndex...>) {
  (function(std::get<kIndex>(all),
            std::integral_constant<int, static_cast<int>(kIndex)>()),
   ...);
}

// Calls function(element, index) for each element of a tuple.
template <typename... Types, typename Function>
TFAOT_INLINE void ForEach(const std::tuple<Types...>& all,
                          const Function& function) {
  ForEach(all, function, std::index_sequence_for<Types...>());
}

// Runs a stage of kRows rows from `first` + r on, whose sums it stores. The
// order of a row's additions depends only on the number of columns.
template <typename Formula, int kStage, int kRows>
TFAOT_INLINE void SweepStage(const Operands<Formula>& at, std::int64_t first,
                             std::int64_t r, const typename Formula::Rows& rows,
                             float (*sums)[kMostRows]) {
  using V = Vector<float>;
  constexpr std::int64_t kWidth = kLanes<float>;
  constexpr std::int64_t kColumns = Formula::kColumns;
  constexpr auto kSums = SumsOf<Formula, kStage>();
  constexpr int kCount = std::tuple_size_v<decltype(SumsOf<Formula, kStage>())>;
  constexpr std::int64_t kWhole = kColumns / kWidth * kWidth;
  constexpr int kRest = static_cast<int>(kColumns - kWhole);
  const auto one = [&](auto zero, int i, auto j,
                       auto* sum) __attribute__((always_inline)) {
    const std::int64_t row = first + r + i;
    Formula::template At<kStage, decltype(zero)>(
        rows, r + i, row, at.arrays, j + row * kColumns, at.vectors, j, sum);
  };
  const auto each = [&](auto j, V* sum) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) one(V{}, i, j, sum + i * kCount);
  };
  std::int64_t j = 0;
  if constexpr (kCount > 0) {
    const auto clear = [&](V* sum) __attribute__((always_inline)) {
      ForEach(kSums, [&](auto combine, auto n) __attribute__((always_inline)) {
        for (int i = 0; i < kRows; ++i) {
          sum[i * kCount + n] = All<V>(decltype(combine)::kNone);
        }
      });
    };
    // An addition waits for the one before it.
    V parts[2][kRows * kCount];
    clear(parts[0]);
    clear(parts[1]);
    for (; j + 2 * kWidth <= kColumns; j += 2 * kWidth) {
      each(j, parts[0]);
      each(j + kWidth, parts[1]);
    }
    if (j < kWhole) each(j, parts[0]);
    V rest[kRows * kCount];
    if constexpr (kRest > 0) {
      clear(rest);
      each(Tail<kRest>{kWhole}, rest);
    }
    ForEach(kSums, [&](auto combine, auto n) __attribute__((always_inline)) {
      V all[kRows];
      for (int i = 0; i < kRows; ++i) {
        const int at = i * kCount + n;
        all[i] = parts[0][at];
        if constexpr (kColumns >= 2 * kWidth) {
          all[i] = combine(all[i], parts[1][at]);
        }
        if constexpr (kRest > 0) {
          const float none = decltype(combine)::kNone;
          const V some = FirstOr(rest[at], kRest, none);
          all[i] = kWhole > 0 ? combine(all[i], some) : some;
        }
      }
      Sums<float, kRows, decltype(combine)>(all, sums[n] + r);
    });
  } else if constexpr (kRest > 0 && kColumns >= kLong) {
    // These rows begin anywhere in a cache line. Vectors that are in one line
    // take a third less time, and a value is the same in a vector and alone.
    for (int i = 0; i < kRows; ++i) {
      const std::int64_t head = -(first + r + i) * kColumns & (kWidth - 1);
      const auto alone = [&](std::int64_t end) __attribute__((always_inline)) {
        for (; j < end; ++j) one(0.0f, i, j, static_cast<float*>(nullptr));
      };
      j = 0;
      alone(head);
      for (; j + kWidth <= kColumns; j += kWidth) {
        one(V{}, i, j, static_cast<V*>(nullptr));
      }
      alone(kColumns);
    }
  } else {
    for (; j < kWhole; j += kWidth) each(j, nullptr);
    if constexpr (kRest > 0) each(Tail<kRest>{kWhole}, nullptr);
  }
}

// Runs the stages from kStage on of at most kMostRows rows. `last` are the sums
// of the stage before.
template <typename Formula, int kStage>
TFAOT_INLINE void SweepGroup(const Operands<Formula>& at, Span span,
                             RowSums last, typename Formula::Rows& rows) {
  // Without sums to wait for, rows one after another are one stream.
  constexpr int kStages = std::tuple_size_v<typename Formula::Stages>;
  constexpr int kAtOnce = kStages == 0 ? 1 : 4;
  constexpr bool kLast = kStage == kStages;
  const std::int64_t count = span.size();
  Formula::template Begin<kStage>(last, at.values, at.scalars, span.begin,
                                  count, rows);
  if constexpr (!kLast || Formula::kWrites) {
    constexpr std::size_t kCount =
        std::tuple_size_v<decltype(SumsOf<Formula, kStage>())>;
    float sums[kLast ? 1 : kCount][kMostRows] = {};
    std::int64_t r = 0;
    for (; r + kAtOnce <= count; r += kAtOnce) {
      SweepStage<Formula, kStage, kAtOnce>(at, span.begin, r, rows, sums);
    }
    for (; r < count; ++r) {
      SweepStage<Formula, kStage, 1>(at, span.begin, r, rows, sums);
    }
    if constexpr (!kLast) {
      SweepGroup<Formula, kStage + 1>(at, span, sums, rows);
    }
  }
}

template <typename Formula>
TFAOT_NOINLINE void SweepRows(const Operands<Formula>& operands, Span span) {
  const Operands<Formula> at = operands;  // which stores can't change
  typename Formula::Rows rows = {};
  // What a group reads stays in the nearest cache.
  constexpr std::int64_t kStep =
      std::clamp<std::int64_t>(4096 / Formula::kColumns / 4 * 4, 4, kMostRows);
  for (std::int64_t r = span.begin; r < span.end; r += kStep) {
    SweepGroup<Formula, 0>(at, {r, std::min(r + kStep, span.end)}, nullptr,
                           rows);
  }
}

// Applies a formula to rows, in parts if there is a pool and
// enough work. A row's bits depend only on its operands and on the target.
// Concurrent calls are safe if what they write is disjoint.
template <typename Formula>
void RunRowSweep(std::int64_t rows, const Places<Formula::kArrays>& arrays,
                 const Places<Formula::kVectors>& vectors,
                 const Places<Formula::kValues>& values,
                 const Places<Formula::kScalars>& scalars,
                 ThreadPool* threads) {
  const Operands<Formula> at = {arrays, vectors, values, scalars};
  if (threads == nullptr) return SweepRows<Formula>(at, {0, rows});
  const double operations = static_cast<double>(rows) *
                            static_cast<double>(Formula::kColumns) *
                            Formula::kCost;
  // Parts share few cache lines.
  const std::int64_t grain =
      std::max<std::int64_t>(1, 1024 / Formula::kColumns);
  InParts(*threads, {1, rows, 1, grain, 1, operations}, [&](const Part& part) {
    SweepRows<Formula>(at, part.rows.Of(rows, grain));
  });
}

}  // namespace tfaot::kernels::TFAOT_ISA

#endif  // TFAOT_KERNELS_ROW_SWEEP_H_
