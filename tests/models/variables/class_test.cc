// Protects the variables of a generated class that contains their values: where
// they are, what changes them, and their files.
//
//   class_test MIXER MISFIT PLAIN      files from write_weights.py
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/models/variables/maps.h"
#include "tests/models/variables/mixer_aot.h"
#include "tests/runtime/expect.h"
#include "tfaot/hooks.h"

namespace {

using tests::Mixer;

const Mixer& Const(const Mixer& model) { return model; }

// The result for x = {1, 0, 0, 0}: scale * kernel[0] + bias, where kept.
std::vector<float> Result(Mixer& model) {
  std::fill(model.x().begin(), model.x().end(), 0.0f);
  model.x()[0] = 1;
  EXPECT(model.Run());
  return {model.y().begin(), model.y().end()};
}

std::vector<float> Noise(Mixer& model) {
  EXPECT(model.Run());
  return {model.noise().begin(), model.noise().end()};
}

// Checks that its variables are those of mixer.py, `runs` runs after the start.
bool Initial(const Mixer& model, int runs = 0) {
  for (int i = 0; i < 64; ++i) {
    if (model.dense_kernel()[i] != static_cast<float>(i)) return false;
  }
  for (int i = 0; i < 16; ++i) {
    const float y = i < 15 ? 2.0f * static_cast<float>(i) + 0.5f : 0.0f;
    if (model.dense_bias()[i] != 0.5f || model.keep()[i] != (i < 15) ||
        model.total()[i] != static_cast<float>(runs) * y) {
      return false;
    }
  }
  return *model.scale() == 2.0f && *model.steps() == runs;
}

// Checks that its variables are those in the file MIXER.
bool Loaded(const Mixer& model) {
  for (int i = 0; i < 64; ++i) {
    if (model.dense_kernel()[i] != 1) return false;
  }
  for (int i = 0; i < 16; ++i) {
    if (model.dense_bias()[i] != static_cast<float>(i) ||
        model.keep()[i] != (i % 2 == 0) || model.total()[i] != 100) {
      return false;
    }
  }
  return *model.scale() == -1.5f && *model.steps() == 41;
}

void TestInitialValues() {
  Mixer model;
  EXPECT(Initial(model));
  EXPECT(*model.error() == '\0');
  const std::vector<float> y = Result(model);
  EXPECT(y[0] == 0.5f && y[14] == 28.5f && y[15] == 0);
  EXPECT(Initial(model, 1));
  Result(model);
  EXPECT(Initial(model, 2));
  EXPECT(Initial(Mixer()));  // doesn't affect other instances
}

void TestReadOnlyValuesAreNotCopied() {
  const Mixer one, other;
  // The program's own values, in read-only pages.
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  for (const void* data : {static_cast<const void*>(one.dense_kernel().data()),
                           static_cast<const void*>(one.dense_bias().data())}) {
    const Mapping mapping = MappingOf(data);
    EXPECT(mapping.access[1] == '-');
    EXPECT(mapping.file == program);
  }
  EXPECT(one.dense_kernel().data() == other.dense_kernel().data());
  EXPECT(one.dense_bias().data() == other.dense_bias().data());
  // Values too small to start at a multiple of 64 bytes, as compiled code
  // needs, are copied once for all instances. Each has its own copy of what the
  // model writes.
  EXPECT(one.scale().data() == other.scale().data());
  EXPECT(one.keep().data() == other.keep().data());
  EXPECT(one.total().data() != other.total().data());
  EXPECT(one.steps().data() != other.steps().data());
  for (const void* data : {static_cast<const void*>(one.total().data()),
                           static_cast<const void*>(one.scale().data())}) {
    EXPECT(MappingOf(data).file != program);
    EXPECT(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
  }
}

void TestChangedByTheCaller() {
  Mixer model, other;
  const float* const embedded = Const(model).dense_kernel().data();
  EXPECT(model.dense_kernel().data() == embedded);  // reading copies nothing
  float* const mine = model.mutable_dense_kernel().data();
  EXPECT(mine != embedded);
  EXPECT(Const(model).dense_kernel().data() == mine);
  EXPECT(model.mutable_dense_kernel().data() == mine);  // copied once
  EXPECT(Const(other).dense_kernel().data() == embedded);
  EXPECT(Initial(model));
  model.mutable_dense_kernel()(0, 3) = 1000;
  model.total()[0] = 7;
  EXPECT(Result(model)[3] == 2000.5f);
  EXPECT(model.total()[0] == 7.5f);
  EXPECT(Result(other)[3] == 6.5f);
  EXPECT(Initial(Mixer()));
}

void TestLoad(const char* path) {
  Mixer model, other;
  const std::vector<float> before = Result(model);
  EXPECT(model.Load(path) && *model.error() == '\0');
  EXPECT(Loaded(model));
  // In place in the file, which isn't read.
  EXPECT(MappingOf(Const(model).dense_kernel().data()).file ==
         std::filesystem::canonical(path));
  const std::vector<float> y = Result(model);
  EXPECT(y != before && y[0] == -1.5f && y[2] == 0.5f && y[3] == 0);
  EXPECT(model.total()[2] == 100.5f && *model.steps() == 42);
  // The change affects only the instance: neither the file nor another
  // instance.
  EXPECT(Initial(other));
  EXPECT(other.Load(path) && Loaded(other));
}

// As written by the format's own library, without any alignment.
void TestLoadOfAPlainFile(const char* path) {
  Mixer model;
  EXPECT(model.Load(path) && Loaded(model));
  EXPECT(Result(model)[2] == 0.5f && *model.steps() == 42);
  for (const void* data : {static_cast<const void*>(model.total().data()),
                           static_cast<const void*>(model.scale().data())}) {
    EXPECT(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
  }
}

void TestLoadOfAMisfit(const std::string& good, const std::string& misfit) {
  Mixer model;
  EXPECT(!model.Load(misfit.c_str()));
  const std::string wanted =
      misfit +
      " doesn't fit the model: 4 of 7 variable(s)\n"
      "\n"
      "    dense/kernel: float32[16, 4]; the model has float32[4, 16]\n"
      "    dense/bias: missing; the model has float32[16]\n"
      "    keep: uint8[16]; the model has bool[16]\n"
      "    steps: int64[1]; the model has int64[]\n"
      "\n"
      "  found: also in the file: dense/offset float32[16]\n"
      "  to do: write a file with every variable of the model, under its name "
      "and with its dtype and shape";
  EXPECT(model.error() == wanted);
  if (model.error() != wanted) std::printf("got:\n%s\n", model.error());
  EXPECT(Initial(model));
  EXPECT(Result(model)[0] == 0.5f && *model.error() == '\0');

  // It doesn't change what was loaded before, either.
  EXPECT(model.Load(good.c_str()) && model.error_code() == tfaot::Code::kOk);
  EXPECT(!model.Load(misfit.c_str()));
  EXPECT(model.error_code() == tfaot::Code::kMismatch);
  EXPECT(Loaded(model) && model.error() == wanted);
  EXPECT(!model.Load("/nonexistent") && Loaded(model));
}

void TestSaveAndLoad() {
  const std::string path = Scratch("saved.safetensors");
  Mixer model;
  model.mutable_dense_kernel()(0, 3) = 1000;
  *model.mutable_scale() = tfaot::BFloat16(3.0f);
  model.mutable_keep()[15] = true;
  Result(model);
  EXPECT(Const(model).Save(path.c_str()).ok());

  Mixer other;
  EXPECT(other.Load(path.c_str()));
  EXPECT(other.dense_kernel()(0, 3) == 1000 && *other.scale() == 3.0f &&
         other.keep()[15]);
  EXPECT(other.total()[3] == 3000.5f && *other.steps() == 1);
  EXPECT(Result(other) == Result(model));
  EXPECT(*other.steps() == 2 && other.total()[3] == 6001);

  // Over the file that is loaded.
  EXPECT(other.Save(path.c_str()) && other.Load(path.c_str()));
  EXPECT(*other.steps() == 2 && other.total()[3] == 6001);

  const std::string nowhere = Scratch("no/folder/saved.safetensors");
  const tfaot::Status status = model.Save(nowhere.c_str());
  EXPECT(!status && status.code() == tfaot::Code::kFileAccess);
  EXPECT(
      status.message() ==
      nowhere +
          " can't be saved\n"
          "  found: No such file or directory\n"
          "  to do: pass a path in a folder that exists, that this process can "
          "write to, and that has space for " +
          std::to_string(std::filesystem::file_size(path)) + " bytes");
}

void TestRandomState(const char* without) {
  Mixer one, other;
  const std::vector<float> of_0 = Noise(one);
  EXPECT(of_0 == Noise(other));  // the seed is 0 at first
  EXPECT(of_0 != Noise(one));    // it went on
  one.Seed(0);
  EXPECT(of_0 == Noise(one));
  one.Seed(~std::uint64_t{0});
  const std::vector<float> of_max = Noise(one);
  EXPECT(of_max != of_0);

  // Saved with the weights, so a resumed run draws the same numbers.
  const std::string path = Scratch("state.safetensors");
  EXPECT(one.Save(path.c_str()));
  EXPECT(other.Load(path.c_str()));
  for (int i = 0; i < 3; ++i) EXPECT(Noise(one) == Noise(other));

  // A file with TensorFlow's variables lacks it. Then it keeps its value.
  one.Seed(~std::uint64_t{0});
  EXPECT(one.Load(without));
  EXPECT(Noise(one) == of_max);
}

void TestMove() {
  Mixer first;
  first.mutable_dense_kernel()(0, 3) = 1000;
  Result(first);
  const float* const kernel = Const(first).dense_kernel().data();
  const float* const total = Const(first).total().data();
  Mixer second(std::move(first));
  EXPECT(Const(second).dense_kernel().data() == kernel);
  EXPECT(Const(second).total().data() == total);
  EXPECT(Result(second)[3] == 2000.5f && *second.steps() == 2);
  EXPECT(Const(second).total().data() == total);

  first = Mixer();
  EXPECT(Initial(first));
  std::swap(first, second);
  EXPECT(Initial(second) && *first.steps() == 2);
  EXPECT(Const(first).total().data() == total);
}

// Inputs and outputs in the caller's memory, without a copy.
void TestBuffers() {
  alignas(64) const float x[4] = {1, 0, 0, 0};
  alignas(64) float y[17];
  std::fill(std::begin(y), std::end(y), -1.0f);
  Mixer model;
  const float* const own = model.y().data();
  EXPECT(model.set_x_data(x) && model.set_y_data(y));
  EXPECT(model.x().data() == x && Const(model).y().data() == y);
  EXPECT(model.Run() && y[0] == 0.5f && y[14] == 28.5f && y[15] == 0);
  EXPECT(y[16] == -1 && *model.steps() == 1);
  EXPECT(own[14] == 0);  // nothing was written there
  Mixer moved(std::move(model));
  y[14] = -1;
  EXPECT(moved.Run() && y[14] == 28.5f && moved.y().data() == y);
  // Addresses that compiled code can't use change nothing.
  EXPECT(!moved.set_y_data(y + 1) && moved.y().data() == y);
  EXPECT(moved.error_code() == tfaot::Code::kInvalidArgument);
  EXPECT(moved.set_x_data(nullptr) && moved.set_y_data(nullptr));
  EXPECT(moved.x().data() != x && moved.y().data() == own);
  y[14] = -1;
  EXPECT(Result(moved)[14] == 28.5f && y[14] == -1);
}

// Counts kernels, and ends the run before one of them.
class Watch final : public tfaot::Hooks {
 public:
  bool Before(const char*) noexcept override { return ++before != end; }
  void After(const char*) noexcept override { ++after; }
  int before = 0;
  int after = 0;
  int end = 0;
};

void TestHooks() {
  Mixer model, plain;
  Watch watch;
  model.set_hooks(&watch);
  EXPECT(Result(model) == Result(plain));
  EXPECT(watch.before > 1 && watch.after == watch.before);
  watch.end = watch.before + 2;
  EXPECT(!model.Run() && model.error_code() == tfaot::Code::kCancelled);
  EXPECT(model.error() ==
         std::string("tests::Mixer::Run(): hooks ended the run"));
  EXPECT(watch.before == watch.end && watch.after == watch.before - 1);
  model.set_hooks(nullptr);
  EXPECT(model.Run() && watch.before == watch.end);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  TestInitialValues();
  TestReadOnlyValuesAreNotCopied();
  TestChangedByTheCaller();
  TestLoad(argv[1]);
  TestLoadOfAPlainFile(argv[3]);
  TestLoadOfAMisfit(argv[1], argv[2]);
  TestSaveAndLoad();
  TestRandomState(argv[1]);
  TestMove();
  TestBuffers();
  TestHooks();
  return failed == 0 ? 0 : 1;
}
