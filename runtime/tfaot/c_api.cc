// The C interface of one generated class. The build compiles this file for each
// shared library, and defines
//
//   TFAOT_CLASS         the class, such as examples::fc::Fc
//   TFAOT_CLASS_HEADER  the header that declares it, quoted
//   TFAOT_GET_API       the one symbol that the library exports
#include "tfaot/c_api.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include TFAOT_CLASS_HEADER
#include "tfaot/hooks.h"
#include "tfaot/info.h"
#include "tfaot/message.h"
#include "tfaot/options.h"
#include "tfaot/status.h"
#include "tfaot/thread_pool.h"
#include "tfaot/threads.h"
#include "tfaot/weights.h"

namespace tfaot {
namespace {

using Model = ::TFAOT_CLASS;

// A pool of the program, behind our interface.
class Pool final : public ThreadPool {
 public:
  explicit Pool(const tfaot_thread_pool& pool) noexcept : pool_(pool) {}
  int threads() const noexcept override { return pool_.threads; }
  void ParallelFor(int parts, void (*run)(void* context, int part),
                   void* context) noexcept override {
    pool_.parallel_for(pool_.pool, parts, run, context);
  }

 private:
  const tfaot_thread_pool pool_;
};

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
const char kLibrary = 0;

}  // namespace
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

const EntryPointInfo* EntryPoint(std::size_t index) noexcept {
  const auto& entries = Model::Info().entry_points;
  return index < entries.size() ? &entries[index] : nullptr;
}

const TensorInfo* At(const List<TensorInfo>& tensors,
                     std::size_t index) noexcept {
  return index < tensors.size() ? &tensors[index] : nullptr;
}

const TensorInfo* Input(std::size_t entry_point, std::size_t index) noexcept {
  const EntryPointInfo* entry = EntryPoint(entry_point);
  return entry != nullptr ? At(entry->inputs, index) : nullptr;
}

const TensorInfo* Output(std::size_t entry_point, std::size_t index) noexcept {
  const EntryPointInfo* entry = EntryPoint(entry_point);
  return entry != nullptr ? At(entry->outputs, index) : nullptr;
}

// The same, for functions that say in `error` what they didn't find.
template <typename T>
const T* Find(std::string& error, const char* function, const char* what,
              const std::string& owner, const List<T>& all, std::size_t index) {
  if (index < all.size()) return &all[index];
  const std::string count = std::to_string(all.size());
  Fail(error, TFAOT_INVALID_ARGUMENT,
       Message(Function(function) + ": there is no " + what + " " +
                   std::to_string(index),
               all.size() > 0 ? owner + " has " + count + ", counted from 0"
                              : owner + " has none",
               all.size() > 0 ? "pass an index less than " + count
                              : "don't ask for one"));
  return nullptr;
}

const EntryPointInfo* FindEntryPoint(std::string& error, const char* function,
                                     std::size_t index) {
  return Find(error, function, "entry point", "the model",
              Model::Info().entry_points, index);
}

const TensorInfo* FindInput(std::string& error, const char* function,
                            std::size_t entry_point, std::size_t index) {
  const EntryPointInfo* entry = FindEntryPoint(error, function, entry_point);
  if (entry == nullptr) return nullptr;
  return Find(error, function, "input", std::string(entry->name) + "()",
              entry->inputs, index);
}

const TensorInfo* FindOutput(std::string& error, const char* function,
                             std::size_t entry_point, std::size_t index) {
  const EntryPointInfo* entry = FindEntryPoint(error, function, entry_point);
  if (entry == nullptr) return nullptr;
  return Find(error, function, "output", std::string(entry->name) + "()",
              entry->outputs, index);
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

// Describes what `find` returns, which says in create_error() what it didn't
// find.
template <typename Find>
tfaot_status Describe(const char* function, tfaot_tensor* description,
                      Find find) noexcept {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Given(create_error(), function, "description", description)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    const TensorInfo* const tensor = find(create_error(), function);
    if (tensor == nullptr) return TFAOT_INVALID_ARGUMENT;
    std::uint32_t flags = 0;
    if (tensor->batched) flags |= TFAOT_BATCHED;
    if (tensor->bounded) flags |= TFAOT_BOUNDED;
    if (tensor->written) flags |= TFAOT_WRITTEN;
    *description = {tensor->name,
                    tensor->member,
                    static_cast<tfaot_dtype>(tensor->dtype),
                    static_cast<std::int32_t>(tensor->dims.size()),
                    tensor->dims.begin(),
                    tensor->bytes,
                    flags};
    return TFAOT_OK;
  });
}

