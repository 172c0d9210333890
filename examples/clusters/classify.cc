// Classifies a picture. The program decodes it, and compiled code does the
// rest: TensorFlow isn't linked.
//
//   bazel run //examples/clusters:classify -- picture.bmp
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "examples/clusters/pictures_pipeline.h"
#include "tfaot/view.h"

namespace {

// What TensorFlow would compute outside of the cluster: tf.io.decode_bmp.
class Decoder final : public examples::PicturesPipeline::Host {
 public:
  // The file isn't a tensor of the pipeline: only the callback reads it.
  explicit Decoder(std::vector<char> file) : file_(std::move(file)) {}

  // The view has the size that the model needs, and the compiler checks that.
  bool host_0(tfaot::View<std::uint8_t, 32, 32, 3> pixels) override {
    constexpr std::size_t kHeader = 54;
    if (file_.size() != kHeader + pixels.size() || file_[0] != 'B')
      return false;
    const char* value = file_.data() + kHeader;
    for (int row = 31; row >= 0; --row) {  // the lowest row comes first
      for (int column = 0; column < 32; ++column) {
        for (int color = 2; color >= 0; --color) {  // and blue before red
          pixels(row, column, color) = static_cast<std::uint8_t>(*value++);
        }
      }
    }
    return true;
  }

 private:
  std::vector<char> file_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr,
                 "usage: %s PICTURE.bmp\n\nPrints the probability of each "
                 "class, and the mean brightness.\n",
                 argv[0]);
    return 2;
  }
  std::ifstream file(argv[1], std::ios::binary);
  Decoder decoder(
      {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  examples::PicturesPipeline pipeline(&decoder);
  if (!pipeline.Run()) {
    std::fprintf(stderr, "%s: %s\n", argv[1], pipeline.error());
    return 1;
  }
  for (const float probability : pipeline.probabilities()) {
    std::printf("%.6f\n", static_cast<double>(probability));
  }
  std::printf("%.6f\n", static_cast<double>(*pipeline.brightness()));
}
