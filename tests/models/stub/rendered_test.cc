// Protects NAME_stub: it has the header of NAME, and no model.
#include "tests/runtime/expect.h"
#include HEADER

int main() {
  a::b_c model;
  model.x()[0] = 1;
  EXPECT(!model.Run());
  EXPECT(model.isas()[0] == nullptr);
  return failed;
}
