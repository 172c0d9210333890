// The kernels that compiled models call: matrix products, convolutions,
// gradients by a convolution's kernel, sums of rows, and copies of
// rows.
//
// A call doesn't allocate or lock, and has no state: concurrent calls are safe
// if their outputs are disjoint. Outputs must not overlap operands. Arrays are
// aligned for their values and row-major (the last index is adjacent in
// memory).
#ifndef TFAOT_KERNELS_CALLS_H_
#define TFAOT_KERNELS_CALLS_H_

#include <cstdint>

#include "tfaot/kernels/isa.h"
#include "tfaot/kernels/packing.h"
#include "tfaot/thread_pool.h"

namespace tfaot::kernels {

// `batch` times out[rows][columns] = left[rows][depth] * right[depth][columns].
// A transposed operand is stored as left[depth][rows] or right[columns][depth].
struct Products {
  std::int64_t batch;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
  bool transposed_left;
  bool transposed_right;
  // Distances between products, in values.
  std::int64_t left_step;
  std::int64_t right_step;
  std::int64_t out_step;
  Packing packing = Packing::kNone;  // of the right side
  // Distances between rows as they are stored, in values. Zero means that rows
  // are adjacent. Only RunProducts reads them, the right one if that side isn't
  // packed.
  std::int64_t left_stride = 0;
  std::int64_t right_stride = 0;
  std::int64_t out_stride = 0;  // also of the epilogue's arrays
};

// A spatial axis of a convolution, as in convolution.h.
struct ImageAxis {
  std::int64_t input;
  std::int64_t kernel;
  std::int64_t output;
  std::int64_t stride;
  std::int64_t padding;
  std::int64_t input_dilation;
  std::int64_t kernel_dilation;
};

// The convolution of input[batch][x][y][input_channels] with
// kernel[x][y][kernel_channels][filters].
struct Images {
  std::int64_t batch;
  std::int64_t input_channels;
  std::int64_t kernel_channels;
  std::int64_t filters;
  std::int64_t groups;
  ImageAxis x;
  ImageAxis y;
  Packing packing = Packing::kNone;  // of the kernel
};

// Sums of the rows of in[arrays][rows][columns], in consecutive blocks:
// out[arrays][blocks][columns]. The first block has `first` rows, the others
// have `step`, and the last one may have fewer.
struct ColumnSums {
  std::int64_t arrays;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t blocks;
  std::int64_t first;
  std::int64_t step;
};

// The order in which rows of `row` values are copied: loops, outermost first,
// go through the rows that are read, `step` values apart, and write them one
// after another.
struct RowOrder {
  struct Loop {
    std::int64_t count;
    std::int64_t step;
  };
  static constexpr int kLoops = 4;
  std::int64_t first;  // the index of the first value that is read
  Loop loops[kLoops];
  std::int64_t row;
};

// Discrete Fourier transforms along an axis of data[outer][length][inner], in
// place: outer times inner transforms. The transform of real values has
// length / 2 + 1 complex values. Both are in rows of this size, so a row of
// real values has one or two more at its end. Only complex transforms have an
// `inner` above 1.
struct Fourier {
  enum class Kind { kComplex, kRealToComplex, kComplexToReal };
  // How to transform `size` complex values: by the definition, one transform in
  // all lanes, adjacent values in lanes, each lane its own transform, or as a
  // convolution of `padded` values, in all lanes or in each.
  enum class Method { kDirect, kOne, kLine, kAcross, kChirp, kChirpAcross };
  static constexpr int kMostStages = 24;
  Kind kind;
  bool inverse;
  Method method;
  int lanes;  // those of a vector, or half as many
  std::int64_t outer;
  std::int64_t length;
  std::int64_t inner;
  std::int64_t size;  // `length`, or half of it if that is even and real
  std::int64_t padded;
  double scale;          // of results
  std::int64_t scratch;  // values that a part works in, at a multiple of 64
  std::int64_t slots;    // how many parts have scratch memory
  int stages;
  std::uint8_t radices[kMostStages];
};

// A decomposition, or the solution of linear systems, for each matrix of a
// batch. A batch item is a row of memory with the operands, which are
// a[rows][columns] and what is said below, and afterwards the results, both one
// after another from its start.
struct Linear {
  enum class Op {
    kCholesky,    // the factor of a's lower half, or of its upper half
    kTriangle,    // a, x: the solution of a * x' = x; a is lower, or upper
    kLu,          // L and U, the order of rows, the swaps, the order's sign
    kSolve,       // a, x: the solution of a * x' = x
    kReflectors,  // those of a QR decomposition with R, as in LAPACK; tau
    kOrthogonal,  // reflectors, tau: `others` columns of their product
    kEigen,       // vectors and values of a's lower half; values ascend
    kSingular,    // left vectors, values, adjoint of right vectors
    // Of complex matrices only:
    kRoot,     // the principal square root
    kGeneral,  // eigenvectors, or the Schur decomposition's, and eigenvalues
  };
  Op op;
  std::int64_t batch;
  std::int64_t rows;
  std::int64_t columns;
  // Columns of x, or of an orthogonal matrix. Of singular vectors: whether all
  // are wanted, also those without a value. Of kGeneral: whether vectors are
  // those of the Schur decomposition.
  std::int64_t others = 0;
  // Of a triangle.
  bool lower = true;
  bool adjoint = false;
  bool unit = false;
  // Whether vectors are wanted. Without, their memory has anything.
  bool vectors = true;
};

// What to do with a result after writing it to the call's `out`:
//   out = min(max((result + bias) + (addend + addend_bias), low), high)
// or, without biases, scale * result + addend within these bounds. Each column
// or filter has its own bias. The addend, and `out` here, have the result's
// layout. `out` can be the call's, or the addend, and must not overlap any
// other operand. NaN stays NaN. Values are the call's T. Integers have no
// epilogue.
struct Epilogue {
  const void* bias;         // may be null
  const void* addend;       // may be null
  const void* addend_bias;  // may be null
  void* out;                // null means no epilogue
  double low;
  double high;
  double scale = 1;  // other than 1 only with an addend and without biases
  // Whether the call's `out` is memory to work in: what is there afterwards
  // depends on how the work was done.
  bool scratch = false;
};

// Fast code for the level that the caller is compiled for. The *_f32.cc,
// *_f64.cc, and *_s32.cc beside this file define these functions. They are
// compiled once for each level, and all models of a program share them. If
// there is a pool, calls that are large enough are split into parts for it.
// That doesn't affect the bits of results.
namespace TFAOT_ISA {

// T is float, double, or std::uint32_t, whose sums wrap around.
template <typename T>
void RunProducts(const Products& products, const void* left, const void* right,
                 void* out, ThreadPool* threads = nullptr,
                 const Epilogue& epilogue = {});

// Writes right[depth][columns], or right[columns][depth] if it is transposed,
// as kPanels. `out` has as many panels as columns need, with zeros where the
// last one has no column.
template <typename T>
void RunPack(std::int64_t depth, std::int64_t columns, bool transposed,
             const void* right, void* out);

// T is float.
template <typename T>
void RunConvolution(const Images& images, const void* input, const void* kernel,
                    void* out, ThreadPool* threads = nullptr,
                    const Epilogue& epilogue = {});

// Like RunConvolution, for a kernel that is packed as kWinograd. `scratch` has
// WinogradScratchBytes(images) bytes (winograd_scratch.h), aligned to 64.
template <typename T>
void RunWinograd(const Images& images, const void* input, const void* kernel,
                 void* out, void* scratch, ThreadPool* threads = nullptr,
                 const Epilogue& epilogue = {});

// The gradient of RunConvolution by its kernel, as
// out[input_channels][x][y][filters]. `gradient` is that by the convolution's
// result, and `images` is the convolution: one group, without dilation or
// packing. Filters are a multiple of 16, or they are 4 or 8, and the stride
// along y times the channels is less than 8. T is float.
template <typename T>
void RunFilterGradient(const Images& images, const void* input,
                       const void* gradient, void* out,
                       ThreadPool* threads = nullptr);

// Like RunProducts, for one product whose right side is packed as kFloat32,
// kBfloat16, or kInt8. T is float. `right` is aligned to 4 bytes.
template <typename T>
void RunStream(const Products& products, const void* left, const void* right,
               void* out, ThreadPool* threads = nullptr,
               const Epilogue& epilogue = {});

// All sizes are at least 1. T is float.
template <typename T>
void RunColumnSums(const ColumnSums& sums, const void* in, void* out,
                   ThreadPool* threads = nullptr);

// Counts are at least 1. T is float.
template <typename T>
void RunRowCopies(const RowOrder& order, const void* in, void* out,
                  ThreadPool* threads = nullptr);

// Transforms `data`. `roots` and the size of `scratch` are the compile stage's
// (py/tfaot/compile/program/thunks/fourier_plan.py), both aligned to 64. T is
// float or double.
template <typename T>
void RunFourier(const Fourier& fourier, const void* roots, void* scratch,
                void* data, ThreadPool* threads = nullptr);

// Computes in `data`, whose rows have LinearRow(linear) values. `scratch` has
// LinearScratchBytes bytes (linear_scratch.h), aligned to 64. T is float or
// double, the type of a value or of both of its parts.
template <typename T>
void RunLinear(const Linear& linear, bool is_complex, void* scratch, void* data,
               ThreadPool* threads = nullptr);

}  // namespace TFAOT_ISA

// Plain loops, for dtypes that are rare in models. T is std::complex<float>,
// std::complex<double>, or Float16, which is accumulated in float.
template <typename T>
void RunPlainProducts(const Products& products, const void* left,
                      const void* right, void* out);

// T is Float16, accumulated in float.
template <typename T>
void RunPlainConvolution(const Images& images, const void* input,
                         const void* kernel, void* out);

}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_CALLS_H_
