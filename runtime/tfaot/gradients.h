// The gradients of a model in one block of memory, where a program reduces them
// in one call, between the entry point that returns them and the one that takes
// them.
//
//   tfaot::Gradients<Model> gradients(model);
//   if (!gradients.ok() || !model.grad()) ...
//   MPI_Allreduce(MPI_IN_PLACE, gradients.data(), gradients.count(), ...);
//   if (!model.apply()) ...
#ifndef TFAOT_GRADIENTS_H_
#define TFAOT_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tfaot/info.h"

namespace tfaot {

// Must outlive the last run of its model. Neither copyable nor movable.
template <typename Model>
class Gradients {
 public:
  explicit Gradients(Model& model) : model_(model) {
    for (const GradientInfo& gradient : Model::Info().gradients) {
      ok_ = ok_ && gradient.output->dtype == DType::kFloat32;
      bytes_ += Room(gradient);
    }
    ok_ = ok_ && bytes_ > 0;
    if (!ok_) return;
    block_.resize((bytes_ + kAligned) / sizeof(float));
    const auto begin = reinterpret_cast<std::uintptr_t>(block_.data());
    data_ = block_.data() + (kAligned - begin % kAligned) / sizeof(float);
    std::size_t at = 0;
    for (const GradientInfo& gradient : Model::Info().gradients) {
      float* const place = data_ + at / sizeof(float);
      ok_ = Place(model_, *gradient.output, place) && ok_;
      ok_ = Place(model_, *gradient.input, place) && ok_;
      at += Room(gradient);
    }
  }

  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  // False if the model has no gradients, or some that aren't float32.
  bool ok() const noexcept { return ok_; }

  float* data() noexcept { return data_; }
  // Of values, with the padding between gradients, which is zero at first.
  std::size_t count() const noexcept { return bytes_ / sizeof(float); }

 private:
  static constexpr std::size_t kAligned = 64;

  static std::size_t Room(const GradientInfo& gradient) {
    const auto bytes = static_cast<std::size_t>(gradient.output->bytes);
    return (bytes + kAligned - 1) / kAligned * kAligned;
  }

  Model& model_;
  std::vector<float> block_;
  float* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool ok_ = true;
};

}  // namespace tfaot

#endif  // TFAOT_GRADIENTS_H_
