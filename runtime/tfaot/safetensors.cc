#include "tfaot/safetensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <utility>

namespace tfaot::safetensors {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "values are used unconverted, in the file's byte order");

// TensorFlow's largest rank.
constexpr std::size_t kMaxRank = 254;

// How many bytes of a file's text an error shows.
constexpr std::size_t kMaxShownBytes = 200;

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

// Takes one UTF-8 character from the start of `text`, which isn't empty.
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

// Parses a header: strict JSON with a bounded depth.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text), rest_(text) {}

  // Returns false if the text isn't a header; problem() says where, and why.
  // Sets `metadata` to the raw text of its value.
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

  // Skips any value.
  bool Skip(int depth) {
    if (depth > kMaxDepth) return Fail("a value with less nesting");
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

  // Calls `member(key)` at the value of each key. `member` takes the value.
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
    // Don't skip spaces before it.
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

  // Parses "\u20ac".
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

  // Parses a size or an offset.
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

  // Returns false. Keeps the first failure, which causes all others.
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

}  // namespace

const DType* FindDType(std::string_view code) {
  for (const DType& dtype : kDTypes) {
    if (code == dtype.code) return &dtype;
  }
  return nullptr;
}

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

std::string Shown(std::string_view text) {
  const std::string quoted = Quoted(text.substr(0, kMaxShownBytes));
  return quoted.substr(1, quoted.size() - 2) +
         (text.size() > kMaxShownBytes ? "..." : "");
}

bool ParseHeader(std::string_view header, std::deque<Tensor>* tensors,
                 std::string_view* metadata, std::string* problem) {
  HeaderParser parser(header);
  if (parser.Parse(tensors, metadata)) return true;
  *problem = parser.problem();
  return false;
}

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
  // The product is zero, whatever the other sizes are.
  if (std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0) {
    overflow = false;
  }
  if (!overflow && bytes == tensor.end - tensor.begin) return "";
  return name + where + ", which isn't the size of " +
         Signature(tensor.dtype, tensor.shape);
}

std::string Contradiction(std::vector<const Tensor*> order) {
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->name == order[i]->name) {
      return Shown(order[i]->name) + " appears twice in its header";
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

std::string Start(std::string_view metadata, std::uint64_t alignment,
                  std::vector<Piece>* pieces) {
  std::stable_partition(
      pieces->begin(), pieces->end(),
      [alignment](const Piece& piece) { return piece.bytes % alignment == 0; });
  std::string header = "{";
  if (!metadata.empty()) {
    header += "\"__metadata__\":" + std::string(metadata);
  }
  std::uint64_t end = 0;
  for (const Piece& piece : *pieces) {
    if (header.size() > 1) header += ',';
    header += piece.member + std::to_string(end) + ",";
    end += piece.bytes;
    header += std::to_string(end) + "]}";
  }
  header += "}";
  std::uint64_t size = header.size();
  header.append((alignment - (sizeof(size) + size) % alignment) % alignment,
                ' ');
  size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) +
         header;
}

}  // namespace tfaot::safetensors
