#include "tfaot/variables.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <new>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tfaot {
namespace {

static_assert(sizeof(std::size_t) == 8 && sizeof(off_t) == 8,
              "files are mapped as a whole, and may be larger than 4 GB");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "values are used as they are in the file");

constexpr std::uint64_t kAlignment = 64;

// What a file may claim, so that a hostile one cannot take much memory: the
// largest header that the format's own library reads, and TensorFlow's largest
// rank. What is read of a header takes a few times its size.
constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kMaxRank = 254;

// How much of a file's contents an error shows.
constexpr std::size_t kMaxShownBytes = 200;
constexpr std::size_t kMaxShownTensors = 20;

constexpr std::uint64_t RoundUp(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Where values of no bytes are.
alignas(kAlignment) unsigned char nothing[kAlignment];

// Frees what a Block owns: a mapping of so many bytes, or, if 0, memory of
// operator new.
struct Release {
  std::uint64_t mapped = 0;
  void operator()(unsigned char* base) const {
    if (mapped > 0) {
      munmap(base, mapped);
    } else {
      ::operator delete(base, std::align_val_t{kAlignment});
    }
  }
};
using Block = std::unique_ptr<unsigned char, Release>;

Block Allocate(std::uint64_t bytes) {
  return Block(static_cast<unsigned char*>(
      ::operator new(bytes, std::align_val_t{kAlignment})));
}

// Maps a file, or zeroes if `fd` is -1. Returns nothing, and sets errno, if
// that fails. Pages become memory of ours when they are written, so that no
// memory is reserved for them (MAP_NORESERVE): the whole may exceed it.
Block Map(std::uint64_t bytes, int fd) {
  void* base =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
  if (base == MAP_FAILED) return nullptr;
  return Block(static_cast<unsigned char*>(base), Release{bytes});
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// The form of all errors of the rules (py/tfaot/core/errors.py).
std::string Message(const std::string& asked, const std::string& found,
                    const std::string& to_do,
                    const std::vector<std::string>& details = {}) {
  std::string text = asked;
  if (!details.empty()) {
    text += "\n";
    for (const std::string& line : details) text += "\n    " + line;
    text += "\n";
  }
  if (!found.empty()) text += "\n  found: " + found;
  return text + "\n  to do: " + to_do;
}

std::string SystemError() { return std::generic_category().message(errno); }

// What the values of a dtype are called elsewhere in the rules, and their size
// in bytes (py/tfaot/core/dtypes.py).
struct DType {
  const char* code;
  const char* name;
  std::uint64_t bytes;
};
constexpr DType kDTypes[] = {
    {"F32", "float32", 4}, {"F64", "float64", 8},
    {"I32", "int32", 4},   {"U8", "uint8", 1},
    {"I16", "int16", 2},   {"I8", "int8", 1},
    {"I64", "int64", 8},   {"C64", "complex64", 8},
    {"BOOL", "bool", 1},   {"BF16", "bfloat16", 2},
    {"U16", "uint16", 2},  {"C128", "complex128", 16},
    {"F16", "float16", 2}, {"U32", "uint32", 4},
    {"U64", "uint64", 8},
};

const DType* FindDType(std::string_view code) {
  for (const DType& dtype : kDTypes) {
    if (code == dtype.code) return &dtype;
  }
  return nullptr;
}

// Takes one character of UTF-8 from the start of `text`, which is not empty.
// Returns false if there is none.
bool TakeCharacter(std::string_view* text, std::uint32_t* code) {
  const auto byte = [text](std::size_t i) {
    return static_cast<unsigned char>((*text)[i]);
  };
  const unsigned char first = byte(0);
  const std::size_t size = first < 0x80             ? 1
                           : (first & 0xe0) == 0xc0 ? 2
                           : (first & 0xf0) == 0xe0 ? 3
                           : (first & 0xf8) == 0xf0 ? 4
                                                    : 0;
  if (size == 0 || size > text->size()) return false;
  *code = size == 1 ? first : first & (0x7fu >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return false;
    *code = *code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (*code < kSmallest[size] || *code > 0x10ffff ||
      (*code >= 0xd800 && *code < 0xe000)) {
    return false;
  }
  text->remove_prefix(size);
  return true;
}

// A JSON string, as Python's json.dumps() writes it.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  const auto escape = [&quoted](std::uint32_t unit) {
    char digits[7];
    std::snprintf(digits, sizeof(digits), "\\u%04x", unit & 0xffffu);
    quoted += digits;
  };
  while (!text.empty()) {
    std::uint32_t code = 0;
    if (!TakeCharacter(&text, &code)) {
      text.remove_prefix(1);
      code = 0xfffd;  // the replacement character
    }
    constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
    constexpr std::string_view kEscapes = "\"\\bfnrt";
    const std::size_t which =
        code < 0x80 ? kEscaped.find(static_cast<char>(code)) : kEscaped.npos;
    if (which != kEscaped.npos) {
      quoted += {'\\', kEscapes[which]};
    } else if (code >= 0x20 && code < 0x7f) {
      quoted += static_cast<char>(code);
    } else if (code < 0x10000) {
      escape(code);
    } else {
      escape(0xd800 + ((code - 0x10000) >> 10));
      escape(0xdc00 + ((code - 0x10000) & 0x3ff));
    }
  }
  return quoted + "\"";
}

// Text of a file as errors show it: nothing in it can end a line, steer a
// terminal, or pass for something else.
std::string Shown(std::string_view text) {
  const std::string quoted = Quoted(text.substr(0, kMaxShownBytes));
  return quoted.substr(1, quoted.size() - 2) +
         (text.size() > kMaxShownBytes ? "..." : "");
}

// "float32[2, 3]"; a dtype that is not known is called by its code.
template <typename Sizes>
std::string Signature(const std::string& code, const Sizes& sizes) {
  const DType* dtype = FindDType(code);
  std::string text = (dtype ? dtype->name : Shown(code)) + "[";
  const char* separator = "";
  for (const auto size : sizes) {
    text += separator + std::to_string(size);
    separator = ", ";
  }
  return text + "]";
}

// A variable's dimensions, to be walked through.
struct Dims {
  const VariableInfo& info;
  const std::int64_t* begin() const { return info.dims; }
  const std::int64_t* end() const { return info.dims + info.rank; }
};

std::string Signature(const VariableInfo& info) {
  return Signature(info.dtype, Dims{info});
}

// A tensor as a file's header describes it.
struct Tensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // in the data
  std::uint64_t end = 0;
};

