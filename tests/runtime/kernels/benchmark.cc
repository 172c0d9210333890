// Compares the speed of the kernels with a peer's (peer.h) on one thread, in
// interleaved rounds:
//
//   benchmark [--rounds=N] [--only=TEXT] [--no_peer] [--packed]
//
// Prints a table: for each shape, GFLOP/s of both (from the fastest round), and
// the kernel's speedup over the peer. --only selects the shapes whose names
// contain TEXT. --packed packs right sides and kernels, as the rules pack
// constants, for a peer that reads them, too. Fails if the results differ by
// more than rounding.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "tests/runtime/kernels/peer.h"
#include "tfaot/kernels/convolution.h"
#include "tfaot/kernels/matmul.h"

namespace tfaot {
namespace {

namespace k = ::tfaot::kernels;

struct Options {
  int rounds = 7;
  std::string only;
  bool peer = true;
  bool packed = false;
};

struct AlignedDelete {
  void operator()(float* p) const {
    operator delete[](p, std::align_val_t(64));
  }
};

class Buffer {
 public:
  Buffer(int64_t size, uint32_t seed)
      : size_(static_cast<std::size_t>(size)),
        data_(new (std::align_val_t(64)) float[size_ + 16]) {
    std::minstd_rand random(seed);
    for (std::size_t i = 0; i < size_; ++i) {
      data_[i] = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    }
  }
  float* get() { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  std::unique_ptr<float[], AlignedDelete> data_;
};

// Returns matrix[depth][columns], or matrix[columns][depth] if it is
// transposed, in panels.
Buffer InPanels(Buffer& matrix, int64_t depth, int64_t columns,
                bool transposed) {
  constexpr int64_t kWidth = k::kPanelColumns<float>;
  const int64_t panels = (columns + kWidth - 1) / kWidth;
  Buffer packed(panels * depth * kWidth, 0);
  float* to = packed.get();
  for (int64_t first = 0; first < panels * kWidth; first += kWidth) {
    for (int64_t i = 0; i < depth; ++i) {
      for (int64_t j = first; j < first + kWidth; ++j) {
        const int64_t at = transposed ? j * depth + i : i * columns + j;
        *to++ = j < columns ? matrix.get()[at] : 0.0f;
      }
    }
  }
  return packed;
}

// Whether the rules would pack such a right side
// (py/tfaot/compile/program/prepack.py).
bool Packs(int64_t rows, int64_t columns) {
  constexpr int64_t kWidth = k::kPanelColumns<float>;
  const int64_t panels = (columns + kWidth - 1) / kWidth;
  return rows > 1 && columns > 12 && 4 * columns >= 3 * panels * kWidth;
}

// CPU time of this thread, so other threads on the core don't count.
double Now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

double Seconds(const std::function<void()>& run, int64_t repeat) {
  const double begin = Now();
  for (int64_t i = 0; i < repeat; ++i) run();
  return (Now() - begin) / static_cast<double>(repeat);
}

double Difference(Buffer& a, Buffer& b) {
  double largest = 0;
  double difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::fabs(static_cast<double>(a.get()[i])));
    difference = std::max(
        difference, std::fabs(static_cast<double>(a.get()[i] - b.get()[i])));
  }
  return difference / std::max(largest, 1e-30);
}

// The geometric mean of the added values.
class Mean {
 public:
  void Add(double value) {
    sum_ += std::log(value);
    ++count_;
  }
  double Get() const { return count_ == 0 ? 0 : std::exp(sum_ / count_); }

