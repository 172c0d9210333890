#include <cstdlib>

#include "tests/runtime/kernels/peer.h"

extern "C" void TFAOT_CBLAS_SGEMM(int, int, int, TFAOT_CBLAS_INT,
                                  TFAOT_CBLAS_INT, TFAOT_CBLAS_INT, float,
                                  const float*, TFAOT_CBLAS_INT, const float*,
                                  TFAOT_CBLAS_INT, float, float*,
                                  TFAOT_CBLAS_INT);

namespace tfaot::peer {

const char kName[] = "OpenBLAS";
const bool kConvolves = false;
const bool kPacks = false;

void MatMul(float* out, float* lhs, float* rhs, int64_t m, int64_t n, int64_t k,
            bool transpose_lhs, bool transpose_rhs, bool /*packed*/) {
  constexpr int kInColumns = 102;
  constexpr int kAsItIs = 111;
  constexpr int kTransposed = 112;
  TFAOT_CBLAS_SGEMM(kInColumns, transpose_lhs ? kTransposed : kAsItIs,
                    transpose_rhs ? kTransposed : kAsItIs, m, n, k, 1, lhs,
                    transpose_lhs ? k : m, rhs, transpose_rhs ? n : k, 0, out,
                    m);
}

void Convolve(float*, const float*, const float*, int64_t, int64_t, int64_t,
              int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
              int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
              int64_t, int64_t, int64_t, int64_t, bool) {
  std::abort();
}

}  // namespace tfaot::peer
