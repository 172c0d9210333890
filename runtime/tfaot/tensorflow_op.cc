// The op with which TensorFlow runs the clusters of one generated class. The
// build compiles this file for each library of ops, against the headers of
// TensorFlow's C API, and defines
//
//   TFAOT_CLASS         the class, such as examples::Classifier
//   TFAOT_CLASS_HEADER  the header that declares it, quoted
//
// Loading the library registers the op: tf.load_op_library in Python,
// TF_LoadLibrary in C. A node's attribute `cluster` is the index of an entry
// point. The kernels share instances of the class; each run has one to itself,
// and its inputs and outputs in TensorFlow's memory.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include TFAOT_CLASS_HEADER
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#include "tfaot/info.h"
#include "tfaot/message.h"
#include "tfaot/options.h"
#include "tfaot/status.h"
#include "tfaot/threads.h"

namespace tfaot {
namespace {

using Model = ::TFAOT_CLASS;

// "a::b_c" gives "TfaotM1a3b_c"; py/tfaot/cluster makes the same name.
std::string OpName() {
  const std::string name = Model::Info().cpp_class;
  std::string result = "TfaotM";
  std::size_t start = name.compare(0, 2, "::") == 0 ? 2 : 0;
  while (true) {
    const std::size_t end = name.find("::", start);
    const std::string part = name.substr(
        start, end == std::string::npos ? std::string::npos : end - start);
    result += std::to_string(part.size()) + part;
    if (end == std::string::npos) return result;
    start = end + 2;
  }
}

// Instances that no run uses. Thread-safe.
class Instances {
 public:
  std::unique_ptr<Model> Take(std::string* error) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Model> model = std::move(free_.back());
        free_.pop_back();
        return model;
      }
    }
    Status status;
    Model made = Model::Create(Options(), &status);
    if (!made) {
      *error = status.message();
      return nullptr;
    }
    std::unique_ptr<Model> model(new Model(std::move(made)));
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ++made_;
    }
    model->set_thread_pool(Pool());
    return model;
  }

  // When no run is left, the threads rest: TensorFlow needs the cores.
  void Give(std::unique_ptr<Model> model) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(model));
    if (free_.size() == made_ && Pool() != nullptr) Pool()->Rest();
  }

 private:
  // The environment variable TFAOT_THREADS, or else one for each core.
  static Threads* Pool() {
    static Threads* const pool = []() -> Threads* {
      const char* text = std::getenv("TFAOT_THREADS");
      const int wanted = text != nullptr ? std::atoi(text) : 0;
      const int threads = wanted > 0 ? wanted : Threads::Cores();
      return threads > 1 ? new Threads(threads) : nullptr;
    }();
    return pool;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Model>> free_;
  std::size_t made_ = 0;
};

// Kernels can outlive static objects.
Instances& All() {
  static Instances* const instances = new Instances();
  return *instances;
}

using StatusPointer = std::unique_ptr<TF_Status, void (*)(TF_Status*)>;
using TensorPointer = std::unique_ptr<TF_Tensor, void (*)(TF_Tensor*)>;

void Fail(TF_OpKernelContext* context, TF_Code code, const std::string& text) {
  const StatusPointer status(TF_NewStatus(), TF_DeleteStatus);
  TF_SetStatus(status.get(), code, text.c_str());
  TF_OpKernelContext_Failure(context, status.get());
}

std::string Shown(DType dtype, const std::vector<std::int64_t>& dims) {
  std::string text = std::string(Name(dtype)) + "[";
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    text += (axis > 0 ? ", " : "") + std::to_string(dims[axis]);
  }
  return text + "]";
}

std::string Shown(const TensorInfo& tensor) {
  return Shown(tensor.dtype, std::vector<std::int64_t>(tensor.dims.begin(),
                                                       tensor.dims.end()));
}

struct Kernel {
  std::size_t cluster;
  const EntryPointInfo* entry;
};

