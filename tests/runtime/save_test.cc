// Protects files that are saved over: tensors that the model doesn't know stay,
// nobody can read or write more than before, and a killed process leaves
// nothing behind.
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/expect.h"
#include "tests/runtime/files.h"
#include "tests/runtime/limits.h"
#include "tests/runtime/owned_variables.h"

using tests::Variables;
using tfaot::VariableInfo;

namespace {

// Whether unnamed files can't be created, as on some file systems.
bool no_nameless_files = false;

// Where a process kills itself.
enum class Killed { kNever, kSynced, kRenamed };
Killed killed = Killed::kNever;

}  // namespace

// The C library's functions, except for that.
extern "C" int open(const char* path, int flags, ...) {
  std::va_list rest;
  va_start(rest, flags);
  const mode_t mode = va_arg(rest, mode_t);
  va_end(rest);
  if (no_nameless_files && (flags & O_TMPFILE) == O_TMPFILE) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
extern "C" int fsync(int fd) {
  if (killed == Killed::kSynced) raise(SIGKILL);
  return static_cast<int>(syscall(SYS_fsync, fd));
}
extern "C" int rename(const char* from, const char* to) noexcept {
  if (killed == Killed::kRenamed) raise(SIGKILL);
  return static_cast<int>(syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to));
}

namespace {

constexpr std::int64_t k16[] = {16};
constexpr std::int64_t k3[] = {3};
constexpr VariableInfo kModel[] = {
    {"odd", "U8", k3, 1, 3, 64, false},
    {"kernel", "F32", k16, 1, 64, 0, true},
};

const std::string kKernel(64, 'k');
const std::string kSaved =
    AlignedFile("{" + Member("kernel", "F32", "16", 0, 64) + "," +
                    Member("odd", "U8", "3", 64, 67) + "}",
                kKernel + "odd");

// Variables with the values in `kSaved`.
Variables Model() {
  alignas(64) static unsigned char embedded[256];
  std::memcpy(embedded, kSaved.data(), kSaved.size());
  return Variables(kModel, 2, embedded);
}

// A new empty folder.
std::string NewFolder(const std::string& name) {
  const std::string path = Path(name);
  std::filesystem::create_directory(path);
  return path;
}

void Write(const std::string& path, const std::string& bytes, mode_t mode) {
  std::ofstream(path, std::ios::binary) << bytes;
  chmod(path.c_str(), mode);
}

struct stat StatusOf(const std::string& path) {
  struct stat status = {};
  EXPECT(stat(path.c_str(), &status) == 0);
  return status;
}

mode_t ModeOf(const std::string& path) { return StatusOf(path).st_mode & 0777; }

// Makes root behave like other users.
void DropPrivileges() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  EXPECT(syscall(SYS_capset, &header, none) == 0);
}

const std::vector<std::string> kOnlyFile = {"file"};

void TestNoValues() {
  const std::string folder = NewFolder("no_values");
  const std::string path = folder + "/file";
  Write(path, kSaved, 0644);
  Variables variables(kModel, 2, nullptr);
  EXPECT(!variables.Load((folder + "/other").c_str()));
  for (const std::string& to : {path, folder + "/new"}) {
    EXPECT(!variables.Save(to.c_str()));
    EXPECT(variables.error() == to + " can't be saved\n"
                                     "  found: the variables have no values\n"
                                     "  to do: call Load() first");
  }
  EXPECT(Names(folder) == kOnlyFile && Read(path) == kSaved);
  EXPECT(variables.Load(path.c_str()) && variables.Save(path.c_str()));
  EXPECT(Read(path) == kSaved);
}

