/* Protects programs in C: everything that the table of functions does, with
 * numbers that are checked by hand, and two releases of one class in one
 * process.
 *
 *   c_api_test LIBRARY NEXT_LIBRARY
 *
 * The first is tests/models/link/affine.py: y = w x + b, after which w grows by
 * one. The second is affine_next.py. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/runtime/expect.h"
#include "tfaot/c_api.h"

static const tfaot_api* Load(const char* path) {
  tfaot_get_api_fn* get_api = NULL;
  /* Global, so that symbols would be shared if there were any. */
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) {
    printf("%s\n", dlerror());
    exit(1);
  }
  *(void**)&get_api = dlsym(library, "tfaot_get_api");
  EXPECT(get_api(0) == NULL);
  EXPECT(get_api(1000) == NULL);
  /* Programs of earlier versions get the table, too, of which they know the
   * start: symbols_test compares it. */
  EXPECT(get_api(1) == get_api(TFAOT_API_VERSION));
  EXPECT(get_api(2) == get_api(TFAOT_API_VERSION));
  return get_api(TFAOT_API_VERSION);
}

static void Describes(const tfaot_api* api) {
  const tfaot_description* model = api->describe();
  tfaot_entry_point entry;
  tfaot_tensor tensor;

  EXPECT(api->size >= sizeof(tfaot_api));
  EXPECT(api->version >= TFAOT_API_VERSION);
  EXPECT(strcmp(model->name, "a::b_c") == 0);
  EXPECT(strncmp(model->manifest, "{\"format\":", 10) == 0);
  EXPECT(model->tensorflow[0] >= '2' && model->tensorflow[0] <= '9');
  EXPECT(model->isas[0] != NULL);
  EXPECT(model->fingerprint != 0);
  EXPECT(model->entry_points == 1);
  EXPECT(model->variables == 2);

  EXPECT(api->describe_entry_point(0, &entry) == TFAOT_OK);
  EXPECT(strcmp(entry.name, "Run") == 0);
  EXPECT(entry.inputs == 2 && entry.outputs == 1 && entry.max_batch == 0);

  EXPECT(api->describe_input(0, 0, &tensor) == TFAOT_OK);
  EXPECT(strcmp(tensor.name, "x:0") == 0 && strcmp(tensor.member, "x") == 0);
  EXPECT(tensor.dtype == TFAOT_FLOAT32 && tensor.rank == 1);
  EXPECT(tensor.dims[0] == 4 && tensor.bytes == 16 && tensor.flags == 0);
  EXPECT(api->describe_input(0, 1, &tensor) == TFAOT_OK && tensor.rank == 0);
  EXPECT(api->describe_input(0, 2, &tensor) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->describe_output(0, 0, &tensor) == TFAOT_OK);
  EXPECT(strcmp(tensor.member, "y") == 0);
  EXPECT(api->describe_variable(0, &tensor) == TFAOT_OK);
  EXPECT(strcmp(tensor.name, "w") == 0 && tensor.flags == TFAOT_WRITTEN);
  EXPECT(api->describe_variable(1, &tensor) == TFAOT_OK);
  EXPECT(strcmp(tensor.name, "b") == 0 && tensor.flags == 0);
}

/* Tells whether a text is what it should be, and prints it if not. */
static int Same(const char* text, const char* expected) {
  if (strcmp(text, expected) != 0) printf("%s\n", text);
  return strcmp(text, expected) == 0;
}

/* What isn't there: the error says what is. */
static void DescribesNothing(const tfaot_api* api) {
  tfaot_entry_point entry;
  tfaot_tensor tensor;
  tfaot_model* model;
  int64_t dims[1];

  EXPECT(api->describe_entry_point(1, &entry) == TFAOT_INVALID_ARGUMENT);
  EXPECT(Same(api->create_error(),
              "a::b_c: describe_entry_point: there is no entry point 1\n"
              "  found: the model has 1, counted from 0\n"
              "  to do: pass an index less than 1"));
  EXPECT(api->describe_input(1, 0, &tensor) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->create_error(), "describe_input: there is no entry point 1"));
  EXPECT(api->describe_output(0, 1, &tensor) == TFAOT_INVALID_ARGUMENT);
  EXPECT(Same(api->create_error(),
              "a::b_c: describe_output: there is no output 1\n"
              "  found: Run() has 1, counted from 0\n"
              "  to do: pass an index less than 1"));
  EXPECT(api->describe_variable(2, &tensor) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->create_error(), "found: the model has 2, counted from 0"));
  EXPECT(api->describe_variable(1, &tensor) == TFAOT_OK);
  EXPECT(api->create_error()[0] == '\0');

  EXPECT(api->create(NULL, &model) == TFAOT_OK);
  EXPECT(api->output_dims(model, 0, 3, dims) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->create_error(), "output_dims: there is no output 3"));
  api->destroy(model);
}

