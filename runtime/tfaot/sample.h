// Takes out of an image of any size what a resize to a known size reads. The
// places and weights are those of TensorFlow's kernels. They are exact only if
// the compiler rounds each product, as -ffp-contract=off makes it do.
// py/tfaot/cluster/samples.py does the same in Python.
//
// Nothing here is shared, so threads can take samples of the same image.
#ifndef TFAOT_SAMPLE_H_
#define TFAOT_SAMPLE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tfaot {

// How a resize reads an image.
struct Sampling {
  bool nearest = false;  // one pixel for each of the result, rather than four
  bool half_pixel_centers = false;
  bool align_corners = false;
};

// Images in one block of memory, row by row.
struct Images {
  std::int64_t count;
  std::int64_t height;
  std::int64_t width;
  std::size_t pixel;  // its bytes
};

// Returns the rows or columns, of `size`, that a resize to `count` reads: those
// before each place, then those after it. `weights` gets the weight of each one
// after it. For the nearest pixel, there is one for each place, and no weight.
inline std::vector<std::int64_t> SampledPlaces(Sampling way, std::int64_t size,
                                               std::int64_t count,
                                               float* weights) {
  const std::int64_t less = way.align_corners && count > 1 ? 1 : 0;
  const float scale =
      static_cast<float>(size - less) / static_cast<float>(count - less);
  const float start = way.half_pixel_centers ? 0.5F : 0.0F;
  std::vector<std::int64_t> places(
      static_cast<std::size_t>(way.nearest ? count : 2 * count));
  for (std::int64_t i = 0; i < count; ++i) {
    const float scaled = (static_cast<float>(i) + start) * scale;
    if (way.nearest) {
      const float near =
          way.align_corners ? std::round(scaled) : std::floor(scaled);
      places[static_cast<std::size_t>(i)] =
          std::min(static_cast<std::int64_t>(near), size - 1);
      continue;
    }
    const float place = scaled - start;
    const float floor = std::floor(place);
    const std::int64_t after =
        std::min(static_cast<std::int64_t>(std::ceil(place)), size - 1);
    places[static_cast<std::size_t>(i)] = std::min(
        std::max(static_cast<std::int64_t>(floor), std::int64_t{0}), after);
    places[static_cast<std::size_t>(i + count)] = after;
    weights[i] = place - floor;
  }
  return places;
}

// Copies pixels of one row. `offsets` are in bytes. Copies of a fixed size are
// single instructions.
template <std::size_t kPixel>
void CopyPixels(const unsigned char* row, std::size_t pixel,
                const std::vector<std::int64_t>& offsets, unsigned char* to) {
  const std::size_t size = kPixel > 0 ? kPixel : pixel;
  for (const std::int64_t offset : offsets) {
    std::memcpy(to, row + offset, size);
    to += size;
  }
}

// Fills `pixels` with the rows and columns of images that a resize reads, and
// `down` and `across` with their weights.
inline void TakeSample(Sampling way, const Images& images,
                       const unsigned char* data, std::int64_t height,
                       std::int64_t width, unsigned char* pixels, float* down,
                       float* across) {
  const std::vector<std::int64_t> rows =
      SampledPlaces(way, images.height, height, down);
  std::vector<std::int64_t> offsets =
      SampledPlaces(way, images.width, width, across);
  const std::size_t pixel = images.pixel;
  for (std::int64_t& offset : offsets) {
    offset *= static_cast<std::int64_t>(pixel);
  }
  const auto copy = pixel == 1    ? &CopyPixels<1>
                    : pixel == 3  ? &CopyPixels<3>
                    : pixel == 4  ? &CopyPixels<4>
                    : pixel == 12 ? &CopyPixels<12>
                    : pixel == 16 ? &CopyPixels<16>
                                  : &CopyPixels<0>;
  const std::size_t row_bytes = static_cast<std::size_t>(images.width) * pixel;
  const std::size_t line_bytes = offsets.size() * pixel;
  for (std::int64_t image = 0; image < images.count; ++image) {
    std::size_t same = 0;  // a line that may have the same row
    for (std::size_t line = 0; line < rows.size(); ++line) {
      unsigned char* const to = pixels + line * line_bytes;
      // Rows never go back, but the second half starts over.
      while (same < line && rows[same] < rows[line]) ++same;
      if (same < line && rows[same] == rows[line]) {
        std::memcpy(to, pixels + same * line_bytes, line_bytes);
      } else {
        copy(data + static_cast<std::size_t>(rows[line]) * row_bytes, pixel,
             offsets, to);
      }
      if (line + 1 == static_cast<std::size_t>(height)) same = 0;
    }
    data += static_cast<std::size_t>(images.height) * row_bytes;
    pixels += rows.size() * line_bytes;
  }
}

}  // namespace tfaot

#endif  // TFAOT_SAMPLE_H_
