// Protects variables in memory: where their values are, what is copied and what
// isn't, and that files are loaded and replaced as a whole.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/runtime/expect.h"
#include "tests/runtime/files.h"
#include "tests/runtime/limits.h"
#include "tests/runtime/owned_variables.h"

using tests::Variables;
using tfaot::VariableInfo;

static_assert(std::is_nothrow_move_constructible_v<tfaot::Variables>);
static_assert(std::is_nothrow_move_assignable_v<tfaot::Variables>);
static_assert(!std::is_copy_constructible_v<tfaot::Variables>);
static_assert(!std::is_copy_assignable_v<tfaot::Variables>);

namespace {

// In the model's order. The offsets are those of a file that places multiples
// of 64 bytes first.
enum { kStep, kRead, kNone, kWritten, kOdd, kFlags, kCount };
constexpr std::int64_t k16[] = {4, 4};
constexpr std::int64_t k32[] = {32};
constexpr std::int64_t k0[] = {0, 4};
constexpr std::int64_t k3[] = {3};
constexpr VariableInfo kModel[] = {
    {"step", "I64", nullptr, 0, 8, 192, true},
    {"dense/read", "F32", k16, 2, 64, 0, false},
    {"none", "F64", k0, 2, 0, 64, false},
    {"dense/written", "F32", k32, 1, 128, 64, true},
    {"odd \"\\/\xc3\xb6\xf0\x9f\x98\x80\x7f", "F32", k3, 1, 12, 200, false},
    {"flags", "BOOL", k3, 1, 3, 212, false},
};

std::string Header() {
  return "{" + Member("dense/read", "F32", "4,4", 0, 64) + "," +
         Member("none", "F64", "0,4", 64, 64) + "," +
         Member("dense/written", "F32", "32", 64, 192) + "," +
         Member("step", "I64", "", 192, 200) + "," +
         Member("odd \\\"\\\\/\\u00f6\\ud83d\\ude00\\u007f", "F32", "3", 200,
                212) +
         "," + Member("flags", "BOOL", "3", 212, 215) + "}";
}

// The values `first`, `first` + 1, and so on, for each variable.
std::string Data(int first) {
  std::string data;
  const auto floats = [&](int count) {
    for (int i = 0; i < count; ++i)
      data += Bytes(static_cast<float>(first + i));
  };
  floats(16);
  floats(32);
  data += Bytes(std::int64_t{first});
  floats(3);
  return data + std::string("\1\0\1", 3);
}

std::string GoodFile(int first) { return AlignedFile(Header(), Data(first)); }

bool Holds(const Variables& variables, int first) {
  const auto floats = [&](int index, int count) {
    const auto* values = static_cast<const float*>(variables.data(index));
    for (int i = 0; i < count; ++i) {
      if (values[i] != static_cast<float>(first + i)) return false;
    }
    return true;
  };
  const auto* flags = static_cast<const bool*>(variables.data(kFlags));
  return floats(kRead, 16) && floats(kWritten, 32) && floats(kOdd, 3) &&
         *static_cast<const std::int64_t*>(variables.data(kStep)) == first &&
         flags[0] && !flags[1] && flags[2];
}

bool IsZero(const Variables& variables) {
  for (int i = 0; i < kCount; ++i) {
    const auto* bytes = static_cast<const unsigned char*>(variables.data(i));
    if (std::count(bytes, bytes + kModel[i].bytes, 0) !=
        static_cast<std::ptrdiff_t>(kModel[i].bytes)) {
      return false;
    }
  }
  return true;
}

bool Aligned(const Variables& variables, int count = kCount) {
  for (int i = 0; i < count; ++i) {
    const void* data = variables.data(i);
    if (data == nullptr || reinterpret_cast<std::uintptr_t>(data) % 64 != 0) {
      return false;
    }
  }
  return true;
}

// A file as the linker places it in a library.
class Embedded {
 public:
  // Starts `shift` bytes past a multiple of 64.
  explicit Embedded(const std::string& bytes, std::size_t shift = 0)
      : memory_(bytes.size() + 128), size_(bytes.size()) {
    begin_ = memory_.data();
    while (reinterpret_cast<std::uintptr_t>(begin_) % 64 != shift) ++begin_;
    std::copy(bytes.begin(), bytes.end(), begin_);
  }
  const unsigned char* begin() const { return begin_; }
  bool Holds(const void* data) const {
    const auto* at = static_cast<const unsigned char*>(data);
    return at >= begin_ && at < begin_ + size_;
  }
  std::string bytes() const { return {begin_, begin_ + size_}; }

