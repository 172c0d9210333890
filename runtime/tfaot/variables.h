// The values of one instance's variables; generated code uses it.
//
// They come from a safetensors file that is linked into the library, or from
// one that Load() maps at run time, and Save() writes them as such a file.
#ifndef TFAOT_VARIABLES_H_
#define TFAOT_VARIABLES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace tfaot {

// What the model knows of a variable at compile time.
struct VariableInfo {
  const char* name;   // TensorFlow's, UTF-8
  const char* dtype;  // its code in safetensors: "F32", "BOOL"
  const std::int64_t* dims;
  int rank;
  std::uint64_t bytes;
  std::uint64_t offset;   // in the data of the embedded file
  bool written;           // by the model itself
  bool optional = false;  // keeps its value if a file that is loaded lacks it
};

// Owns the values, but not what it is constructed from. All values lie at
// multiples of 64 bytes, which XLA's kernels rely on.
//
// Thread-compatible: const members may run at the same time in several threads,
// anything else needs the instance for itself. Different instances share
// nothing that changes.
class Variables {
 public:
  // `infos` is a table of `count` variables, and `embedded` a whole safetensors
  // file with their values; both must outlive the instance. Values that the
  // model does not write are used where they are in it, if aligned. Without
  // `embedded`, all values are zero, and take no memory until they are used.
  // Throws std::bad_alloc.
  Variables(const VariableInfo* infos, std::size_t count,
            const unsigned char* embedded);
  ~Variables();

  // Move-only; pointers to values stay valid. A moved-from instance may only be
  // destroyed or assigned to.
  Variables(Variables&&) noexcept;
  Variables& operator=(Variables&&) noexcept;

  // The values of a variable, row-major. Valid until the next Load(), and until
  // mutable_data() of the same variable: that copies it once if it is embedded,
  // so ask data() again afterwards.
  const void* data(std::size_t index) const noexcept;
  void* mutable_data(std::size_t index);

  // Whether the values are the embedded ones or those of a file.
  bool loaded() const noexcept { return loaded_; }

  // Takes all values from a safetensors file, whose names, dtypes, and shapes
  // must be the model's; it may hold more. Returns whether it succeeded; if
  // not, nothing changes, and error() says why, with every mismatch.
  //
  // The file is mapped, not read: values are used where they are, and pages
  // that are written become private copies. Only tensors that do not start at a
  // multiple of 64 bytes of the file are copied. Until the next Load() or the
  // end of the instance, the file may be deleted or replaced (by rename, as
  // Save() does), but not changed in place: other bytes show in the values, and
  // a shorter file ends the process (SIGBUS).
  bool Load(const char* path);

  // Writes all values to a safetensors file, of the layout that
  // py/tfaot/core/safetensors.py gives variables. Returns whether it succeeded;
  // if not, `path` is what it was, and error() says why. It fails if loaded()
  // is false: there are no values.
  //
  // A file or a link that is there is replaced at once when all is written,
  // also the file that is loaded. The new file keeps the old one's permissions,
  // its metadata, and the tensors that the model lacks; so it fails if the old
  // one is neither empty nor a safetensors file, or if its tensors do not fit
  // the model. Of two saves to one path at the same time, one is lost.
  bool Save(const char* path);

  // Why the latest Load() or Save() failed; empty if it did not.
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