// What only some classes have: those with variables, with values for them, or
// with random numbers.

template <typename M, typename = void>
struct HasVariables : std::false_type {};
template <typename M>
struct HasVariables<M, decltype(void(std::declval<M&>().SetWeights(
                           std::declval<Weights>())))> : std::true_type {};

template <typename M, typename = void>
struct HasValues : std::false_type {};
template <typename M>
struct HasValues<M, decltype(void(M::InitialWeights()))> : std::true_type {};

template <typename M, typename = void>
struct HasRandom : std::false_type {};
template <typename M>
struct HasRandom<M, decltype(void(std::declval<M&>().Seed(0)))>
    : std::true_type {};

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

// Calls `body` with the class if that has variables, whose members it can then
// use.
template <typename M, typename Body>
tfaot_status IfVariables(std::string& error, const char* function, Body body) {
  if constexpr (HasVariables<M>::value) {
    return body(static_cast<M*>(nullptr));
  } else {
    return Unsupported(error, function,
                       "all its variables are frozen, or it has none");
  }
}
template <typename M, typename Body>
tfaot_status WithVariables(tfaot_model* model, const char* function,
                           Body body) noexcept {
  return WithModel(model, function, [&] {
    return IfVariables<M>(model->error, function, body);
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

Source SourceOf(const tfaot_source& from) noexcept {
  const Source source = from.path != nullptr ? Source::Path(from.path)
                        : from.data != nullptr
                            ? Source::Memory(from.data, from.bytes)
                            : Source::Descriptor(from.fd);
  return from.copied != 0 ? source.Copied() : source;
}

std::vector<NamedValue> ValuesOf(const tfaot_value* values, std::size_t count) {
  std::vector<NamedValue> named;
  named.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    named.push_back({values[i].name, values[i].data, values[i].bytes});
  }
  return named;
}

// The functions of the table.

const tfaot_description* DescribeModel() {
  const ModelInfo& info = Model::Info();
  static const tfaot_description description = {
      info.cpp_class,       info.tensorflow,      info.manifest,
      Model::isas(),        Model::fingerprint(), info.entry_points.size(),
      info.variables.size()};
  return &description;
}

tfaot_status DescribeEntryPoint(std::size_t entry_point,
                                tfaot_entry_point* description) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Given(create_error(), "describe_entry_point", "description",
               description)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    const EntryPointInfo* entry =
        FindEntryPoint(create_error(), "describe_entry_point", entry_point);
    if (entry == nullptr) return TFAOT_INVALID_ARGUMENT;
    *description = {entry->name, entry->inputs.size(), entry->outputs.size(),
                    entry->max_batch};
    return TFAOT_OK;
  });
}

tfaot_status DescribeInput(std::size_t entry_point, std::size_t index,
                           tfaot_tensor* description) {
  return Describe("describe_input", description,
                  [&](std::string& error, const char* function) {
                    return FindInput(error, function, entry_point, index);
                  });
}

tfaot_status DescribeOutput(std::size_t entry_point, std::size_t index,
                            tfaot_tensor* description) {
  return Describe("describe_output", description,
                  [&](std::string& error, const char* function) {
                    return FindOutput(error, function, entry_point, index);
                  });
}