 private:
  std::vector<unsigned char> memory_;
  unsigned char* begin_;
  std::size_t size_;
};

// Returns the lines of /proc/self/maps that map a file. If `data` is given, one
// of them must contain it.
int Mappings(const std::string& path, const void* data = nullptr) {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(path) == line.npos) continue;
    std::istringstream fields(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    fields >> std::hex >> begin >> dash >> end;
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    if (data == nullptr || (at >= begin && at < end)) ++found;
  }
  return found;
}

void TestEmbedded() {
  const Embedded file(GoodFile(5));
  Variables variables(kModel, kCount, file.begin());
  EXPECT(variables.loaded() && *variables.error() == '\0');
  EXPECT(Holds(variables, 5) && Aligned(variables));
  // Only what the model writes and what isn't aligned is copied.
  EXPECT(file.Holds(variables.data(kRead)));
  EXPECT(!file.Holds(variables.data(kWritten)));
  EXPECT(!file.Holds(variables.data(kStep)));
  EXPECT(!file.Holds(variables.data(kOdd)));

  // Written values stay where they were. Others are copied at most once.
  EXPECT(variables.mutable_data(kWritten) == variables.data(kWritten));
  EXPECT(variables.mutable_data(kNone) == variables.data(kNone));
  const void* before = variables.data(kRead);
  void* copy = variables.mutable_data(kRead);
  EXPECT(copy != before && copy == variables.data(kRead));
  EXPECT(copy == variables.mutable_data(kRead) && !file.Holds(copy));
  EXPECT(Holds(variables, 5) && Aligned(variables));
  static_cast<float*>(copy)[15] = -1;
  static_cast<float*>(variables.mutable_data(kWritten))[31] = -1;
  static_cast<float*>(variables.mutable_data(kOdd))[2] = -1;
  EXPECT(file.bytes() == GoodFile(5));
  EXPECT(Holds(Variables(kModel, kCount, file.begin()), 5));

  // A file that a linker has placed at any address.
  for (const std::size_t shift : {1u, 8u, 63u}) {
    const Embedded moved(GoodFile(6), shift);
    const Variables copied(kModel, kCount, moved.begin());
    EXPECT(Holds(copied, 6) && Aligned(copied));
    EXPECT(!moved.Holds(copied.data(kRead)));
  }

  // Where there is nothing to point to.
  const Variables empty(kModel + kNone, 1, nullptr);
  EXPECT(Aligned(empty, 1));
  const Variables none(nullptr, 0, file.begin());
  EXPECT(none.loaded());
}

void TestZeroes() {
  Variables variables(kModel, kCount, nullptr);
  EXPECT(!variables.loaded() && IsZero(variables) && Aligned(variables));
  static_cast<float*>(variables.mutable_data(kRead))[0] = 1;
  EXPECT(*static_cast<const float*>(variables.data(kRead)) == 1);

  // More than most machines have. Only what is written takes memory.
  constexpr std::int64_t dims[] = {std::int64_t{1} << 38};
  const VariableInfo infos[] = {
      {"large", "U8", dims, 1, std::uint64_t{1} << 38, 0, true},
      {"small", "U8", nullptr, 0, 1, std::uint64_t{1} << 38, true},
  };
  const std::uint64_t before = Size(true);
  Variables large(infos, 2, nullptr);
  static_cast<char*>(large.mutable_data(0))[dims[0] - 1] = 1;
  static_cast<char*>(large.mutable_data(1))[0] = 1;
  EXPECT(Aligned(large, 2) && Size(true) - before < Little());
}

