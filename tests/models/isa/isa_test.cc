// Protects programs for several kinds of machines: among a model's CPU levels,
// the best one runs, or the requested one, and all give the same results. A
// level that a CPU can't run is an error, and never runs.
#include "tfaot/isa.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/models/isa/last_aot.h"
#include "tests/models/isa/product_aot.h"
#include "tests/runtime/expect.h"

namespace {

using isa::Last;
using isa::Product;

// The highest level that this machine runs.
std::string Machine() {
  std::string found;
  for (const char* level : {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"}) {
    if (tfaot::CpuRuns(level)) found = level;
  }
  return found;
}

// Runs a model on small integers. Returns whether the results are bit-exact.
template <typename Model>
bool Right(Model& model) {
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 128; ++k) {
      model.x()(i, k) = static_cast<float>((i + k) % 5);
    }
  }
  if (!model.Run() || *model.error() != '\0') return false;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 64; ++j) {
      int sum = 0;
      for (int k = 0; k < 128; ++k) {
        sum += (i + k) % 5 * ((k * 64 + j) % 7 - 3);
      }
      if (model.y()(i, j) != static_cast<float>(sum > 0 ? sum : 0))
        return false;
    }
  }
  return true;
}

// Returns whether a model that can't run says why, at once and after each run.
template <typename Model>
bool Refuses(Model& model, const std::string& why) {
  if (model.error() != why) {
    std::printf("got:\n%s\nexpected:\n%s\n", model.error(), why.c_str());
    return false;
  }
  model.x()(0, 0) = 1;  // views work as always
  return !model.Run() && model.error() == why && model.y()(0, 0) == 0 &&
         *model.isa() == '\0';
}

void TestChoice() {
  const char* const* const isas = Product::isas();
  EXPECT(std::string(isas[0]) == "x86-64" &&
         std::string(isas[1]) == "x86-64-v3" &&
         std::string(isas[2]) == "x86-64-v4" && isas[3] == nullptr);
  const char* fastest = isas[0];
  int ran = 0;
  for (const char* const* level = isas; *level != nullptr; ++level) {
    for (const bool by_environment : {false, true}) {
      if (by_environment) setenv("TFAOT_ISA", *level, 1);
      Product model = by_environment ? Product() : Product(*level);
      unsetenv("TFAOT_ISA");
      if (tfaot::CpuRuns(*level)) {
        // Zen 4 runs x86-64-v4, but x86-64-v3 is faster there.
        if (!__builtin_cpu_is("amdfam19h") || *level != isas[2]) {
          fastest = *level;
        }
        ++ran;
        EXPECT(std::string(model.isa()) == *level);
        EXPECT(Right(model));
      } else {
        std::printf("%s isn't run, because this machine can't\n", *level);
        EXPECT(Refuses(
            model,
            std::string("isa::Product: ") +
                (by_environment ? "the environment variable TFAOT_ISA asks"
                                : "the caller asked") +
                " for \"" + *level + "\", which this CPU can't run\n" +
                "  found: code for x86-64, x86-64-v3, x86-64-v4; this CPU "
                "and its operating system run " +
                Machine() + "\n  to do: " +
                (by_environment
                     ? "set it to a level that this CPU can run, or unset it"
                     : "pass a level that this CPU can run, or no level")));
      }
    }
  }
  EXPECT(ran > 0);
  Product model;
  EXPECT(std::string(model.isa()) == fastest);
  EXPECT(Right(model));
  // The caller's request takes precedence over the environment.
  setenv("TFAOT_ISA", "x86-64-v9", 1);
  Product asked("x86-64");
  EXPECT(std::string(asked.isa()) == "x86-64" && Right(asked));
  unsetenv("TFAOT_ISA");
}

void TestErrors() {
  Product model("avx512f");
  EXPECT(Refuses(model,
                 "isa::Product: the caller asked for \"avx512f\"\n"
                 "  found: code for x86-64, x86-64-v3, x86-64-v4\n"
                 "  to do: pass one of these, or no level"));
  // Another level is assigned to an instance.
  model = Product("x86-64");
  EXPECT(Right(model));

  // A model for one level behaves the same way.
  Last last;
  if (tfaot::CpuRuns("x86-64-v4")) {
    EXPECT(Right(last) && std::string(last.isa()) == "x86-64-v4");
  } else {
    EXPECT(
        Refuses(last,
                "isa::Last: this CPU can't run any level that the model is "
                "compiled for\n"
                "  found: code for x86-64-v4; this CPU and its operating "
                "system run " +
                    Machine() +
                    "\n  to do: add a lower level to the target's isa, or use "
                    "a newer CPU"));
  }
}

}  // namespace

int main() {
  unsetenv("TFAOT_ISA");
  TestChoice();
  TestErrors();
  return failed == 0 ? 0 : 1;
}