tfaot_status DescribeVariable(std::size_t index, tfaot_tensor* description) {
  return Describe("describe_variable", description,
                  [&](std::string& error, const char* function) {
                    return Find(error, function, "variable", "the model",
                                Model::Info().variables, index);
                  });
}

tfaot_status Make(const char* function, const char* isa,
                  const tfaot_weights* weights,
                  const tfaot_allocator* allocator, tfaot_model** model) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Cleared(create_error(), function, model)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    Options options;
    options.isa = isa;
    if (weights != nullptr) {
      if (!Ours(create_error(), function, weights)) {
        return TFAOT_INVALID_ARGUMENT;
      }
      options.weights = &weights->weights;
    }
    std::unique_ptr<Memory> memory;
    if (allocator != nullptr) {
      if (allocator->allocate == nullptr || allocator->free == nullptr) {
        return Fail(create_error(), TFAOT_INVALID_ARGUMENT,
                    Message(Function("create_with") +
                                ": an allocator without allocate or free",
                            "", "set both"));
      }
      memory = std::make_unique<Memory>(*allocator);
      options.allocator = memory.get();
    }
    Status status;
    Model made = Model::Create(options, &status);
    if (!made && memory != nullptr && memory->off() != 0) {
      return Fail(
          create_error(), TFAOT_INVALID_ARGUMENT,
          Message(Function(function) + ": the allocator's memory isn't aligned",
                  "an address " + std::to_string(memory->off()) +
                      " bytes after a multiple of 64",
                  "return memory at a multiple of `alignment`"));
    }
    if (!made) return StatusOf(create_error(), status);
    *model = new tfaot_model(std::move(made), std::move(memory));
    return TFAOT_OK;
  });
}

tfaot_status CreateWith(const char* isa, const tfaot_weights* weights,
                        const tfaot_allocator* allocator, tfaot_model** model) {
  return Make("create_with", isa, weights, allocator, model);
}

tfaot_status Create(const char* isa, tfaot_model** model) {
  return Make("create", isa, nullptr, nullptr, model);
}

const char* CreateError() { return create_error().c_str(); }

void Destroy(tfaot_model* model) { delete model; }

void* InputValues(tfaot_model* model, std::size_t entry_point,
                  std::size_t index) {
  const TensorInfo* tensor = Input(entry_point, index);
  if (model == nullptr || tensor == nullptr) return nullptr;
  return Values(model->model, *tensor);
}

const void* OutputValues(const tfaot_model* model, std::size_t entry_point,
                         std::size_t index) {
  const TensorInfo* tensor = Output(entry_point, index);
  if (model == nullptr || tensor == nullptr) return nullptr;
  return Values(model->model, *tensor);
}

const void* VariableValues(const tfaot_model* model, std::size_t index) {
  const TensorInfo* tensor = At(Model::Info().variables, index);
  if (model == nullptr || tensor == nullptr) return nullptr;
  return Values(model->model, *tensor);
}

void* MutableVariableValues(tfaot_model* model, std::size_t index) {
  const TensorInfo* tensor = At(Model::Info().variables, index);
  if (model == nullptr || tensor == nullptr) return nullptr;
  void* values = nullptr;
  Guarded(model->error, [&] {
    values = Values(model->model, *tensor);
    return TFAOT_OK;
  });
  return values;
}

// Other threads may use the instance at the same time, so its error stays.
tfaot_status OutputDims(const tfaot_model* model, std::size_t entry_point,
                        std::size_t index, std::int64_t* dims) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Given(create_error(), "output_dims", "model", model)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    const TensorInfo* tensor =
        FindOutput(create_error(), "output_dims", entry_point, index);
    if (tensor == nullptr) return TFAOT_INVALID_ARGUMENT;
    if (tensor->dims.size() == 0) return TFAOT_OK;
    if (!Given(create_error(), "output_dims", "dims", dims)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    Dims(model->model, *tensor, dims);
    return TFAOT_OK;
  });
}