void TestLoad() {
  const std::string path = Written("load", GoodFile(7));
  const Embedded file(GoodFile(5));
  Variables variables(kModel, kCount, file.begin());
  EXPECT(variables.Load(path.c_str()));
  EXPECT(variables.loaded() && Holds(variables, 7) && Aligned(variables));
  // What the model only reads is used in place in the file, except what isn't
  // aligned there. What it writes is the instance's own.
  EXPECT(Mappings(path, variables.data(kRead)) == 1);
  for (const int index : {kWritten, kStep, kOdd}) {
    EXPECT(Mappings(path, variables.data(index)) == 0);
  }
  for (const int index : {kWritten, kStep}) {
    EXPECT(variables.data(index) == variables.mutable_data(index));
    EXPECT(variables.data(index) == variables.own_data(index));
  }
  EXPECT(Mappings(path) == 1);

  // Written in place, but neither in the file nor in another instance.
  Variables other(kModel, kCount, nullptr);
  EXPECT(other.Load(path.c_str()));
  static_cast<float*>(variables.mutable_data(kWritten))[31] = -1;
  static_cast<float*>(variables.mutable_data(kOdd))[0] = -1;
  EXPECT(!Holds(variables, 7) && Holds(other, 7));
  EXPECT(Read(path) == GoodFile(7));

  // After the file is deleted or replaced, the loaded values stay.
  EXPECT(std::rename(Written("new", GoodFile(8)).c_str(), path.c_str()) == 0);
  EXPECT(Holds(other, 7));
  EXPECT(std::filesystem::remove(path));
  EXPECT(Holds(other, 7));

  // A failed load changes nothing, and the next one succeeds.
  EXPECT(!other.Load(path.c_str()) && *other.error() != '\0');
  EXPECT(Holds(other, 7) && other.loaded());
  Written("load", GoodFile(9));
  EXPECT(other.Load(path.c_str()) && *other.error() == '\0');
  EXPECT(Holds(other, 9));
}

void TestMemoryIsReleased() {
  const std::string path = Written("released", GoodFile(7));
  const auto open_files = [] { return Names("/proc/self/fd").size(); };
  const std::size_t before = open_files();
  {
    const Embedded file(GoodFile(5));
    Variables variables(kModel, kCount, file.begin());
    for (int i = 0; i < 100; ++i) {
      variables.mutable_data(kRead);
      EXPECT(variables.Load(path.c_str()));
      EXPECT(!variables.Load("/nonexistent"));
      EXPECT(!variables.Load(Written("broken", "x").c_str()));
    }
    EXPECT(Mappings(path) == 1 && Mappings("broken") == 0);
    // A file that is copied isn't kept.
    const std::string odd = Written("odd", File(Header() + " ", Data(8)));
    EXPECT(variables.Load(tfaot::Source::Path(odd.c_str()).Copied()));
    EXPECT(Holds(variables, 8) && Aligned(variables));
    EXPECT(Mappings(path) == 0 && Mappings(odd) == 0);
    EXPECT(variables.Load(path.c_str()));
  }
  EXPECT(Mappings(path) == 0);
  EXPECT(open_files() == before);
}

void TestOptional() {
  std::vector<VariableInfo> infos(kModel, kModel + kCount);
  infos[kStep].optional = infos[kOdd].optional = infos[kNone].optional = true;
  const std::string path = Written(
      "optional",
      AlignedFile("{" + Member("dense/read", "F32", "4,4", 0, 64) + "," +
                      Member("dense/written", "F32", "32", 64, 192) + "," +
                      Member("flags", "BOOL", "3", 192, 195) + "}",
                  Data(7).substr(0, 192) + std::string("\0\0\0", 3)));
  const Embedded file(GoodFile(5));
  Variables variables(infos.data(), kCount, file.begin());
  *static_cast<std::int64_t*>(variables.mutable_data(kStep)) = 99;
  // Variables that the file lacks keep their values, repeatedly.
  for (int i = 0; i < 3; ++i) {
    EXPECT(variables.Load(path.c_str()));
    EXPECT(*static_cast<const std::int64_t*>(variables.data(kStep)) == 99);
    EXPECT(static_cast<const float*>(variables.data(kOdd))[2] == 7);
    EXPECT(static_cast<const float*>(variables.data(kRead))[0] == 7);
    EXPECT(Aligned(variables));
  }
  // That doesn't excuse a wrong one.
  infos[kStep].dtype = "U64";
  EXPECT(!Variables(infos.data(), kCount, nullptr)
              .Load(Written("wrong", GoodFile(1)).c_str()));
}

void TestMove() {
  const Embedded file(GoodFile(5));
  Variables first(kModel, kCount, file.begin());
  const void* data = first.data(kWritten);
  Variables second(std::move(first));
  EXPECT(second.data(kWritten) == data && Holds(second, 5));
  first = Variables(kModel, kCount, nullptr);
  EXPECT(IsZero(first) && !first.loaded());
  first = std::move(second);
  EXPECT(first.data(kWritten) == data && Holds(first, 5) && first.loaded());
}