/* NULL, where the library needs a pointer: errors, and no crash. */
static void GetsNull(const tfaot_api* api) {
  static const float kValues[4] = {1, 2, 3, 4};
  static const int64_t kFour[] = {4}, kNone[] = {0};
  tfaot_model* model;
  int64_t dims[1];

  EXPECT(api->create(NULL, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->create_error(), "create got no place for a handle") != NULL);
  EXPECT(api->describe_entry_point(0, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->describe_input(0, 0, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->describe_output(0, 0, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->describe_variable(0, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(Same(api->create_error(),
              "a::b_c: describe_variable got no description\n"
              "  found: NULL\n"
              "  to do: pass a pointer; tfaot/c_api.h says to what"));

  /* No model, such as after a create that failed. */
  EXPECT(api->run(NULL, 0, 0) == TFAOT_INVALID_ARGUMENT);
  EXPECT(Same(api->error(NULL),
              "a::b_c: run got no model\n"
              "  found: NULL\n"
              "  to do: pass a pointer; tfaot/c_api.h says to what"));
  EXPECT(strcmp(api->error(NULL), api->create_error()) == 0);
  EXPECT(api->input(NULL, 0, 0) == NULL && api->output(NULL, 0, 0) == NULL);
  EXPECT(api->variable(NULL, 0) == NULL);
  EXPECT(api->mutable_variable(NULL, 0) == NULL);
  EXPECT(api->output_dims(NULL, 0, 0, dims) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->offer(NULL, 0, "x", TFAOT_FLOAT32, 1, kFour, kValues) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(api->load(NULL, "any") == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->save(NULL, "any") == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->seed(NULL, 1) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->set_threads(NULL, 1) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->set_thread_pool(NULL, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->error(NULL), "set_thread_pool got no model") != NULL);
  EXPECT(api->isa(NULL)[0] == '\0');

  EXPECT(api->create(NULL, &model) == TFAOT_OK && api->error(NULL)[0] == '\0');
  EXPECT(api->load(model, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->error(model), "load got no path") != NULL);
  EXPECT(api->save(model, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->error(model), "save got no path") != NULL);
  EXPECT(api->output_dims(model, 0, 0, NULL) == TFAOT_INVALID_ARGUMENT);
  EXPECT(api->offer(model, 0, NULL, TFAOT_FLOAT32, 1, kFour, kValues) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->error(model), "offer got no name") != NULL);
  EXPECT(api->offer(model, 0, "x", TFAOT_FLOAT32, 1, NULL, kValues) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(api->offer(model, 0, "x", TFAOT_FLOAT32, 1, kFour, NULL) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->error(model), "offer got no values") != NULL);
  EXPECT(api->offer(model, 0, "x", TFAOT_FLOAT32, 1, kNone, NULL) ==
         TFAOT_MISMATCH);
  EXPECT(api->offer(model, 0, "x", TFAOT_FLOAT32, -1, NULL, kValues) ==
         TFAOT_MISMATCH);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  api->destroy(model);
}

static void Runs(const tfaot_api* api) {
  tfaot_model* model;
  float* x;
  const float* y;
  int64_t dims[1] = {0};

  EXPECT(api->create(NULL, &model) == TFAOT_OK);
  EXPECT(api->create_error()[0] == '\0' && api->isa(model)[0] != '\0');
  x = (float*)api->input(model, 0, 0);
  y = (const float*)api->output(model, 0, 0);
  EXPECT(x[3] == 0 && ((uintptr_t)x & 63u) == 0);
  x[3] = 2;
  EXPECT(api->run(model, 0, 0) == TFAOT_OK && api->error(model)[0] == '\0');
  EXPECT(y[0] == 0.5f && y[3] == 8.5f);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK && y[3] == 10.5f);
  EXPECT(api->output_dims(model, 0, 0, dims) == TFAOT_OK && dims[0] == 4);

  /* w is at 6 after two runs; b is only read until somebody changes it. */
  EXPECT(((const float*)api->variable(model, 0))[3] == 6);
  EXPECT(((const float*)api->variable(model, 1))[3] == 0.5f);
  ((float*)api->mutable_variable(model, 1))[3] = 100;
  EXPECT(((const float*)api->variable(model, 1))[3] == 100);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK && y[3] == 112);

  EXPECT(api->input(model, 0, 2) == NULL && api->input(model, 1, 0) == NULL);
  EXPECT(api->output(model, 0, 1) == NULL);
  EXPECT(api->variable(model, 2) == NULL);
  EXPECT(api->mutable_variable(model, 2) == NULL);
  EXPECT(api->output_dims(model, 0, 1, dims) == TFAOT_INVALID_ARGUMENT);
  api->destroy(model);
  api->destroy(NULL);
}

static void Fails(const tfaot_api* api) {
  tfaot_model* model = (tfaot_model*)api;

  EXPECT(api->create("x86-64-v9", &model) == TFAOT_UNSUPPORTED_CPU);
  EXPECT(model == NULL && strstr(api->create_error(), "x86-64-v9") != NULL);
  EXPECT(api->create(api->describe()->isas[0], &model) == TFAOT_OK);
  EXPECT(strcmp(api->isa(model), api->describe()->isas[0]) == 0);
  EXPECT(api->create_error()[0] == '\0');

  EXPECT(api->run(model, 1, 0) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strcmp(api->error(model),
                "a::b_c: run: there is no entry point 1\n"
                "  found: the model has 1, counted from 0\n"
                "  to do: pass an index less than 1") == 0);
  EXPECT(api->run(model, 0, 3) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strcmp(api->error(model),
                "a::b_c: run: a batch of 3 rows\n"
                "  found: Run() takes no batch\n"
                "  to do: pass 0, or set the target's batch_sizes") == 0);
  EXPECT(api->seed(model, 1) == TFAOT_UNSUPPORTED);
  EXPECT(strcmp(api->error(model),
                "a::b_c: seed isn't a function of this model\n"
                "  found: it draws no random numbers\n"
                "  to do: don't call it for this model") == 0);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK && api->error(model)[0] == '\0');
  api->destroy(model);
}

static void Offers(const tfaot_api* api) {
  static const float kValues[4] = {1, 2, 3, 4};
  static const int64_t kFour[] = {4}, kThree[] = {3};
  tfaot_model* model;

  EXPECT(api->create(NULL, &model) == TFAOT_OK);
  EXPECT(api->offer(model, 0, "x", TFAOT_FLOAT32, 1, kFour, kValues) ==
         TFAOT_OK);
  EXPECT(((float*)api->input(model, 0, 0))[2] == 3);
  EXPECT(api->offer(model, 0, "x:0", TFAOT_FLOAT32, 1, kFour, kValues) ==
         TFAOT_OK);
  EXPECT(api->offer(model, 0, "age", TFAOT_FLOAT32, 1, kFour, kValues) ==
         TFAOT_UNKNOWN_INPUT);
  EXPECT(strcmp(api->error(model),
                "a::b_c::Run(): ignored \"age\", which isn't an input\n"
                "  found: the inputs are \"x:0\", \"unused:0\"\n"
                "  to do: nothing, if the program also serves other models") ==
         0);
  EXPECT(api->offer(model, 0, "x", TFAOT_INT64, 1, kFour, kValues) ==
         TFAOT_MISMATCH);
  EXPECT(api->offer(model, 0, "x", TFAOT_FLOAT32, 1, kThree, kValues) ==
         TFAOT_MISMATCH);
  EXPECT(strcmp(api->error(model),
                "a::b_c::Run(): the input \"x\" can't be float32[3]\n"
                "  found: the model takes float32[4]\n"
                "  to do: convert the values") == 0);
  EXPECT(api->offer(model, 7, "x", TFAOT_FLOAT32, 1, kFour, kValues) ==
         TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(api->error(model), "offer: there is no entry point 7") != NULL);
  api->destroy(model);
}

static void Saves(const tfaot_api* api) {
  tfaot_model* model;
  tfaot_model* other;
  char path[1024];

  sprintf(path, "%.900s/w.safetensors", getenv("TEST_TMPDIR"));
  EXPECT(api->create(NULL, &model) == TFAOT_OK);
  EXPECT(api->create(NULL, &other) == TFAOT_OK);
  ((float*)api->mutable_variable(model, 0))[1] = 77;
  EXPECT(api->save(model, path) == TFAOT_OK);
  EXPECT(api->load(other, path) == TFAOT_OK);
  EXPECT(((const float*)api->variable(other, 0))[1] == 77);
  EXPECT(api->load(other, "nowhere") != TFAOT_OK);
  EXPECT(strstr(api->error(other), "nowhere") != NULL);
  EXPECT(((const float*)api->variable(other, 0))[1] == 77);
  EXPECT(api->save(model, "/proc/nowhere/w") != TFAOT_OK);
  EXPECT(strstr(api->error(model), "/proc/nowhere") != NULL);
  api->destroy(model);
  api->destroy(other);
}

static void Serial(void* pool, int parts, void (*run)(void* context, int part),
                   void* context) {
  int part;
  ++*(int*)pool;
  for (part = parts - 1; part >= 0; --part) run(context, part);
}

static void UsesThreads(const tfaot_api* api) {
  int calls = 0;
  tfaot_thread_pool pool = {NULL, 2, Serial};
  tfaot_model* model;

  pool.pool = &calls;
  EXPECT(api->create(NULL, &model) == TFAOT_OK);
  EXPECT(api->set_threads(model, 2) == TFAOT_OK);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  EXPECT(api->set_thread_pool(model, &pool) == TFAOT_OK);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  EXPECT(api->set_threads(model, 0) == TFAOT_OK);
  EXPECT(api->set_threads(model, -1) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strcmp(api->error(model),
                "a::b_c: set_threads: -1 threads\n"
                "  to do: pass 1 or more, or 0 for one per core") == 0);
  pool.threads = 0;
  EXPECT(api->set_thread_pool(model, &pool) == TFAOT_INVALID_ARGUMENT);
  pool.parallel_for = NULL;
  EXPECT(api->set_thread_pool(model, &pool) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strcmp(api->error(model),
                "a::b_c: set_thread_pool: a pool of 0 threads without "
                "parallel_for\n"
                "  to do: set both; a pool has 1 or more threads") == 0);
  EXPECT(api->set_thread_pool(model, NULL) == TFAOT_OK);
  EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  api->destroy(model);
}

/* A large product, which a model shares out to the program's threads. */
static void SharesOut(const tfaot_api* api) {
  int calls = 0;
  tfaot_thread_pool pool = {NULL, 4, Serial};
  tfaot_model* one;
  tfaot_model* many;

  pool.pool = &calls;
  EXPECT(api->create(NULL, &one) == TFAOT_OK);
  EXPECT(api->create(NULL, &many) == TFAOT_OK);
  EXPECT(api->set_thread_pool(many, &pool) == TFAOT_OK);
  EXPECT(api->run(one, 0, 0) == TFAOT_OK && calls == 0);
  EXPECT(api->run(many, 0, 0) == TFAOT_OK && calls > 0);
  EXPECT(memcmp(api->output(one, 0, 0), api->output(many, 0, 0), 4) == 0);
  api->destroy(one);
  api->destroy(many);
}

/* Both libraries define the class a::b_c and the same runtime. */
static void TwoReleases(const tfaot_api* api, const tfaot_api* next) {
  tfaot_model* old_model;
  tfaot_model* new_model;
  int step;

  EXPECT(api->describe()->fingerprint != next->describe()->fingerprint);
  EXPECT(api->describe()->variables == 2 && next->describe()->variables == 3);
  EXPECT(api->create(NULL, &old_model) == TFAOT_OK);
  EXPECT(next->create(NULL, &new_model) == TFAOT_OK);
  for (step = 0; step < 3; ++step) {
    ((float*)api->input(old_model, 0, 0))[0] = 2;
    ((float*)next->input(new_model, 0, 0))[0] = 2;
    EXPECT(api->run(old_model, 0, 0) == TFAOT_OK);
    EXPECT(next->run(new_model, 0, 0) == TFAOT_OK);
    EXPECT(*(const float*)api->output(old_model, 0, 0) ==
           2 * (1.0f + (float)step) + 0.5f);
    EXPECT(*(const float*)next->output(new_model, 0, 0) ==
           2 * (10.0f + (float)step) + 2.0f);
  }
  api->destroy(old_model);
  next->destroy(new_model);
}

int main(int argc, char** argv) {
  const tfaot_api* api;
  const tfaot_api* next;
  if (argc != 4) {
    printf("usage: c_api_test LIBRARY NEXT_LIBRARY LARGE_LIBRARY\n");
    return 2;
  }
  api = Load(argv[1]);
  next = Load(argv[2]);
  EXPECT(api != next);
  Describes(api);
  DescribesNothing(api);
  GetsNull(api);
  Runs(api);
  Fails(api);
  Offers(api);
  Saves(api);
  UsesThreads(api);
  TwoReleases(api, next);
  SharesOut(Load(argv[3]));
  return failed != 0;
}
