// The C interface of one generated class. The build compiles this file for each
// shared library, and defines
//
//   TFAOT_CLASS         the class, such as examples::fc::Fc
//   TFAOT_CLASS_HEADER  the header that declares it, quoted
//   TFAOT_GET_API       the one symbol that the library exports
#include "tfaot/c_api.h"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include TFAOT_CLASS_HEADER
#include "tfaot/info.h"
#include "tfaot/message.h"
#include "tfaot/options.h"
#include "tfaot/status.h"
#include "tfaot/thread_pool.h"
#include "tfaot/threads.h"

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

}  // namespace
}  // namespace tfaot

// The pool is declared first, so that it outlives the model that uses it.
struct tfaot_model {
  explicit tfaot_model(tfaot::Model&& from) noexcept : model(std::move(from)) {}

  std::unique_ptr<tfaot::ThreadPool> pool;
  tfaot::Model model;
  std::string error;
};

namespace tfaot {
namespace {

thread_local std::string create_error;

const char kOutOfMemory[] = "out of memory";

// Writes a message, or a shorter one if there is no memory for it.
void Say(std::string& error, const char* text) noexcept {
  try {
    error = text;
  } catch (...) {
    error.clear();
  }
}

// Calls `body`, which returns a status, and turns exceptions into one. It
// clears `error` first.
template <typename Body>
tfaot_status Guarded(std::string& error, Body body) noexcept {
  try {
    error.clear();
    return body();
  } catch (const std::bad_alloc&) {
    Say(error, kOutOfMemory);
    return TFAOT_OUT_OF_MEMORY;
  } catch (const std::exception& exception) {
    Say(error, exception.what());
    return TFAOT_FAILED;
  } catch (...) {
    Say(error, "an unknown C++ exception");
    return TFAOT_FAILED;
  }
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

tfaot_status Describe(const TensorInfo* tensor,
                      tfaot_tensor* description) noexcept {
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
}

// What only some classes have.

struct Missing {};

template <typename M>
auto Load(M& model, const char* path, int) -> decltype(model.Load(path)) {
  return model.Load(path);
}
template <typename M>
Missing Load(M&, const char*, long) {
  return {};
}
template <typename M>
auto Save(M& model, const char* path, int) -> decltype(model.Save(path)) {
  return model.Save(path);
}
template <typename M>
Missing Save(M&, const char*, long) {
  return {};
}
template <typename M>
auto Seed(M& model, std::uint64_t seed, int)
    -> decltype(model.Seed(seed), Status()) {
  model.Seed(seed);
  return Status();
}
template <typename M>
Missing Seed(M&, std::uint64_t, long) {
  return {};
}

tfaot_status StatusOf(std::string& error, const Status& status) {
  return status ? TFAOT_OK
                : Fail(error, static_cast<tfaot_status>(status.code()),
                       status.message());
}
tfaot_status StatusOf(tfaot_model& self, const Status& status, const char*) {
  return StatusOf(self.error, status);
}
tfaot_status StatusOf(tfaot_model& self, bool ok, const char*) {
  return ok ? TFAOT_OK
            : Fail(self.error,
                   static_cast<tfaot_status>(self.model.error_code()),
                   self.model.error());
}
tfaot_status StatusOf(tfaot_model& self, Missing, const char* name) {
  return Fail(self.error, TFAOT_UNSUPPORTED,
              Message(Function(name) + " isn't a function of this model",
                      name[0] == 's' && name[1] == 'e'
                          ? "it draws no random numbers"
                          : "all its variables are frozen, or it has none",
                      "don't call it for this model"));
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
  const EntryPointInfo* entry = EntryPoint(entry_point);
  if (entry == nullptr) return TFAOT_INVALID_ARGUMENT;
  *description = {entry->name, entry->inputs.size(), entry->outputs.size(),
                  entry->max_batch};
  return TFAOT_OK;
}

tfaot_status DescribeInput(std::size_t entry_point, std::size_t index,
                           tfaot_tensor* description) {
  return Describe(Input(entry_point, index), description);
}

tfaot_status DescribeOutput(std::size_t entry_point, std::size_t index,
                            tfaot_tensor* description) {
  return Describe(Output(entry_point, index), description);
}

tfaot_status DescribeVariable(std::size_t index, tfaot_tensor* description) {
  return Describe(At(Model::Info().variables, index), description);
}

tfaot_status Create(const char* isa, tfaot_model** model) {
  *model = nullptr;
  return Guarded(create_error, [&]() -> tfaot_status {
    Options options;
    options.isa = isa;
    Status status;
    Model made = Model::Create(options, &status);
    if (!made) return StatusOf(create_error, status);
    *model = new tfaot_model(std::move(made));
    return TFAOT_OK;
  });
}

const char* CreateError() { return create_error.c_str(); }

void Destroy(tfaot_model* model) { delete model; }

void* InputValues(tfaot_model* model, std::size_t entry_point,
                  std::size_t index) {
  const TensorInfo* tensor = Input(entry_point, index);
  return tensor != nullptr ? Values(model->model, *tensor) : nullptr;
}

const void* OutputValues(const tfaot_model* model, std::size_t entry_point,
                         std::size_t index) {
  const TensorInfo* tensor = Output(entry_point, index);
  return tensor != nullptr ? Values(model->model, *tensor) : nullptr;
}

const void* VariableValues(const tfaot_model* model, std::size_t index) {
  const TensorInfo* tensor = At(Model::Info().variables, index);
  return tensor != nullptr ? Values(model->model, *tensor) : nullptr;
}

void* MutableVariableValues(tfaot_model* model, std::size_t index) {
  const TensorInfo* tensor = At(Model::Info().variables, index);
  if (tensor == nullptr) return nullptr;
  void* values = nullptr;
  Guarded(model->error, [&] {
    values = Values(model->model, *tensor);
    return TFAOT_OK;
  });
  return values;
}

tfaot_status OutputDims(const tfaot_model* model, std::size_t entry_point,
                        std::size_t index, std::int64_t* dims) {
  const TensorInfo* tensor = Output(entry_point, index);
  if (tensor == nullptr) return TFAOT_INVALID_ARGUMENT;
  Dims(model->model, *tensor, dims);
  return TFAOT_OK;
}

std::string NoSuchEntryPoint(const char* function, std::size_t entry_point) {
  const std::size_t count = Model::Info().entry_points.size();
  return Message(Function(function) + ": there is no entry point " +
                     std::to_string(entry_point),
                 "the model has " + std::to_string(count) + ", counted from 0",
                 "pass an index less than " + std::to_string(count));
}

tfaot_status OfferInput(tfaot_model* model, std::size_t entry_point,
                        const char* name, tfaot_dtype dtype, std::int32_t rank,
                        const std::int64_t* dims, const void* values) {
  return Guarded(model->error, [&]() -> tfaot_status {
    const EntryPointInfo* entry = EntryPoint(entry_point);
    if (entry == nullptr) {
      return Fail(model->error, TFAOT_INVALID_ARGUMENT,
                  NoSuchEntryPoint("offer", entry_point));
    }
    const DType type = static_cast<DType>(dtype);
    const List<std::int64_t> sizes = {
        dims, rank > 0 ? static_cast<std::size_t>(rank) : 0};
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
  return Guarded(model->error, [&]() -> tfaot_status {
    const EntryPointInfo* entry = EntryPoint(entry_point);
    if (entry == nullptr) {
      return Fail(model->error, TFAOT_INVALID_ARGUMENT,
                  NoSuchEntryPoint("run", entry_point));
    }
    if (entry->max_batch == 0 && batch != 0) {
      return Fail(model->error, TFAOT_INVALID_ARGUMENT,
                  Message(Function("run") + ": a batch of " +
                              std::to_string(batch) + " rows",
                          std::string(entry->name) + "() takes no batch",
                          "pass 0, or set the target's batch_sizes"));
    }
    return StatusOf(
        *model,
        Call(model->model, *entry, batch != 0 ? batch : entry->max_batch),
        "run");
  });
}

tfaot_status LoadVariables(tfaot_model* model, const char* path) {
  return Guarded(model->error, [&] {
    return StatusOf(*model, Load(model->model, path, 0), "load");
  });
}

tfaot_status SaveVariables(tfaot_model* model, const char* path) {
  return Guarded(model->error, [&] {
    return StatusOf(*model, Save(model->model, path, 0), "save");
  });
}

tfaot_status SeedRandom(tfaot_model* model, std::uint64_t seed) {
  return Guarded(model->error, [&] {
    return StatusOf(*model, Seed(model->model, seed, 0), "seed");
  });
}

const char* Error(const tfaot_model* model) { return model->error.c_str(); }

const char* Isa(const tfaot_model* model) { return model->model.isa(); }

// Takes the pool only after the model no longer uses the old one.
tfaot_status Take(tfaot_model* model, std::unique_ptr<ThreadPool> pool) {
  model->model.set_thread_pool(pool.get());
  model->pool = std::move(pool);
  return TFAOT_OK;
}

tfaot_status SetThreads(tfaot_model* model, int threads) {
  return Guarded(model->error, [&]() -> tfaot_status {
    if (threads < 0) {
      return Fail(model->error, TFAOT_INVALID_ARGUMENT,
                  Message(Function("set_threads") + ": " +
                              std::to_string(threads) + " threads",
                          "", "pass 1 or more, or 0 for one per core"));
    }
    if (threads == 1) return Take(model, nullptr);
    return Take(model, threads == 0 ? std::make_unique<Threads>()
                                    : std::make_unique<Threads>(threads));
  });
}

tfaot_status SetThreadPool(tfaot_model* model, const tfaot_thread_pool* pool) {
  return Guarded(model->error, [&]() -> tfaot_status {
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
    LoadVariables,
    SaveVariables,
    SeedRandom,
    Error,
    Isa,
    SetThreads,
    SetThreadPool,
};

}  // namespace
}  // namespace tfaot

extern "C" [[gnu::visibility("default")]] const tfaot_api* TFAOT_GET_API(
    std::uint32_t version) {
  return version >= 1 && version <= TFAOT_API_VERSION ? &tfaot::kApi : nullptr;
}
