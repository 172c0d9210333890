// Whether something succeeded, and if not, why.
//
//   tfaot::Status saved = model.Save("trained.safetensors");
//   if (!saved) return Fail(saved.message());
#ifndef TFAOT_STATUS_H_
#define TFAOT_STATUS_H_

#include <string>
#include <utility>

// Compilers since C++17 warn about a result that is ignored.
#if __cplusplus >= 201703L
#define TFAOT_NODISCARD [[nodiscard]]
#else
#define TFAOT_NODISCARD
#endif

namespace tfaot {

// What kind of error. The numbers never change.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,  // the call can't succeed with these arguments
  kFileAccess = 2,       // the system refused to open, read, map, or write it
  kBadFile = 3,          // not a safetensors file, truncated, or contradictory
  kMismatch = 4,         // names, dtypes, or shapes differ from the model's
  kNoWeights = 5,        // the variables have no values yet
  kUnsupportedCpu = 6,   // no level of the model runs on this machine
  kOutOfMemory = 7,
  kCancelled = 8,        // a hook ended the run
  kKernelFailed = 9,     // compiled code reported an error
  kExchangeFailed = 10,  // replicas couldn't exchange values
};

// A code and a text for people, which says what was asked, what was found, and
// what to do. Only the code is for programs: the text may change.
class TFAOT_NODISCARD Status {
 public:
  Status() noexcept = default;  // success
  Status(Code code, std::string message) noexcept
      : code_(code), message_(std::move(message)) {}

  bool ok() const noexcept { return code_ == Code::kOk; }
  explicit operator bool() const noexcept { return ok(); }
  Code code() const noexcept { return code_; }

  // Empty on success. Valid as long as the status.
  const char* message() const noexcept { return message_.c_str(); }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

}  // namespace tfaot

#endif  // TFAOT_STATUS_H_
