// What the functions of the C interface share: the handles, and how they fail.
// Only c_api.cc includes it.
#ifndef TFAOT_C_API_HANDLES_H_
#define TFAOT_C_API_HANDLES_H_

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "tfaot/c_api.h"
#include "tfaot/hooks.h"
#include "tfaot/info.h"
#include "tfaot/message.h"
#include "tfaot/of_class/tfaot_class_header.h"
#include "tfaot/options.h"
#include "tfaot/status.h"
#include "tfaot/thread_pool.h"
#include "tfaot/weights.h"

namespace tfaot {

using Model = ::TFAOT_CLASS;

// Memory of the program, behind our interface.
class Memory final : public Allocator {
 public:
  explicit Memory(const tfaot_allocator& allocator) noexcept
      : allocator_(allocator) {}
  void* Allocate(std::size_t bytes, std::size_t alignment) noexcept override {
    void* const memory =
        allocator_.allocate(allocator_.context, bytes, alignment);
    off_ = reinterpret_cast<std::uintptr_t>(memory) % alignment;
    return memory;
  }
  void Free(void* memory, std::size_t bytes) noexcept override {
    allocator_.free(allocator_.context, memory, bytes);
  }

  // By how many bytes the latest address isn't aligned.
  std::size_t off() const noexcept { return off_; }

 private:
  const tfaot_allocator allocator_;
  std::size_t off_ = 0;
};

// The program's hooks, and cancellation.
class Watch final : public Hooks {
 public:
  bool Before(const char* kernel) noexcept override {
    if (cancelled_.load(std::memory_order_relaxed)) return false;
    return hooks.before == nullptr || hooks.before(hooks.context, kernel) != 0;
  }
  void After(const char* kernel) noexcept override {
    if (hooks.after != nullptr) hooks.after(hooks.context, kernel);
  }

  void set_cancellable(bool cancellable) noexcept {
    cancellable_.store(cancellable);
    cancelled_.store(false);
  }
  void Cancel() noexcept {
    if (cancellable_.load()) cancelled_.store(true);
  }

  // Whether runs need it.
  bool used() const noexcept {
    return cancellable_.load() || hooks.before != nullptr ||
           hooks.after != nullptr;
  }

  tfaot_hooks hooks = {nullptr, nullptr, nullptr};

 private:
  std::atomic<bool> cancellable_{false};
  std::atomic<bool> cancelled_{false};
};

// Its address identifies this library, in handles that a program could hand to
// another one.
constexpr char kLibrary = 0;

}  // namespace tfaot

struct tfaot_weights {
  explicit tfaot_weights(tfaot::Weights from) noexcept
      : weights(std::move(from)) {}

  const char* const library = &tfaot::kLibrary;  // first in every release
  const tfaot::Weights weights;
};

// Instances that follow live weights share them with the handle.
struct tfaot_live_weights {
  explicit tfaot_live_weights(const tfaot::Weights& weights)
      : live(new tfaot::LiveWeights(weights)) {}

  const char* const library = &tfaot::kLibrary;  // first in every release
  const std::shared_ptr<tfaot::LiveWeights> live;
};

// What the model uses is declared first, so that it outlives the model.
struct tfaot_model {
  tfaot_model(tfaot::Model&& from,
              std::unique_ptr<tfaot::Memory> its_memory) noexcept
      : memory(std::move(its_memory)), model(std::move(from)) {}

  std::unique_ptr<tfaot::ThreadPool> pool;
  const std::unique_ptr<tfaot::Memory> memory;
  std::shared_ptr<tfaot::LiveWeights> live;
  tfaot::Watch watch;
  tfaot::Model model;
  std::string error;
};

namespace tfaot {
namespace {

// The calling thread's error from functions that have no instance. It isn't a
// thread_local string: because of its destructor, dlclose() would unload
// nothing before the thread ends.
class ThreadError {
 public:
  ThreadError() noexcept { made_ = pthread_key_create(&key_, Delete) == 0; }
  ~ThreadError() {
    if (!made_) return;
    Delete(pthread_getspecific(key_));
    pthread_key_delete(key_);
    made_ = false;
  }

