// What a generated class consists of, for programs that learn names, dtypes,
// and shapes at run time.
//
//   const tfaot::ModelInfo& info = models::Scorer::Info();
//   for (const tfaot::TensorInfo& input : info.entry_points[0].inputs) {
//     std::printf("%s %s\n", input.name, tfaot::Name(input.dtype));
//   }
//   const tfaot::TensorInfo* x = tfaot::Find(info.entry_points[0].inputs, "x");
//   std::memcpy(tfaot::Values(model, *x), batch, x->bytes);
//   tfaot::Call(model, info.entry_points[0]);
//
// Everything that these functions return is in the program's code. They don't
// allocate, and they are as thread-safe as the model's own members.
#ifndef TFAOT_INFO_H_
#define TFAOT_INFO_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "tfaot/status.h"

namespace tfaot {

// The numbers are those of tensorflow.DataType.
enum class DType : std::int32_t {
  kFloat32 = 1,
  kFloat64 = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kComplex64 = 8,
  kInt64 = 9,
  kBool = 10,
  kBFloat16 = 14,
  kUint16 = 17,
  kComplex128 = 18,
  kFloat16 = 19,
  kUint32 = 22,
  kUint64 = 23,
};

// TensorFlow's and NumPy's name, or "unknown".
inline const char* Name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kUint8:
      return "uint8";
    case DType::kInt16:
      return "int16";
    case DType::kInt8:
      return "int8";
    case DType::kComplex64:
      return "complex64";
    case DType::kInt64:
      return "int64";
    case DType::kBool:
      return "bool";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kUint16:
      return "uint16";
    case DType::kComplex128:
      return "complex128";
    case DType::kFloat16:
      return "float16";
    case DType::kUint32:
      return "uint32";
    case DType::kUint64:
      return "uint64";
  }
  return "unknown";
}

// An array that it doesn't own.
template <typename T>
struct List {
  const T* items;
  std::size_t count;

  constexpr const T* begin() const noexcept { return items; }
  constexpr const T* end() const noexcept { return items + count; }
  constexpr std::size_t size() const noexcept { return count; }
  constexpr const T& operator[](std::size_t index) const {
    assert(index < count);
    return items[index];
  }
};

// An input, an output, or a variable.
struct TensorInfo {
  const char* name;    // TensorFlow's
  const char* member;  // the accessor in the generated class
  DType dtype;
  bool batched;  // its first dimension is the largest batch
  bool bounded;  // its dimensions are bounds; see Dims()
  bool written;  // a variable that the model assigns
  List<std::int64_t> dims;
  std::uint64_t bytes;  // without padding
  std::size_t slot;     // identifies it in its class
};

struct EntryPointInfo {
  const char* name;  // the function in the generated class
  List<TensorInfo> inputs;
  List<TensorInfo> outputs;
  std::int64_t max_batch;  // 0 if it takes no batch
};

// The gradient of a variable, which one entry point returns and another one
// takes. In between, a program can combine it with that of other replicas, for
// which tfaot/gradients.h places all of them in one block.
struct GradientInfo {
  const TensorInfo* variable;
  const TensorInfo* output;
  const TensorInfo* input;
};

struct ModelInfo {
  const char* cpp_class;   // "a::b::Class"
  const char* tensorflow;  // the version that it was compiled with
  List<EntryPointInfo> entry_points;
  List<TensorInfo> variables;

  // What model.json says about names, dtypes, shapes, and batches, in JSON
  // without spaces. It leaves out what only the build uses: `calls`,
  // `fingerprints`, and the hashes of frozen variables.
  const char* manifest;

  // For the functions below. `model` is an instance of the class.
  bool (*call)(void* model, std::size_t entry_point, std::int64_t batch);
  void* (*values)(void* model, std::size_t slot);
  const void* (*const_values)(const void* model, std::size_t slot);
  void (*dims)(const void* model, std::size_t slot, std::int64_t* dims);
  bool (*place)(void* model, std::size_t slot, void* data);

  List<GradientInfo> gradients = {nullptr, 0};
};

// Returns the tensor that has this TensorFlow name, or else this member, or
// else the TensorFlow name without ":0". Returns nullptr if there is none.
inline const TensorInfo* Find(List<TensorInfo> tensors,
                              const char* name) noexcept {
  for (const TensorInfo& tensor : tensors) {
    if (std::strcmp(tensor.name, name) == 0) return &tensor;
  }
  for (const TensorInfo& tensor : tensors) {
    if (std::strcmp(tensor.member, name) == 0) return &tensor;
  }
  const std::size_t size = std::strlen(name);
  for (const TensorInfo& tensor : tensors) {
    if (std::strncmp(tensor.name, name, size) == 0 &&
        std::strcmp(tensor.name + size, ":0") == 0) {
      return &tensor;
    }
  }
  return nullptr;
}

// Returns the entry point of this name, or nullptr if there is none.
inline const EntryPointInfo* FindEntryPoint(const ModelInfo& info,
                                            const char* name) noexcept {
  for (const EntryPointInfo& entry : info.entry_points) {
    if (std::strcmp(entry.name, name) == 0) return &entry;
  }
  return nullptr;
}

// Returns a pointer to a tensor's values, as its accessor does. `tensor` is one
// of Model::Info()'s.
template <typename Model>
void* Values(Model& model, const TensorInfo& tensor) {
  return Model::Info().values(&model, tensor.slot);
}
template <typename Model>
const void* Values(const Model& model, const TensorInfo& tensor) noexcept {
  return Model::Info().const_values(&model, tensor.slot);
}

