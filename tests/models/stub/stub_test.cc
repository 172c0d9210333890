// Protects builds without a toolchain: a program that uses a class compiles,
// links, and learns from every run that there is no model.
#include <cstring>

#include "p/small.h"
#include "tests/runtime/expect.h"

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

}  // namespace

int main() {
  Fails();
  return failed;
}
