// CBLAS in its usual form, on top of an OpenBLAS whose names have a prefix and
// whose integers have 64 bits. A model calls this form unless a macro says
// otherwise.
#include <cstdint>

extern "C" {

void scipy_cblas_sgemm64_(int, int, int, std::int64_t, std::int64_t,
                          std::int64_t, float, const float*, std::int64_t,
                          const float*, std::int64_t, float, float*,
                          std::int64_t);
void scipy_cblas_dgemm64_(int, int, int, std::int64_t, std::int64_t,
                          std::int64_t, double, const double*, std::int64_t,
                          const double*, std::int64_t, double, double*,
                          std::int64_t);

void cblas_sgemm(int order, int left, int right, int m, int n, int k,
                 float alpha, const float* a, int lda, const float* b, int ldb,
                 float beta, float* c, int ldc) {
  scipy_cblas_sgemm64_(order, left, right, m, n, k, alpha, a, lda, b, ldb, beta,
                       c, ldc);
}

void cblas_dgemm(int order, int left, int right, int m, int n, int k,
                 double alpha, const double* a, int lda, const double* b,
                 int ldb, double beta, double* c, int ldc) {
  scipy_cblas_dgemm64_(order, left, right, m, n, k, alpha, a, lda, b, ldb, beta,
                       c, ldc);
}

}  // extern "C"
