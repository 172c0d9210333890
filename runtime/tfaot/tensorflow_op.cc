// The op with which TensorFlow runs the clusters of one generated class. The
// build compiles this file for each library of ops, against the headers of
// TensorFlow's C API, and defines
//
//   TFAOT_CLASS         the class, such as examples::Classifier
//   TFAOT_CLASS_HEADER  the header that declares it, quoted
//
// Loading the library registers the op: tf.load_op_library in Python,
// TF_LoadLibrary in C. A node's attribute `cluster` is the index of an entry
// point, and its attribute `samples` says which inputs are images of any size
// of which the entry point takes a sample. The kernels share instances of the
// class; each run has one to itself, and its other inputs and outputs in
// TensorFlow's memory.
#include <algorithm>
#include <atomic>
#include <chrono>
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
#include "tfaot/sample.h"
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

// The environment variable TFAOT_THREADS, or 0.
int WantedThreads() {
  static const int wanted = []() {
    const char* text = std::getenv("TFAOT_THREADS");
    return text != nullptr ? std::atoi(text) : 0;
  }();
  return wanted;
}

// How long an entry point runs on one thread, as its first runs show. The
// others read no clock and take no lock: for small clusters, both count.
// Thread-safe.
class Effort {
 public:
  // Returns whether a run is worth threads. They sleep between runs, and
  // TensorFlow's threads use the same cores. On two cores, a cluster of 0.1 ms
  // in a loop took 1.6 times as long with threads, and one of 1.3 ms 0.85 times
  // (//tests/cluster:beside, AMD EPYC, Zen 4).
  bool Large(std::int64_t rows) const {
    constexpr double kLarge = 3e-4;  // seconds
    if (WantedThreads() > 0) return true;
    return runs_ >= kLeastRuns &&
           seconds_of_row_ * static_cast<double>(rows) >= kLarge;
  }

  // Returns whether a run on one thread should be timed: one of the first runs,
  // or one of the first with as many rows.
  bool Wanted(std::int64_t rows) const {
    return runs_ < kMostRuns || rows > most_rows_;
  }

  // Notes the time of a run on one thread.
  void Add(std::int64_t rows, double seconds) {
    std::lock_guard<std::mutex> lock(mutex_);
    const double row = seconds / static_cast<double>(rows);
    if (runs_ == 0 || row < seconds_of_row_) seconds_of_row_ = row;
    if (rows > most_rows_) {
      most_rows_ = rows;
      runs_ =
          std::min<int>(runs_, kLeastRuns);  // more rows, fewer seconds each
    }
    if (runs_ < kMostRuns) ++runs_;
  }

 private:
  // The first one touches memory, and other programs slow down some. With 3, a
  // step of tests/cluster/recommender.py took 0.89 of TensorFlow's time on two
  // busy cores (AMD EPYC, Zen 5); with 10, it took 0.67.
  static constexpr int kLeastRuns = 10;
  static constexpr int kMostRuns = 100;
  std::mutex mutex_;  // of writes
  std::atomic<int> runs_{0};
  std::atomic<double> seconds_of_row_{0};  // the least
  std::atomic<std::int64_t> most_rows_{0};
};

// Instances that no run uses. Thread-safe.
class Instances {
 public:
  std::unique_ptr<Model> Take(bool threads, std::string* error) {
    std::unique_ptr<Model> model = Free();
    if (model == nullptr) model = Make(error);
    if (model == nullptr) return nullptr;
    if (threads) threads_ = true;
    model->set_thread_pool(threads ? Pool() : nullptr);
    return model;
  }

