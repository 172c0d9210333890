/* Protects programs that link libraries instead of loading them: two of them,
 * each with a symbol of its own. */
#include <string.h>

#include "tfaot/c_api.h"

tfaot_get_api_fn affine_api, affine_next_api;

int main(void) {
  const tfaot_api* api = affine_api(TFAOT_API_VERSION);
  const tfaot_api* next = affine_next_api(TFAOT_API_VERSION);
  tfaot_model* model;
  if (api->describe()->variables != 2) return 1;
  if (next->describe()->variables != 3) return 2;
  if (next->create(NULL, &model) != TFAOT_OK) return 3;
  if (next->run(model, 0, 0) != TFAOT_OK) return 4;
  if (*(const float*)next->output(model, 0, 0) != 2) return 5;
  next->destroy(model);
  return 0;
}
