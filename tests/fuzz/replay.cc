// Runs a fuzz target without a fuzzer, on the inputs in a file and on mutations
// of them, which are always the same.
//
//   replay CORPUS COUNT            runs the inputs, and COUNT mutations of them
//   replay CORPUS --unpack FOLDER  writes each into a file, for a fuzzer
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data,
                                      std::size_t size);

// Exists if the program is built with a sanitizer.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(
    void (*tell)());

namespace {

// The current input, for anyone who investigates a failure.
std::string current;

std::string Escaped(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    char digits[5];
    std::snprintf(digits, sizeof(digits), "\\x%02x",
                  static_cast<unsigned char>(c));
    if (c == '\\') {
      text += "\\\\";
    } else if (c >= ' ' && c <= '~') {
      text += c;
    } else {
      text += digits;
    }
  }
  return text;
}

// Printed before the process ends: a line for the corpus.
void Tell() {
  std::fprintf(stderr, "the input was\n%s\n", Escaped(current).c_str());
}

// Empty if the text is malformed.
std::string Unescaped(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      bytes += text[i];
    } else if (text.compare(i, 2, "\\\\") == 0) {
      bytes += text[++i];
    } else if (text.compare(i, 2, "\\x") == 0 && i + 3 < text.size()) {
      bytes += static_cast<char>(std::stoi(text.substr(i + 2, 2), nullptr, 16));
      i += 3;
    } else {
      return "";
    }
  }
  return bytes;
}

std::vector<std::string> Corpus(const char* path) {
  std::ifstream file(path);
  std::vector<std::string> inputs;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    inputs.push_back(Unescaped(line));
    if (inputs.back().empty()) {
      std::fprintf(stderr, "%s: no input: %s\n", path, line.c_str());
      std::exit(2);
    }
  }
  if (inputs.empty()) {
    std::fprintf(stderr, "%s has no inputs\n", path);
    std::exit(2);
  }
  return inputs;
}

void Run(const std::string& input) {
  current = input;
  // Of exact size, so that a sanitizer sees reads past its end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::string Mutated(const std::vector<std::string>& corpus,
                    std::mt19937& random) {
  const auto below = [&](std::size_t end) {
    return end == 0 ? 0 : random() % end;
  };
  std::string input = corpus[below(corpus.size())];
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(input.size() + 1);
    const std::string& other = corpus[below(corpus.size())];
    const std::size_t from = below(other.size());
    const std::string piece = other.substr(from, 1 + below(32));
    switch (random() % 6) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(random());
        break;
      case 1:
        if (at < input.size()) {
          input[at] = static_cast<char>(input[at] ^ 1 << random() % 8);
        }
        break;
      case 2:
        input.erase(at, 1 + below(16));
        break;
      case 3:
        input.insert(at, piece);
        break;
      case 4:
        input.replace(at, piece.size(), piece);
        break;
      case 5:
        for (char& c : piece.size() < 8 ? input : input.insert(at, "0")) {
          if (c >= '0' && c <= '9' && random() % 16 == 0) {
            c = static_cast<char>('0' + random() % 10);
          }
        }
        break;
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  const bool unpack = argc == 4 && std::strcmp(argv[2], "--unpack") == 0;
  if (argc != 3 && !unpack) return 2;
  const std::vector<std::string> corpus = Corpus(argv[1]);
  if (unpack) {
    for (std::size_t i = 0; i < corpus.size(); ++i) {
      std::ofstream(argv[3] + ("/" + std::to_string(i)), std::ios::binary)
          << corpus[i];
    }
    return 0;
  }
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(&Tell);
  std::signal(SIGABRT, [](int) { Tell(); });
  for (const std::string& input : corpus) Run(input);
  const int count = std::atoi(argv[2]);
  std::mt19937 random(1);
  for (int i = 0; i < count; ++i) Run(Mutated(corpus, random));
  std::printf("%zu inputs of the corpus, and %d made of them\n", corpus.size(),
              count);
  return 0;
}
