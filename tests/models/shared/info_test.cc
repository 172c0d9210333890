// Protects programs that look tensors up by name: what Info() lists is what the
// accessors are, and nothing allocates.
#include "tfaot/info.h"

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "examples/audio/calls.h"
#include "examples/batch_family/batch_family_aot.h"
#include "examples/bf16/bf16_aot.h"
#include "examples/entry_points/entry_points_aot.h"
#include "tests/models/link/one_aot.h"
#include "tests/runtime/expect.h"

namespace {

using tfaot::DType;
using tfaot::Offered;

bool Equal(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

void Lists() {
  const tfaot::ModelInfo& info = a::b_c::Info();
  EXPECT(Equal(info.cpp_class, "a::b_c"));
  EXPECT(info.entry_points.size() == 1 && info.variables.size() == 2);
  const tfaot::EntryPointInfo& run = info.entry_points[0];
  EXPECT(Equal(run.name, "Run") && run.max_batch == 0);
  EXPECT(run.inputs.size() == 2 && run.outputs.size() == 1);
  const tfaot::TensorInfo& x = run.inputs[0];
  EXPECT(Equal(x.name, "x:0") && Equal(x.member, "x"));
  EXPECT(x.dtype == DType::kFloat32 && Equal(Name(x.dtype), "float32"));
  EXPECT(x.dims.size() == 1 && x.dims[0] == 4 && x.bytes == 16);
  EXPECT(!x.batched && !x.bounded && !x.written);
  EXPECT(info.variables[0].written && !info.variables[1].written);
  EXPECT(run.inputs[1].dims.size() == 0 && run.inputs[1].bytes == 4);
  EXPECT(std::strstr(info.manifest, "\"cpp_class\":\"a::b_c\"") != nullptr);
  EXPECT(std::strstr(info.manifest, "sha256") == nullptr);
  EXPECT(Equal(Name(static_cast<DType>(99)), "unknown"));
}

void Finds() {
  const tfaot::ModelInfo& info = examples::Regressor::Info();
  EXPECT(info.entry_points.size() == 4);
  const tfaot::EntryPointInfo* train = FindEntryPoint(info, "train");
  EXPECT(train == &info.entry_points[2]);
  EXPECT(FindEntryPoint(info, "Train") == nullptr);
  EXPECT(Find(train->inputs, "train_y") == &train->inputs[1]);
  EXPECT(Find(train->inputs, train->inputs[1].name) == &train->inputs[1]);
  EXPECT(Find(train->inputs, "z") == nullptr);
  const tfaot::List<tfaot::TensorInfo> inputs =
      a::b_c::Info().entry_points[0].inputs;
  EXPECT(Find(inputs, "x:0") == &inputs[0] && Find(inputs, "x") == &inputs[0]);
  EXPECT(Find(inputs, "unused") == &inputs[1] && Find(inputs, "") == nullptr);
}

void Reaches(a::b_c& model) {
  const tfaot::ModelInfo& info = a::b_c::Info();
  const tfaot::EntryPointInfo& run = info.entry_points[0];
  const a::b_c& read = model;
  EXPECT(Values(model, run.inputs[0]) == model.x().data());
  EXPECT(Values(model, run.inputs[1]) == model.unused().data());
  EXPECT(Values(read, run.outputs[0]) == read.y().data());
  EXPECT(Values(read, info.variables[0]) == read.w().data());
  EXPECT(Values(read, info.variables[1]) == read.b().data());

  alignas(64) float y[4] = {};
  EXPECT(Place(model, run.outputs[0], y) && read.y().data() == y);
  EXPECT(!Place(model, run.inputs[0], y + 1));
  EXPECT(model.error_code() == tfaot::Code::kInvalidArgument);
  EXPECT(Place(model, run.outputs[0], nullptr) && read.y().data() != y);
  EXPECT(!Place(model, info.variables[0], y));

  static_cast<float*>(Values(model, run.inputs[0]))[1] = 2;
  EXPECT(Call(model, run));
  EXPECT(static_cast<const float*>(Values(read, run.outputs[0]))[1] == 4.5f);
  static_cast<float*>(Values(model, info.variables[1]))[1] = 100;
  EXPECT(read.b()[1] == 100 && model.mutable_b()[1] == 100);
}

void Offers(a::b_c& model, examples::Classifier& classifier) {
  const tfaot::EntryPointInfo& run = a::b_c::Info().entry_points[0];
  const float values[40] = {7, 8, 9, 10};
  const std::int64_t four[] = {4}, rows[] = {2, 20}, many[] = {201, 20};
  EXPECT(Offer(model, run, "x", DType::kFloat32, {four, 1}, values) ==
         Offered::kTaken);
  EXPECT(model.x()[3] == 10);
  EXPECT(Offer(model, run, "x", DType::kInt32, {four, 1}, values) ==
         Offered::kMismatch);
  EXPECT(Offer(model, run, "x", DType::kFloat32, {rows, 2}, values) ==
         Offered::kMismatch);
  const Offered offered =
      Offer(model, run, "age", DType::kFloat32, {rows, 2}, values);
  EXPECT(offered == Offered::kUnknown);
  char note[200];
  std::size_t length = WriteNote(offered, a::b_c::Info(), run, "age",
                                 DType::kFloat32, {rows, 2}, note, 200);
  EXPECT(length == std::strlen(note));
  EXPECT(Equal(note,
               "a::b_c::Run(): ignored \"age\", which isn't an input\n"
               "  found: the inputs are \"x:0\", \"unused:0\"\n"
               "  to do: nothing, if the program also serves other models"));
  char cut[8];
  EXPECT(WriteNote(offered, a::b_c::Info(), run, "age", DType::kFloat32,
                   {rows, 2}, cut, sizeof(cut)) == length);
  EXPECT(Equal(cut, "a::b_c:"));
  EXPECT(WriteNote(Offered::kTaken, a::b_c::Info(), run, "x", DType::kFloat32,
                   {four, 1}, cut, sizeof(cut)) == 0 &&
         Equal(cut, ""));

  // A batch takes fewer rows, and never more.
  const tfaot::EntryPointInfo& batches =
      examples::Classifier::Info().entry_points[0];
  EXPECT(batches.max_batch == 200 && batches.inputs[0].batched);
  EXPECT(Offer(classifier, batches, "x", DType::kFloat32, {rows, 2}, values) ==
         Offered::kTaken);
  EXPECT(classifier.x()(0, 3) == 10 && classifier.x()(1, 19) == 0);
  EXPECT(Offer(classifier, batches, "x", DType::kFloat32, {many, 2}, values) ==
         Offered::kMismatch);
  WriteNote(Offered::kMismatch, examples::Classifier::Info(), batches, "x",
            DType::kFloat32, {many, 2}, note, sizeof(note));
  EXPECT(Equal(note,
               "examples::Classifier::Run(): the input \"x\" can't be "
               "float32[201, 20]\n"
               "  found: the model takes float32[200, 20], or fewer rows\n"
               "  to do: convert the values"));
  EXPECT(Call(classifier, batches, 2) && !Call(classifier, batches, 201));
}

// The sizes of a result that only a run knows.
void Measures(examples::Bf16& model) {
  const tfaot::EntryPointInfo& run = examples::Bf16::Info().entry_points[0];
  const tfaot::TensorInfo& large = *Find(run.outputs, "large");
  std::int64_t dims[2];
  EXPECT(large.bounded && large.dims[0] == 32 && large.dims[1] == 2);
  model.x()(1, 1) = tfaot::BFloat16(8);
  EXPECT(Call(model, run));
  Dims(model, large, dims);
  EXPECT(dims[0] == 1 && dims[1] == 2 && model.large().dim(0) == 1);
  Dims(model, *Find(run.outputs, "scaled"), dims);
  EXPECT(dims[0] == 8 && dims[1] == 4);
}

}  // namespace

int main() {
  a::b_c model;
  examples::Classifier classifier;
  examples::Bf16 edges;
  std::printf("offers to three models\n");
  Reaches(model);
  const long before = calls::allocations;
  Lists();
  Finds();
  EXPECT(calls::allocations == before || !calls::kCounts);
  Offers(model, classifier);
  Measures(edges);
  return failed;
}