// Places an input or an output in the caller's memory, or back in the
// instance's if `data` is nullptr, as the class's set_NAME_data() does. Runs
// don't change inputs. Returns false if the address isn't aligned, for which
// model.error() has a text, or if `tensor` is a variable.
template <typename Model>
TFAOT_NODISCARD bool Place(Model& model, const TensorInfo& tensor, void* data) {
  return Model::Info().place(&model, tensor.slot, data);
}

// Writes a tensor's sizes to `dims`, which has room for all of them. They
// differ from tensor.dims only if it is bounded.
template <typename Model>
void Dims(const Model& model, const TensorInfo& tensor,
          std::int64_t* dims) noexcept {
  for (std::size_t axis = 0; axis < tensor.dims.size(); ++axis) {
    dims[axis] = tensor.dims[axis];
  }
  if (tensor.bounded) Model::Info().dims(&model, tensor.slot, dims);
}

// Calls an entry point, one of Model::Info()'s. `batch` is the number of rows;
// an entry point without batches ignores it. Returns whether it succeeded; if
// not, model.error() says why.
template <typename Model>
TFAOT_NODISCARD bool Call(Model& model, const EntryPointInfo& entry,
                          std::int64_t batch) {
  const EntryPointInfo* first = Model::Info().entry_points.begin();
  return Model::Info().call(&model, static_cast<std::size_t>(&entry - first),
                            batch);
}
template <typename Model>
TFAOT_NODISCARD bool Call(Model& model, const EntryPointInfo& entry) {
  return Call(model, entry, entry.max_batch);
}

// What became of an input that a program offered to a model.
enum class TFAOT_NODISCARD Offered {
  kTaken,
  kUnknown,   // the model has no such input, and nothing was copied
  kMismatch,  // the input has another dtype or shape, and nothing was copied
};

// Copies values to the input of this name, for programs that offer the same
// inputs to different models, some of which use only a few. For an input with a
// batch, the first size can be smaller. `values` are row-major.
//
//   if (tfaot::Offer(model, entry, "age", tfaot::DType::kFloat32, {dims, 2},
//                    ages) == tfaot::Offered::kMismatch) {
//     tfaot::WriteNote(...);
template <typename Model>
Offered Offer(Model& model, const EntryPointInfo& entry, const char* name,
              DType dtype, List<std::int64_t> dims, const void* values) {
  const TensorInfo* tensor = Find(entry.inputs, name);
  if (tensor == nullptr) return Offered::kUnknown;
  if (tensor->dtype != dtype || tensor->dims.size() != dims.size()) {
    return Offered::kMismatch;
  }
  std::uint64_t bytes = tensor->bytes;
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    const std::int64_t most = tensor->dims[axis];
    if (axis == 0 && tensor->batched && dims[0] >= 0 && dims[0] < most) {
      bytes = bytes / static_cast<std::uint64_t>(most) *
              static_cast<std::uint64_t>(dims[0]);
    } else if (dims[axis] != most) {
      return Offered::kMismatch;
    }
  }
  if (bytes > 0) {
    std::memcpy(Values(model, *tensor), values,
                static_cast<std::size_t>(bytes));
  }
  return Offered::kTaken;
}

namespace internal {

// Text that ends where the caller's buffer does.
class Text {
 public:
  Text(char* text, std::size_t size) noexcept : text_(text), size_(size) {
    if (size > 0) text[0] = '\0';
  }

  void Add(const char* more) noexcept {
    for (; *more != '\0'; ++more, ++length_) {
      if (length_ + 1 < size_) text_[length_] = *more, text_[length_ + 1] = 0;
    }
  }
  void Add(DType dtype, List<std::int64_t> dims) noexcept {
    Add(Name(dtype));
    Add("[");
    for (std::size_t axis = 0; axis < dims.size(); ++axis) {
      char number[24];
      std::snprintf(number, sizeof(number), "%s%lld", axis > 0 ? ", " : "",
                    static_cast<long long>(dims[axis]));
      Add(number);
    }
    Add("]");
  }
  std::size_t length() const noexcept { return length_; }

 private:
  char* text_;
  std::size_t size_;
  std::size_t length_ = 0;
};

}  // namespace internal

// Writes to `text`, which has room for `size` characters, what became of an
// offer: what was offered, and what the model has. Empty if the model took it.
// Returns the length of the whole text. If it isn't less than `size`, the text
// was cut.
inline std::size_t WriteNote(Offered offered, const ModelInfo& info,
                             const EntryPointInfo& entry, const char* name,
                             DType dtype, List<std::int64_t> dims, char* text,
                             std::size_t size) noexcept {
  internal::Text note(text, size);
  if (offered == Offered::kTaken) return 0;
  note.Add(info.cpp_class);
  note.Add("::");
  note.Add(entry.name);
  if (offered == Offered::kUnknown) {
    note.Add("(): ignored \"");
    note.Add(name);
    note.Add("\", which isn't an input\n  found: the inputs are ");
    if (entry.inputs.size() == 0) note.Add("none");
    for (const TensorInfo& input : entry.inputs) {
      if (&input != entry.inputs.begin()) note.Add(", ");
      note.Add("\"");
      note.Add(input.name);
      note.Add("\"");
    }
    note.Add("\n  to do: nothing, if the program also serves other models");
    return note.length();
  }
  note.Add("(): the input \"");
  note.Add(name);
  note.Add("\" can't be ");
  note.Add(dtype, dims);
  const TensorInfo* tensor = Find(entry.inputs, name);
  if (tensor != nullptr) {
    note.Add("\n  found: the model takes ");
    note.Add(tensor->dtype, tensor->dims);
    if (tensor->batched) note.Add(", or fewer rows");
  }
  note.Add("\n  to do: convert the values");
  return note.length();
}

}  // namespace tfaot

#endif  // TFAOT_INFO_H_
