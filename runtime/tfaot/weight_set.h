// One version of the values of a model's variables. The runtime and generated
// code use it; programs use tfaot/weights.h.
#ifndef TFAOT_WEIGHT_SET_H_
#define TFAOT_WEIGHT_SET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tfaot/status.h"
#include "tfaot/weights.h"

namespace tfaot {

// Compile-time information about a variable.
struct VariableInfo {
  const char* name;   // TensorFlow's name, UTF-8
  const char* dtype;  // its safetensors code: "F32", "BOOL"
  const std::int64_t* dims;
  int rank;
  std::uint64_t bytes;
  std::uint64_t offset;   // in the data of the embedded file
  bool written;           // by the model itself
  bool optional = false;  // keeps its value if a loaded file lacks it
};

// Immutable. The table of variables also identifies the model, and outlives the
// set.
struct WeightSet : std::enable_shared_from_this<WeightSet> {
  struct Value {
    // Owns the memory, or nothing if that outlives every set. Values that the
    // model only reads are at a multiple of 64 bytes.
    std::shared_ptr<const unsigned char> data;
    bool given;  // by the file; otherwise, it is that of the set before
  };

  const VariableInfo* infos;
  std::size_t count;
  std::vector<Value> values;
  bool loaded;  // false if nobody has given values, and all are zero
  std::uint64_t version;
};

// The values in `embedded`, a complete safetensors file that outlives every
// set. Without it, all values are zero, and take no memory until they are read.
// Throws std::bad_alloc.
Weights InitialWeights(const VariableInfo* infos, std::size_t count,
                       const unsigned char* embedded);

// All values from a file, whose names, dtypes, and shapes must match the
// model's. It can contain more tensors. Values of optional variables that it
// lacks are those of `base`. On failure, `*weights` doesn't change.
Status LoadWeights(const Source& source, const WeightSet& base,
                   Weights* weights);

// Checks that weights exist and belong to the model with this table.
Status CheckWeights(const Weights& weights, const VariableInfo* infos);

// Writes the values at `values` to a safetensors file. See Variables::Save().
Status SaveValues(const char* path, const VariableInfo* infos,
                  std::size_t count, const unsigned char* const* values);

}  // namespace tfaot

#endif  // TFAOT_WEIGHT_SET_H_