void TestTheRestStays() {
  const std::string folder = NewFolder("rest");
  const std::string path = folder + "/file";
  // Metadata of every kind, and tensors with known and unknown dtypes and odd
  // names and sizes, before and after the model's.
  const std::string metadata =
      "{\"format\" : \"pt\",\"\\u00e9\":[1,{\"a\":null}, -0.5e3],\"e\":\"\"}";
  const std::string rest(128, 'r');
  Write(path,
        File("{" + Member("head\\n\xc3\xa9", "F8_E4M3", "5", 0, 5) +
                 ",\"__metadata__\": " + metadata + " ," +
                 Member("odd", "U8", "3", 5, 8) + "," +
                 Member("other", "F32", "2,16", 8, 136) + "," +
                 Member("kernel", "F32", "16", 136, 200) + "," +
                 Member("none", "I64", "0,7", 200, 200) + "}",
             "eight___" + rest + std::string(64, 'x')),
        0644);
  Variables model = Model();
  EXPECT(model.Save(path.c_str()) && *model.error() == '\0');
  const std::string wanted =
      AlignedFile("{\"__metadata__\":" + metadata + "," +
                      Member("kernel", "F32", "16", 0, 64) + "," +
                      Member("other", "F32", "2,16", 64, 192) + "," +
                      Member("none", "I64", "0,7", 192, 192) + "," +
                      Member("odd", "U8", "3", 192, 195) + "," +
                      Member("head\\n\\u00e9", "F8_E4M3", "5", 195, 200) + "}",
                  kKernel + rest + "odd" + "eight");
  EXPECT(Read(path) == wanted);
  // Repeatedly, from the embedded values and from the file itself.
  EXPECT(model.Save(path.c_str()) && Read(path) == wanted);
  Variables other(kModel, 2, nullptr);
  EXPECT(other.Load(path.c_str()) && other.Save(path.c_str()));
  EXPECT(Read(path) == wanted);
  static_cast<unsigned char*>(other.mutable_data(0))[2] = 'D';
  EXPECT(other.Save(path.c_str()));
  EXPECT(Read(path) == std::string(wanted).replace(wanted.size() - 6, 1, "D"));

  // Only metadata, and an empty file, as created by mkstemp().
  Write(path, File("{\"__metadata__\":null}", ""), 0644);
  EXPECT(model.Save(path.c_str()));
  EXPECT(Read(path).substr(8, 22) == "{\"__metadata__\":null,\"");
  Write(path, "", 0600);
  EXPECT(model.Save(path.c_str()) && Read(path) == kSaved);
  EXPECT(ModeOf(path) == 0600);
}

// A file isn't saved over if that could lose data.
void TestRefused() {
  const std::string folder = NewFolder("refused");
  const std::string path = folder + "/file";
  Variables model = Model();
  const auto refused = [&](const std::string& bytes, const std::string& what) {
    Write(path, bytes, 0644);
    EXPECT(!model.Save(path.c_str()));
    const std::string wanted =
        path + what + "\n  to do: save to another path, or remove that file";
    EXPECT(model.error() == wanted);
    if (model.error() != wanted) std::printf("got:\n%s\n", model.error());
    EXPECT(Read(path) == bytes && Names(folder) == kOnlyFile);
  };
  const std::string over = " can't be overwritten: it ";
  refused("a diary",
          over + "is truncated, or isn't a safetensors file\n  found: 7 bytes");
  refused("the diary of a year",
          over +
              "is truncated, or isn't a safetensors file\n  found: a header of "
              "8241984671825881204 bytes in a file of 19");
  refused(
      File("[]", ""),
      over +
          "isn't a safetensors file\n  found: byte 0 of the header, where { "
          "should be");
  refused(kSaved.substr(0, kSaved.size() - 1),
          over +
              "is truncated\n  found: odd is at bytes 64 to 67, and the file "
              "ends at 66");
  // Another model's file.
  refused(File("{" + Member("kernel", "F64", "8", 0, 64) + "," +
                   Member("odd", "U8", "1,3", 64, 67) + "}",
               kKernel + "odd"),
          " can't be saved\n\n"
          "    odd: uint8[1, 3]; the model has uint8[3]\n"
          "    kernel: float64[8]; the model has float32[16]\n\n"
          "  found: an existing file that doesn't fit the model");
  // One that can't be read, as far as that is known.
  Write(path, kSaved, 0);
  EXPECT(InChild([&] {
           DropPrivileges();
           EXPECT(!model.Save(path.c_str()));
           EXPECT(model.error() ==
                  path + over +
                      "can't be opened\n  found: Permission denied\n"
                      "  to do: save to another path, or remove that file");
         }) == 0);
  EXPECT(ModeOf(path) == 0 && Names(folder) == kOnlyFile);
}

