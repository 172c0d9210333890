// Functions of the C interface for weights, which classes without variables
// lack. Only c_api.cc includes it.
#ifndef TFAOT_C_API_WEIGHTS_H_
#define TFAOT_C_API_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tfaot/c_api.h"
#include "tfaot/c_api_handles.h"
#include "tfaot/message.h"
#include "tfaot/status.h"
#include "tfaot/weights.h"

namespace tfaot {
namespace {

// What only some classes have: those with variables, or with values for them.

template <typename M, typename = void>
struct HasVariables : std::false_type {};
template <typename M>
struct HasVariables<M, decltype(void(std::declval<M&>().SetWeights(
                           std::declval<Weights>())))> : std::true_type {};

template <typename M, typename = void>
struct HasValues : std::false_type {};
template <typename M>
struct HasValues<M, decltype(void(M::InitialWeights()))> : std::true_type {};

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

}  // namespace
}  // namespace tfaot

#endif  // TFAOT_C_API_WEIGHTS_H_
