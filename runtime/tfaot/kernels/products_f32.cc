#include "tfaot/kernels/products.h"

template void tfaot::kernels::TFAOT_ISA::RunProducts<float>(
    const tfaot::kernels::Products&, const void*, const void*, void*,
    tfaot::ThreadPool*, const tfaot::kernels::Epilogue&);
template void tfaot::kernels::TFAOT_ISA::RunPack<float>(std::int64_t,
                                                        std::int64_t, bool,
                                                        const void*, void*);
