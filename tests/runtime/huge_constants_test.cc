// Protects the first run of a program with many constants: the system may map
// them in huge pages, and whatever else is near them stays as it is.
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/runtime/expect.h"
#include "tests/runtime/page_flags.h"
#include "tfaot/executor.h"

namespace {

constexpr std::size_t kPage = std::size_t{1} << 21;

// Makes an instance of a program with constants at these addresses.
void Make(const std::vector<const unsigned char*>& constants) {
  tfaot::Program program = {};
  const std::uint32_t first_use[] = {0};
  program.num_constants = static_cast<std::uint32_t>(constants.size());
  program.constants = constants.data();
  program.first_use = first_use;
  alignas(64) static unsigned char memory[4096];
  EXPECT(tfaot::Executor::MemoryBytes(program) <= sizeof(memory));
  const tfaot::Executor executor(program, memory);
}

}  // namespace

int main() {
  struct stat found;
  const bool has = stat("/sys/kernel/mm/transparent_hugepage", &found) == 0;
  void* const block = mmap(nullptr, 8 * kPage, PROT_READ,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EXPECT(block != MAP_FAILED);
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  const unsigned char* const at =
      static_cast<unsigned char*>(block) + (kPage - address % kPage);

  Make({});
  Make({at + 64});
  // A page and a half, and two halves of pages.
  Make({at + 64, at + 2 * kPage + kPage / 2});
  EXPECT(!tfaot::Huge(at + kPage));

  // In any order.
  Make({at + 5 * kPage, at + 64, at + 2 * kPage});
  EXPECT(!tfaot::Huge(at + kPage - 1));
  EXPECT(tfaot::Huge(at + kPage) == has);
  EXPECT(tfaot::Huge(at + 5 * kPage - 1) == has);
  EXPECT(!tfaot::Huge(at + 5 * kPage));
  munmap(block, 8 * kPage);
  return failed;
}
