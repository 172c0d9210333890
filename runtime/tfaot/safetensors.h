// The safetensors format: parses and writes headers.
//
// These functions work on text in memory, not on files. Errors show a file's
// names in printable ASCII, on one line, and truncated.
#ifndef TFAOT_SAFETENSORS_H_
#define TFAOT_SAFETENSORS_H_

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace tfaot::safetensors {

// The largest header that is accepted, as in the format's own library, so that
// a hostile file can't use much memory. A parsed header takes a few times its
// size.
inline constexpr std::uint64_t kMaxHeader = 100'000'000;

// What a dtype is called elsewhere in the rules, and its size in bytes
// (py/tfaot/core/dtypes.py).
struct DType {
  const char* code;
  const char* name;
  std::uint64_t bytes;
};

// Returns the dtype with this code, or nullptr.
const DType* FindDType(std::string_view code);

// Returns a JSON string as Python's json.dumps() writes it.
std::string Quoted(std::string_view text);

// Prepares text from a file for errors: nothing in it can end a line, control a
// terminal, or be mistaken for something else.
std::string Shown(std::string_view text);

// "float32[2, 3]". An unknown dtype appears as its code.
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

// Parses a header, which must outlive `metadata`. Sets `metadata` to the raw
// text of the "__metadata__" value, or leaves it empty. On failure, returns
// false and sets `problem`.
bool ParseHeader(std::string_view header, std::deque<Tensor>* tensors,
                 std::string_view* metadata, std::string* problem);

// Describes what is impossible about one tensor in a header; empty if nothing.
std::string Contradiction(const Tensor& tensor, std::uint64_t data_bytes);

// Describes what is impossible about a header's tensors together; empty if
// nothing. The tensors are in the order of their names.
std::string Contradiction(std::vector<const Tensor*> tensors);

// A tensor to write.
struct Piece {
  std::string member;  // its member in the header, up to the offsets
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

// Returns the start of a file with these tensors: the header's size, and the
// header. Sorts the tensors into file order, in which as many as possible start
// at a multiple of `alignment`.
std::string Start(std::string_view metadata, std::uint64_t alignment,
                  std::vector<Piece>* pieces);

}  // namespace tfaot::safetensors

#endif  // TFAOT_SAFETENSORS_H_
