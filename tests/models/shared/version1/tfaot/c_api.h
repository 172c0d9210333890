/* Version 1 of the C interface, as programs were compiled with it. It never
 * changes: version1_test is built with it. */
#ifndef TFAOT_C_API_H_
#define TFAOT_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TFAOT_API_VERSION 1

typedef struct tfaot_model tfaot_model;

typedef int32_t tfaot_status;
enum {
  TFAOT_OK = 0,
  TFAOT_INVALID_ARGUMENT = 1,
  TFAOT_FILE_ACCESS = 2,
  TFAOT_BAD_FILE = 3,
  TFAOT_MISMATCH = 4,
  TFAOT_NO_WEIGHTS = 5,
  TFAOT_UNSUPPORTED_CPU = 6,
  TFAOT_OUT_OF_MEMORY = 7,
  TFAOT_CANCELLED = 8,
  TFAOT_KERNEL_FAILED = 9,
  TFAOT_UNKNOWN_INPUT = 100,
  TFAOT_UNSUPPORTED = 101,
  TFAOT_FAILED = 102
};

typedef int32_t tfaot_dtype;
enum {
  TFAOT_FLOAT32 = 1,
  TFAOT_FLOAT64 = 2,
  TFAOT_INT32 = 3,
  TFAOT_UINT8 = 4,
  TFAOT_INT16 = 5,
  TFAOT_INT8 = 6,
  TFAOT_COMPLEX64 = 8,
  TFAOT_INT64 = 9,
  TFAOT_BOOL = 10,
  TFAOT_BFLOAT16 = 14,
  TFAOT_UINT16 = 17,
  TFAOT_COMPLEX128 = 18,
  TFAOT_FLOAT16 = 19,
  TFAOT_UINT32 = 22,
  TFAOT_UINT64 = 23
};

enum { TFAOT_BATCHED = 1, TFAOT_BOUNDED = 2, TFAOT_WRITTEN = 4 };

typedef struct tfaot_tensor {
  const char* name;
  const char* member;
  tfaot_dtype dtype;
  int32_t rank;
  const int64_t* dims;
  uint64_t bytes;
  uint32_t flags;
} tfaot_tensor;

typedef struct tfaot_entry_point {
  const char* name;
  size_t inputs;
  size_t outputs;
  int64_t max_batch;
} tfaot_entry_point;

typedef struct tfaot_description {
  const char* name;
  const char* tensorflow;
  const char* manifest;
  const char* const* isas;
  uint64_t fingerprint;
  size_t entry_points;
  size_t variables;
} tfaot_description;

typedef struct tfaot_thread_pool {
  void* pool;
  int threads;
  void (*parallel_for)(void* pool, int parts,
                       void (*run)(void* context, int part), void* context);
} tfaot_thread_pool;

typedef struct tfaot_api {
  size_t size;
  uint32_t version;

  const tfaot_description* (*describe)(void);
  tfaot_status (*describe_entry_point)(size_t entry_point,
                                       tfaot_entry_point* description);
  tfaot_status (*describe_input)(size_t entry_point, size_t index,
                                 tfaot_tensor* description);
  tfaot_status (*describe_output)(size_t entry_point, size_t index,
                                  tfaot_tensor* description);
  tfaot_status (*describe_variable)(size_t index, tfaot_tensor* description);

  tfaot_status (*create)(const char* isa, tfaot_model** model);

  const char* (*create_error)(void);

  void (*destroy)(tfaot_model* model);

  void* (*input)(tfaot_model* model, size_t entry_point, size_t index);
  const void* (*output)(const tfaot_model* model, size_t entry_point,
                        size_t index);
  const void* (*variable)(const tfaot_model* model, size_t index);
  void* (*mutable_variable)(tfaot_model* model, size_t index);

  tfaot_status (*output_dims)(const tfaot_model* model, size_t entry_point,
                              size_t index, int64_t* dims);

  tfaot_status (*offer)(tfaot_model* model, size_t entry_point,
                        const char* name, tfaot_dtype dtype, int32_t rank,
                        const int64_t* dims, const void* values);

  tfaot_status (*run)(tfaot_model* model, size_t entry_point, int64_t batch);

  tfaot_status (*load)(tfaot_model* model, const char* path);
  tfaot_status (*save)(tfaot_model* model, const char* path);

  tfaot_status (*seed)(tfaot_model* model, uint64_t seed);

  const char* (*error)(const tfaot_model* model);

  const char* (*isa)(const tfaot_model* model);

  tfaot_status (*set_threads)(tfaot_model* model, int threads);

  tfaot_status (*set_thread_pool)(tfaot_model* model,
                                  const tfaot_thread_pool* pool);
} tfaot_api;

typedef const tfaot_api* tfaot_get_api_fn(uint32_t version);

const tfaot_api* tfaot_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif
