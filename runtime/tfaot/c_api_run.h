// Functions of the C interface that make instances and run them.
// Only c_api.cc includes it.
#ifndef TFAOT_C_API_RUN_H_
#define TFAOT_C_API_RUN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include "tfaot/c_api.h"
#include "tfaot/c_api_describe.h"
#include "tfaot/c_api_handles.h"
#include "tfaot/collectives.h"
#include "tfaot/info.h"
#include "tfaot/message.h"
#include "tfaot/options.h"
#include "tfaot/status.h"
#include "tfaot/thread_pool.h"
#include "tfaot/threads.h"

namespace tfaot {
namespace {

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

// Only some classes draw random numbers.

template <typename M, typename = void>
struct HasRandom : std::false_type {};
template <typename M>
struct HasRandom<M, decltype(void(std::declval<M&>().Seed(0)))>
    : std::true_type {};

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

// Only some classes have replicas.

template <typename M, typename = void>
struct HasReplicas : std::false_type {};
template <typename M>
struct HasReplicas<M, decltype(void(std::declval<M&>().set_collectives(
                          std::declval<const tfaot_collectives*>())))>
    : std::true_type {};

template <typename M>
tfaot_status Connect(tfaot_model* self,
                     const tfaot_collectives* collectives) noexcept {
  return WithModel(self, "set_collectives", [&]() -> tfaot_status {
    if constexpr (HasReplicas<M>::value) {
      return StatusOf(
          *self, static_cast<M&>(self->model).set_collectives(collectives));
    } else {
      return Unsupported(self->error, "set_collectives",
                         "it has no other replicas");
    }
  });
}

tfaot_status SetCollectives(tfaot_model* model,
                            const tfaot_collectives* collectives) {
  return Connect<Model>(model, collectives);
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

}  // namespace
}  // namespace tfaot

#endif  // TFAOT_C_API_RUN_H_
