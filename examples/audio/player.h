// Plays a stream through a model in blocks, whatever sizes the host asks for.
#ifndef EXAMPLES_AUDIO_PLAYER_H_
#define EXAMPLES_AUDIO_PLAYER_H_

#include <cstddef>

#include "examples/audio/gate_aot.h"

namespace examples {

// Make it before audio starts, and use it on one thread at a time. What comes
// out is kBlock samples late.
class Player {
 public:
  static constexpr std::size_t kBlock = 64;

  // Takes new weights from `live`, which must outlive it, between blocks. Runs
  // twice, so that the code and the memory of a run are there.
  explicit Player(const tfaot::LiveWeights& live)
      : ready_(gate_.Follow(&live) && gate_.block_64() && Reset()) {}

  // Whether the model runs; error() says why not.
  bool ready() const { return ready_; }
  const char* error() const { return gate_.error(); }

  // The audio callback: it allocates nothing, takes no lock, and makes no
  // system call. On failure, it plays silence.
  void Process(const float* in, float* out, std::size_t samples) noexcept {
    for (std::size_t i = 0; i < samples; ++i) {
      gate_.block_64_samples()[at_] = in[i];
      out[i] = ready_ ? gate_.block_64_out()[at_] : 0;
      if (++at_ == kBlock) {
        ready_ = ready_ && gate_.block_64();
        at_ = 0;
      }
    }
  }

  // Starts a new stream, after silence.
  bool Reset() noexcept {
    at_ = 0;
    for (float& sample : gate_.block_64_out()) sample = 0;
    return gate_.reset();
  }

 private:
  Gate gate_;
  std::size_t at_ = 0;  // samples of the current block
  bool ready_;
};

}  // namespace examples

#endif  // EXAMPLES_AUDIO_PLAYER_H_
