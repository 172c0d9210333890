// Protects a class without values for its variables: nothing runs before they
// are loaded, and the library comes with the file.
//
//   stored_test MIXER      a file from write_weights.py
#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include "tests/models/variables/maps.h"
#include "tests/models/variables/stored_aot.h"
#include "tests/runtime/expect.h"

namespace {

using tests::Stored;

// In the runfiles, because the library depends on it.
const char* const kFile =
    "tests/models/variables/stored_aot.variables.safetensors";

bool IsZero(const Stored& model) {
  return std::count(model.dense_kernel().begin(), model.dense_kernel().end(),
                    0.0f) == 64 &&
         std::count(model.keep().begin(), model.keep().end(), false) == 16 &&
         *model.scale() == 0 && *model.steps() == 0;
}

void ExpectRefused(Stored& model) {
  const std::string wanted =
      "tests::Stored::Run(): the variables have no values\n"
      "  to do: call Load(path) first";
  EXPECT(!model.Run());
  EXPECT(model.error() == wanted);
  EXPECT(model.error_code() == tfaot::Code::kNoWeights);
}

void TestRunBeforeLoad() {
  Stored model;
  EXPECT(IsZero(model) && *model.error() == '\0');
  ExpectRefused(model);
  EXPECT(IsZero(model));
  // A failed load provides no values.
  EXPECT(!model.Load("/proc/nonexistent"));
  EXPECT(std::string(model.error()) ==
         "/proc/nonexistent can't be opened\n"
         "  found: No such file or directory\n"
         "  to do: pass a safetensors file that this process may read");
  ExpectRefused(model);
  Stored moved(std::move(model));
  ExpectRefused(moved);
}

void TestLoad(const char* weights) {
  EXPECT(std::ifstream(kFile).good());
  Stored model;
  EXPECT(model.Load(kFile) && *model.error() == '\0');
  EXPECT(model.dense_kernel()(3, 15) == 63 && *model.scale() == 2.0f &&
         model.keep()[0] && !model.keep()[15]);
  model.x()[0] = 1;
  EXPECT(model.Run() && model.y()[14] == 28.5f && *model.steps() == 1);
  Stored moved(std::move(model));
  EXPECT(moved.Run() && *moved.steps() == 2);
  EXPECT(moved.Load(weights) && moved.Run() && moved.y()[2] == 0.5f);
}

void TestNothingIsCopied() {
  // As in a class that contains its values: what the model only reads is used
  // in place in the file, and what it writes is the instance's own.
  Stored one, other;
  EXPECT(one.Load(kFile) && other.Load(kFile));
  const Mapping mapping = MappingOf(one.dense_kernel().data());
  EXPECT(mapping.file.find("stored_aot.model.variables.safetensors") !=
         std::string::npos);
  EXPECT(mapping.access == "r--p");
  EXPECT(MappingOf(one.total().data()).file.find("stored_aot") ==
         std::string::npos);
  one.mutable_dense_kernel()[0] = 5;
  EXPECT(one.Run() && one.total()[0] == 0.5f && *one.steps() == 1);
  EXPECT(other.dense_kernel()[0] == 0 && other.total()[0] == 0);
  EXPECT(other.Load(kFile) && other.dense_kernel()[0] == 0 &&
         *other.steps() == 0);
}

void TestSave() {
  const std::string path = Scratch("stored.safetensors");
  Stored model, other;
  EXPECT(model.Load(kFile));
  model.x()[0] = 1;
  EXPECT(model.Run() && model.Save(path.c_str()).ok());
  EXPECT(other.Load(path.c_str()) && *other.steps() == 1 &&
         other.total()[14] == 28.5f);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  TestRunBeforeLoad();
  TestLoad(argv[1]);
  TestNothingIsCopied();
  TestSave();
  return failed == 0 ? 0 : 1;
}
