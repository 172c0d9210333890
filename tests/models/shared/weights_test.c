/* Protects programs in C that load weights, lend buffers, and watch or cancel
 * runs: what version 2 of the table adds. tests/run/run_test.py shares weights
 * and changes them while threads run, by the same table.
 *
 *   weights_test LIBRARY NEXT_LIBRARY FROZEN_LIBRARY STORED_LIBRARY
 *
 * The first is tests/models/link/affine.py: y = w x + b, after which w grows by
 * one. The model writes w, and only reads b, so with x = 0, y is b. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/runtime/expect.h"
#include "tfaot/c_api.h"

static const tfaot_api* Load(const char* path) {
  tfaot_get_api_fn* get_api = NULL;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    printf("%s\n", dlerror());
    exit(1);
  }
  *(void**)&get_api = dlsym(library, "tfaot_get_api");
  return get_api(TFAOT_API_VERSION);
}

static const float kOnes[4] = {1, 1, 1, 1};

static float ReadB(const tfaot_api* api, const tfaot_model* model) {
  return ((const float*)api->variable(model, 1))[3];
}

/* From a path, a descriptor, and memory; mapped and copied. */
static void LoadsFrom(const tfaot_api* api) {
  char path[1024];
  tfaot_source source = {NULL, NULL, 0, -1, 0};
  tfaot_model *model, *other;
  static char file[4096];
  size_t size;
  FILE* stream;
  int way;

  sprintf(path, "%.900s/b.safetensors", getenv("TEST_TMPDIR"));
  EXPECT(api->create(NULL, &model) == TFAOT_OK);
  ((float*)api->mutable_variable(model, 1))[3] = 77;
  EXPECT(api->save(model, path) == TFAOT_OK);
  stream = fopen(path, "rb");
  size = fread(file, 1, sizeof(file), stream);
  fclose(stream);
  for (way = 0; way < 6; ++way) {
    tfaot_weights* weights;
    source.path = way / 2 == 0 ? path : NULL;
    source.data = way / 2 == 1 ? file : NULL;
    source.bytes = way / 2 == 1 ? size : 0;
    source.fd = way / 2 == 2 ? open(path, O_RDONLY) : -1;
    source.copied = way % 2;
    EXPECT(api->load_weights(&source, &weights) == TFAOT_OK);
    EXPECT(api->create_with(NULL, weights, NULL, &other) == TFAOT_OK);
    EXPECT(ReadB(api, other) == 77);
    api->destroy(other);
    api->destroy_weights(weights);
    EXPECT(api->create(NULL, &other) == TFAOT_OK);
    EXPECT(api->load_from(other, &source) == TFAOT_OK);
    EXPECT(ReadB(api, other) == 77);
    if (source.fd >= 0) EXPECT(close(source.fd) == 0); /* nobody else did */
    api->destroy(other);
  }
  source.fd = -1;
  EXPECT(api->load_from(model, &source) == TFAOT_FILE_ACCESS);
  source.data = "no weights";
  source.bytes = 10;
  EXPECT(api->load_from(model, &source) == TFAOT_BAD_FILE);
  EXPECT(strstr(api->error(model), "safetensors") != NULL);
  EXPECT(ReadB(api, model) == 77);
  api->destroy(model);
}

/* Buffers of the program, and the error of one that isn't aligned. */
static void Lends(const tfaot_api* api) {
  char room[3 * 64 + 64];
  float* x = (float*)(((uintptr_t)room + 63) & ~(uintptr_t)63);
  float* y = x + 16;
  void* own;
  tfaot_model* model;

  EXPECT(api->create(NULL, &model) == TFAOT_OK);
  own = api->input(model, 0, 0);
  x[3] = 2;
  EXPECT(api->set_input_data(model, 0, 0, x) == TFAOT_OK);
  EXPECT(api->set_output_data(model, 0, 0, y) == TFAOT_OK);
  EXPECT(api->input(model, 0, 0) == x && api->output(model, 0, 0) == y);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK && y[3] == 8.5f && x[3] == 2);
  EXPECT(api->set_output_data(model, 0, 0, y + 1) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strcmp(api->error(model),
                "a::b_c::set_y_data() got an address that isn't aligned\n"
                "  found: an address 4 bytes after a multiple of 64\n"
                "  to do: allocate the memory with std::aligned_alloc(64, "
                "bytes), or declare it alignas(64)") == 0);
  EXPECT(api->output(model, 0, 0) == y);
  EXPECT(api->set_input_data(model, 0, 0, NULL) == TFAOT_OK);
  EXPECT(api->input(model, 0, 0) == own);
  EXPECT(api->set_output_data(model, 0, 0, NULL) == TFAOT_OK);
  EXPECT(api->set_input_data(model, 0, 9, x) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strcmp(api->error(model),
                "a::b_c: set_input_data: there is no input 9\n"
                "  found: Run() has 2, counted from 0\n"
                "  to do: pass an index less than 2") == 0);
  EXPECT(api->set_output_data(model, 1, 0, y) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->error(model), "set_output_data: there is no entry point 1"));
  api->destroy(model);
}