tfaot_status OfferInput(tfaot_model* model, std::size_t entry_point,
                        const char* name, tfaot_dtype dtype, std::int32_t rank,
                        const std::int64_t* dims, const void* values) {
  return WithModel(model, "offer", [&]() -> tfaot_status {
    const EntryPointInfo* entry =
        FindEntryPoint(model->error, "offer", entry_point);
    if (entry == nullptr || !Given(model->error, "offer", "name", name) ||
        (rank > 0 && !Given(model->error, "offer", "dims", dims))) {
      return TFAOT_INVALID_ARGUMENT;
    }
    const DType type = static_cast<DType>(dtype);
    const List<std::int64_t> sizes = {
        dims, rank > 0 ? static_cast<std::size_t>(rank) : 0};
    const bool empty = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
    if (!empty && !Given(model->error, "offer", "values", values)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    const Offered offered =
        Offer(model->model, *entry, name, type, sizes, values);
    if (offered == Offered::kTaken) return TFAOT_OK;
    const auto write = [&](char* text, std::size_t size) {
      return WriteNote(offered, Model::Info(), *entry, name, type, sizes, text,
                       size);
    };
    std::string note(write(nullptr, 0) + 1, '\0');
    write(&note[0], note.size());
    note.pop_back();
    return Fail(
        model->error,
        offered == Offered::kUnknown ? TFAOT_UNKNOWN_INPUT : TFAOT_MISMATCH,
        std::move(note));
  });
}

tfaot_status Run(tfaot_model* model, std::size_t entry_point,
                 std::int64_t batch) {
  return WithModel(model, "run", [&]() -> tfaot_status {
    const EntryPointInfo* entry =
        FindEntryPoint(model->error, "run", entry_point);
    if (entry == nullptr) return TFAOT_INVALID_ARGUMENT;
    if (entry->max_batch == 0 && batch != 0) {
      return Fail(model->error, TFAOT_INVALID_ARGUMENT,
                  Message(Function("run") + ": a batch of " +
                              std::to_string(batch) + " rows",
                          std::string(entry->name) + "() takes no batch",
                          "pass 0, or set the target's batch_sizes"));
    }
    return StatusOf(*model, Call(model->model, *entry,
                                 batch != 0 ? batch : entry->max_batch));
  });
}

// Loads from `source`, after which the model follows nothing.
template <typename M>
tfaot_status LoadVariables(tfaot_model* self, const char* function,
                           const Source& source) {
  return IfVariables<M>(self->error, function, [&](auto* m) {
    auto& model = static_cast<std::remove_pointer_t<decltype(m)>&>(self->model);
    const tfaot_status status = StatusOf(*self, model.Load(source));
    if (status == TFAOT_OK) self->live.reset();
    return status;
  });
}

tfaot_status LoadPath(tfaot_model* model, const char* path) {
  return WithModel(model, "load", [&]() -> tfaot_status {
    if (!Given(model->error, "load", "path", path)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    return LoadVariables<Model>(model, "load", Source::Path(path));
  });
}

tfaot_status LoadFrom(tfaot_model* model, const tfaot_source* source) {
  return WithModel(model, "load_from", [&]() -> tfaot_status {
    if (!Given(model->error, "load_from", "source", source)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    return LoadVariables<Model>(model, "load_from", SourceOf(*source));
  });
}

tfaot_status SaveVariables(tfaot_model* self, const char* path) {
  return WithVariables<Model>(self, "save", [&](auto* m) -> tfaot_status {
    if (!Given(self->error, "save", "path", path)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    auto& model = static_cast<std::remove_pointer_t<decltype(m)>&>(self->model);
    return StatusOf(self->error, model.Save(path));
  });
}

template <typename M>
tfaot_status Seed(tfaot_model* self, std::uint64_t seed) noexcept {
  return WithModel(self, "seed", [&]() -> tfaot_status {
    if constexpr (HasRandom<M>::value) {
      static_cast<M&>(self->model).Seed(seed);
      return TFAOT_OK;
    } else {
      return Unsupported(self->error, "seed", "it draws no random numbers");
    }
  });
}

tfaot_status SeedRandom(tfaot_model* model, std::uint64_t seed) {
  return Seed<Model>(model, seed);
}

const char* Error(const tfaot_model* model) {
  return model != nullptr ? model->error.c_str() : create_error().c_str();
}

const char* Isa(const tfaot_model* model) {
  return model != nullptr ? model->model.isa() : "";
}

// Takes the pool only after the model no longer uses the old one.
tfaot_status Take(tfaot_model* model, std::unique_ptr<ThreadPool> pool) {
  model->model.set_thread_pool(pool.get());
  model->pool = std::move(pool);
  return TFAOT_OK;
}

// Returns a pool of `threads`, or nullptr, and why in `error`.
std::unique_ptr<ThreadPool> StartThreads([[maybe_unused]] std::string& error,
                                         int threads) {
#if defined(__cpp_exceptions)
  try {
#endif
    return threads == 0 ? std::make_unique<Threads>()
                        : std::make_unique<Threads>(threads);
#if defined(__cpp_exceptions)
  } catch (const std::system_error& refused) {
    Fail(error, TFAOT_FAILED,
         Message(Function("set_threads") + ": can't start " +
                     (threads == 0 ? "threads"
                                   : std::to_string(threads) + " threads"),
                 refused.what(),
                 "use fewer, or raise the limits of this process (ulimit -u "
                 "and -v)"));
    return nullptr;
  }
#endif
}

tfaot_status SetThreads(tfaot_model* model, int threads) {
  return WithModel(model, "set_threads", [&]() -> tfaot_status {
    if (threads < 0) {
      return Fail(model->error, TFAOT_INVALID_ARGUMENT,
                  Message(Function("set_threads") + ": " +
                              std::to_string(threads) + " threads",
                          "", "pass 1 or more, or 0 for one per core"));
    }
    if (threads == 1) return Take(model, nullptr);
    std::unique_ptr<ThreadPool> pool = StartThreads(model->error, threads);
    return pool != nullptr ? Take(model, std::move(pool)) : TFAOT_FAILED;
  });
}

tfaot_status SetThreadPool(tfaot_model* model, const tfaot_thread_pool* pool) {
  return WithModel(model, "set_thread_pool", [&]() -> tfaot_status {
    if (pool == nullptr) return Take(model, nullptr);
    if (pool->threads < 1 || pool->parallel_for == nullptr) {
      return Fail(
          model->error, TFAOT_INVALID_ARGUMENT,
          Message(Function("set_thread_pool") + ": a pool of " +
                      std::to_string(pool->threads) + " threads" +
                      (pool->parallel_for == nullptr ? " without parallel_for"
                                                     : ""),
                  "", "set both; a pool has 1 or more threads"));
    }
    return Take(model, std::make_unique<Pool>(*pool));
  });
}

tfaot_status SetInputData(tfaot_model* model, std::size_t entry_point,
                          std::size_t index, const void* data) {
  return WithModel(model, "set_input_data", [&]() -> tfaot_status {
    const TensorInfo* tensor =
        FindInput(model->error, "set_input_data", entry_point, index);
    if (tensor == nullptr) return TFAOT_INVALID_ARGUMENT;
    // Runs don't change it.
    return StatusOf(*model,
                    Place(model->model, *tensor, const_cast<void*>(data)));
  });
}

tfaot_status SetOutputData(tfaot_model* model, std::size_t entry_point,
                           std::size_t index, void* data) {
  return WithModel(model, "set_output_data", [&]() -> tfaot_status {
    const TensorInfo* tensor =
        FindOutput(model->error, "set_output_data", entry_point, index);
    if (tensor == nullptr) return TFAOT_INVALID_ARGUMENT;
    return StatusOf(*model, Place(model->model, *tensor, data));
  });
}

tfaot_status SetHooks(tfaot_model* model, const tfaot_hooks* hooks) {
  return WithModel(model, "set_hooks", [&] {
    model->watch.hooks =
        hooks != nullptr ? *hooks : tfaot_hooks{nullptr, nullptr, nullptr};
    model->model.set_hooks(model->watch.used() ? &model->watch : nullptr);
    return TFAOT_OK;
  });
}

tfaot_status SetCancellable(tfaot_model* model, int cancellable) {
  return WithModel(model, "set_cancellable", [&] {
    model->watch.set_cancellable(cancellable != 0);
    model->model.set_hooks(model->watch.used() ? &model->watch : nullptr);
    return TFAOT_OK;
  });
}

void Cancel(tfaot_model* model) {
  if (model != nullptr) model->watch.Cancel();
}

template <typename M>
tfaot_status MakeInitialWeights(tfaot_weights** weights) {
  return IfVariables<M>(
      create_error(), "initial_weights", [&](auto* m) -> tfaot_status {
        using C = std::remove_pointer_t<decltype(m)>;
        if constexpr (HasValues<C>::value) {
          *weights = new tfaot_weights(C::InitialWeights());
          return TFAOT_OK;
        } else {
          return Fail(
              create_error(), TFAOT_NO_WEIGHTS,
              Message(
                  Function("initial_weights") + ": the library contains none",
                  "embed_variables is off", "call load_weights with a file"));
        }
      });
}

tfaot_status MadeInitialWeights(tfaot_weights** weights) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Cleared(create_error(), "initial_weights", weights)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    return MakeInitialWeights<Model>(weights);
  });
}

tfaot_status LoadedWeights(const tfaot_source* source,
                           tfaot_weights** weights) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Cleared(create_error(), "load_weights", weights) ||
        !Given(create_error(), "load_weights", "source", source)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    return IfVariables<Model>(create_error(), "load_weights", [&](auto* m) {
      using C = std::remove_pointer_t<decltype(m)>;
      Weights loaded;
      const Status status = C::LoadWeights(SourceOf(*source), &loaded);
      if (status) *weights = new tfaot_weights(std::move(loaded));
      return StatusOf(create_error(), status);
    });
  });
}

