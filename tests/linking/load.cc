// Loads libraries, each more than once, and runs what they contain on ones:
//
//   load local|global LIBRARY EXPECTED LIBRARY EXPECTED
//
// All are loaded at the same time, and none stays when all are closed.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tfaot/c_api.h"

namespace {

int failed = 0;

// A plug-in's own function, or else the model behind its C interface.
float Run(void* library) {
  if (void* const own = dlsym(library, "Score")) {
    return reinterpret_cast<float (*)()>(own)();
  }
  void* const get = dlsym(library, "tfaot_get_api");
  if (get == nullptr) return -1;
  const tfaot_api* const api =
      reinterpret_cast<tfaot_get_api_fn*>(get)(TFAOT_API_VERSION);
  tfaot_model* model = nullptr;
  tfaot_tensor x;
  // Also an error, which the library keeps for this thread.
  if (api->describe_input(0, 7, &x) == TFAOT_OK) return -2;
  if (api->describe_input(0, 0, &x) != TFAOT_OK) return -3;
  if (api->create(nullptr, &model) != TFAOT_OK) return -4;
  float* const values = static_cast<float*>(api->input(model, 0, 0));
  for (std::size_t i = 0; i < x.bytes / sizeof(float); ++i) values[i] = 1;
  const bool ran = api->run(model, 0, 0) == TFAOT_OK;
  const float y = *static_cast<const float*>(api->output(model, 0, 0));
  api->destroy(model);
  return ran ? y : -5;
}

}  // namespace

int main(int count, char** words) {
  const int mode =
      RTLD_NOW | (std::strcmp(words[1], "global") == 0 ? RTLD_GLOBAL : 0);
  for (int round = 0; round < 3; ++round) {
    void* libraries[8] = {};
    for (int i = 2; i < count; i += 2) {
      libraries[i / 2] = dlopen(words[i], mode);
      if (libraries[i / 2] == nullptr) {
        std::printf("%s\n", dlerror());
        return 2;
      }
    }
    for (int use = 0; use < 2; ++use) {
      for (int i = 2; i < count; i += 2) {
        const float y = Run(libraries[i / 2]);
        if (y == std::atof(words[i + 1])) continue;
        std::printf("%s gives %g, not %s\n", words[i], y, words[i + 1]);
        ++failed;
      }
    }
    for (int i = 2; i < count; i += 2) dlclose(libraries[i / 2]);
    for (int i = 2; i < count; i += 2) {
      if (dlopen(words[i], RTLD_NOW | RTLD_NOLOAD) == nullptr) continue;
      std::printf("%s is still loaded\n", words[i]);
      ++failed;
    }
  }
  return failed;
}