/* Kernels seen, of which each that starts also ends. */
struct Seen {
  int before, after, stop;
};
static int Before(void* context, const char* kernel) {
  struct Seen* seen = (struct Seen*)context;
  EXPECT(kernel[0] != '\0');
  ++seen->before;
  return !seen->stop;
}
static void After(void* context, const char* kernel) {
  (void)kernel;
  ++((struct Seen*)context)->after;
}

static void Watches(const tfaot_api* api) {
  struct Seen seen = {0, 0, 0};
  tfaot_hooks hooks = {NULL, Before, After};
  tfaot_model* model;

  hooks.context = &seen;
  EXPECT(api->create(NULL, &model) == TFAOT_OK);
  EXPECT(api->set_hooks(model, &hooks) == TFAOT_OK);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  EXPECT(seen.before > 0 && seen.after == seen.before);
  seen.stop = 1;
  EXPECT(api->run(model, 0, 0) == TFAOT_CANCELLED);
  EXPECT(strcmp(api->error(model), "a::b_c::Run(): hooks ended the run") == 0);
  EXPECT(seen.before == seen.after + 1);
  EXPECT(api->set_hooks(model, NULL) == TFAOT_OK);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  EXPECT(seen.before == seen.after + 1);

  api->cancel(model); /* which does nothing yet */
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  EXPECT(api->set_cancellable(model, 1) == TFAOT_OK);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  api->cancel(model);
  EXPECT(api->run(model, 0, 0) == TFAOT_CANCELLED);
  EXPECT(api->run(model, 0, 0) == TFAOT_CANCELLED);
  EXPECT(api->set_cancellable(model, 1) == TFAOT_OK);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  api->destroy(model);
}

static void* Allocate(void* context, size_t bytes, size_t alignment) {
  void* memory = NULL;
  if (*(long*)context < 0) return NULL;
  if (posix_memalign(&memory, alignment, bytes) != 0) return NULL;
  memset(memory, 0xa5, bytes);
  *(long*)context += (long)bytes;
  return memory;
}
static void Free(void* context, void* memory, size_t bytes) {
  *(long*)context -= (long)bytes;
  free(memory);
}

/* As malloc often does. */
static void* AllocateAskew(void* context, size_t bytes, size_t alignment) {
  return (char*)Allocate(context, bytes + 16, alignment) + 16;
}
static void FreeAskew(void* context, void* memory, size_t bytes) {
  Free(context, (char*)memory - 16, bytes + 16);
}

