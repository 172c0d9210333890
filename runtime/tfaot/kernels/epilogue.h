// Converts a model's Epilogue to a tile's Finish.
#ifndef TFAOT_KERNELS_EPILOGUE_H_
#define TFAOT_KERNELS_EPILOGUE_H_

#include <type_traits>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/tile.h"

namespace tfaot::kernels {
namespace {

// `out` is the call's. If there is no epilogue, the result's `to` is null.
template <typename T>
Finish<T> FinishOf(const Epilogue& epilogue, const T* out) {
  Finish<T> finish = {};
  if constexpr (std::is_floating_point_v<T>) {
    finish.sums = out;
    finish.to = static_cast<T*>(epilogue.out);
    finish.bias = static_cast<const T*>(epilogue.bias);
    finish.addend = static_cast<const T*>(epilogue.addend);
    finish.addend_bias = static_cast<const T*>(epilogue.addend_bias);
    finish.low = static_cast<T>(epilogue.low);
    finish.high = static_cast<T>(epilogue.high);
    finish.scale = static_cast<T>(epilogue.scale);
    finish.scratch = epilogue.scratch;
  } else {
    // Integer models have none: nothing follows their products directly.
    static_cast<void>(epilogue);
    static_cast<void>(out);
  }
  return finish;
}

}  // namespace
}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_EPILOGUE_H_
