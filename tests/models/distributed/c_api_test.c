/* Replicas in C: what a table of functions takes, and what it says about
 * gradients. The arguments are libraries: of a step for one replica, of the same
 * step for two, and of a step in two entry points. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tests/runtime/expect.h"
#include "tfaot/c_api.h"
#include "tfaot/collectives.h"

static const tfaot_api* Load(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void* symbol = library != NULL ? dlsym(library, "tfaot_get_api") : NULL;
  tfaot_get_api_fn* get;
  memcpy(&get, &symbol, sizeof(get));
  return get != NULL ? get(TFAOT_API_VERSION) : NULL;
}

/* The other replica always has the same values. */
typedef struct Twin {
  int calls;
  int fails;
  int aborted;
} Twin;

static int32_t Start(void* context, const tfaot_collective* call) {
  uint64_t i;
  ++((Twin*)context)->calls;
  for (i = 0; i < call->count; ++i) ((float*)call->data)[i] *= 2;
  return 0;
}

static int32_t Wait(void* context, const tfaot_collective* call) {
  (void)call;
  return ((Twin*)context)->fails;
}

static void Abort(void* context) { ((Twin*)context)->aborted = 1; }

static const char* Why(void* context) {
  (void)context;
  return "the other one is gone";
}

/* Returns the loss of the last of a few steps on the same rows. */
static float Train(const tfaot_api* api, tfaot_model* model) {
  float* const x = (float*)api->input(model, 0, 0);
  tfaot_tensor input = {0};
  uint64_t i;
  EXPECT(api->describe_input(0, 0, &input) == TFAOT_OK);
  for (i = 0; i < input.bytes / sizeof(*x); ++i) {
    x[i] = (float)(i % 20 % 7) / 7;
  }
  for (i = 0; i < 5; ++i) EXPECT(api->run(model, 0, 0) == TFAOT_OK);
  return *(const float*)api->output(model, 0, 0);
}

static void TestReplicas(const tfaot_api* one, const tfaot_api* two) {
  Twin twin = {0, 0, 0};
  const tfaot_collectives all = {
      TFAOT_COLLECTIVES_VERSION, 1, 2, &twin, Start, Wait, Abort, Why, 0};
  tfaot_collectives wrong = all;
  tfaot_model* model;
  float loss, alone;
  EXPECT(two->create(NULL, &model) == TFAOT_OK);
  EXPECT(two->run(model, 0, 0) == TFAOT_INVALID_ARGUMENT);
  EXPECT(two->set_collectives(NULL, &all) == TFAOT_INVALID_ARGUMENT);
  EXPECT(two->set_collectives(model, NULL) == TFAOT_INVALID_ARGUMENT);
  wrong.size = 3;
  EXPECT(two->set_collectives(model, &wrong) == TFAOT_INVALID_ARGUMENT);
  EXPECT(strstr(two->error(model), "replica 1 of 3") != NULL);
  EXPECT(two->set_collectives(model, &all) == TFAOT_OK);
  loss = Train(two, model);
  EXPECT(twin.calls == 5 && !twin.aborted);
  twin.fails = 1;
  EXPECT(two->run(model, 0, 0) == TFAOT_EXCHANGE_FAILED && twin.aborted);
  EXPECT(strstr(two->error(model), "the other one is gone") != NULL);
  two->destroy(model);

  /* Two replicas with the same rows learn what one learns with them. */
  EXPECT(one->create(NULL, &model) == TFAOT_OK);
  EXPECT(one->set_collectives(model, &all) == TFAOT_UNSUPPORTED);
  alone = Train(one, model);
  EXPECT(loss - alone < 1e-6f && alone - loss < 1e-6f);
  one->destroy(model);
}

static void TestGradients(const tfaot_api* api) {
  tfaot_gradient gradient;
  tfaot_tensor variable, output, input;
  size_t count = 0;
  EXPECT(api->describe_gradient(0, NULL) == TFAOT_INVALID_ARGUMENT);
  while (api->describe_gradient(count, &gradient) == TFAOT_OK) {
    EXPECT(api->describe_variable(gradient.variable, &variable) == TFAOT_OK);
    EXPECT(api->describe_output(gradient.computed_by, gradient.output,
                                &output) == TFAOT_OK);
    EXPECT(api->describe_input(gradient.applied_by, gradient.input, &input) ==
           TFAOT_OK);
    EXPECT(gradient.computed_by == 0 && gradient.applied_by == 1);
    EXPECT(strstr(variable.name, count % 2 ? "/bias" : "/kernel") != NULL);
    EXPECT(variable.bytes == output.bytes && output.bytes == input.bytes);
    ++count;
  }
  EXPECT(count == 8);
  EXPECT(strstr(api->create_error(), "there is no gradient 8") != NULL);
}

int main(int argc, char** argv) {
  const tfaot_api* api[3];
  int i;
  for (i = 0; i < 3; ++i) {
    api[i] = argc > 3 ? Load(argv[1 + i]) : NULL;
    if (api[i] == NULL) return 2;
    EXPECT(api[i]->version >= 3);
  }
  TestReplicas(api[0], api[1]);
  TestGradients(api[2]);
  EXPECT(api[0]->describe_gradient(0, NULL) == TFAOT_INVALID_ARGUMENT);
  return failed == 0 ? 0 : 1;
}
