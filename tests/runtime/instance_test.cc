// Protects the first run of a large instance: its memory consists of huge pages
// if the system has them, and a small one's doesn't.
#include "tfaot/instance.h"

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>

#include "tests/runtime/expect.h"
#include "tests/runtime/page_flags.h"

namespace {

void Pages(std::size_t bytes, bool huge) {
  const tfaot::InstanceMemory memory = tfaot::AllocateInstance(bytes, nullptr);
  EXPECT(memory.data != nullptr && memory.bytes == bytes);
  struct stat found;
  const bool has = stat("/sys/kernel/mm/transparent_hugepage", &found) == 0;
  EXPECT(tfaot::FlagsOf(memory.data) != "" || !has);
  EXPECT(tfaot::Huge(memory.data) == (huge && has));
  EXPECT(tfaot::Huge(memory.data + bytes - 1) == (huge && has));
  EXPECT(memory.zeroed && memory.data[0] == 0 && memory.data[bytes - 1] == 0);
  tfaot::FreeInstance(memory);
}

// The last huge page is more than the instance needs, and is freed, too.
void Freed() {
  const std::size_t bytes = (std::size_t{9} << 20) + 64;
  const tfaot::InstanceMemory memory = tfaot::AllocateInstance(bytes, nullptr);
  const unsigned char* const last = memory.data + (std::size_t{10} << 20) - 1;
  EXPECT(tfaot::FlagsOf(last) != "");
  tfaot::FreeInstance(memory);
  EXPECT(tfaot::FlagsOf(memory.data) == "" && tfaot::FlagsOf(last) == "");
}

// A size near the largest must not become a small one.
void TooLarge() {
  for (const std::size_t less : {0, 1, 4095, 1 << 20, (1 << 21) + 1}) {
    const tfaot::InstanceMemory memory =
        tfaot::AllocateInstance(SIZE_MAX - less, nullptr);
    EXPECT(memory.data == nullptr);
  }
}

}  // namespace

int main() {
  constexpr std::size_t kMega = 1 << 20;
  Pages(kMega, false);
  Pages(4 * kMega - 64, false);
  Pages(4 * kMega, true);
  Pages(9 * kMega + 64, true);
  Freed();
  TooLarge();
  return failed;
}