  // When no run is left, the threads rest: TensorFlow needs the cores.
  void Give(std::unique_ptr<Model> model) {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(model));
    if (free_.size() == made_ && threads_ && Pool() != nullptr) {
      Pool()->Rest();
      threads_ = false;
    }
  }

 private:
  // Returns an instance, or nothing if a run uses each.
  std::unique_ptr<Model> Free() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return nullptr;
    std::unique_ptr<Model> model = std::move(free_.back());
    free_.pop_back();
    return model;
  }

  std::unique_ptr<Model> Make(std::string* error) {
    Status status;
    Model made = Model::Create(Options(), &status);
    if (!made) {
      *error = status.message();
      return nullptr;
    }
    std::unique_ptr<Model> model(new Model(std::move(made)));
    std::lock_guard<std::mutex> lock(mutex_);
    ++made_;
    return model;
  }

  // As many threads as TFAOT_THREADS says, or else one for each core.
  static Threads* Pool() {
    static Threads* const pool = []() -> Threads* {
      const int threads =
          WantedThreads() > 0 ? WantedThreads() : Threads::Cores();
      return threads > 1 ? new Threads(threads) : nullptr;
    }();
    return pool;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Model>> free_;
  std::size_t made_ = 0;
  std::atomic<bool> threads_{false};  // whether they can be awake
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

// A negative size is any size.
std::string Shown(DType dtype, const std::vector<std::int64_t>& dims) {
  std::string text = std::string(Name(dtype)) + "[";
  for (std::size_t axis = 0; axis < dims.size(); ++axis) {
    text += axis > 0 ? ", " : "";
    text += dims[axis] < 0 ? "?" : std::to_string(dims[axis]);
  }
  return text + "]";
}

std::string Shown(const TensorInfo& tensor) {
  return Shown(tensor.dtype, std::vector<std::int64_t>(tensor.dims.begin(),
                                                       tensor.dims.end()));
}

// An input of a node: one input of the entry point, or an image of any size,
// of which the entry point takes the pixels that a resize reads, and for means
// of pixels, the weights of rows and columns.
struct Argument {
  std::size_t first;  // its first input of the entry point
  bool sampled;
  Sampling way;
  std::size_t Count() const { return sampled && !way.nearest ? 3 : 1; }
};

struct Kernel {
  explicit Kernel(const EntryPointInfo* of) : entry(of) {}
  const EntryPointInfo* const entry;
  std::vector<Argument> arguments;
  std::size_t taken = 0;  // inputs of the entry point
  Effort effort;
};

// Reads the attributes `Tin` and `samples`, which has a number for each input,
// or none if there are no samples. Sample.code in py/tfaot/cluster/samples.py
// writes it.
void ReadArguments(TF_OpKernelConstruction* construction, Kernel& kernel,
                   TF_Status* status) {
  std::int32_t none = 0;
  std::int32_t inputs = 0;
  TF_OpKernelConstruction_GetAttrSize(construction, "Tin", &inputs, &none,
                                      status);
  if (TF_GetCode(status) != TF_OK) return;
  std::int32_t count = 0;
  TF_OpKernelConstruction_GetAttrSize(construction, "samples", &count, &none,
                                      status);
  if (TF_GetCode(status) != TF_OK) return;
  std::vector<std::int64_t> codes(static_cast<std::size_t>(count));
  TF_OpKernelConstruction_GetAttrInt64List(construction, "samples",
                                           codes.data(), count, status);
  if (TF_GetCode(status) != TF_OK) return;
  codes.resize(static_cast<std::size_t>(inputs));
  for (const std::int64_t code : codes) {
    kernel.arguments.push_back(
        {kernel.taken,
         (code & 1) != 0,
         {(code & 2) != 0, (code & 4) != 0, (code & 8) != 0}});
    kernel.taken += kernel.arguments.back().Count();
  }
}

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
  std::unique_ptr<Kernel> kernel(
      new Kernel(&info.entry_points[static_cast<std::size_t>(cluster)]));
  ReadArguments(construction, *kernel, status.get());
  if (TF_GetCode(status.get()) != TF_OK) {
    TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
  return kernel.release();
}

// The bytes of `rows` rows of a tensor, or of all of it if it has no batch.
std::uint64_t Bytes(const TensorInfo& tensor, std::int64_t rows) {
  if (!tensor.batched) return tensor.bytes;
  return tensor.bytes / static_cast<std::uint64_t>(tensor.dims[0]) *
         static_cast<std::uint64_t>(rows);
}

// Where a row of a tensor starts, or the tensor itself if it has no batch.
unsigned char* Row(const TensorInfo& tensor, TF_Tensor* memory,
                   std::int64_t row) {
  unsigned char* data = static_cast<unsigned char*>(TF_TensorData(memory));
  return tensor.batched ? data + Bytes(tensor, row) : data;
}

// Lets the model use a tensor's memory. TensorFlow aligns it, unless it is a
// part of another tensor. Returns whether the model does.
bool PlaceIn(Model& model, const TensorInfo& tensor, void* data) {
  if (tensor.bytes > 0 && Place(model, tensor, data)) return true;
  static_cast<void>(Place(model, tensor, nullptr));  // it always can
  return tensor.bytes == 0;
}

// Returns whether a tensor has the dtype and the shape that the model takes.
// `rows` is the number of rows of the inputs before it, or -1. An input with a
// batch must have as many, and sets it if it is the first.
bool Fits(const TF_Tensor* got, const TensorInfo& wanted, std::int64_t& rows) {
  const int rank = static_cast<int>(wanted.dims.size());
  if (static_cast<DType>(TF_TensorType(got)) != wanted.dtype ||
      TF_NumDims(got) != rank) {
    return false;
  }
  for (int axis = wanted.batched ? 1 : 0; axis < rank; ++axis) {
    if (TF_Dim(got, axis) != wanted.dims[static_cast<std::size_t>(axis)]) {
      return false;
    }
  }
  if (wanted.batched && rows < 0) rows = TF_Dim(got, 0);
  return (!wanted.batched || TF_Dim(got, 0) == rows) &&
         TF_TensorByteSize(got) == Bytes(wanted, rows);
}

// Returns whether a tensor is an image, or several, of which the model takes
// the pixels `wanted`. It can have any height and width, but zero.
bool IsImage(const TF_Tensor* got, const TensorInfo& wanted) {
  const int rank = static_cast<int>(wanted.dims.size());
  if (static_cast<DType>(TF_TensorType(got)) != wanted.dtype ||
      TF_NumDims(got) != rank) {
    return false;
  }
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t size = TF_Dim(got, axis);
    const bool open = axis == rank - 3 || axis == rank - 2;
    if (open ? size < 1 : size != wanted.dims[static_cast<std::size_t>(axis)]) {
      return false;
    }
  }
  return true;
}

