// The values of one instance's variables. Generated code uses it.
//
// They come from a safetensors file that is linked into the library, or from
// one that Load() maps at run time. Save() writes them to such a file.
#ifndef TFAOT_VARIABLES_H_
#define TFAOT_VARIABLES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

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

// Owns the values, but not the constructor's arguments. All values are at
// multiples of 64 bytes, which XLA's kernels need.
//
// Thread-compatible: const members can run at the same time in several threads.
// Anything else needs exclusive access to the instance. Different instances
// share no mutable state.
class Variables {
 public:
  // `infos` is a table of `count` variables, and `embedded` is a complete
  // safetensors file with their values. Both must outlive the instance. Values
  // that the model doesn't write are used in place, if aligned. Without
  // `embedded`, all values are zero, and take no memory until they are used.
  // Throws std::bad_alloc.
  Variables(const VariableInfo* infos, std::size_t count,
            const unsigned char* embedded);
  ~Variables();

  // Move-only. Pointers to values stay valid. A moved-from instance can only be
  // destroyed or assigned to.
  Variables(Variables&&) noexcept;
  Variables& operator=(Variables&&) noexcept;

  // The values of a variable, row-major. Valid until the next Load(), and until
  // mutable_data() for the same variable, which copies an embedded variable
  // once. Call data() again afterwards.
  const void* data(std::size_t index) const noexcept;
  void* mutable_data(std::size_t index);

  // Whether there are values: the embedded ones, or those of a loaded file.
  bool loaded() const noexcept { return loaded_; }

  // Takes all values from a safetensors file. Its names, dtypes, and shapes
  // must match the model's; it can contain more tensors. Returns whether it
  // succeeded. On failure, nothing changes, and error() lists every mismatch.
  //
  // The file is mapped, not read: values are used in place, and pages become
  // private copies when they are written. Only tensors that don't start at a
  // multiple of 64 bytes in the file are copied. Until the next Load() or the
  // end of the instance, you can delete or replace the file (by rename, as
  // Save() does), but not change it in place: changed bytes show in the values,
  // and truncation ends the process (SIGBUS).
  bool Load(const char* path);

  // Writes all values to a safetensors file, in the layout that
  // py/tfaot/core/safetensors.py uses for variables. Returns whether it
  // succeeded. On failure, `path` is unchanged, and error() says why. Fails if
  // loaded() is false, because there are no values.
  //
  // An existing file or link is replaced atomically after everything is
  // written, even if it is the loaded file. The new file keeps the old one's
  // permissions, metadata, and tensors that the model lacks. So it fails if the
  // old file is neither empty nor a safetensors file, or if its tensors don't
  // fit the model. Of two concurrent saves to one path, one is lost.
  bool Save(const char* path);

  // Why the latest Load() or Save() failed; empty if it succeeded.
  const char* error() const noexcept { return error_.c_str(); }

 private:
  struct Memory;

  bool TakeFrom(const char* path);
  bool WriteTo(const char* path);

  const VariableInfo* infos_;
  std::size_t count_;
  std::unique_ptr<Memory> memory_;
  bool loaded_;
  std::string error_;
};

}  // namespace tfaot

#endif  // TFAOT_VARIABLES_H_