  std::string& Mine() noexcept {
    if (!made_) return shared_;
    void* mine = pthread_getspecific(key_);
    if (mine == nullptr) {
      mine = new (std::nothrow) std::string;
      if (mine == nullptr || pthread_setspecific(key_, mine) != 0) {
        Delete(mine);
        return shared_;
      }
    }
    return *static_cast<std::string*>(mine);
  }

 private:
  static void Delete(void* mine) { delete static_cast<std::string*>(mine); }

  pthread_key_t key_;
  bool made_;
  std::string shared_;  // without memory for one of the thread's own
};

ThreadError thread_error;

std::string& create_error() noexcept { return thread_error.Mine(); }

#if defined(__cpp_exceptions)
// Writes a message, or a shorter one if there is no memory for it.
void Say(std::string& error, const char* text) noexcept {
  try {
    error = text;
  } catch (...) {
    error.clear();
  }
}
#endif

// Calls `body`, which returns a status, and turns exceptions into one. It
// clears `error` first.
template <typename Body>
tfaot_status Guarded(std::string& error, Body body) noexcept {
#if defined(__cpp_exceptions)
  try {
    error.clear();
    return body();
  } catch (const std::bad_alloc&) {
    Say(error, "out of memory");
    return TFAOT_OUT_OF_MEMORY;
  } catch (const std::exception& exception) {
    Say(error, exception.what());
    return TFAOT_FAILED;
  } catch (...) {
    Say(error, "an unknown C++ exception");
    return TFAOT_FAILED;
  }
#else
  error.clear();
  return body();
#endif
}

std::string Function(const char* name) {
  return std::string(Model::Info().cpp_class) + ": " + name;
}

tfaot_status Fail(std::string& error, tfaot_status status, std::string text) {
  error = std::move(text);
  return status;
}

// Checks a pointer that a program must pass.
bool Given(std::string& error, const char* function, const char* parameter,
           const void* pointer) {
  if (pointer != nullptr) return true;
  Fail(error, TFAOT_INVALID_ARGUMENT,
       Message(Function(function) + " got no " + parameter, "NULL",
               "pass a pointer; tfaot/c_api.h says to what"));
  return false;
}

// Checks where a function puts a handle, which is NULL until it succeeds.
template <typename Handle>
bool Cleared(std::string& error, const char* function, Handle** handle) {
  if (!Given(error, function, "place for a handle", handle)) return false;
  *handle = nullptr;
  return true;
}

tfaot_status StatusOf(std::string& error, const Status& status) {
  return status ? TFAOT_OK
                : Fail(error, static_cast<tfaot_status>(status.code()),
                       status.message());
}
tfaot_status StatusOf(tfaot_model& self, bool ok) {
  return ok ? TFAOT_OK
            : Fail(self.error,
                   static_cast<tfaot_status>(self.model.error_code()),
                   self.model.error());
}

tfaot_status Unsupported(std::string& error, const char* function,
                         const char* found) {
  return Fail(error, TFAOT_UNSUPPORTED,
              Message(Function(function) + " isn't a function of this model",
                      found, "don't call it for this model"));
}

// Calls `body` for an instance, whose error it sets. Without one,
// create_error() says so.
template <typename Body>
tfaot_status WithModel(tfaot_model* model, const char* function,
                       Body body) noexcept {
  if (model != nullptr) return Guarded(model->error, body);
  return Guarded(create_error(), [&]() -> tfaot_status {
    Given(create_error(), function, "model", nullptr);
    return TFAOT_INVALID_ARGUMENT;
  });
}

// Checks a handle, which could be missing or another library's.
template <typename Handle>
bool Ours(std::string& error, const char* function, const Handle* handle,
          const char* what, const char* to_do) {
  if (handle != nullptr && handle->library == &kLibrary) return true;
  Fail(error, TFAOT_INVALID_ARGUMENT,
       Message(Function(function) + " got no " + what + " of this library",
               handle == nullptr ? "NULL" : "a handle of another library",
               to_do));
  return false;
}
bool Ours(std::string& error, const char* function,
          const tfaot_weights* weights) {
  return Ours(error, function, weights, "weights",
              "pass weights that this library's functions made");
}
bool Ours(std::string& error, const char* function,
          const tfaot_live_weights* live) {
  return Ours(error, function, live, "live weights",
              "pass those that this library's create_live made");
}

}  // namespace
}  // namespace tfaot

#endif  // TFAOT_C_API_HANDLES_H_