 private:
  double sum_ = 0;
  int count_ = 0;
};

Mean all_ratios;
bool all_agree = true;

void Compare(const Options& options, const std::string& name, double flops,
             Buffer& ours_out, Buffer& peer_out,
             const std::function<void()>& ours,
             const std::function<void()>& peer) {
  // Each round takes a hundredth of a second, or a single run.
  const int64_t repeat = std::max<int64_t>(
      1, static_cast<int64_t>(0.01 / std::max(Seconds(ours, 1), 1e-7)));
  int64_t peer_repeat = 0;
  if (options.peer) {
    peer_repeat = std::max<int64_t>(
        1, static_cast<int64_t>(0.01 / std::max(Seconds(peer, 1), 1e-7)));
  }
  double ours_best = 1e30;
  double peer_best = 1e30;
  for (int round = 0; round < options.rounds; ++round) {
    ours_best = std::min(ours_best, Seconds(ours, repeat));
    if (options.peer && (round < 3 || peer_best < 0.2)) {
      peer_best = std::min(peer_best, Seconds(peer, peer_repeat));
    }
  }
  if (!options.peer) {
    std::printf("| %s | %.1f | %.1f |\n", name.c_str(), ours_best * 1e6,
                flops / ours_best * 1e-9);
    return;
  }
  const double ratio = peer_best / ours_best;
  all_ratios.Add(ratio);
  std::printf("| %s | %.1f | %.1f | %.1f | %.1f | %.2f |\n", name.c_str(),
              ours_best * 1e6, peer_best * 1e6, flops / ours_best * 1e-9,
              flops / peer_best * 1e-9, ratio);
  const double difference = Difference(ours_out, peer_out);
  if (!(difference < 2e-5)) {
    std::printf("%s: the results differ by %g\n", name.c_str(), difference);
    all_agree = false;
  }
  std::fflush(stdout);
}

bool any_wanted = false;

bool Wanted(const Options& options, const std::string& name) {
  const bool wanted = name.find(options.only) != std::string::npos;
  any_wanted |= wanted;
  return wanted;
}

// As models call it, row-major: out[rows][columns] = left * right.
void MatMul(const Options& options, const std::string& model, int64_t rows,
            int64_t depth, int64_t columns, bool transposed_left = false,
            bool transposed_right = false) {
  const std::string name =
      model + ": " + std::to_string(rows) + " x " + std::to_string(depth) +
      (transposed_left ? "^T" : "") + " x " + std::to_string(columns) +
      (transposed_right ? "^T" : "");
  if (!Wanted(options, name)) return;
  Buffer left(rows * depth, 1);
  Buffer right(depth * columns, 2);
  Buffer ours_out(rows * columns, 3);
  Buffer peer_out(rows * columns, 4);
  Buffer panels = InPanels(right, depth, columns, transposed_right);
  k::MatrixProduct product;
  product.rows = rows;
  product.columns = columns;
  product.depth = depth;
  product.transposed_left = transposed_left;
  product.transposed_right = transposed_right;
  product.packed_right = options.packed && Packs(rows, columns);
  const bool peer_packed = product.packed_right && peer::kPacks;
  Buffer& ours_right = product.packed_right ? panels : right;
  Buffer& peer_right = peer_packed ? panels : right;
  Compare(
      options, name, 2.0 * static_cast<double>(rows * depth * columns),
      ours_out, peer_out,
      [&] {
        k::Multiply(product, left.get(), ours_right.get(), ours_out.get());
      },
      [&] {
        peer::MatMul(peer_out.get(), peer_right.get(), left.get(), columns,
                     rows, depth, transposed_right, transposed_left,
                     peer_packed);
      });
}

void Convolve(const Options& options, const std::string& name, k::Convolution c,
              int64_t x_after, int64_t y_after) {
  if (!Wanted(options, name)) return;
  // Other kernels aren't packed (docs/internals/kernels.md).
  c.packed_kernel = options.packed && Packs(2, c.filters) && c.groups == 1 &&
                    c.x.input_dilation == 1 && c.y.input_dilation == 1;
  Buffer input(c.batch * c.x.input * c.y.input * c.input_channels, 1);
  const int64_t depth = c.x.kernel * c.y.kernel * c.kernel_channels;
  Buffer kernel(depth * c.filters, 2);
  Buffer panels = InPanels(kernel, depth, c.filters, false);
  Buffer& ours_kernel = c.packed_kernel ? panels : kernel;
  Buffer& peer_kernel = c.packed_kernel && peer::kPacks ? panels : kernel;
  const int64_t outputs = c.batch * c.x.output * c.y.output * c.filters;
  Buffer ours_out(outputs, 3);
  Buffer peer_out(outputs, 4);
  // In a dilated input, most taps meet a hole.
  const double taps =
      static_cast<double>(c.x.kernel * c.y.kernel) /
      static_cast<double>(c.x.input_dilation * c.y.input_dilation);
  Compare(
      options, name,
      2.0 * static_cast<double>(outputs * c.kernel_channels) * taps, ours_out,
      peer_out,
      [&] { k::Convolve(c, input.get(), ours_kernel.get(), ours_out.get()); },
      [&] {
        peer::Convolve(
            peer_out.get(), input.get(), peer_kernel.get(), c.batch, c.x.input,
            c.y.input, c.input_channels, c.x.kernel, c.y.kernel,
            c.kernel_channels, c.filters, c.x.output, c.y.output, c.x.stride,
            c.y.stride, c.x.padding, x_after, c.y.padding, y_after,
            c.x.input_dilation, c.y.input_dilation, c.x.kernel_dilation,
            c.y.kernel_dilation, c.groups, c.packed_kernel && peer::kPacks);
      });
}

struct Layer {
  int64_t batch, size, channels, taps, filters, stride;
  bool same;
  int64_t groups = 1;
};

std::string Name(const std::string& model, const Layer& layer,
                 const std::string& pass) {
  return model + ": " + std::to_string(layer.batch) + " x " +
         std::to_string(layer.size) + "^2 x " + std::to_string(layer.channels) +
         " -> " + std::to_string(layer.filters) + ", " +
         std::to_string(layer.taps) + "x" + std::to_string(layer.taps) +
         (layer.stride > 1 ? " / " + std::to_string(layer.stride) : "") +
         (layer.groups > 1 ? " depthwise" : "") + (layer.same ? "" : " valid") +
         pass;
}

int64_t OutputSize(const Layer& layer) {
  return layer.same ? (layer.size + layer.stride - 1) / layer.stride
                    : (layer.size - layer.taps) / layer.stride + 1;
}

// Both paddings of a layer's axis.
int64_t Padding(const Layer& layer) {
  return layer.same ? std::max<int64_t>((OutputSize(layer) - 1) * layer.stride +
                                            layer.taps - layer.size,
                                        0)
                    : 0;
}

void Forward(const Options& options, const std::string& model,
             const Layer& layer) {
  k::Convolution c;
  c.batch = layer.batch;
  c.input_channels = layer.channels;
  c.kernel_channels = layer.channels / layer.groups;
  c.filters = layer.filters;
  c.groups = layer.groups;
  c.x = {layer.size,
         layer.taps,
         OutputSize(layer),
         layer.stride,
         Padding(layer) / 2,
         1,
         1};
  c.y = c.x;
  const int64_t after = Padding(layer) - Padding(layer) / 2;
  Convolve(options, Name(model, layer, ""), c, after, after);
}

// Gradient with respect to the input: the output's gradient, dilated by the
// stride, meets the rotated kernel.
void InputGradient(const Options& options, const std::string& model,
                   const Layer& layer) {
  k::Convolution c;
  c.batch = layer.batch;
  c.input_channels = c.kernel_channels = layer.filters;
  c.filters = layer.channels;
  const int64_t before = layer.taps - 1 - Padding(layer) / 2;
  c.x = {OutputSize(layer), layer.taps, layer.size, 1, before, layer.stride, 1};
  c.y = c.x;
  const int64_t after = layer.size - 1 + layer.taps - before -
                        ((OutputSize(layer) - 1) * layer.stride + 1);
  Convolve(options, Name(model, layer, ", gradient by input"), c, after, after);
}

// Gradient with respect to the kernel: the batch is the inner dimension, and
// the output's gradient is the kernel.
void KernelGradient(const Options& options, const std::string& model,
                    const Layer& layer) {
  k::Convolution c;
  c.batch = layer.channels;
  c.input_channels = c.kernel_channels = layer.batch;
  c.filters = layer.filters;
  const int64_t before = Padding(layer) / 2;
  c.x = {layer.size, OutputSize(layer), layer.taps, 1, before, 1, layer.stride};
  c.y = c.x;
  const int64_t after = (layer.taps - 1) +
                        (OutputSize(layer) - 1) * layer.stride + 1 -
                        layer.size - before;
  Convolve(options, Name(model, layer, ", gradient by kernel"), c, after,
           after);
}

void MatMuls(const Options& options) {
  const std::string fc = "fc";
  MatMul(options, fc, 64, 784, 256);
  MatMul(options, fc, 64, 256, 256);
  MatMul(options, fc, 64, 256, 256, false, true);
  MatMul(options, fc, 256, 64, 256, true);
  MatMul(options, fc, 784, 64, 256, true);
  MatMul(options, fc, 64, 256, 10);
  MatMul(options, fc, 64, 10, 256, false, true);
  MatMul(options, fc, 256, 64, 10, true);
  const std::string conv_fc = "conv_fc";
  MatMul(options, conv_fc, 64, 2916, 256);
  MatMul(options, conv_fc, 2916, 64, 256, true);
  MatMul(options, conv_fc, 64, 256, 2916, false, true);
  const std::string lstm = "rnn_seq_length";
  MatMul(options, lstm, 3, 1001, 4000);
  MatMul(options, lstm, 3, 4000, 1001, false, true);
  MatMul(options, lstm, 36, 1000, 5000);
  MatMul(options, lstm, 36, 5000, 1000, false, true);
  MatMul(options, lstm, 1000, 36, 5000, true);
  MatMul(options, "LSTM", 3, 2000, 4000);
  const std::string lstm_train = "LSTM(128), training";
  MatMul(options, lstm_train, 16, 128, 512);
  MatMul(options, lstm_train, 16, 512, 128, false, true);
  MatMul(options, lstm_train, 800, 64, 512);
  MatMul(options, lstm_train, 128, 800, 512, true);
  MatMul(options, "LSTM(128)", 50, 64, 512);
  const std::string transformer = "transformer";
  MatMul(options, transformer, 32, 64, 64);
  MatMul(options, transformer, 32, 64, 256);
  MatMul(options, transformer, 32, 256, 64);
  MatMul(options, transformer, 32, 16, 32);
  MatMul(options, transformer, 32, 32, 16);
  const std::string rnn = "keras_rnn";
  MatMul(options, rnn, 16, 32, 32);
  MatMul(options, rnn, 16, 32, 32, false, true);
  MatMul(options, rnn, 32, 16, 32, true);
  MatMul(options, "dynamic_rnn", 1600, 32, 10);
  MatMul(options, "dynamic_rnn", 32, 1600, 10, true);
  for (const int64_t batch : {4, 8, 16, 32}) {
    MatMul(options, "small batch", batch, 512, 512);
    MatMul(options, "small batch", batch, 512, 512, false, true);
    MatMul(options, "small batch", 512, batch, 512, true);
  }
  const std::string one = "batch 1";
  MatMul(options, one, 1, 784, 256);
  MatMul(options, one, 1, 784, 256, false, true);
  MatMul(options, one, 1, 1280, 1000);
  MatMul(options, one, 256, 256, 1);
  MatMul(options, "square", 256, 256, 256);
  MatMul(options, "square", 1000, 1000, 1000);
  const std::string large = "large";
  for (const bool left : {false, true}) {
    for (const bool right : {false, true}) {
      MatMul(options, large, 128, 128, 128, left, right);
      MatMul(options, large, 384, 384, 384, left, right);
      MatMul(options, large, 128, 768, 3072, left, right);
      MatMul(options, large, 512, 768, 768, left, right);
      MatMul(options, large, 1536, 1536, 1536, left, right);
    }
  }
}

void Convolutions(const Options& options) {
  const Layer conv_fc = {64, 28, 3, 2, 4, 1, false};
  Forward(options, "conv_fc", conv_fc);
  InputGradient(options, "conv_fc", conv_fc);
  KernelGradient(options, "conv_fc", conv_fc);

  const std::string training = "training";
  for (const Layer& layer :
       {Layer{16, 32, 3, 3, 32, 1, true}, Layer{16, 16, 32, 3, 64, 1, true},
        Layer{16, 16, 64, 3, 64, 2, true}}) {
    Forward(options, training, layer);
    InputGradient(options, training, layer);
    KernelGradient(options, training, layer);
  }

  const std::string mobile = "MobileNetV2";
  Forward(options, mobile, {1, 224, 3, 3, 32, 2, true});
  for (const Layer& layer :
       {Layer{1, 112, 32, 1, 16, 1, true}, Layer{1, 112, 16, 1, 96, 1, true},
        Layer{1, 56, 96, 1, 24, 1, true}, Layer{1, 56, 24, 1, 144, 1, true},
        Layer{1, 28, 144, 1, 32, 1, true}, Layer{1, 28, 32, 1, 192, 1, true},
        Layer{1, 14, 192, 1, 64, 1, true}, Layer{1, 14, 64, 1, 384, 1, true},
        Layer{1, 14, 384, 1, 96, 1, true}, Layer{1, 14, 96, 1, 576, 1, true},
        Layer{1, 7, 576, 1, 160, 1, true}, Layer{1, 7, 160, 1, 960, 1, true},
        Layer{1, 7, 960, 1, 320, 1, true},
        Layer{1, 7, 320, 1, 1280, 1, true}}) {
    Forward(options, mobile, layer);
  }
  for (const Layer& layer : {Layer{1, 112, 32, 3, 32, 1, true, 32},
                             Layer{1, 112, 96, 3, 96, 2, true, 96},
                             Layer{1, 56, 144, 3, 144, 1, true, 144},
                             Layer{1, 28, 192, 3, 192, 1, true, 192},
                             Layer{1, 14, 576, 3, 576, 1, true, 576},
                             Layer{1, 14, 576, 3, 576, 2, true, 576},
                             Layer{1, 7, 960, 3, 960, 1, true, 960}}) {
    Forward(options, mobile, layer);
  }

  const std::string few = "few filters";
  for (const Layer& layer :
       {Layer{1, 128, 8, 3, 8, 1, true}, Layer{1, 128, 1, 5, 8, 1, true},
        Layer{1, 128, 3, 3, 16, 2, true}, Layer{1, 64, 16, 3, 24, 1, true},
        Layer{1, 64, 24, 1, 40, 1, true}, Layer{1, 32, 48, 3, 12, 1, true}}) {
    Forward(options, few, layer);
  }

  const std::string resnet = "ResNet-18";
  for (const Layer& layer :
       {Layer{1, 224, 3, 7, 64, 2, true}, Layer{1, 56, 64, 3, 64, 1, true},
        Layer{1, 56, 64, 3, 128, 2, true}, Layer{1, 56, 64, 1, 128, 2, true},
        Layer{1, 28, 128, 3, 128, 1, true}, Layer{1, 14, 256, 3, 256, 1, true},
        Layer{1, 7, 512, 3, 512, 1, true}}) {
    Forward(options, resnet, layer);
  }
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--rounds=", 9) == 0) {
      options.rounds = std::max(1, std::atoi(argv[i] + 9));
    } else if (std::strncmp(argv[i], "--only=", 7) == 0) {
      options.only = argv[i] + 7;
    } else if (std::strcmp(argv[i], "--packed") == 0) {
      options.packed = true;
    } else if (std::strcmp(argv[i], "--no_peer") == 0) {
      options.peer = false;
    } else if (std::strcmp(argv[i], "--help") == 0) {
      std::printf(
          "usage: benchmark [--rounds=N] [--only=TEXT] [--no_peer] "
          "[--packed]\n\n"
          "Compares the speed of the kernels with a peer's on one thread.\n"
          "--only selects the shapes whose names contain TEXT.\n");
      return 0;
    } else {
      std::fprintf(stderr, "unknown flag: %s\n", argv[i]);
      return 2;
    }
  }
  if (options.peer) {
    std::printf(
        "| shape | us | %s us | GFLOP/s | %s GFLOP/s | ratio |\n"
        "|---|---|---|---|---|---|\n",
        peer::kName, peer::kName);
  } else {
    std::printf("| shape | us | GFLOP/s |\n|---|---|---|\n");
  }
  MatMuls(options);
  if (!options.peer || peer::kConvolves) Convolutions(options);
  if (!any_wanted) {
    std::fprintf(stderr, "--only=%s: no shape's name contains this\n",
                 options.only.c_str());
    return 2;
  }
  if (options.peer) {
    std::printf("\ngeometric mean of the ratios: %.2f\n", all_ratios.Get());
  }
  return all_agree ? 0 : 1;
}

}  // namespace
}  // namespace tfaot

int main(int argc, char** argv) { return tfaot::Main(argc, argv); }
