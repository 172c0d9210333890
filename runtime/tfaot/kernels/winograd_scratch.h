// The scratch memory of Winograd convolutions (winograd.h).
#ifndef TFAOT_KERNELS_WINOGRAD_SCRATCH_H_
#define TFAOT_KERNELS_WINOGRAD_SCRATCH_H_

#include <cstddef>
#include <cstdint>

#include "tfaot/kernels/calls.h"
#include "tfaot/kernels/packing.h"

namespace tfaot::kernels {
namespace {

// Tiles that are transformed and multiplied together. With 64 channels, their
// transformed inputs and sums take 350 KiB and stay in the second-level cache.
// With more channels, those of one point still do, and fewer tiles would read
// the kernel more often.
constexpr std::int64_t kWinogradTiles = 36;

// The maximum number of parts that a call is split into for threads. Each part
// has its own scratch memory.
constexpr std::int64_t kWinogradParts = 16;

// The distance between two points' matrices isn't a multiple of a large power
// of two, at which the 16 would evict each other from the first-level cache.
constexpr std::int64_t WinogradPlane(std::int64_t size) {
  return (size + 31) / 32 * 32 + 16;
}

// Values in a part's scratch memory. The parts' memory is consecutive, so the
// pages of unused parts are never touched.
constexpr std::int64_t WinogradScratch(std::int64_t channels) {
  const std::int64_t row = WinogradPlane(channels);
  return row + 16 * WinogradPlane(kWinogradTiles * row) +
         16 * WinogradPlane(kWinogradTiles * kWinogradFilters);
}

// Bytes of scratch memory for a call. It is aligned to 64.
constexpr std::size_t WinogradScratchBytes(const Images& images) {
  return static_cast<std::size_t>(kWinogradParts *
                                  WinogradScratch(images.input_channels)) *
         sizeof(float);
}

}  // namespace
}  // namespace tfaot::kernels

#endif  // TFAOT_KERNELS_WINOGRAD_SCRATCH_H_
