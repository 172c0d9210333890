// Protects builds without a toolchain: a program that uses a class compiles,
// links, and learns from every run that there is no model.
#include <cstring>

#include "p/family.h"
#include "p/small.h"
#include "tests/runtime/expect.h"
#include "tfaot/info.h"

namespace {

bool Says(const char* text, const char* part) {
  return std::strstr(text, part) != nullptr;
}

void Fails() {
  a::b::Small model;
  EXPECT(std::strcmp(model.error(),
                     "a::b::Small: this program contains a stub, which has no "
                     "model\n"
                     "  found: the class, with memory for its values, and no "
                     "code\n"
                     "  to do: link the tf_aot_library instead of its "
                     "NAME_stub") == 0);
  EXPECT(std::strcmp(model.isa(), "") == 0 && model.isas()[0] == nullptr);
  EXPECT(model.fingerprint() == 0 && model.weights_fingerprint() == 0);

  // Everything has memory, for what programs do before a run.
  model.x()(1, 2) = 3;
  EXPECT(model.x()[5] == 3 && *model.loss() == 0 && model.class_()[1] == 0);
  model.scope_w()(2, 3) = 4;
  model.mutable_moving_mean()[3] = 5;
  EXPECT(model.scope_w()[11] == 4 && model.moving_mean()[3] == 5);
  model.set_thread_pool(nullptr);
  EXPECT(!model.Run() && Says(model.error(), "a stub, which has no model"));

  tfaot::Status status;
  EXPECT(!a::b::Small::Create(tfaot::Options(), &status));
  EXPECT(Says(status.message(), "a stub, which has no model"));
}

void FailsWithBatches() {
  a::Family model;
  EXPECT(!model.Train() && !model.Embed(3));
  EXPECT(Says(model.error(), "a stub, which has no model"));
  EXPECT(!model.Load("nowhere") && Says(model.error(), "nowhere"));
  EXPECT(model.where().dim(0) == 0);
  model.Seed(3);
  EXPECT(model.state()[2] == 3);
  EXPECT(a::Family::Info().entry_points.size() == 2);
}

}  // namespace

int main() {
  Fails();
  FailsWithBatches();
  return failed;
}
