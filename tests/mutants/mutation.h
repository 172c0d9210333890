// One fault in a compiled program, chosen at run time.
//
// mutate.py rewrites a model's executor.cc so that each call asks this header
// what to do. One build then contains every mutant of a model, and a process
// runs any of them. Everything is defined in mutation.cc, because the code that
// includes this is compiled for several CPU levels and must not share inline
// functions. Nothing here is thread-safe.
#ifndef TFAOT_TESTS_MUTANTS_MUTATION_H_
#define TFAOT_TESTS_MUTANTS_MUTATION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "tfaot/executor.h"
#include "tfaot/kernels/calls.h"

namespace tfaot::mutants {

enum class Kind : int {
  kNone,         // the original program
  kRounding,     // not a fault: results of products move by one ULP, or if `a`
                 // isn't 0, by an error of the model's 16-bit floats
  kSkip,         // the statement doesn't run
  kBias,         // an epilogue has no bias
  kAddend,       // an epilogue has no addend
  kBound,        // an epilogue has a different bound: operand 0 low, 1 high
  kPadding,      // a convolution's axis `operand` starts `a` values earlier
  kScale,        // an operand, or the epilogue's factor, times `value`
  kZero,         // an operand is zero
  kTranspose,    // an operand's matrices are transposed
  kSwapRows,     // rows a and b of an operand's matrices are swapped
  kSwapColumns,  // columns a and b are
  kSwapResults,  // columns a and b of a call's result are
  kExchange,     // arguments a and b of the program `site` are swapped
  kTrips,        // a loop runs `a` times
  kNarrow,       // an operand has 8 significant bits
  kDropRow,      // row `a` of an operand's matrices is zero
  kDropColumn,   // column `a` is
  kUnmask,       // a zero of an operand is one
  kOffByOne,     // a positive value of an operand is smaller by one
  kState,   // argument `a` of the program `site` is wrong at the start of run
            // `b`: as at the first run's; at the first, zero
  kFlip,    // byte `b` of argument `a` is `value`, combined by exclusive or
  kSurvey,  // not a fault: kernels' operands are classified
};

// `site` is a statement, and `operand` one of its operands: for a kernel, its
// argument; for a product or convolution, 0 left or input, 1 right or kernel,
// 2 the epilogue.
// An operand has `count` values of `dtype` ('f' float, 'd' double, 'i' 32-bit
// integer, 'b' byte), in matrices of `rows` and `columns`. Of the values that
// kUnmask and kOffByOne can change, they change number `a`, modulo how many
// there are.
struct Mutation {
  Kind kind = Kind::kNone;
  int site = -1;
  int operand = -1;
  char dtype = 'f';
  std::int64_t count = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t a = 0;
  std::int64_t b = 0;
  double value = 0;
};

// Selects the mutation that applies from now on.
void Choose(const Mutation& mutation);
const Mutation& Chosen();

// What kernels' operands hold, by site and operand, when they are first read
// and aren't all zero: 'b' booleans, 'i' integers, 'm' a mask of floats, 'c'
// floats that are integers, 'f' other floats, '-' something else.
const std::map<std::pair<int, int>, char>& Survey();

// The values that the generated test compares. The header that it includes
// calls Tensor() before each comparison, Value() for each value, and Off() if
// the latest value isn't tolerated. A free run, which compares the same less
// exactly, doesn't count.
enum class Mode { kRecord, kRounding, kCompare };
struct Counts {
  std::int64_t changed = 0;  // by more than rounding
  std::int64_t noticed = 0;  // and not tolerated
};
void Count(Mode mode);  // starts a run of the test
Counts Counted();
void Tensor(bool wanted);
void Value(double got, bool integer);
void Off();

// The significant bits to which the model rounds floats, in the generated
// source: 24, or fewer if it computes with 16-bit floats.
extern const int kBits;

// Moves every finite value that isn't an integer up or down by one unit in the
// last place.
void Round(float* values, std::size_t count);
void Round(double* values, std::size_t count);

bool Runs(int site);
std::int64_t Trips(int site, std::int64_t trips);
unsigned char* Operand(int site, int operand, unsigned char* data);
kernels::Images Sizes(int site, kernels::Images sizes);
kernels::Epilogue Finish(int site, kernels::Epilogue epilogue);
// Passes what a call has written, and with an epilogue, what it wrote to
// `finished`.
void Written(int site, char dtype, const kernels::Products& sizes, void* out,
             void* finished = nullptr);
void Written(int site, char dtype, const kernels::Images& sizes, void* out,
             void* finished = nullptr);
// Calls a kernel with the operands to mutate in a copy.
const KernelCall* Call(int site, const KernelCall* call);

// Runs `body`, with other arguments if the program's site is selected.
bool Run(int site, const Instance& instance, const Program& program,
         bool (*body)(const Instance&));

}  // namespace tfaot::mutants

#endif  // TFAOT_TESTS_MUTANTS_MUTATION_H_