// Takes the sample of an image, which IsImage() has checked.
void FillSample(Model& model, const EntryPointInfo& entry,
                const Argument& argument, const TF_Tensor* image) {
  const TensorInfo* const parts = &entry.inputs[argument.first];
  for (std::size_t part = 0; part < argument.Count(); ++part) {
    static_cast<void>(Place(model, parts[part], nullptr));  // it always can
  }
  const TensorInfo& pixels = parts[0];
  const int rank = static_cast<int>(pixels.dims.size());
  const std::size_t height = static_cast<std::size_t>(rank) - 3;
  const std::int64_t images = rank > 3 ? pixels.dims[0] : 1;
  const std::int64_t around = argument.way.nearest ? 1 : 2;
  std::int64_t count = images;
  for (std::size_t axis = height; axis < height + 2; ++axis) {
    count *= pixels.dims[axis];
  }
  if (count == 0) return;
  const Images all{
      images, TF_Dim(image, rank - 3), TF_Dim(image, rank - 2),
      static_cast<std::size_t>(pixels.bytes) / static_cast<std::size_t>(count)};
  float* weights[2] = {nullptr, nullptr};
  for (std::size_t part = 1; part < argument.Count(); ++part) {
    weights[part - 1] = static_cast<float*>(Values(model, parts[part]));
  }
  TakeSample(argument.way, all,
             static_cast<const unsigned char*>(TF_TensorData(image)),
             pixels.dims[height] / around, pixels.dims[height + 1] / around,
             static_cast<unsigned char*>(Values(model, pixels)), weights[0],
             weights[1]);
}

// Takes an input and checks it. Returns an error, or nothing.
std::string TakeInput(TF_OpKernelContext* context, int index,
                      const TensorInfo& wanted, bool sampled,
                      std::int64_t& rows, TF_Status* status,
                      std::vector<TensorPointer>& held) {
  TF_Tensor* got = nullptr;
  TF_GetInput(context, index, &got, status);
  if (TF_GetCode(status) != TF_OK) return TF_Message(status);
  held.emplace_back(got, TF_DeleteTensor);
  const std::int64_t before = rows;
  if (sampled ? IsImage(got, wanted) : Fits(got, wanted, rows)) return "";
  std::vector<std::int64_t> dims;
  for (int axis = 0; axis < TF_NumDims(got); ++axis) {
    dims.push_back(TF_Dim(got, axis));
  }
  const std::string shown = Shown(static_cast<DType>(TF_TensorType(got)), dims);
  if (sampled) {
    dims.assign(wanted.dims.begin(), wanted.dims.end());
    std::fill(dims.end() - 3, dims.end() - 1, -1);
    return Message(
        std::string(Model::Info().cpp_class) + " got " + shown +
            " for the image of " + wanted.name,
        "it takes " + Shown(wanted.dtype, dims) + ", and neither size is zero",
        "feed an image that has pixels");
  }
  if (!wanted.batched) {
    return Message(std::string(Model::Info().cpp_class) + " got " + shown +
                       " for " + wanted.name,
                   "it takes " + Shown(wanted),
                   "load the library that was built with this SavedModel");
  }
  const std::string all = before < 0 ? "" : ": " + std::to_string(before);
  return Message(std::string(Model::Info().cpp_class) + " got " + shown +
                     " for " + wanted.name,
                 "it takes " + Shown(wanted) +
                     ", with any number of rows that all inputs have" + all,
                 "feed inputs with the same number of rows");
}

// Allocates an output. Returns an error, or nothing.
std::string MakeOutput(TF_OpKernelContext* context, int index,
                       const TensorInfo& made, std::int64_t rows,
                       TF_Status* status, std::vector<TensorPointer>& held) {
  std::vector<std::int64_t> dims(made.dims.begin(), made.dims.end());
  if (made.batched) dims[0] = rows;
  held.emplace_back(
      TF_AllocateOutput(context, index, static_cast<TF_DataType>(made.dtype),
                        dims.data(), static_cast<int>(dims.size()),
                        static_cast<std::size_t>(Bytes(made, rows)), status),
      TF_DeleteTensor);
  return TF_GetCode(status) == TF_OK ? "" : TF_Message(status);
}

