// Protects programs built with -fno-exceptions and -fno-rtti: a class with two
// CPU levels, all of the runtime, and the C interface compile, link, and run.
//
//   without_exceptions_test HEAD       a file from write_weights.py
//
// The linker takes the runtime from this program's own sources, which have
// these flags. A failed allocation shows it: it ends the program.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>

#include "tests/models/variables/chosen_aot.h"
#include "tests/runtime/expect.h"
#include "tfaot/c_api.h"
#include "tfaot/hooks.h"
#include "tfaot/isa.h"
#include "tfaot/threads.h"

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "this test is for programs without exceptions and RTTI"
#endif

namespace {

using tests::Chosen;

// For x = {1, 2, 3, 4}, the head has inputs whose sum is 26.
bool Gives(Chosen& model, float y0, float y1) {
  for (int i = 0; i < 4; ++i) model.x()[i] = static_cast<float>(i + 1);
  return model.Run() && model.y()[0] == y0 && model.y()[1] == y1;
}

void TestLevels() {
  int levels = 0, ran = 0;
  for (const char* const* isa = Chosen::isas(); *isa != nullptr; ++isa) {
    ++levels;
    tfaot::Options options;
    options.isa = *isa;
    tfaot::Status status;
    Chosen model = Chosen::Create(options, &status);
    EXPECT(static_cast<bool>(model) == tfaot::CpuRuns(*isa));
    if (!model) continue;
    EXPECT(std::strcmp(model.isa(), *isa) == 0 && Gives(model, 26, -16));
    ++ran;
  }
  EXPECT(levels == 2 && ran > 0);
}

void TestErrorsAreValues(const char* head) {
  tfaot::Options options;
  options.isa = "x86-64-v9";
  tfaot::Status status;
  EXPECT(!Chosen::Create(options, &status));
  EXPECT(status.code() == tfaot::Code::kUnsupportedCpu);
  Chosen model;
  EXPECT(!model.Load("nowhere"));
  EXPECT(model.error_code() == tfaot::Code::kFileAccess);
  EXPECT(!model.Load(tfaot::Source::Memory("short", 5)));
  EXPECT(model.error_code() == tfaot::Code::kBadFile);
  EXPECT(model.Load(head) && Gives(model, 52, -32));
  EXPECT(!model.set_x_data(model.x().data() + 1));
  tfaot::Cancellation cancellation;
  cancellation.Cancel();
  model.set_hooks(&cancellation);
  EXPECT(!model.Run() && model.error_code() == tfaot::Code::kCancelled);
  model.set_hooks(nullptr);
  tfaot::Threads threads(2);
  model.set_thread_pool(&threads);
  EXPECT(Gives(model, 52, -32));
}

void TestLiveWeights(const char* head) {
  tfaot::LiveWeights live(Chosen::InitialWeights());
  Chosen model;
  EXPECT(model.Follow(&live) && Gives(model, 26, -16));
  std::thread([&] {
    EXPECT(live.Load(tfaot::Source::Path(head).Copied()).ok());
  }).join();
  EXPECT(Gives(model, 52, -32));
  EXPECT(live.Update({{"head/bias", nullptr, 1}}).code() ==
         tfaot::Code::kMismatch);
}

class Nothing final : public tfaot::Allocator {
 public:
  void* Allocate(std::size_t, std::size_t) noexcept override { return nullptr; }
  void Free(void*, std::size_t) noexcept override {}
};

// Its addresses aren't aligned, as those of malloc().
class Askew final : public tfaot::Allocator {
 public:
  void* Allocate(std::size_t bytes, std::size_t) noexcept override {
    ++held;
    return static_cast<char*>(::operator new(bytes + 8, std::align_val_t{64})) +
           8;
  }
  void Free(void* memory, std::size_t) noexcept override {
    --held;
    ::operator delete(static_cast<char*>(memory) - 8, std::align_val_t{64});
  }
  int held = 0;
};

// Without memory for the block, Create() has an error, and a constructor, which
// can't throw, ends the program.
void TestOutOfMemory() {
  Nothing nothing;
  tfaot::Options options;
  options.allocator = &nothing;
  tfaot::Status status;
  EXPECT(!Chosen::Create(options, &status));
  EXPECT(status.code() == tfaot::Code::kOutOfMemory);
  Askew askew;
  tfaot::Options other;
  other.allocator = &askew;
  EXPECT(!Chosen::Create(other, &status) && askew.held == 0);
  EXPECT(status.code() == tfaot::Code::kOutOfMemory);
  int said[2];
  EXPECT(pipe(said) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(said[1], 2);
    Chosen model(options);
    _exit(0);
  }
  close(said[1]);
  std::string text;
  char part[64];
  for (ssize_t size; (size = read(said[0], part, sizeof(part))) > 0;) {
    text.append(part, static_cast<std::size_t>(size));
  }
  // An exception that nobody catches begins with another text. An emulator adds
  // a line of its own.
  EXPECT(text.rfind("out of memory\n", 0) == 0);
  int ended = 0;
  EXPECT(waitpid(child, &ended, 0) == child);
  EXPECT(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGABRT);
}

void TestTheCInterface() {
  const tfaot_api* api = tfaot_get_api(TFAOT_API_VERSION);
  tfaot_model* model;
  tfaot_weights* weights;
  EXPECT(api->create(nullptr, &model) == TFAOT_OK);
  static_cast<float*>(api->input(model, 0, 0))[0] = 1;
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  EXPECT(api->load(model, "nowhere") == TFAOT_FILE_ACCESS);
  EXPECT(api->initial_weights(&weights) == TFAOT_OK);
  EXPECT(api->set_weights(model, weights) == TFAOT_OK);
  api->destroy_weights(weights);
  api->destroy(model);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  TestLevels();
  TestErrorsAreValues(argv[1]);
  TestLiveWeights(argv[1]);
  TestOutOfMemory();
  TestTheCInterface();
  return failed == 0 ? 0 : 1;
}