void AppendCharacter(std::uint32_t code, std::string* text) {
  const auto tail = [&](int shift) {
    text->push_back(static_cast<char>(0x80 | (code >> shift & 0x3f)));
  };
  if (code < 0x80) {
    text->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    text->push_back(static_cast<char>(0xc0 | code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    text->push_back(static_cast<char>(0xe0 | code >> 12));
    tail(6);
    tail(0);
  } else {
    text->push_back(static_cast<char>(0xf0 | code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

// Parses a header: strict JSON, of a bounded depth.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text), rest_(text) {}

  // Returns false if the text is no header; problem() says where, and why.
  // `metadata` becomes the part of the text that is its value, as it is.
  bool Parse(std::deque<Tensor>* tensors, std::string_view* metadata) {
    const bool parsed = Object([&](const std::string& name) {
      if (name == "__metadata__") {
        if (!metadata->empty()) return Fail("another key");
        Space();
        *metadata = rest_;
        if (!Skip(0)) return false;
        metadata->remove_suffix(rest_.size());
        return true;
      }
      tensors->emplace_back();
      tensors->back().name = name;
      return ParseTensor(&tensors->back());
    });
    if (!parsed) return false;
    Space();
    return rest_.empty() || Fail("the end");
  }

  const std::string& problem() const { return problem_; }

 private:
  static constexpr int kMaxDepth = 64;

  bool ParseTensor(Tensor* tensor) {
    bool dtype = false;
    bool shape = false;
    bool place = false;
    std::vector<std::uint64_t> offsets;
    const auto first = [this](bool* seen) {
      return !std::exchange(*seen, true) || Fail("another key");
    };
    const auto integers = [this](std::vector<std::uint64_t>* values,
                                 std::size_t most, const char* expected) {
      return Array([&] {
        if (values->size() == most) return Fail(expected);
        values->push_back(0);
        return Integer(&values->back());
      });
    };
    const bool parsed = Object([&](const std::string& key) {
      if (key == "dtype") return first(&dtype) && String(&tensor->dtype);
      if (key == "shape") {
        return first(&shape) &&
               integers(&tensor->shape, kMaxRank, "no more than 254 sizes");
      }
      if (key == "data_offsets") {
        return first(&place) && integers(&offsets, 2, "no more than 2 offsets");
      }
      return Skip(1);
    });
    if (!parsed) return false;
    if (!dtype || !shape || offsets.size() != 2) {
      return Fail("a tensor of dtype, shape, and two data_offsets");
    }
    tensor->begin = offsets[0];
    tensor->end = offsets[1];
    return true;
  }

  // Any value.
  bool Skip(int depth) {
    if (depth > kMaxDepth) return Fail("a value that is not nested as deeply");
    Space();
    const char first = rest_.empty() ? '\0' : rest_[0];
    if (first == '{') {
      return Object([&](const std::string&) { return Skip(depth + 1); });
    }
    if (first == '[') return Array([&] { return Skip(depth + 1); });
    if (first == '"') {
      std::string ignored;
      return String(&ignored);
    }
    if (first == '-' || IsDigit(first)) return Number();
    return Word("true") || Word("false") || Word("null") || Fail("a value");
  }

  // Calls `member(key)` where the value of each key is, to take it.
  template <typename Member>
  bool Object(Member member) {
    if (!Take('{')) return Fail("{");
    if (Take('}')) return true;
    do {
      std::string key;
      if (!String(&key)) return false;
      if (!Take(':')) return Fail(":");
      if (!member(key)) return false;
    } while (Take(','));
    return Take('}') || Fail("} or a comma");
  }

  template <typename Item>
  bool Array(Item item) {
    if (!Take('[')) return Fail("[");
    if (Take(']')) return true;
    do {
      if (!item()) return false;
    } while (Take(','));
    return Take(']') || Fail("] or a comma");
  }

  bool String(std::string* value) {
    if (!Take('"')) return Fail("a string");
    while (!rest_.empty() && rest_[0] != '"') {
      std::uint32_t code = 0;
      if (rest_[0] == '\\') {
        if (!Escape(&code)) return false;
      } else if (static_cast<unsigned char>(rest_[0]) < 0x20 ||
                 !TakeCharacter(&rest_, &code)) {
        return Fail("a character in UTF-8");
      }
      AppendCharacter(code, value);
    }
    // No spaces may be skipped before it.
    if (rest_.empty()) return Fail("the end of a string");
    rest_.remove_prefix(1);
    return true;
  }

  bool Escape(std::uint32_t* code) {
    constexpr std::string_view kEscapes = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t which =
        rest_.size() > 1 ? kEscapes.find(rest_[1]) : kEscapes.npos;
    if (which != kEscapes.npos) {
      *code = static_cast<unsigned char>(kMeanings[which]);
      rest_.remove_prefix(2);
      return true;
    }
    std::uint32_t low = 0;
    if (!Unit(code)) return false;
    if (*code < 0xd800 || *code >= 0xe000) return true;
    if (*code >= 0xdc00 || !Unit(&low) || low < 0xdc00 || low >= 0xe000) {
      return Fail("a pair of surrogates");
    }
    *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
    return true;
  }

  // "\u20ac".
  bool Unit(std::uint32_t* code) {
    if (rest_.size() < 6 || rest_[0] != '\\' || rest_[1] != 'u') {
      return Fail("an escape");
    }
    *code = 0;
    for (const char digit : rest_.substr(2, 4)) {
      const char lower = static_cast<char>(digit | 0x20);
      if (!IsDigit(digit) && (lower < 'a' || lower > 'f')) {
        return Fail("four hexadecimal digits");
      }
      *code = *code << 4 | static_cast<std::uint32_t>(
                               IsDigit(digit) ? digit - '0' : lower - 'a' + 10);
    }
    rest_.remove_prefix(6);
    return true;
  }

  // A size or an offset.
  bool Integer(std::uint64_t* value) {
    Space();
    std::string_view digits = TakeDigits();
    if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) {
      return Fail("a natural number");
    }
    *value = 0;
    for (const char digit : digits) {
      if (__builtin_mul_overflow(*value, 10, value) ||
          __builtin_add_overflow(*value, digit - '0', value)) {
        return Fail("a number below 2^64");
      }
    }
    return true;
  }

  bool Number() {
    if (rest_[0] == '-') rest_.remove_prefix(1);
    const std::string_view digits = TakeDigits();
    if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) {
      return Fail("a number");
    }
    if (!rest_.empty() && rest_[0] == '.') {
      rest_.remove_prefix(1);
      if (TakeDigits().empty()) return Fail("a digit");
    }
    if (!rest_.empty() && (rest_[0] | 0x20) == 'e') {
      rest_.remove_prefix(1);
      if (!rest_.empty() && (rest_[0] == '+' || rest_[0] == '-')) {
        rest_.remove_prefix(1);
      }
      if (TakeDigits().empty()) return Fail("a digit");
    }
    return true;
  }

  std::string_view TakeDigits() {
    std::size_t size = 0;
    while (size < rest_.size() && IsDigit(rest_[size])) ++size;
    const std::string_view digits = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return digits;
  }

  bool Word(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  bool Take(char character) {
    Space();
    if (rest_.empty() || rest_[0] != character) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void Space() {
    const std::size_t size = rest_.find_first_not_of(" \t\n\r");
    rest_.remove_prefix(std::min(size, rest_.size()));
  }

  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }

  // Returns false. The first failure is the cause of all others.
  bool Fail(const char* expected) {
    if (problem_.empty()) {
      problem_ = "byte " + std::to_string(text_.size() - rest_.size()) +
                 " of the header, where " + expected + " should be";
    }
    return false;
  }

  std::string_view text_;
  std::string_view rest_;
  std::string problem_;
};

// A mapped file, and what it holds.
struct File {
  struct stat status;
  std::string header;
  Block mapping;
  const unsigned char* data = nullptr;
  std::uint64_t data_bytes = 0;
  std::deque<Tensor> tensors;  // as the header has them
  std::string_view metadata;   // JSON, in the header; maybe empty
  std::vector<const Tensor*> by_name;

  // The tensor of this name, or nullptr.
  const Tensor* Find(std::string_view name) const {
    const auto at =
        std::lower_bound(by_name.begin(), by_name.end(), name,
                         [](const Tensor* tensor, std::string_view wanted) {
                           return tensor->name < wanted;
                         });
    return at != by_name.end() && (*at)->name == name ? *at : nullptr;
  }
};

// What a header says of one tensor that cannot be; empty if nothing.
std::string Contradiction(const Tensor& tensor, std::uint64_t data_bytes) {
  const std::string name = Shown(tensor.name);
  const std::string where = " is at bytes " + std::to_string(tensor.begin) +
                            " to " + std::to_string(tensor.end);
  if (tensor.begin > tensor.end) return name + where;
  if (tensor.end > data_bytes) {
    return name + where + ", and the file ends at " +
           std::to_string(data_bytes);
  }
  const DType* dtype = FindDType(tensor.dtype);
  if (dtype == nullptr) return "";
  std::uint64_t bytes = dtype->bytes;
  bool overflow = false;
  for (const std::uint64_t size : tensor.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) overflow = true;
  }
  // Whatever comes before and behind it, times zero is zero.
  if (std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0) {
    overflow = false;
  }
  if (!overflow && bytes == tensor.end - tensor.begin) return "";
  return name + where + ", which is not the size of " +
         Signature(tensor.dtype, tensor.shape);
}

// What a header says of tensors together that cannot be; empty if nothing.
std::string Contradiction(const File& file) {
  std::vector<const Tensor*> order = file.by_name;
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->name == order[i]->name) {
      return Shown(order[i]->name) + " is in its header twice";
    }
  }
  const Tensor* last = nullptr;
  std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) {
    return a->begin < b->begin;
  });
  for (const Tensor* tensor : order) {
    if (tensor->begin == tensor->end) continue;
    if (last != nullptr && tensor->begin < last->end) {
      return Shown(last->name) + " and " + Shown(tensor->name) + " overlap";
    }
    last = tensor;
  }
  return "";
}