tfaot_status CurrentWeights(tfaot_model* self, tfaot_weights** weights) {
  if (weights != nullptr) *weights = nullptr;
  return WithModel(self, "weights", [&]() -> tfaot_status {
    if (!Cleared(self->error, "weights", weights)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    return IfVariables<Model>(self->error, "weights", [&](auto* m) {
      using C = std::remove_pointer_t<decltype(m)>;
      const auto& model = static_cast<C&>(self->model);
      *weights = new tfaot_weights(model.CurrentWeights());
      return TFAOT_OK;
    });
  });
}

tfaot_status UpdateWeights(const tfaot_weights* weights,
                           const tfaot_value* values, std::size_t count,
                           tfaot_weights** updated) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Cleared(create_error(), "update_weights", updated) ||
        !Ours(create_error(), "update_weights", weights) ||
        (count > 0 &&
         !Given(create_error(), "update_weights", "values", values))) {
      return TFAOT_INVALID_ARGUMENT;
    }
    const std::vector<NamedValue> named = ValuesOf(values, count);
    Weights next;
    const Status status =
        weights->weights.Update(named.data(), named.size(), &next);
    if (status) *updated = new tfaot_weights(std::move(next));
    return StatusOf(create_error(), status);
  });
}

void DestroyWeights(tfaot_weights* weights) { delete weights; }

