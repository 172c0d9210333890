/* Trains a compiled model from C: the whole optimizer is inside `run`.
 *
 *   ./bazelw run //examples/embedding/c:train
 *
 * The program contains no model. It loads the library that its argument names,
 * asks it what the model is, and fills the inputs by their names. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tfaot/c_api.h"

enum { kSteps = 40, kRows = 64, kFeatures = 784, kClasses = 10 };

/* A number in [-1, 1) that depends on the seed alone. */
static float Noise(uint32_t* seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return (float)(*seed >> 8) / 8388608.0f - 1.0f;
}

/* Fills a batch: the classes differ in a fixed pattern, and rows in noise. */
static void Fill(float* x, float* y, uint32_t* seed) {
  int row;
  memset(y, 0, kRows * kClasses * sizeof(float));
  for (row = 0; row < kRows; ++row) {
    const int label = row % kClasses;
    uint32_t pattern = 1000u + (uint32_t)label;
    int i;
    for (i = 0; i < kFeatures; ++i) {
      x[row * kFeatures + i] = Noise(&pattern) + 0.5f * Noise(seed);
    }
    y[row * kClasses + label] = 1.0f;
  }
}

/* Prints a tensor as "name: dtype number, rank, bytes". */
static void Print(const char* kind, const tfaot_tensor* tensor) {
  int axis;
  printf("%s %s: dtype %d, [", kind, tensor->name, (int)tensor->dtype);
  for (axis = 0; axis < tensor->rank; ++axis) {
    printf(axis > 0 ? ", %ld" : "%ld", (long)tensor->dims[axis]);
  }
  printf("], %lu bytes\n", (unsigned long)tensor->bytes);
}

int main(int argc, char** argv) {
  void* library;
  tfaot_get_api_fn* get_api = NULL;
  const tfaot_api* api;
  const tfaot_description* description;
  tfaot_entry_point entry;
  tfaot_tensor tensor;
  tfaot_model* model;
  float* x;
  float* y;
  float first = 0, loss = 0;
  uint32_t seed = 1;
  size_t i;
  int step;

  if (argc > 1 && strcmp(argv[argc - 1], "--help") == 0) {
    puts("usage: train LIBRARY");
    return 0;
  }
  library = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\nusage: train LIBRARY\n", dlerror());
    return 2;
  }
  /* C has no cast from an object pointer to a function pointer; POSIX does. */
  *(void**)&get_api = dlsym(library, "tfaot_get_api");
  api = get_api != NULL ? get_api(TFAOT_API_VERSION) : NULL;
  if (api == NULL) {
    fprintf(stderr, "%s isn't a model for this program\n", argv[1]);
    return 2;
  }

  description = api->describe();
  printf("%s, made with TensorFlow %s\n", description->name,
         description->tensorflow);
  api->describe_entry_point(0, &entry);
  for (i = 0; i < entry.inputs; ++i) {
    api->describe_input(0, i, &tensor);
    Print("input", &tensor);
  }
  for (i = 0; i < entry.outputs; ++i) {
    api->describe_output(0, i, &tensor);
    Print("output", &tensor);
  }

  if (api->create(NULL, &model) != TFAOT_OK) {
    fprintf(stderr, "%s\n", api->create_error());
    return 1;
  }
  printf("runs on %s\n", api->isa(model));
  x = (float*)api->input(model, 0, 0);
  y = (float*)api->input(model, 0, 1);
  for (step = 0; step < kSteps; ++step) {
    Fill(x, y, &seed);
    if (api->run(model, 0, 0) != TFAOT_OK) {
      fprintf(stderr, "step %d: %s\n", step, api->error(model));
      return 1;
    }
    loss = *(const float*)api->output(model, 0, 0);
    if (step == 0) first = loss;
    if (step % 10 == 0) printf("step %2d  loss %.4f\n", step, (double)loss);
  }
  api->destroy(model);
  dlclose(library);
  return loss < first ? 0 : 1;
}