// Runs an entry point on `rows` rows of its inputs, starting at `first`, or on
// all of them if it has no batch. Returns whether it succeeded.
bool Run(Model& model, const Kernel& kernel,
         const std::vector<TensorPointer>& inputs,
         const std::vector<TensorPointer>& outputs, std::int64_t first,
         std::int64_t rows) {
  const EntryPointInfo& entry = *kernel.entry;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Argument& argument = kernel.arguments[i];
    if (argument.sampled) {
      FillSample(model, entry, argument, inputs[i].get());
      continue;
    }
    const TensorInfo& input = entry.inputs[argument.first];
    void* const data = Row(input, inputs[i].get(), first);
    if (!PlaceIn(model, input, data)) {
      std::memcpy(Values(model, input), data, Bytes(input, rows));
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TensorInfo& output = entry.outputs[i];
    static_cast<void>(
        PlaceIn(model, output, Row(output, outputs[i].get(), first)));
  }
  if (!Call(model, entry, rows)) return false;
  const Model& done = model;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TensorInfo& output = entry.outputs[i];
    void* const to = Row(output, outputs[i].get(), first);
    const void* const from = Values(done, output);
    if (from != to) std::memcpy(to, from, Bytes(output, rows));
  }
  return true;
}

void Compute(Kernel& kernel, TF_OpKernelContext* context) {
  const EntryPointInfo& entry = *kernel.entry;
  const std::size_t given = static_cast<std::size_t>(TF_NumInputs(context));
  const std::size_t taken = static_cast<std::size_t>(TF_NumOutputs(context));
  if (kernel.taken != entry.inputs.size() || taken != entry.outputs.size()) {
    Fail(context, TF_INVALID_ARGUMENT,
         Message(std::string(Model::Info().cpp_class) + "::" + entry.name +
                     " got " + std::to_string(kernel.taken) + " inputs for " +
                     std::to_string(taken) + " outputs",
                 "it takes " + std::to_string(entry.inputs.size()) + " for " +
                     std::to_string(entry.outputs.size()),
                 "load the library that was built with this SavedModel"));
    return;
  }
  std::string error;
  std::int64_t rows = -1;
  const StatusPointer status(TF_NewStatus(), TF_DeleteStatus);
  std::vector<TensorPointer> inputs;
  std::vector<TensorPointer> outputs;
  inputs.reserve(given);
  outputs.reserve(taken);
  for (std::size_t i = 0; i < given && error.empty(); ++i) {
    const Argument& argument = kernel.arguments[i];
    error =
        TakeInput(context, static_cast<int>(i), entry.inputs[argument.first],
                  argument.sampled, rows, status.get(), inputs);
  }
  for (std::size_t i = 0; i < taken && error.empty(); ++i) {
    error = MakeOutput(context, static_cast<int>(i), entry.outputs[i], rows,
                       status.get(), outputs);
  }
  if (!error.empty()) {
    Fail(context, TF_INVALID_ARGUMENT, error);
    return;
  }
  if (rows == 0) return;  // the outputs have no rows, either
  const std::int64_t all = entry.max_batch > 0 ? rows : 1;
  const bool threads = kernel.effort.Large(all);
  std::unique_ptr<Model> model = All().Take(threads, &error);
  if (model == nullptr) {
    Fail(context, TF_FAILED_PRECONDITION, error);
    return;
  }
  // The class takes batches up to the largest size that it was compiled for.
  const std::int64_t most = entry.max_batch > 0 ? entry.max_batch : 1;
  using Clock = std::chrono::steady_clock;
  const bool timed = !threads && kernel.effort.Wanted(all);
  const Clock::time_point start = timed ? Clock::now() : Clock::time_point();
  for (std::int64_t row = 0; row < all && error.empty(); row += most) {
    const std::int64_t part = all - row < most ? all - row : most;
    if (!Run(*model, kernel, inputs, outputs, row, part))
      error = model->error();
  }
  if (timed) {
    const std::chrono::duration<double> took = Clock::now() - start;
    kernel.effort.Add(all, took.count());
  }
  All().Give(std::move(model));
  if (!error.empty()) Fail(context, TF_INTERNAL, error);
}

void ComputeKernel(void* kernel, TF_OpKernelContext* context) {
  try {
    Compute(*static_cast<Kernel*>(kernel), context);
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
  TF_OpDefinitionBuilderAddAttr(op, "samples: list(int) = []");
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
