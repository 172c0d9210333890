// Feeds arbitrary bytes to the code that reads untrusted files in a compiled
// program: Load(), and Save() over a file. docs/internals/fuzzing.md says how
// to run it.
//
// The first byte says how to turn the rest into a file: as it is, or after the
// size of a header that ends within it, which is very unlikely to be right by
// chance.
// of a header that ends somewhere in it, which chance hardly ever gets right.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/runtime/owned_variables.h"

// Disks are slow, and aren't under test.
extern "C" int fsync(int) { return 0; }

namespace {

using tests::Variables;
using tfaot::VariableInfo;

constexpr std::int64_t kMatrix[] = {2, 3};
constexpr std::int64_t kPair[] = {2};
constexpr std::int64_t kNone[] = {0, 4};
constexpr std::int64_t kLine[] = {16};
constexpr VariableInfo kModel[] = {
    {"m", "F32", kMatrix, 2, 24, 0, true},
    {"b", "BOOL", kPair, 1, 2, 0, false},
    {"n", "F64", kNone, 2, 0, 0, false},
    {"s", "I64", nullptr, 0, 8, 0, true, true},
    {"\xc3\xb6", "F32", kLine, 1, 64, 0, false, true},
};
constexpr std::size_t kCount = 5;

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "variables_fuzz: %s\n", what);
  std::abort();
}

// A folder for this process's files.
const std::string& Folder() {
  static const struct Made {
    Made() {
      // In memory if such a folder exists.
      const char* parent = std::getenv("TEST_TMPDIR");
      const bool memory = access("/dev/shm", W_OK) == 0;
      path = std::string(memory   ? "/dev/shm"
                         : parent ? parent
                                  : "/tmp") +
             "/fuzz-XXXXXX";
      Require(mkdtemp(path.data()) != nullptr, "no folder for its files");
    }
    ~Made() {
      unlink((path + "/file").c_str());
      rmdir(path.c_str());
    }
    std::string path;
  } made;
  return made.path;
}

void Write(const std::string& path, const std::string& bytes) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const auto size = static_cast<ssize_t>(bytes.size());
  Require(fd >= 0 && write(fd, bytes.data(), bytes.size()) == size,
          "its file can't be written");
  close(fd);
}

std::string Read(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status;
  Require(fd >= 0 && fstat(fd, &status) == 0, "its file can't be read");
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  Require(read(fd, bytes.data(), bytes.size()) == status.st_size,
          "its file can't be read");
  close(fd);
  return bytes;
}

// A file with everything that the model needs.
std::string GoodFile() {
  const std::string header =
      "{\"m\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
      "\"b\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[24,26]},"
      "\"n\":{\"dtype\":\"F64\",\"shape\":[0,4],\"data_offsets\":[26,26]}}";
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) +
         header + std::string(26, '\1');
}

// Reads every byte of all values.
std::string Values(const Variables& variables) {
  std::string values;
  for (std::size_t i = 0; i < kCount; ++i) {
    values.append(static_cast<const char*>(variables.data(i)), kModel[i].bytes);
  }
  return values;
}

// Errors say why, in printable ASCII except for the model's own names.
void RequireError(const Variables& variables) {
  const std::string error = variables.error();
  Require(!error.empty() && error.size() < 100'000, "an error of no text");
  for (const char c : error) {
    Require(c == '\n' || (c >= ' ' && c <= '~') || c == '\xc3' || c == '\xb6',
            "an error with bytes of the file");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size) {
  if (size < 3) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 3, size - 3);
  if (data[0] % 2 == 1) {
    const std::uint64_t header =
        (data[1] + 256u * data[2]) % (bytes.size() + 1);
    bytes.insert(0, reinterpret_cast<const char*>(&header), sizeof(header));
  }
  const std::string path = Folder() + "/file";
  Write(path, bytes);

  Variables variables(kModel, kCount, nullptr);
  const std::string zeros = Values(variables);
  if (!variables.Load(path.c_str())) {
    RequireError(variables);
    Require(Values(variables) == zeros && !variables.loaded(),
            "a load that failed has changed something");
    Require(!variables.Save(path.c_str()), "values that nobody gave are saved");
    // Over an existing file, with values from another file.
    Write(path, GoodFile());
    Require(variables.Load(path.c_str()), "a good file is refused");
    Write(path, bytes);
    if (!variables.Save(path.c_str())) {
      RequireError(variables);
      Require(Read(path) == bytes, "a save that failed has changed the file");
      return 0;
    }
  }
  // What was saved can be loaded, and saved again unchanged, including tensors
  // and metadata that the model lacks.
  Require(variables.Save(path.c_str()), "a file that was loaded is refused");
  const std::string saved = Read(path);
  Variables again(kModel, kCount, nullptr);
  Require(again.Load(path.c_str()), "what was saved is refused");
  Require(Values(again) == Values(variables), "other values are saved");
  Require(again.Save(path.c_str()) && Read(path) == saved,
          "a file changes when it is saved as it is");
  return 0;
}