std::uint64_t WeightsVersion(const tfaot_weights* weights) {
  return weights != nullptr ? weights->weights.version() : 0;
}

tfaot_status SetWeights(tfaot_model* self, const tfaot_weights* weights) {
  return WithVariables<Model>(
      self, "set_weights", [&](auto* m) -> tfaot_status {
        if (!Ours(self->error, "set_weights", weights)) {
          return TFAOT_INVALID_ARGUMENT;
        }
        auto& model =
            static_cast<std::remove_pointer_t<decltype(m)>&>(self->model);
        const tfaot_status status =
            StatusOf(*self, model.SetWeights(weights->weights));
        if (status == TFAOT_OK) self->live.reset();
        return status;
      });
}

tfaot_status CreateLive(const tfaot_weights* weights,
                        tfaot_live_weights** live) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Cleared(create_error(), "create_live", live) ||
        !Ours(create_error(), "create_live", weights)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    *live = new tfaot_live_weights(weights->weights);
    return TFAOT_OK;
  });
}

tfaot_status LiveSwap(tfaot_live_weights* live, const tfaot_weights* weights) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Ours(create_error(), "live_swap", live) ||
        !Ours(create_error(), "live_swap", weights)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    return StatusOf(create_error(), live->live->Swap(weights->weights));
  });
}

