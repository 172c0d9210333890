// Protects the comparison from wrong numbers: goldens are read in order and to
// the end, or not at all.
#include "tfaot/goldens.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/runtime/expect.h"

namespace {

// A safetensors file: length, header, data.
std::string File(const std::string& header, const std::string& data) {
  std::string text(8, '\0');
  const std::uint64_t size = header.size();
  std::memcpy(text.data(), &size, sizeof(size));
  return text + header + data;
}

std::string Written(const std::string& bytes) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path =
      std::string(folder ? folder : "/tmp") + "/goldens.safetensors";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

template <typename T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Runs `work` in a process of its own. Returns what it says to people, and if
// its exit status isn't `wanted`, that instead.
template <typename Work>
std::string Said(int wanted, Work work) {
  std::fflush(nullptr);
  int said[2];
  if (pipe(said) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    dup2(said[1], 2);
    work();
    std::_Exit(0);
  }
  close(said[1]);
  std::string text(4096, '\0');
  const ssize_t size = read(said[0], &text[0], text.size());
  close(said[0]);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  int status = 0;
  waitpid(child, &status, 0);
  const int got = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return got == wanted ? text : "status " + std::to_string(got) + ": " + text;
}

// The error of a process that reads goldens.
template <typename Work>
bool Fails(const std::string& path, const char* what, Work work) {
  const std::string text = Said(2, work);
  const std::string wanted =
      path + " " + what +
      ": build the target's goldens again, or pass their path as the first "
      "argument\n";
  if (text != wanted) std::printf("%s", text.c_str());
  return text == wanted;
}

}  // namespace

int main() {
  const std::string data =
      Bytes(std::uint32_t{7}) + Bytes(1.5f) + Bytes(2.5f) + Bytes(0.25);
  const std::string path = Written(File("{\"a\":1}  ", data));
  tfaot::Goldens goldens(path.c_str());
  EXPECT(goldens.Read<std::uint32_t>() == 7);
  float values[2];
  goldens.Read(values, sizeof(values));
  EXPECT(values[0] == 1.5f && values[1] == 2.5f);
  goldens.Read(nullptr, 0);
  EXPECT(goldens.Read<double>() == 0.25);
  goldens.End();

  EXPECT(Fails(path, "is truncated", [&] { goldens.Read<char>(); }));
  EXPECT(Fails("/nonexistent/file", "can't be read",
               [] { tfaot::Goldens("/nonexistent/file"); }));
  EXPECT(Fails(path, "contains more than the test expects", [&] {
    tfaot::Goldens rest(path.c_str());
    rest.Read<std::uint32_t>();
    rest.End();
  }));
  for (const std::string& wrong : {std::string(), std::string("1234567")}) {
    const std::string cut = Written(wrong);
    EXPECT(Fails(cut, "can't be read",
                 [&] { tfaot::Goldens goldens(cut.c_str()); }));
  }
  const std::string cut = Written(File("{}", "").substr(0, 9));
  EXPECT(
      Fails(cut, "is truncated", [&] { tfaot::Goldens goldens(cut.c_str()); }));

  // A seed of 0 precedes values, of which a batch has its first rows. Any other
  // seed stands for drawn values.
  const std::string stored = Bytes(std::uint64_t{0}) + Bytes(std::uint64_t{0});
  const std::string seed = Bytes(std::uint64_t{9}) + Bytes(std::uint64_t{2});
  const std::string feeds = Written(File(
      "{}", stored + Bytes(1.5f) + Bytes(2.5f) + stored + Bytes(3.5f) + seed));
  tfaot::Goldens fed(feeds.c_str());
  float batch[2] = {0, -1};
  fed.Feed(tfaot::View<float, 2>(values));
  EXPECT(values[0] == 1.5f && values[1] == 2.5f);
  fed.Feed(tfaot::View<float, 2>(batch), 1);
  EXPECT(batch[0] == 3.5f && batch[1] == -1);
  fed.Feed(tfaot::View<float, 2>(values));
  tfaot::Draw(9, 2, batch, 2);
  EXPECT(values[0] == batch[0] && values[1] == batch[1] && batch[0] != 3.5f);
  fed.End();

  const std::string empty = Written(File("{}", ""));
  EXPECT(Said(0, [&] { tfaot::Goldens(empty.c_str()).End(); }).empty());
  return failed == 0 ? 0 : 1;
}