void TestAccess() {
  const std::string folder = NewFolder("access");
  const std::string path = folder + "/file";
  Variables model = Model();
  for (const mode_t mask : {0, 027, 077}) {
    umask(mask);
    std::filesystem::remove(path);
    EXPECT(model.Save(path.c_str()) && ModeOf(path) == (0666 & ~mask));
    for (const mode_t mode : {0600, 0640, 0666, 0444}) {
      Write(path, kSaved, mode);
      EXPECT(model.Save(path.c_str()) && Read(path) == kSaved);
      EXPECT(ModeOf(path) == mode);
    }
  }
  umask(022);
  // Another user's file, if this process is root: it keeps the owner. Without
  // the right to do so, the file is accessible to no other group.
  Write(path, kSaved, 0664);
  if (chown(path.c_str(), 1234, 1235) != 0) return;
  EXPECT(model.Save(path.c_str()));
  EXPECT(StatusOf(path).st_uid == 1234 && StatusOf(path).st_gid == 1235);
  EXPECT(ModeOf(path) == 0664);
  EXPECT(InChild([&] {
           DropPrivileges();
           EXPECT(model.Save(path.c_str()));
         }) == 0);
  EXPECT(StatusOf(path).st_uid == geteuid());
  EXPECT(StatusOf(path).st_gid == getegid());
  EXPECT(ModeOf(path) == 0604);
}

// A process that is killed while it saves, and one that saves afterwards.
void TestKilled() {
  const std::string folder = NewFolder("killed");
  const std::string path = folder + "/file";
  Write(path, kSaved, 0644);
  Variables model = Model();
  static_cast<unsigned char*>(model.mutable_data(0))[0] = 'O';
  for (const Killed when : {Killed::kSynced, Killed::kRenamed}) {
    for (int i = 0; i < 3; ++i) {
      EXPECT(InChild([&] {
               killed = when;
               model.Save(path.c_str());
             }) == -SIGKILL);
      EXPECT(Read(path) == kSaved);
      // At most one, and none at all while it is being written.
      EXPECT(Names(folder).size() <= 2);
      if (!no_nameless_files && when == Killed::kSynced) {
        EXPECT(Names(folder) == kOnlyFile);
      }
    }
    Variables other = Model();
    EXPECT(other.Save(path.c_str()) && Read(path) == kSaved);
    EXPECT(Names(folder) == kOnlyFile);
  }
}

// Files that others are writing, or that aren't ours, aren't touched.
void TestOthers() {
  const std::string folder = NewFolder("others");
  const std::string path = folder + "/file";
  const std::string name = folder + "/.tfaot-save-";
  Write(name + "0", "theirs", 0644);
  const int theirs = open((name + "0").c_str(), O_RDONLY);
  EXPECT(flock(theirs, LOCK_EX) == 0);
  std::filesystem::create_directory(name + "1");
  std::filesystem::create_symlink(path, name + "2");
  Write(name + "3", "left behind", 0644);
  Variables model = Model();
  EXPECT(model.Save(path.c_str()) && Read(path) == kSaved);
  EXPECT(Read(name + "0") == "theirs");
  EXPECT(Names(folder) == std::vector<std::string>{".tfaot-save-0",
                                                   ".tfaot-save-1",
                                                   ".tfaot-save-2", "file"});
  close(theirs);
  EXPECT(model.Save(path.c_str()));
  EXPECT(Names(folder) ==
         std::vector<std::string>{".tfaot-save-1", ".tfaot-save-2", "file"});
}

// Saves from many threads and processes to one folder.
void TestManyAtOnce() {
  const std::string folder = NewFolder("many");
  const auto work = [&](const std::string& name) {
    const std::string path = folder + "/" + name;
    Variables model = Model();
    for (int round = 0; round < 40; ++round) {
      if (!model.Save(path.c_str()) || !model.Load(path.c_str())) return 1;
    }
    return 0;
  };
  EXPECT(InChild([&] {
           std::vector<int> bad(4);
           std::vector<std::thread> threads;
           for (int i = 0; i < 4; ++i) {
             threads.emplace_back(
                 [&, i] { bad[i] = work(i % 2 == 0 ? "file" : "g"); });
           }
           EXPECT(work("file") == 0);
           for (std::thread& thread : threads) thread.join();
           EXPECT(bad == std::vector<int>(4));
         }) == 0);
  EXPECT(Names(folder) == (std::vector<std::string>{"file", "g"}));
  EXPECT(Read(folder + "/file") == kSaved && Read(folder + "/g") == kSaved);
}

}  // namespace

int main() {
  for (const bool without : {false, true}) {
    no_nameless_files = without;
    TestNoValues();
    TestTheRestStays();
    TestRefused();
    TestAccess();
    TestKilled();
    TestOthers();
    TestManyAtOnce();
    std::filesystem::remove_all(Folder());
    std::filesystem::create_directory(Folder());
  }
  return failed == 0 ? 0 : 1;
}
