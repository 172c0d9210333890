// Functions of the C interface that describe the model, and give its values.
// Only c_api.cc includes it.
#ifndef TFAOT_C_API_DESCRIBE_H_
#define TFAOT_C_API_DESCRIBE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "tfaot/c_api.h"
#include "tfaot/c_api_handles.h"
#include "tfaot/info.h"
#include "tfaot/message.h"

namespace tfaot {
namespace {

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

// Finds a tensor in the lists of all entry points.
template <typename Tensors>
void FindEdge(const TensorInfo* tensor, Tensors tensors,
              std::size_t* entry_point, std::size_t* index) {
  const List<EntryPointInfo> entries = Model::Info().entry_points;
  for (std::size_t entry = 0; entry < entries.size(); ++entry) {
    for (const TensorInfo& other : tensors(entries[entry])) {
      if (&other != tensor) continue;
      *entry_point = entry;
      *index =
          static_cast<std::size_t>(&other - tensors(entries[entry]).begin());
    }
  }
}

tfaot_status DescribeGradient(std::size_t index, tfaot_gradient* description) {
  return Guarded(create_error(), [&]() -> tfaot_status {
    if (!Given(create_error(), "describe_gradient", "description",
               description)) {
      return TFAOT_INVALID_ARGUMENT;
    }
    const ModelInfo& info = Model::Info();
    const GradientInfo* gradient =
        Find(create_error(), "describe_gradient", "gradient", "the model",
             info.gradients, index);
    if (gradient == nullptr) return TFAOT_INVALID_ARGUMENT;
    description->variable =
        static_cast<std::size_t>(gradient->variable - info.variables.begin());
    FindEdge(
        gradient->output,
        [](const EntryPointInfo& entry) { return entry.outputs; },
        &description->computed_by, &description->output);
    FindEdge(
        gradient->input,
        [](const EntryPointInfo& entry) { return entry.inputs; },
        &description->applied_by, &description->input);
    return TFAOT_OK;
  });
}

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

}  // namespace
}  // namespace tfaot

#endif  // TFAOT_C_API_DESCRIBE_H_
