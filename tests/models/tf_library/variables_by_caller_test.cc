// Protects callers that set variables which only a config declares: they start
// at zero, and runs use and change what the caller assigns.
#include <cmath>

#include "tests/models/tf_library/read_only.h"
#include "tests/models/tf_library/updates.h"
#include "tests/models/tf_library/variables.h"
#include "tests/runtime/expect.h"

namespace {

bool Near(float a, double b) { return std::fabs(a - b) < 1e-6; }

}  // namespace

int main() {
  tf_library_test::ReadOnly read_only;
  EXPECT(*read_only.x() == 0);
  EXPECT(read_only.Run() && *read_only.result() == 42);
  *read_only.mutable_x() = 23;
  EXPECT(read_only.Run() && *read_only.result() == 65);
  EXPECT(*read_only.x() == 23);

  tf_library_test::Variables variables;
  variables.x()(0) = 23;
  EXPECT(variables.Run());
  EXPECT(variables.result()(0, 0) == 23 && variables.result()(1, 0) == 65);
  EXPECT(variables.x()(0) == 65);
  EXPECT(variables.Run() && variables.x()(0) == 107);

  // Three times: x -= 0.1 * (x + y).
  tf_library_test::Updates updates;
  *updates.x() = 2;
  *updates.mutable_y() = 1;
  EXPECT(updates.Run() && Near(*updates.x(), 3 * 0.729 - 1));
  EXPECT(*updates.y() == 1);
  return failed == 0 ? 0 : 1;
}