void* Create(TF_OpKernelConstruction* construction) {
  const StatusPointer status(TF_NewStatus(), TF_DeleteStatus);
  std::int64_t cluster = 0;
  TF_OpKernelConstruction_GetAttrInt64(construction, "cluster", &cluster,
                                       status.get());
  const ModelInfo& info = Model::Info();
  if (TF_GetCode(status.get()) == TF_OK &&
      (cluster < 0 ||
       cluster >= static_cast<std::int64_t>(info.entry_points.size()))) {
    const std::string text =
        Message(std::string(info.cpp_class) + " has no cluster " +
                    std::to_string(cluster),
                std::to_string(info.entry_points.size()) + " clusters",
                "load the library that was built with this SavedModel");
    TF_SetStatus(status.get(), TF_INVALID_ARGUMENT, text.c_str());
  }
  if (TF_GetCode(status.get()) != TF_OK) {
    TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  const std::size_t index = static_cast<std::size_t>(cluster);
  return new Kernel{index, &info.entry_points[index]};
}

// Lets the model use a tensor's memory. TensorFlow aligns it, unless it is a
// part of another tensor. Returns whether the model does.
bool PlaceIn(Model& model, const TensorInfo& tensor, TF_Tensor* memory) {
  if (tensor.bytes > 0 && Place(model, tensor, TF_TensorData(memory))) {
    return true;
  }
  static_cast<void>(Place(model, tensor, nullptr));  // it always can
  return tensor.bytes == 0;
}

// Gives the model an input, which must outlive the run. Returns an error, or
// nothing.
std::string GiveInput(TF_OpKernelContext* context, int index,
                      const TensorInfo& wanted, Model& model,
                      std::vector<TensorPointer>& held) {
  const StatusPointer status(TF_NewStatus(), TF_DeleteStatus);
  TF_Tensor* got = nullptr;
  TF_GetInput(context, index, &got, status.get());
  if (TF_GetCode(status.get()) != TF_OK) return TF_Message(status.get());
  held.emplace_back(got, TF_DeleteTensor);
  const int rank = TF_NumDims(got);
  std::vector<std::int64_t> dims;
  for (int axis = 0; axis < rank; ++axis) dims.push_back(TF_Dim(got, axis));
  const auto dtype = static_cast<DType>(TF_TensorType(got));
  if (Shown(dtype, dims) != Shown(wanted) ||
      TF_TensorByteSize(got) != wanted.bytes) {
    return Message(std::string(Model::Info().cpp_class) + " got " +
                       Shown(dtype, dims) + " for " + wanted.name,
                   "it takes " + Shown(wanted),
                   "load the library that was built with this SavedModel");
  }
  if (!PlaceIn(model, wanted, got)) {
    std::memcpy(Values(model, wanted), TF_TensorData(got), wanted.bytes);
  }
  return "";
}

// An output, and whether the model writes to it directly.
struct Result {
  TensorPointer tensor;
  bool placed;
};

// Allocates an output. Returns an error, or nothing.
std::string TakeOutput(TF_OpKernelContext* context, int index,
                       const TensorInfo& made, Model& model,
                       std::vector<Result>& results) {
  const StatusPointer status(TF_NewStatus(), TF_DeleteStatus);
  TensorPointer tensor(
      TF_AllocateOutput(context, index, static_cast<TF_DataType>(made.dtype),
                        made.dims.begin(), static_cast<int>(made.dims.size()),
                        made.bytes, status.get()),
      TF_DeleteTensor);
  if (TF_GetCode(status.get()) != TF_OK) return TF_Message(status.get());
  const bool placed = PlaceIn(model, made, tensor.get());
  results.push_back({std::move(tensor), placed});
  return "";
}

void Compute(const Kernel& kernel, TF_OpKernelContext* context) {
  const EntryPointInfo& entry = *kernel.entry;
  const std::size_t given = static_cast<std::size_t>(TF_NumInputs(context));
  const std::size_t taken = static_cast<std::size_t>(TF_NumOutputs(context));
  if (given != entry.inputs.size() || taken != entry.outputs.size()) {
    Fail(context, TF_INVALID_ARGUMENT,
         Message(std::string(Model::Info().cpp_class) + "::" + entry.name +
                     " got " + std::to_string(given) + " inputs for " +
                     std::to_string(taken) + " outputs",
                 "it takes " + std::to_string(entry.inputs.size()) + " for " +
                     std::to_string(entry.outputs.size()),
                 "load the library that was built with this SavedModel"));
    return;
  }
  std::string error;
  std::unique_ptr<Model> model = All().Take(&error);
  if (model == nullptr) {
    Fail(context, TF_FAILED_PRECONDITION, error);
    return;
  }
  TF_Code code = TF_INVALID_ARGUMENT;
  std::vector<TensorPointer> held;
  std::vector<Result> results;
  for (std::size_t i = 0; i < given && error.empty(); ++i) {
    error =
        GiveInput(context, static_cast<int>(i), entry.inputs[i], *model, held);
  }
  for (std::size_t i = 0; i < taken && error.empty(); ++i) {
    error = TakeOutput(context, static_cast<int>(i), entry.outputs[i], *model,
                       results);
  }
  if (error.empty() && !Call(*model, entry)) {
    error = model->error();
    code = TF_INTERNAL;
  }
  for (std::size_t i = 0; i < taken && error.empty(); ++i) {
    if (results[i].placed) continue;
    const Model& done = *model;
    std::memcpy(TF_TensorData(results[i].tensor.get()),
                Values(done, entry.outputs[i]), entry.outputs[i].bytes);
  }
  All().Give(std::move(model));
  if (!error.empty()) Fail(context, code, error);
}

void ComputeKernel(void* kernel, TF_OpKernelContext* context) {
  try {
    Compute(*static_cast<const Kernel*>(kernel), context);
  } catch (const std::exception& exception) {
    Fail(context, TF_RESOURCE_EXHAUSTED, exception.what());
  }
}

void Delete(void* kernel) { delete static_cast<Kernel*>(kernel); }

void InferShapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeInferenceContextSetUnknownShape(context, status);
}

// TensorFlow reports what goes wrong here when it loads the library.
bool Register() {
  const std::string name = OpName();
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder(name.c_str());
  TF_OpDefinitionBuilderAddInput(op, "arguments: Tin");
  TF_OpDefinitionBuilderAddOutput(op, "results: Tout");
  TF_OpDefinitionBuilderAddAttr(op, "Tin: list(type) >= 0");
  TF_OpDefinitionBuilderAddAttr(op, "Tout: list(type) >= 0");
  TF_OpDefinitionBuilderAddAttr(op, "cluster: int");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, &InferShapes);
  const StatusPointer status(TF_NewStatus(), TF_DeleteStatus);
  TF_RegisterOpDefinition(op, status.get());
  if (TF_GetCode(status.get()) != TF_OK) return false;
  TF_KernelBuilder* kernel = TF_NewKernelBuilder(name.c_str(), "CPU", &Create,
                                                 &ComputeKernel, &Delete);
  TF_RegisterKernelBuilder(name.c_str(), kernel, status.get());
  return TF_GetCode(status.get()) == TF_OK;
}

const bool registered = Register();

}  // namespace
}  // namespace tfaot