void TestSave() {
  const std::string folder = Path("saved");
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/file";
  const Embedded file(GoodFile(5));
  Variables variables(kModel, kCount, file.begin());
  umask(027);
  EXPECT(variables.Save(path.c_str()));
  EXPECT(Read(path) == GoodFile(5));
  struct stat status;
  EXPECT(stat(path.c_str(), &status) == 0 && (status.st_mode & 0777) == 0640);

  // Values written since then, over the mapped file.
  EXPECT(variables.Load(path.c_str()));
  static_cast<float*>(variables.mutable_data(kWritten))[31] = -1;
  static_cast<float*>(variables.mutable_data(kRead))[15] = -2;
  EXPECT(variables.Save(path.c_str()));
  std::string wanted = GoodFile(5);
  const std::size_t data = wanted.size() - Data(5).size();
  wanted.replace(data + 188, 4, Bytes(-1.0f));
  wanted.replace(data + 60, 4, Bytes(-2.0f));
  EXPECT(Read(path) == wanted);
  EXPECT(static_cast<const float*>(variables.data(kWritten))[31] == -1);
  EXPECT(variables.Load(path.c_str()) && variables.Save(path.c_str()));
  EXPECT(Read(path) == wanted);
  EXPECT(Names(folder) == std::vector<std::string>{"file"});

  // In the current folder, and without variables.
  const std::string here = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  EXPECT(Variables(nullptr, 0, file.begin()).Save("plain"));
  std::filesystem::current_path(here);
  EXPECT(Read(folder + "/plain") == AlignedFile("{}", ""));
  EXPECT(Variables(nullptr, 0, nullptr).Load((folder + "/plain").c_str()));
}

void TestSaveFails() {
  const std::string folder = Path("unsaved");
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/file";
  const std::string as_it_was = GoodFile(6);
  std::ofstream(path) << as_it_was;
  const Embedded file(GoodFile(5));
  Variables variables(kModel, kCount, file.begin());
  const auto todo =
      "\n  to do: pass a path in a folder that exists, that this process "
      "can write to, and that has space for " +
      std::to_string(GoodFile(5).size()) + " bytes";
  const std::string nowhere = Path("nowhere/file");
  EXPECT(!variables.Save(nowhere.c_str()));
  EXPECT(variables.error() ==
         nowhere + " can't be saved\n  found: No such file or directory" +
             todo);
  EXPECT(!variables.Save((path + "/file").c_str()));
  EXPECT(variables.error() ==
         path + "/file can't be saved\n  found: Not a directory" + todo);
  EXPECT(!variables.Save(folder.c_str()));
  EXPECT(variables.error() ==
         folder +
             " can't be saved\n  found: the path exists but isn't a regular "
             "file\n  to do: pass the path of a regular file, or one that "
             "doesn't exist yet");
  // No space: in the middle of the header, and of a variable.
  for (const std::uint64_t bytes : {100u, 600u}) {
    EXPECT(bytes < GoodFile(5).size());
    EXPECT(Limited(RLIMIT_FSIZE, bytes, [&] {
             EXPECT(!variables.Save(path.c_str()));
             EXPECT(variables.error() ==
                    path + " can't be saved\n  found: File too large" + todo);
           }) == 0);
  }
  EXPECT(Names(folder) == std::vector<std::string>{"file"});
  EXPECT(Read(path) == as_it_was);
  EXPECT(Holds(variables, 5));
  EXPECT(variables.Save(path.c_str()) && *variables.error() == '\0');
}

