#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/epilogue.h"
#include "tfaot/kernels/parallel.h"
#include "tfaot/kernels/winograd.h"

namespace tfaot::kernels::TFAOT_ISA {

template <typename T>
void RunWinograd(const Images& images, const void* input, const void* kernel,
                 void* out, void* scratch, ThreadPool* threads,
                 const Epilogue& epilogue) {
  const auto run = [&](const Part& part) {
    const Finish<T> finish = FinishOf(epilogue, static_cast<const T*>(out));
    // Only one side is split.
    const std::int64_t index = part.rows.index + part.columns.index;
    ConvolveWinograd(images, static_cast<const T*>(input),
                     static_cast<const T*>(kernel), static_cast<T*>(out),
                     static_cast<T*>(scratch) +
                         index * WinogradScratch(images.input_channels),
                     part, finish.to != nullptr ? &finish : nullptr);
  };
  if (threads == nullptr) return run(Part{});
  // All parts that share tiles transform the tiles' inputs, and all parts that
  // share filters read the filters. So split the longer side.
  const std::int64_t tiles = WinogradTiles(images);
  const bool by_tiles = tiles >= images.filters;
  const auto grain = [](bool cut, std::int64_t size, std::int64_t least) {
    return cut ? std::max(least, (size + kWinogradParts - 1) / kWinogradParts)
               : size;
  };
  InParts(*threads,
          {1, tiles, images.filters, grain(by_tiles, tiles, kTileRows),
           grain(!by_tiles, images.filters, kWinogradFilters),
           16.0 * static_cast<double>(tiles * images.filters) *
               static_cast<double>(images.input_channels)},
          run);
}

template void RunWinograd<float>(const Images&, const void*, const void*, void*,
                                 void*, ThreadPool*, const Epilogue&);

}  // namespace tfaot::kernels::TFAOT_ISA
