// Writes the rows of each step and rank to standard output, for programs in
// other languages: images as float32, and then labels as int32.
//
//   write_rows STEPS SIZE
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "examples/distributed/rows.h"

int main(int argc, char** argv) {
  const int steps = argc > 2 ? std::atoi(argv[1]) : 0;
  const int size = argc > 2 ? std::atoi(argv[2]) : 0;
  const Rows rows;
  std::vector<float> images(32 * 28 * 28);
  std::vector<std::int32_t> labels(32);
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < size; ++rank) {
      rows.Fill(step, rank, images.data(), labels);
      std::fwrite(images.data(), sizeof(float), images.size(), stdout);
      std::fwrite(labels.data(), sizeof(std::int32_t), labels.size(), stdout);
    }
  }
}