// Reads from the start of a file. Returns false, and sets errno, if it cannot;
// to 0 if the file has become shorter.
bool Read(int fd, void* data, std::uint64_t bytes, std::uint64_t offset) {
  auto* next = static_cast<unsigned char*>(data);
  while (bytes > 0) {
    errno = 0;
    const ssize_t got = pread(fd, next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    offset += static_cast<std::uint64_t>(got);
    bytes -= static_cast<std::uint64_t>(got);
  }
  return true;
}

// Why a file is opened: errors say it.
enum class Purpose { kLoad, kSaveOver };

// Maps a file, parses its header, and checks what that says. Returns nullptr,
// and sets `error`, if something is wrong.
std::unique_ptr<File> Open(const char* path, Purpose purpose,
                           std::string* error) {
  const bool load = purpose == Purpose::kLoad;
  const std::string name =
      path + std::string(load ? "" : " cannot be saved over: it");
  const auto fail = [&](const char* what, const std::string& found,
                        const char* to_do) {
    *error =
        Message(name + what, found,
                load ? to_do : "save to another path, or remove that file");
    return nullptr;
  };
  const char* const other =
      "pass a safetensors file that this process may read";
  const char* const again = "write it again";
  // Without O_NONBLOCK, opening a pipe would wait for its writer.
  const Descriptor fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  auto file = std::make_unique<File>();
  if (fd.get() < 0 || fstat(fd.get(), &file->status) != 0) {
    return fail(" cannot be opened", SystemError(), other);
  }
  if (!S_ISREG(file->status.st_mode)) {
    return fail(" is no regular file", "", other);
  }
  const auto size = static_cast<std::uint64_t>(file->status.st_size);
  std::uint64_t header = 0;
  if (size < sizeof(header)) {
    return fail(" is cut short, or is no safetensors file",
                std::to_string(size) + " bytes", again);
  }
  const auto unreadable = [&] {
    return fail(" cannot be read",
                errno == 0 ? "fewer bytes than a moment ago" : SystemError(),
                other);
  };
  if (!Read(fd.get(), &header, sizeof(header), 0)) return unreadable();
  if (header > size - sizeof(header)) {
    return fail(" is cut short, or is no safetensors file",
                "a header of " + std::to_string(header) +
                    " bytes in a file of " + std::to_string(size),
                again);
  }
  if (header > kMaxHeader) {
    return fail(" has too large a header",
                std::to_string(header) + " bytes; at most " +
                    std::to_string(kMaxHeader) + " are read",
                "write it with fewer tensors, or with less metadata");
  }
  // Parsed in memory of ours, so that it does not change meanwhile.
  file->header.resize(header);
  if (!Read(fd.get(), file->header.data(), header, sizeof(header))) {
    return unreadable();
  }
  HeaderParser parser(file->header);
  if (!parser.Parse(&file->tensors, &file->metadata)) {
    return fail(" is no safetensors file", parser.problem(), again);
  }
  file->data_bytes = size - sizeof(header) - header;
  for (const Tensor& tensor : file->tensors) {
    file->by_name.push_back(&tensor);
    const std::string found = Contradiction(tensor, file->data_bytes);
    if (found.empty()) continue;
    return fail(
        tensor.end > file->data_bytes ? " is cut short" : " contradicts itself",
        found, again);
  }
  std::sort(file->by_name.begin(), file->by_name.end(),
            [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  const std::string found = Contradiction(*file);
  if (!found.empty()) return fail(" contradicts itself", found, again);
  file->mapping = Map(size, fd.get());
  if (!file->mapping) {
    *error = Message(path + std::string(" cannot be mapped"), SystemError(),
                     "pass a file that can be mapped within the limit of "
                     "address space (ulimit -v); it takes " +
                         std::to_string(size) + " bytes");
    return nullptr;
  }
  file->data = file->mapping.get() + sizeof(header) + header;
  return file;
}

bool Matches(const Tensor& tensor, const VariableInfo& info) {
  const Dims dims{info};
  return tensor.dtype == info.dtype &&
         std::equal(tensor.shape.begin(), tensor.shape.end(), dims.begin(),
                    dims.end(), [](std::uint64_t a, std::int64_t b) {
                      return a == static_cast<std::uint64_t>(b);
                    });
}

// One line of an error about variables that do not fit.
std::string Mismatch(const Tensor& tensor, const VariableInfo& info) {
  return std::string(info.name) + ": " + Signature(tensor.dtype, tensor.shape) +
         "; the model has " + Signature(info);
}

// Finds the tensor of each variable; nullptr for an optional one that the file
// lacks. Returns false, and sets `error`, if one is not as the model has it.
bool Match(const char* path, const File& file, const VariableInfo* infos,
           std::size_t count, std::vector<const Tensor*>* matched,
           std::string* error) {
  std::vector<std::string> wrong;
  std::set<std::string_view> names;
  bool missing = false;
  for (std::size_t i = 0; i < count; ++i) {
    const VariableInfo& info = infos[i];
    names.insert(info.name);
    const Tensor* const found = file.Find(info.name);
    matched->push_back(found);
    if (found == nullptr && !info.optional) {
      wrong.push_back(std::string(info.name) + ": missing; the model has " +
                      Signature(info));
      missing = true;
    }
    if (found != nullptr && !Matches(*found, info)) {
      wrong.push_back(Mismatch(*found, info));
    }
  }
  if (wrong.empty()) return true;
  // What may have been meant.
  std::string also;
  std::size_t others = 0;
  for (const Tensor& tensor : file.tensors) {
    if (!missing || names.count(tensor.name) > 0) continue;
    if (++others > kMaxShownTensors) continue;
    also += (also.empty() ? "also in the file: " : ", ") + Shown(tensor.name) +
            " " + Signature(tensor.dtype, tensor.shape);
  }
  if (others > kMaxShownTensors) {
    also += ", and " + std::to_string(others - kMaxShownTensors) + " more";
  }
  *error = Message(
      path + std::string(" does not fit the model: ") +
          std::to_string(wrong.size()) + " of " + std::to_string(count) +
          " variable(s)",
      also,
      "write a file with every variable of the model, under its name and with "
      "its dtype and shape",
      wrong);
  return false;
}

// Returns false, and sets errno, if not all could be written.
bool Write(int fd, const void* data, std::uint64_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(fd, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    next += written;
    bytes -= static_cast<std::uint64_t>(written);
  }
  return true;
}

// Gives a file the owner, the group, and the permissions of one that it is to
// replace. Where only root may do that, it gives nobody more than before.
// Returns false, and sets errno, if that fails.
bool TakeAccess(int fd, const struct stat& old) {
  struct stat own;
  if (fstat(fd, &own) != 0) return false;
  mode_t mode = old.st_mode & 0777;
  if ((own.st_uid != old.st_uid || own.st_gid != old.st_gid) &&
      fchown(fd, old.st_uid, old.st_gid) != 0 && own.st_gid != old.st_gid &&
      fchown(fd, static_cast<uid_t>(-1), old.st_gid) != 0) {
    mode &= ~mode_t{070};  // they were another group's
  }
  return fchmod(fd, mode) == 0;
}

// A new file in a folder that ends in a slash, or is empty. It has no name
// until it replaces another, so that a process that is killed leaves nothing.
//
// Where the file system cannot do that, and for a moment while it replaces, it
// is .tfaot-save-N. Whoever uses such a name holds a lock of the file: if
// nobody does, it was left behind, and the next one to want the name removes
// it.
class NewFile {
 public:
  NewFile(const std::string& folder, mode_t mode)
      : prefix_(folder + ".tfaot-save-") {
    fd_ = open(folder.empty() ? "." : folder.c_str(),
               O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
    link_ = "/proc/self/fd/" + std::to_string(fd_);
    if (fd_ >= 0 && access(link_.c_str(), F_OK) == 0) {
      flock(fd_, LOCK_EX);
      return;
    }
    Close();
    FindName([this, mode](const char* name) {
      fd_ = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
      if (fd_ < 0) return false;
      // Until this, another process may take it for one that was left behind.
      flock(fd_, LOCK_EX);
      struct stat status;
      if (fstat(fd_, &status) == 0 && status.st_nlink > 0) return true;
      Close();
      errno = EEXIST;
      return false;
    });
  }
  ~NewFile() {
    if (!name_.empty()) unlink(name_.c_str());
    Close();
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Negative if there is none; then errno says why.
  int fd() const { return fd_; }

  // Gives it this name; what had it before has none. Returns false, and sets
  // errno, if that fails.
  bool Replace(const char* path) {
    const bool named = !name_.empty() || FindName([this](const char* name) {
      return linkat(AT_FDCWD, link_.c_str(), AT_FDCWD, name,
                    AT_SYMLINK_FOLLOW) == 0;
    });
    if (!named || std::rename(name_.c_str(), path) != 0) return false;
    name_.clear();
    return true;
  }

 private:
  static constexpr int kMaxTries = 10000;

  // Calls `take(name)` until it succeeds, or fails with another error than
  // EEXIST. Returns whether it succeeded.
  template <typename Take>
  bool FindName(Take take) {
    for (int tries = 0, number = 0; tries < kMaxTries; ++tries) {
      const std::string name = prefix_ + std::to_string(number);
      if (take(name.c_str())) {
        name_ = name;
        return true;
      }
      if (errno != EEXIST) return false;
      if (!RemoveLeftover(name.c_str())) ++number;
    }
    errno = EEXIST;
    return false;
  }

  // Returns whether nobody used the file of this name, and it is gone.
  static bool RemoveLeftover(const char* name) {
    const Descriptor fd(
        open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat held, named;
    return fd.get() >= 0 && fstat(fd.get(), &held) == 0 &&
           S_ISREG(held.st_mode) && flock(fd.get(), LOCK_EX | LOCK_NB) == 0 &&
           lstat(name, &named) == 0 && named.st_dev == held.st_dev &&
           named.st_ino == held.st_ino && unlink(name) == 0;
  }

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

  const std::string prefix_;
  std::string link_;  // to the file, in /proc
  std::string name_;  // empty if it has none
  int fd_ = -1;
};

// Runs `work`, which returns whether it succeeded; that memory is lacking is an
// error like others, if the program has exceptions at all.
template <typename Work>
bool WithinMemory(const char* path, const char* what, std::string* error,
                  Work work) {
#if defined(__cpp_exceptions)
  try {
    return work();
  } catch (const std::bad_alloc&) {
    *error = Message(path + std::string(what), "too little memory",
                     "free memory, or raise the limit of this process");
    return false;
  }
#else
  static_cast<void>(path);
  static_cast<void>(what);
  static_cast<void>(error);
  return work();
#endif
}

}  // namespace

// Where the values are, and all memory that this instance owns.
struct Variables::Memory {
  struct Value {
    const unsigned char* data;
    bool ours;  // may be written
  };
  std::vector<Value> values;
  std::vector<Block> blocks;
};

Variables::Variables(const VariableInfo* infos, std::size_t count,
                     const unsigned char* embedded)
    : infos_(infos),
      count_(count),
      memory_(new Memory),
      loaded_(embedded != nullptr) {
  std::uint64_t header = 0;
  if (embedded != nullptr) std::memcpy(&header, embedded, sizeof(header));
  // Where a value can be used as it is; else nullptr.
  const auto in_place = [&](const VariableInfo& info) -> const unsigned char* {
    if (info.bytes == 0) return nothing;
    if (embedded == nullptr || info.written) return nullptr;
    const unsigned char* value =
        embedded + sizeof(header) + header + info.offset;
    return reinterpret_cast<std::uintptr_t>(value) % kAlignment == 0 ? value
                                                                     : nullptr;
  };
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (in_place(infos[i]) == nullptr) bytes += RoundUp(infos[i].bytes);
  }
  unsigned char* next = nullptr;
  if (bytes > 0) {
    Block block = embedded != nullptr ? nullptr : Map(bytes, -1);
    if (!block) {
      block = Allocate(bytes);  // or throws
      if (embedded == nullptr) std::memset(block.get(), 0, bytes);
    }
    next = block.get();
    memory_->blocks.push_back(std::move(block));
  }
  for (std::size_t i = 0; i < count; ++i) {
    const VariableInfo& info = infos[i];
    const unsigned char* value = in_place(info);
    if (value != nullptr) {
      memory_->values.push_back({value, info.bytes == 0});
      continue;
    }
    if (embedded != nullptr) {
      std::memcpy(next, embedded + sizeof(header) + header + info.offset,
                  info.bytes);
    }
    memory_->values.push_back({next, true});
    next += RoundUp(info.bytes);
  }
}

Variables::~Variables() = default;
Variables::Variables(Variables&&) noexcept = default;
Variables& Variables::operator=(Variables&&) noexcept = default;

const void* Variables::data(std::size_t index) const noexcept {
  return memory_->values[index].data;
}

void* Variables::mutable_data(std::size_t index) {
  Memory::Value& value = memory_->values[index];
  if (!value.ours) {
    Block copy = Allocate(infos_[index].bytes);
    std::memcpy(copy.get(), value.data, infos_[index].bytes);
    memory_->blocks.push_back(std::move(copy));
    value = {memory_->blocks.back().get(), true};
  }
  return const_cast<unsigned char*>(value.data);
}

bool Variables::Load(const char* path) {
  error_.clear();
  return WithinMemory(path, " cannot be loaded", &error_,
                      [&] { return TakeFrom(path); });
}

bool Variables::TakeFrom(const char* path) {
  const std::unique_ptr<File> file = Open(path, Purpose::kLoad, &error_);
  if (file == nullptr) return false;
  std::vector<const Tensor*> tensors;
  if (!Match(path, *file, infos_, count_, &tensors, &error_)) return false;

  auto memory = std::make_unique<Memory>();
  std::uint64_t copied = 0;
  bool mapped = false;
  for (std::size_t i = 0; i < count_; ++i) {
    const unsigned char* value =
        tensors[i] ? file->data + tensors[i]->begin : memory_->values[i].data;
    if (infos_[i].bytes == 0) {
      value = nothing;
    } else if (std::strcmp(infos_[i].dtype, "BOOL") == 0 &&
               std::any_of(value, value + infos_[i].bytes,
                           [](unsigned char byte) { return byte > 1; })) {
      // A bool of C++ is nothing else.
      error_ = Message(path + std::string(" contradicts itself"),
                       std::string(infos_[i].name) +
                           " is bool, with values other than 0 and 1",
                       "write it again");
      return false;
    }
    const bool in_file =
        infos_[i].bytes > 0 && tensors[i] != nullptr &&
        reinterpret_cast<std::uintptr_t>(value) % kAlignment == 0;
    memory->values.push_back({value, in_file || infos_[i].bytes == 0});
    if (in_file) mapped = true;
    if (!memory->values.back().ours) copied += RoundUp(infos_[i].bytes);
  }
  if (copied > 0) {
    Block copies = Map(copied, -1);
    if (!copies) {
      error_ = Message(
          path + std::string(" cannot be loaded"), SystemError(),
          "free " + std::to_string(copied) +
              " bytes of memory, or write the file with tensors that start at "
              "multiples of 64 bytes: they are not copied");
      return false;
    }
    unsigned char* next = copies.get();
    for (std::size_t i = 0; i < count_; ++i) {
      Memory::Value& value = memory->values[i];
      if (value.ours) continue;
      std::memcpy(next, value.data, infos_[i].bytes);
      value = {next, true};
      next += RoundUp(infos_[i].bytes);
    }
    memory->blocks.push_back(std::move(copies));
  }
  if (mapped) memory->blocks.push_back(std::move(file->mapping));
  memory_ = std::move(memory);
  loaded_ = true;
  return true;
}

bool Variables::Save(const char* path) {
  error_.clear();
  return WithinMemory(path, " cannot be saved", &error_,
                      [&] { return WriteTo(path); });
}

bool Variables::WriteTo(const char* path) {
  const auto fail = [&](const std::string& found, const std::string& to_do,
                        const std::vector<std::string>& details = {}) {
    error_ =
        Message(path + std::string(" cannot be saved"), found, to_do, details);
    return false;
  };
  if (!loaded_) return fail("variables without values", "call Load() before");

  // What is there, and is to stay beside the model's own tensors.
  struct stat status;
  const bool replaces = stat(path, &status) == 0;
  if (replaces && !S_ISREG(status.st_mode)) {
    return fail("something there that is no regular file",
                "pass the path of a regular file, or of none yet");
  }
  std::unique_ptr<File> old;
  if (replaces && status.st_size > 0) {
    old = Open(path, Purpose::kSaveOver, &error_);
    if (old == nullptr) return false;
    status = old->status;
  }

  struct Piece {
    std::string entry;  // in the header, up to the offsets
    const unsigned char* data;
    std::uint64_t bytes;
  };
  const auto entry = [](std::string_view name, std::string_view dtype,
                        const auto& sizes) {
    std::string text =
        Quoted(name) + ":{\"dtype\":" + Quoted(dtype) + ",\"shape\":[";
    const char* separator = "";
    for (const auto size : sizes) {
      text += separator + std::to_string(size);
      separator = ",";
    }
    return text + "],\"data_offsets\":[";
  };
  std::vector<Piece> pieces;
  std::set<std::string_view> names;
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i < count_; ++i) {
    const VariableInfo& info = infos_[i];
    names.insert(info.name);
    pieces.push_back({entry(info.name, info.dtype, Dims{info}),
                      memory_->values[i].data, info.bytes});
    const Tensor* const there = old ? old->Find(info.name) : nullptr;
    if (there != nullptr && !Matches(*there, info)) {
      wrong.push_back(Mismatch(*there, info));
    }
  }
  if (!wrong.empty()) {
    return fail("a file there that does not fit the model",
                "save to another path, or remove that file", wrong);
  }
  if (old != nullptr) {
    for (const Tensor& tensor : old->tensors) {
      if (names.count(tensor.name) > 0) continue;
      pieces.push_back({entry(tensor.name, tensor.dtype, tensor.shape),
                        old->data + tensor.begin, tensor.end - tensor.begin});
    }
  }
  // As many tensors as possible are to start at a multiple of kAlignment.
  std::stable_partition(pieces.begin(), pieces.end(), [](const Piece& piece) {
    return piece.bytes % kAlignment == 0;
  });
  std::string header = "{";
  if (old != nullptr && !old->metadata.empty()) {
    header += "\"__metadata__\":" + std::string(old->metadata);
  }
  std::uint64_t end = 0;
  for (const Piece& piece : pieces) {
    if (header.size() > 1) header += ',';
    header += piece.entry + std::to_string(end) + ",";
    end += piece.bytes;
    header += std::to_string(end) + "]}";
  }
  header += "}";
  std::uint64_t size = header.size();
  header.append(RoundUp(sizeof(size) + size) - sizeof(size) - size, ' ');
  size = header.size();

  const std::string_view name(path);
  const std::string folder(name.substr(0, name.rfind('/') + 1));
  NewFile file(folder, replaces ? 0600 : 0666);
  bool saved = file.fd() >= 0 && Write(file.fd(), &size, sizeof(size)) &&
               Write(file.fd(), header.data(), header.size());
  for (const Piece& piece : pieces) {
    saved = saved && Write(file.fd(), piece.data, piece.bytes);
  }
  saved = saved && (!replaces || TakeAccess(file.fd(), status)) &&
          fsync(file.fd()) == 0 && file.Replace(path);
  if (!saved) {
    return fail(
        SystemError(),
        "pass a path in a folder that exists, that this process may write to, "
        "and that has room for " +
            std::to_string(sizeof(size) + size + end) + " bytes");
  }
  // The new name is to outlast a power failure, too.
  const Descriptor synced(open(folder.empty() ? "." : folder.c_str(),
                               O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (synced.get() >= 0) fsync(synced.get());
  return true;
}

}  // namespace tfaot
