// The format of safetensors files: what a header says, and how it is written.
//
// Functions of text, without files: whoever reads a header has it in memory.
// Errors show names of a file in printable ASCII, in one line, and cut short.
#ifndef TFAOT_SAFETENSORS_H_
#define TFAOT_SAFETENSORS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace tfaot::safetensors {

// The largest header that is read, which is what the format's own library
// reads: a hostile one cannot take much memory. What is read of a header takes
// a few times its size.
inline constexpr std::uint64_t kMaxHeader = 100'000'000;

// What the values of a dtype are called elsewhere in the rules, and their size
// in bytes (py/tfaot/core/dtypes.py).
struct DType {
  const char* code;
  const char* name;
  std::uint64_t bytes;
};

// The dtype of this code, or nullptr.
const DType* FindDType(std::string_view code);

// A JSON string, as Python's json.dumps() writes it.
std::string Quoted(std::string_view text);

// Text of a file as errors show it: nothing in it can end a line, steer a
// terminal, or pass for something else.
std::string Shown(std::string_view text);

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

// A tensor as a file's header describes it.
struct Tensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  // in the data
  std::uint64_t end = 0;
};

// Reads a header, which must outlive `metadata`: that becomes the part of it
// that is the value of "__metadata__", as it is, or stays empty. Returns false,
// and sets `problem`, if the text is no header.
bool ParseHeader(std::string_view header, std::deque<Tensor>* tensors,
                 std::string_view* metadata, std::string* problem);

// What a header says of one tensor that cannot be; empty if nothing.
std::string Contradiction(const Tensor& tensor, std::uint64_t data_bytes);

// What a header says of tensors together that cannot be; empty if nothing. They
// are in the order of their names.
std::string Contradiction(std::vector<const Tensor*> tensors);

// A tensor that is to be written.
struct Piece {
  std::string member;  // of the header, up to the offsets
  const unsigned char* data;
  std::uint64_t bytes;
};

template <typename Sizes>
std::string Member(std::string_view name, std::string_view dtype,
                   const Sizes& sizes) {
  std::string text =
      Quoted(name) + ":{\"dtype\":" + Quoted(dtype) + ",\"shape\":[";
  const char* separator = "";
  for (const auto size : sizes) {
    text += separator + std::to_string(size);
    separator = ",";
  }
  return text + "],\"data_offsets\":[";
}

// What a file of these tensors starts with: the header, and its size before it.
// Puts the tensors in the order in which they follow, in which as many as
// possible start at a multiple of `alignment`.
std::string Start(std::string_view metadata, std::uint64_t alignment,
                  std::vector<Piece>* pieces);

}  // namespace tfaot::safetensors

#endif  // TFAOT_SAFETENSORS_H_