static void Allocates(const tfaot_api* api) {
  long held = 0;
  tfaot_allocator allocator = {NULL, Allocate, Free};
  tfaot_model* model;

  allocator.context = &held;
  EXPECT(api->create_with(NULL, NULL, &allocator, &model) == TFAOT_OK);
  EXPECT(held > 0 && api->run(model, 0, 0) == TFAOT_OK);
  EXPECT(((const float*)api->output(model, 0, 0))[3] == 0.5f);
  api->destroy(model);
  EXPECT(held == 0);
  held = -1;
  EXPECT(api->create_with(NULL, NULL, &allocator, &model) ==
         TFAOT_OUT_OF_MEMORY);
  EXPECT(model == NULL);
  held = 0;
  allocator.allocate = AllocateAskew;
  allocator.free = FreeAskew;
  EXPECT(api->create_with(NULL, NULL, &allocator, &model) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(model == NULL && held == 0);
  EXPECT(strcmp(api->create_error(),
                "a::b_c: create_with: the allocator's memory isn't aligned\n"
                "  found: an address 16 bytes after a multiple of 64\n"
                "  to do: return memory at a multiple of `alignment`") == 0);
  allocator.free = NULL;
  EXPECT(api->create_with(NULL, NULL, &allocator, &model) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(strcmp(api->create_error(),
                "a::b_c: create_with: an allocator without allocate or free\n"
                "  to do: set both") == 0);
}

static int Same(const char* text, const char* expected) {
  if (strcmp(text, expected) != 0) printf("%s\n", text);
  return strcmp(text, expected) == 0;
}

/* What doesn't fit: names, handles of other libraries, and none at all. */
static void Fails(const tfaot_api* api, const tfaot_api* next) {
  tfaot_weights *mine, *other, *none = NULL;
  tfaot_live_weights *live, *no_live;
  tfaot_model* model;
  tfaot_value wrong = {"c", NULL, 16};
  tfaot_source nowhere = {"nowhere", NULL, 0, -1, 0};

  EXPECT(api->initial_weights(&mine) == TFAOT_OK);
  EXPECT(next->initial_weights(&other) == TFAOT_OK);
  EXPECT(api->create(NULL, &model) == TFAOT_OK);
  EXPECT(api->create_live(mine, &live) == TFAOT_OK);
  wrong.data = kOnes;
  EXPECT(api->update_weights(mine, &wrong, 1, &none) == TFAOT_MISMATCH);
  EXPECT(none == NULL && strstr(api->create_error(), "c: the model has") != NULL);
  EXPECT(api->live_update(live, &wrong, 1) == TFAOT_MISMATCH);
  EXPECT(api->live_load(live, &nowhere) == TFAOT_FILE_ACCESS);
  EXPECT(api->load_weights(&nowhere, &none) == TFAOT_FILE_ACCESS);
  EXPECT(strstr(api->create_error(), "nowhere") != NULL && none == NULL);

  EXPECT(api->set_weights(model, other) == TFAOT_INVALID_ARGUMENT);
  EXPECT(Same(api->error(model),
              "a::b_c: set_weights got no weights of this library\n"
              "  found: a handle of another library\n"
              "  to do: pass weights that this library's functions made"));
  EXPECT(api->set_weights(model, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->error(model), "\n  found: NULL\n") != NULL);
  api->destroy(model);
  EXPECT(api->create_with(NULL, other, NULL, &model) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(model == NULL);
  EXPECT(api->update_weights(other, &wrong, 0, &none) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(api->live_swap(live, other) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->create_live(other, &no_live) == TFAOT_INVALID_ARGUMENT);
  EXPECT(no_live == NULL);
  EXPECT(next->create(NULL, &model) == TFAOT_OK);
  EXPECT(next->follow(model, live) == TFAOT_INVALID_ARGUMENT);
  EXPECT(Same(next->error(model),
              "a::b_c: follow got no live weights of this library\n"
              "  found: a handle of another library\n"
              "  to do: pass those that this library's create_live made"));
  EXPECT(next->live_load(live, &nowhere) == TFAOT_INVALID_ARGUMENT);
  EXPECT(next->live_update(live, &wrong, 0) == TFAOT_INVALID_ARGUMENT);
  EXPECT(next->live_current(live, &none) == TFAOT_INVALID_ARGUMENT);
  next->destroy(model);
  api->destroy_live(live);
  api->destroy_weights(mine);
  next->destroy_weights(other);
}

/* NULL, where the library needs a pointer: errors, and no crash. */
static void GetsNull(const tfaot_api* api) {
  tfaot_weights *weights, *none = (tfaot_weights*)api;
  tfaot_live_weights* live;
  tfaot_model* model;
  tfaot_value value = {NULL, NULL, 16};
  tfaot_source nowhere = {NULL, NULL, 0, -1, 0};

  EXPECT(api->initial_weights(NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(Same(api->create_error(),
              "a::b_c: initial_weights got no place for a handle\n"
              "  found: NULL\n"
              "  to do: pass a pointer; tfaot/c_api.h says to what"));
  EXPECT(api->create_with(NULL, NULL, NULL, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->initial_weights(&weights) == TFAOT_OK);
  EXPECT(api->load_weights(NULL, &none) == TFAOT_INVALID_ARGUMENT);
  EXPECT(none == NULL);
  EXPECT(strstr(api->create_error(), "load_weights got no source") != NULL);
  EXPECT(api->load_weights(&nowhere, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->load_weights(&nowhere, &none) == TFAOT_FILE_ACCESS);
  EXPECT(api->update_weights(weights, NULL, 1, &none) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->create_error(), "update_weights got no values") != NULL);
  EXPECT(api->update_weights(weights, &value, 1, NULL) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(api->update_weights(weights, &value, 1, &none) == TFAOT_MISMATCH);
  EXPECT(strstr(api->create_error(), "value 0: a name of nullptr") != NULL);
  value.name = "b";
  EXPECT(api->update_weights(weights, &value, 1, &none) == TFAOT_MISMATCH);
  EXPECT(strstr(api->create_error(), "b: values at nullptr") != NULL);
  EXPECT(api->update_weights(NULL, NULL, 0, &none) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->weights_version(NULL) == 0 && api->weights_version(weights) != 0);

  EXPECT(api->create_live(weights, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->create_live(NULL, &live) == TFAOT_INVALID_ARGUMENT);
  EXPECT(live == NULL);
  EXPECT(api->create_live(weights, &live) == TFAOT_OK);
  EXPECT(api->live_swap(live, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->live_swap(NULL, weights) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->live_load(live, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->live_load(NULL, &nowhere) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->live_update(live, NULL, 1) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->live_update(NULL, NULL, 0) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->live_current(live, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->live_current(NULL, &none) == TFAOT_INVALID_ARGUMENT);
  api->destroy_live(live);

  EXPECT(api->load_from(NULL, &nowhere) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->set_input_data(NULL, 0, 0, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->set_output_data(NULL, 0, 0, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->set_hooks(NULL, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->set_cancellable(NULL, 1) == TFAOT_INVALID_ARGUMENT);
  api->cancel(NULL);
  none = weights;
  EXPECT(api->weights(NULL, &none) == TFAOT_INVALID_ARGUMENT && none == NULL);
  EXPECT(api->set_weights(NULL, weights) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->follow(NULL, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->error(NULL), "follow got no model") != NULL);

  EXPECT(api->create(NULL, &model) == TFAOT_OK);
  EXPECT(api->load_from(model, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->error(model), "load_from got no source") != NULL);
  EXPECT(api->weights(model, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  api->destroy(model);
  api->destroy_weights(weights);
}

/* Models without variables, and those whose values are in a file. */
static void Lacks(const tfaot_api* frozen, const tfaot_api* stored) {
  tfaot_weights* weights;
  tfaot_model* model;

  EXPECT(frozen->initial_weights(&weights) == TFAOT_UNSUPPORTED);
  EXPECT(Same(frozen->create_error(),
              "tests::Fixed: initial_weights isn't a function of this model\n"
              "  found: all its variables are frozen, or it has none\n"
              "  to do: don't call it for this model"));
  EXPECT(frozen->create(NULL, &model) == TFAOT_OK);
  EXPECT(frozen->weights(model, &weights) == TFAOT_UNSUPPORTED);
  EXPECT(frozen->follow(model, NULL) == TFAOT_UNSUPPORTED);
  EXPECT(frozen->load(model, "any") == TFAOT_UNSUPPORTED);
  EXPECT(frozen->save(model, "any") == TFAOT_UNSUPPORTED);
  weights = (tfaot_weights*)frozen;
  EXPECT(frozen->load_weights(NULL, &weights) == TFAOT_INVALID_ARGUMENT);
  EXPECT(weights == NULL);
  frozen->destroy(model);
  EXPECT(stored->initial_weights(&weights) == TFAOT_NO_WEIGHTS);
  EXPECT(Same(stored->create_error(),
              "tests::Stored: initial_weights: the library contains none\n"
              "  found: embed_variables is off\n"
              "  to do: call load_weights with a file"));
}

int main(int argc, char** argv) {
  const tfaot_api *api, *next;
  if (argc != 5) {
    printf("usage: weights_test LIBRARY NEXT FROZEN STORED\n");
    return 2;
  }
  api = Load(argv[1]);
  next = Load(argv[2]);
  LoadsFrom(api);
  Lends(api);
  Watches(api);
  Allocates(api);
  Fails(api, next);
  GetsNull(api);
  Lacks(Load(argv[3]), Load(argv[4]));
  return failed != 0;
}