tfaot_status LiveLoad(tfaot_live_weights* live, const tfaot_source* source) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Ours(create_error(), "live_load", live) ||
        !Given(create_error(), "live_load", "source", source)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    return StatusOf(create_error(), live->live->Load(SourceOf(*source)));
  });
}

tfaot_status LiveUpdate(tfaot_live_weights* live, const tfaot_value* values,
                        std::size_t count) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Ours(create_error(), "live_update", live) ||
        (count > 0 &&
         !Given(create_error(), "live_update", "values", values))) {
      return TFAOT_INVALID_ARGUMENT;
    }
    const std::vector<NamedValue> named = ValuesOf(values, count);
    return StatusOf(create_error(),
                    live->live->Update(named.data(), named.size()));
  });
}

tfaot_status LiveCurrent(const tfaot_live_weights* live,
                         tfaot_weights** weights) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Cleared(create_error(), "live_current", weights) ||
        !Ours(create_error(), "live_current", live)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    live->live->Reclaim();
    *weights = new tfaot_weights(live->live->Current());
    return TFAOT_OK;
  });
}

void DestroyLive(tfaot_live_weights* live) { delete live; }

tfaot_status Follow(tfaot_model* self, tfaot_live_weights* live) {
  return WithVariables<Model>(self, "follow", [&](auto* m) -> tfaot_status {
    if (live != nullptr && !Ours(self->error, "follow", live)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    auto& model = static_cast<std::remove_pointer_t<decltype(m)>&>(self->model);
    const tfaot_status status = StatusOf(
        *self, model.Follow(live != nullptr ? live->live.get() : nullptr));
    if (status == TFAOT_OK) {
      self->live = live != nullptr ? live->live : nullptr;
    }
    return status;
  });
}

constexpr tfaot_api kApi = {
    sizeof(tfaot_api),
    TFAOT_API_VERSION,
    DescribeModel,
    DescribeEntryPoint,
    DescribeInput,
    DescribeOutput,
    DescribeVariable,
    Create,
    CreateError,
    Destroy,
    InputValues,
    OutputValues,
    VariableValues,
    MutableVariableValues,
    OutputDims,
    OfferInput,
    Run,
    LoadPath,
    SaveVariables,
    SeedRandom,
    Error,
    Isa,
    SetThreads,
    SetThreadPool,
    CreateWith,
    LoadFrom,
    SetInputData,
    SetOutputData,
    SetHooks,
    SetCancellable,
    Cancel,
    MadeInitialWeights,
    LoadedWeights,
    CurrentWeights,
    UpdateWeights,
    DestroyWeights,
    WeightsVersion,
    SetWeights,
    CreateLive,
    LiveSwap,
    LiveLoad,
    LiveUpdate,
    LiveCurrent,
    DestroyLive,
    Follow,
};

}  // namespace
}  // namespace tfaot

extern "C" [[gnu::visibility("default")]] const tfaot_api* TFAOT_GET_API(
    std::uint32_t version) {
  return version >= 1 && version <= TFAOT_API_VERSION ? &tfaot::kApi : nullptr;
}