void TestManyAtOnce() {
  // Each reader sees one complete file or the other.
  const std::string path = Written("shared", GoodFile(0));
  const Embedded file(GoodFile(0));
  std::vector<int> bad(4);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      Variables variables(kModel, kCount, file.begin());
      for (int round = 0; round < 50; ++round) {
        const bool ok = variables.Save(path.c_str()) &&
                        variables.Load(path.c_str()) && Holds(variables, 0);
        if (!ok) ++bad[thread];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(bad == std::vector<int>(4));
}

// The same file from everywhere, mapped and copied.
void TestSources() {
  const std::string path = Written("source", GoodFile(7));
  const Embedded memory(GoodFile(7));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::size_t bytes = GoodFile(7).size();
  const tfaot::Source sources[] = {
      tfaot::Source::Path(path.c_str()),
      tfaot::Source::Descriptor(fd),
      tfaot::Source::Memory(memory.begin(), bytes),
  };
  const Embedded file(GoodFile(5));
  for (const tfaot::Source& source : sources) {
    for (const bool copied : {false, true}) {
      Variables variables(kModel, kCount, file.begin());
      EXPECT(variables.Load(copied ? source.Copied() : source));
      EXPECT(Holds(variables, 7) && Aligned(variables));
      const bool mapped = Mappings(path, variables.data(kRead)) == 1;
      EXPECT(mapped ==
             (!copied && source.kind != tfaot::Source::Kind::kMemory));
      EXPECT(memory.Holds(variables.data(kRead)) ==
             (!copied && source.kind == tfaot::Source::Kind::kMemory));
    }
  }
  // A descriptor stays open, and where it was.
  EXPECT(lseek(fd, 0, SEEK_CUR) == 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);

  // Copied values don't depend on a file that is cut off later. Mapped ones
  // would end the process (SIGBUS).
  Variables copied(kModel, kCount, file.begin());
  EXPECT(copied.Load(tfaot::Source::Descriptor(fd).Copied()));
  EXPECT(truncate(path.c_str(), 0) == 0 && Holds(copied, 7));
  Variables variables(kModel, kCount, file.begin());
  EXPECT(!variables.Load(tfaot::Source::Descriptor(fd)));
  EXPECT(variables.code() == tfaot::Code::kBadFile);
  EXPECT(variables.error() ==
         "file descriptor " + std::to_string(fd) +
             " is truncated, or isn't a safetensors file\n  found: 0 bytes\n"
             "  to do: write it again");
  close(fd);
  EXPECT(!variables.Load(tfaot::Source::Descriptor(-1)));
  EXPECT(variables.code() == tfaot::Code::kFileAccess);
  EXPECT(variables.error() ==
         std::string("file descriptor -1 can't be opened\n  found: Bad file "
                     "descriptor\n  to do: pass a safetensors file that this "
                     "process may read"));
  // Memory that ends anywhere.
  for (std::size_t size = 0; size < bytes; ++size) {
    EXPECT(!variables.Load(tfaot::Source::Memory(memory.begin(), size)));
    EXPECT(std::string(variables.error()).find("the file in memory") == 0);
  }
  EXPECT(Holds(variables, 5));
}

// Weights that many instances share.
void TestShared() {
  const std::string path = Written("shared_weights", GoodFile(7));
  const Embedded file(GoodFile(5));
  const tfaot::Weights initial =
      tfaot::InitialWeights(kModel, kCount, file.begin());
  tfaot::Weights loaded;
  EXPECT(!loaded && loaded.version() == 0);
  EXPECT(tfaot::LoadWeights(tfaot::Source::Path(path.c_str()), *initial.set(),
                            &loaded)
             .ok());
  EXPECT(loaded.version() > initial.version());
  {
    Variables one(loaded), other(loaded);
    EXPECT(Holds(one, 7) && Holds(other, 7) && Mappings(path) == 1);
    for (const int index : {kRead, kOdd}) {
      EXPECT(one.data(index) == other.data(index));
    }
    for (const int index : {kWritten, kStep}) {
      EXPECT(one.data(index) != other.data(index));
    }
    // Other weights leave what the model writes.
    static_cast<float*>(one.own_data(kWritten))[0] = -1;
    float* const mine = static_cast<float*>(one.mutable_data(kRead));
    mine[0] = -2;
    EXPECT(static_cast<const float*>(other.data(kRead))[0] == 7);
    EXPECT(one.weights().version() == loaded.version());
    EXPECT(one.SetWeights(initial).ok() && other.SetWeights(initial).ok());
    EXPECT(static_cast<const float*>(one.data(kRead))[0] == 5);
    EXPECT(static_cast<const float*>(one.data(kWritten))[0] == -1);
    EXPECT(static_cast<const float*>(other.data(kWritten))[0] == 7);
    // The weights are still held here.
    EXPECT(Mappings(path) == 1);
    loaded = tfaot::Weights();
    EXPECT(Mappings(path) == 0);
  }
  // Those of another model, even if it looks the same.
  const std::vector<VariableInfo> twin(kModel, kModel + kCount);
  const tfaot::Weights foreign =
      tfaot::InitialWeights(twin.data(), kCount, file.begin());
  Variables variables(initial);
  const tfaot::Status status = variables.SetWeights(foreign);
  EXPECT(status.code() == tfaot::Code::kMismatch);
  EXPECT(status.message() ==
         std::string("these weights can't be used\n  found: weights of another "
                     "model\n  to do: pass weights that this model's class has "
                     "made"));
  EXPECT(variables.SetWeights(tfaot::Weights()).code() ==
         tfaot::Code::kMismatch);
  EXPECT(variables.weights().version() == initial.version());
}

void TestUpdate() {
  const Embedded file(GoodFile(5));
  const tfaot::Weights initial =
      tfaot::InitialWeights(kModel, kCount, file.begin());
  const std::vector<float> read(16, 9), odd(3, 8);
  const tfaot::NamedValue values[] = {
      {"dense/read", read.data(), 64},
      {kModel[kOdd].name, odd.data(), 12},
      {"none", nullptr, 0},
  };
  tfaot::Weights updated;
  EXPECT(initial.Update(values, 3, &updated).ok());
  Variables before(initial), after(updated);
  EXPECT(Holds(before, 5) && Aligned(after));
  EXPECT(static_cast<const float*>(after.data(kRead))[15] == 9);
  EXPECT(static_cast<const float*>(after.data(kOdd))[2] == 8);
  EXPECT(after.data(kFlags) == before.data(kFlags));  // shared
  EXPECT(static_cast<const float*>(after.data(kWritten))[0] == 5);

  // All mistakes at once, and nothing changes.
  const unsigned char two[] = {1, 2, 0};
  const tfaot::NamedValue wrong[] = {
      {"dense/red", read.data(), 64},
      {"dense/read", read.data(), 60},
      {"flags", two, 3},
      {"dense/read", read.data(), 64},
      {nullptr, read.data(), 64},
      {"dense/written", nullptr, 128},
  };
  tfaot::Weights same = updated;
  const tfaot::Status status = initial.Update(wrong, 6, &same);
  const std::string wanted =
      "an update doesn't fit the model: 5 of 6 value(s)\n\n"
      "    dense/red: the model has no variable of this name\n"
      "    dense/read: 60 bytes; the model has float32[4, 4] of 64\n"
      "    flags: bool, with values other than 0 and 1\n"
      "    value 4: a name of nullptr\n"
      "    dense/written: values at nullptr\n\n"
      "  found: variables step, dense/read, none, dense/written, "
      "odd \\\"\\\\/\\u00f6\\ud83d\\ude00\\u007f, flags\n"
      "  to do: pass TensorFlow's names, and as many bytes as each variable "
      "has";
  EXPECT(status.message() == wanted && status.code() == tfaot::Code::kMismatch);
  if (status.message() != wanted) std::printf("got:\n%s\n", status.message());
  EXPECT(same.version() == updated.version());

  const tfaot::Status none = tfaot::Weights().Update(values, 1, &same);
  EXPECT(none.code() == tfaot::Code::kNoWeights &&
         none.message() ==
             std::string("an update of no weights\n"
                         "  to do: call it on weights of a model"));
}

// Files that aren't named: an error, and nothing changes.
void TestNothing() {
  Variables variables(kModel, kCount, nullptr);
  EXPECT(!variables.Load(static_cast<const char*>(nullptr)));
  const std::string wanted =
      "the file can't be opened\n"
      "  found: nullptr instead of a path or of memory\n"
      "  to do: pass a safetensors file that this process may read";
  EXPECT(variables.error() == wanted);
  if (variables.error() != wanted) {
    std::printf("got:\n%s\n", variables.error());
  }
  const Embedded file(GoodFile(5));
  tfaot::LiveWeights live(tfaot::InitialWeights(kModel, kCount, file.begin()));
  tfaot::Status status = live.Load(tfaot::Source::Memory(nullptr, 100));
  EXPECT(status.code() == tfaot::Code::kInvalidArgument);
  status = live.Load(tfaot::Source::Memory(nullptr, 0));
  EXPECT(status.code() == tfaot::Code::kBadFile);
  const tfaot::Variables& saved = variables;
  status = saved.Save(nullptr);
  EXPECT(status.code() == tfaot::Code::kInvalidArgument);
  EXPECT(status.message() == std::string("the variables can't be saved\n"
                                         "  found: a path of nullptr\n"
                                         "  to do: pass the path of a file"));
  status = tfaot::LiveWeights(tfaot::Weights())
               .Load(tfaot::Source::Memory(file.begin(), 8));
  EXPECT(status.code() == tfaot::Code::kNoWeights);
  EXPECT(status.message() ==
         std::string("a load into live weights that refer to no model\n"
                     "  to do: make them from weights of a model"));
}

void TestLive() {
  const std::string path = Written("live", GoodFile(7));
  const Embedded file(GoodFile(5));
  const tfaot::Weights initial =
      tfaot::InitialWeights(kModel, kCount, file.begin());
  tfaot::LiveWeights live(initial);
  Variables variables(initial), other(initial);
  EXPECT(variables.Follow(&live).ok());
  EXPECT(live.Load(tfaot::Source::Path(path.c_str())).ok());
  EXPECT(Holds(variables, 5));  // until it asks
  variables.mutable_data(kRead);
  variables.Refresh();
  EXPECT(variables.weights().version() == live.version());
  EXPECT(static_cast<const float*>(variables.data(kRead))[0] == 7);
  EXPECT(static_cast<const float*>(variables.data(kWritten))[0] == 5);
  other.Refresh();
  EXPECT(Holds(other, 5));

  // What fails changes nothing.
  const std::uint64_t version = live.version();
  EXPECT(live.Load(tfaot::Source::Path("/nonexistent")).code() ==
         tfaot::Code::kFileAccess);
  const tfaot::NamedValue wrong[] = {{"no", nullptr, 0}};
  EXPECT(live.Update(wrong, 1).code() == tfaot::Code::kMismatch);
  EXPECT(live.Swap(tfaot::Weights()).code() == tfaot::Code::kMismatch);
  EXPECT(live.version() == version && Mappings(path) == 1);

  // The old weights come back, and nobody else has them.
  variables.Refresh();
  tfaot::Weights previous;
  EXPECT(live.Swap(initial, &previous).ok());
  EXPECT(previous.version() == version && live.version() == initial.version());
  variables.Refresh();
  EXPECT(Mappings(path) == 1);
  previous = tfaot::Weights();
  EXPECT(Mappings(path) == 1);
  live.Reclaim();
  EXPECT(Mappings(path) == 0);

  // Versions that come back are owned once, and what an instance uses stays.
  tfaot::Weights mapped;
  EXPECT(tfaot::LoadWeights(tfaot::Source::Path(path.c_str()), *initial.set(),
                            &mapped)
             .ok());
  const long owners = initial.set().use_count();
  for (int i = 0; i < 100; ++i) {
    EXPECT(live.Swap(mapped).ok() && live.Swap(initial).ok());
  }
  EXPECT(initial.set().use_count() == owners);
  EXPECT(live.Swap(mapped).ok());
  variables.Refresh();
  EXPECT(live.Swap(initial).ok());
  mapped = tfaot::Weights();
  live.Reclaim();
  EXPECT(Mappings(path) == 1);  // the instance's
  variables.Refresh();
  EXPECT(Mappings(path) == 1);  // a run releases nothing
  live.Reclaim();
  EXPECT(Mappings(path) == 0);

  // Load() and SetWeights() end it, and so does following nothing.
  const std::vector<float> read(16, 9);
  const tfaot::NamedValue value[] = {{"dense/read", read.data(), 64}};
  const auto follows = [&] {
    EXPECT(live.Update(value, 1).ok());
    variables.Refresh();
    return variables.weights().version() == live.version();
  };
  EXPECT(follows());
  EXPECT(variables.Load(path.c_str()) && !follows());
  EXPECT(variables.Follow(&live).ok() && follows());
  EXPECT(variables.SetWeights(initial).ok() && !follows());
  EXPECT(variables.Follow(&live).ok() && follows());
  EXPECT(variables.Follow(nullptr).ok() && !follows());
  const std::vector<VariableInfo> twin(kModel, kModel + kCount);
  tfaot::LiveWeights foreign(
      tfaot::InitialWeights(twin.data(), kCount, file.begin()));
  EXPECT(variables.Follow(&foreign).code() == tfaot::Code::kMismatch);
}

// Of updates at the same time, none is lost.
void TestUpdatesAtOnce() {
  const Embedded file(GoodFile(5));
  tfaot::LiveWeights live(tfaot::InitialWeights(kModel, kCount, file.begin()));
  constexpr int kRounds = 2000;
  const auto update = [&](const char* name, std::size_t count) {
    std::vector<float> value(count);
    for (int round = 1; round <= kRounds; ++round) {
      std::fill(value.begin(), value.end(), static_cast<float>(round));
      const tfaot::NamedValue values[] = {{name, value.data(), 4 * count}};
      if (!live.Update(values, 1)) std::abort();
    }
  };
  std::thread one(update, "dense/read", 16);
  std::thread other(update, kModel[kOdd].name, 3);
  one.join();
  other.join();
  Variables variables(live.Current());
  EXPECT(static_cast<const float*>(variables.data(kRead))[0] == kRounds);
  EXPECT(static_cast<const float*>(variables.data(kOdd))[0] == kRounds);
}

// A snapshot while other threads read, and save, too.
void TestSaveBesideReaders() {
  const Embedded file(GoodFile(6));
  const Variables variables(kModel, kCount, file.begin());
  std::vector<int> bad(4);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const tfaot::Variables& shared = variables;
      const std::string path = Path("beside") + std::to_string(thread);
      for (int round = 0; round < 20; ++round) {
        const bool ok = thread % 2 == 0 ? Holds(variables, 6)
                                        : shared.Save(path.c_str()).ok() &&
                                              Read(path) == GoodFile(6);
        if (!ok) ++bad[thread];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT(bad == std::vector<int>(4));
}

// 6 GB that take no space on the disk.
constexpr std::uint64_t kLarge = 6'000'000'000;
constexpr std::int64_t kLargeDims[] = {kLarge / 4};
constexpr VariableInfo kLargeModel[] = {
    {"large", "F32", kLargeDims, 1, kLarge, 0, false},
    {"behind", "F32", k16, 2, 64, kLarge, true},
};

std::string LargeFile(const std::string& name, bool aligned) {
  const std::string members =
      "{" + Member("large", "F32", std::to_string(kLarge / 4), 0, kLarge) +
      "," + Member("behind", "F32", "4,4", kLarge, kLarge + 64) + "}";
  const std::string head =
      aligned ? AlignedFile(members, "") : File(members + " ", "");
  const std::string path = Written(name, head);
  std::filesystem::resize_file(path, head.size() + kLarge);
  std::ofstream(path, std::ios::binary | std::ios::app)
      << Data(3).substr(0, 64);
  EXPECT(aligned == (head.size() % 64 == 0));
  return path;
}

void TestLargeFile() {
  const std::string path = LargeFile("large", true);
  const std::uint64_t before = Size(true);
  Variables variables(kLargeModel, 2, nullptr);
  EXPECT(variables.Load(path.c_str()));
  EXPECT(Aligned(variables, 2));
  const auto* large = static_cast<const float*>(variables.data(0));
  const auto* behind = static_cast<const float*>(variables.data(1));
  EXPECT(Mappings(path, large) == 1 && behind[15] == 18);
  EXPECT(large[kLarge / 4 - 1] == 0);
  // Neither read nor copied.
  EXPECT(Size(true) - before < Little());
}

void TestNoMemory() {
  if (!LimitsMemory()) return;
  const std::uint64_t room = std::uint64_t{1} << 30;
  const std::string aligned = LargeFile("large", true);
  const std::string odd = LargeFile("large_odd", false);
  Variables variables(kModel, kCount, nullptr);
  EXPECT(Limited(RLIMIT_AS, Size(false) + room, [&] {
           EXPECT(!variables.Load(aligned.c_str()));
           EXPECT(
               variables.error() ==
               aligned +
                   " can't be mapped\n  found: Cannot allocate memory\n"
                   "  to do: pass a file that fits in the address space limit "
                   "(ulimit -v), or raise the limit: this one takes " +
                   std::to_string(std::filesystem::file_size(aligned)) +
                   " bytes");
           // Anything that needs no more memory still succeeds.
           EXPECT(variables.Load(Written("small", GoodFile(4)).c_str()));
         }) == 0);
  Variables large(kLargeModel, 2, nullptr);
  static_cast<float*>(large.mutable_data(1))[0] = 5;
  EXPECT(
      Limited(RLIMIT_AS, Size(false) + kLarge + room, [&] {
        EXPECT(!large.Load(odd.c_str()));
        EXPECT(
            large.error() ==
            odd +
                " can't be loaded\n  found: Cannot allocate memory\n"
                "  to do: free 6000000000 bytes of memory, or align the file's "
                "tensors to 64 bytes, so that they aren't copied");
        EXPECT(!large.loaded());
        EXPECT(*static_cast<const float*>(large.data(1)) == 5);
        EXPECT(Mappings(odd) == 0);
      }) == 0);
}

}  // namespace

int main() {
  TestEmbedded();
  TestZeroes();
  TestLoad();
  TestMemoryIsReleased();
  TestOptional();
  TestMove();
  TestSave();
  TestSaveFails();
  TestManyAtOnce();
  TestSources();
  TestShared();
  TestUpdate();
  TestNothing();
  TestLive();
  TestUpdatesAtOnce();
  TestSaveBesideReaders();
  TestLargeFile();
  TestNoMemory();
  return failed == 0 ? 0 : 1;
}
