/* A compiled model as a shared library: its whole interface, in C99.
 *
 *   void* library = dlopen("libscorer_shared.so", RTLD_NOW | RTLD_LOCAL);
 *   tfaot_get_api_fn* get = (tfaot_get_api_fn*)dlsym(library, "tfaot_get_api");
 *   const tfaot_api* api = get(TFAOT_API_VERSION);
 *   tfaot_model* model;
 *   if (api == NULL || api->create(NULL, &model) != TFAOT_OK) return 1;
 *   memcpy(api->input(model, 0, 0), batch, sizeof(batch));
 *   if (api->run(model, 0, 0) != TFAOT_OK) puts(api->error(model));
 *   const float* score = api->output(model, 0, 0);
 *   api->destroy(model);
 *
 * A library defines one symbol, tfaot_get_api. Everything else is reached from
 * the table that it returns, so a process can load any number of libraries, of
 * different models and of different releases.
 *
 * Versions: a table only grows. A library gives its table to programs that were
 * compiled for its own version or an earlier one. The structs below, and the
 * numbers of statuses and dtypes, never change.
 *
 * Threads: an instance is used by one thread at a time, except that functions
 * with a const tfaot_model may run at the same time in several threads, and
 * cancel at any time. Different instances share nothing that changes. Functions
 * without an instance are thread-safe. A handle is released once, when no call
 * uses it.
 *
 * Errors: functions that can fail return a status. No C++ exception leaves the
 * library. A NULL where a pointer is needed gives TFAOT_INVALID_ARGUMENT, or
 * NULL from functions that return a pointer. Strings are UTF-8, and belong to
 * the library or the instance.
 */
#ifndef TFAOT_C_API_H_
#define TFAOT_C_API_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. Version 2 adds everything from create_with on,
 * and version 3 from set_collectives on. */
#define TFAOT_API_VERSION 3

/* An instance: it owns its inputs, outputs, and working memory, and those
 * variables that the model writes. It shares the others. */
typedef struct tfaot_model tfaot_model;

/* One version of the values of all variables. It never changes, and any number
 * of instances share it. */
typedef struct tfaot_weights tfaot_weights;

/* The version that is current, for instances that follow it. */
typedef struct tfaot_live_weights tfaot_live_weights;

typedef int32_t tfaot_status;
enum {
  TFAOT_OK = 0,
  TFAOT_INVALID_ARGUMENT = 1, /* no such index, or a value out of range */
  TFAOT_FILE_ACCESS = 2,      /* the system refused to read or write a file */
  TFAOT_BAD_FILE = 3,         /* not a safetensors file, or a damaged one */
  TFAOT_MISMATCH = 4,         /* a name, dtype, or shape isn't the model's */
  TFAOT_NO_WEIGHTS = 5,       /* the variables have no values yet */
  TFAOT_UNSUPPORTED_CPU = 6,  /* no level of the model runs on this machine */
  TFAOT_OUT_OF_MEMORY = 7,
  TFAOT_CANCELLED = 8,
  TFAOT_KERNEL_FAILED = 9,
  TFAOT_EXCHANGE_FAILED = 10, /* replicas couldn't exchange values */
  TFAOT_UNKNOWN_INPUT = 100,  /* the model has no input of this name */
  TFAOT_UNSUPPORTED = 101,    /* this model doesn't have this function */
  TFAOT_FAILED = 102          /* another error, which the text describes */
};

/* The numbers are those of tensorflow.DataType. bfloat16 and float16 are their
 * bits. A complex number is its real part and its imaginary part. */
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

enum {
  TFAOT_BATCHED = 1, /* the first dimension is the largest batch */
  TFAOT_BOUNDED = 2, /* the sizes are bounds; output_dims has the true ones */
  TFAOT_WRITTEN = 4  /* a variable that the model assigns */
};

/* An input, an output, or a variable. */
typedef struct tfaot_tensor {
  const char* name;   /* TensorFlow's */
  const char* member; /* a C identifier, unique in the model */
  tfaot_dtype dtype;
  int32_t rank;
  const int64_t* dims; /* `rank` of them */
  uint64_t bytes;      /* of all values, which are row-major */
  uint32_t flags;      /* TFAOT_BATCHED, TFAOT_BOUNDED, TFAOT_WRITTEN */
} tfaot_tensor;

/* A function of the model. */
typedef struct tfaot_entry_point {
  const char* name;
  size_t inputs;
  size_t outputs;
  int64_t max_batch; /* 0 if it takes no batch */
} tfaot_entry_point;

/* The model as a whole. */
typedef struct tfaot_description {
  const char* name;        /* of the C++ class, "a::b::Class" */
  const char* tensorflow;  /* the version that the model was compiled with */
  const char* manifest;    /* what model.json says about the interface, JSON */
  const char* const* isas; /* CPU levels in the library, ending with NULL */
  uint64_t fingerprint;    /* of the code, not of values of variables */
  size_t entry_points;
  size_t variables;
} tfaot_description;

/* Threads of the program, for runs; tfaot/thread_pool.h has the contract.
 * `parallel_for` calls run(context, part) for each part from 0 to parts - 1, on
 * any threads, and returns when all calls have returned. */
typedef struct tfaot_thread_pool {
  void* pool; /* handed to parallel_for */
  int threads;
  void (*parallel_for)(void* pool, int parts,
                       void (*run)(void* context, int part), void* context);
} tfaot_thread_pool;

/* Where a safetensors file is: at `path`, or else in the file of the descriptor
 * `fd`, which stays open, or else in `bytes` bytes of memory at `data`. With
 * path = NULL and data = NULL, it is the descriptor.
 *
 * If `copied` is 0, values are mapped, or used in place. You can delete a
 * mapped file, or replace it by rename, but not change it in place: if it is
 * truncated, or a network disk is gone, the next use of a missing page ends the
 * process with SIGBUS. Memory must stay as long as the values are used. If
 * `copied` is 1, all values are read before the call returns. */
typedef struct tfaot_source {
  const char* path;
  const void* data;
  size_t bytes;
  int32_t fd;
  int32_t copied;
} tfaot_source;

/* A value for a variable: TensorFlow's name, and all its values, row-major. */
typedef struct tfaot_value {
  const char* name;
  const void* data;
  size_t bytes;
} tfaot_value;

/* Provides the one block of memory of an instance, which it outlives.
 * `allocate` returns memory at a multiple of `alignment`, or NULL if there is
 * none. An address that isn't aligned is freed, and gives
 * TFAOT_INVALID_ARGUMENT. */
typedef struct tfaot_allocator {
  void* context; /* handed to both */
  void* (*allocate)(void* context, size_t bytes, size_t alignment);
  void (*free)(void* context, void* memory, size_t bytes);
} tfaot_allocator;

/* Watches runs from kernel to kernel, in the thread that runs. `before` can end
 * the run: if it returns 0, the run gives TFAOT_CANCELLED. `after` follows a
 * kernel that succeeded. Each can be NULL. Names of kernels stay valid; other
 * builds may have others. */
typedef struct tfaot_hooks {
  void* context; /* handed to both */
  int (*before)(void* context, const char* kernel);
  void (*after)(void* context, const char* kernel);
} tfaot_hooks;

/* How replicas exchange values: in tfaot/collectives.h. */
struct tfaot_collectives;

/* The gradient of a variable, which one entry point returns and another one
 * takes. In between, a program can combine it with that of other replicas. */
typedef struct tfaot_gradient {
  size_t variable;
  size_t computed_by; /* the entry point that returns it */
  size_t output;
  size_t applied_by; /* the entry point that takes it */
  size_t input;
} tfaot_gradient;

typedef struct tfaot_api {
  size_t size;      /* of this table; later versions are larger */
  uint32_t version; /* of the library, not less than what was asked for */

  /* Descriptions. Everything in them stays valid while the library is loaded.
   * An index that is out of range gives TFAOT_INVALID_ARGUMENT. */
  const tfaot_description* (*describe)(void);
  tfaot_status (*describe_entry_point)(size_t entry_point,
                                       tfaot_entry_point* description);
  tfaot_status (*describe_input)(size_t entry_point, size_t index,
                                 tfaot_tensor* description);
  tfaot_status (*describe_output)(size_t entry_point, size_t index,
                                  tfaot_tensor* description);
  tfaot_status (*describe_variable)(size_t index, tfaot_tensor* description);

  /* Creates an instance, with variables at their initial values and inputs and
   * outputs at zero. `isa` names the CPU level whose code runs; NULL is the
   * level in the environment variable TFAOT_ISA, or else the fastest that this
   * machine runs. On failure, *model is NULL, and create_error says why. */
  tfaot_status (*create)(const char* isa, tfaot_model** model);

  /* Why this thread's latest function failed that returns a status and takes no
   * instance, such as create, or a const one, or NULL. Empty if it succeeded.
   */
  const char* (*create_error)(void);

  /* Ends an instance, and all pointers to its values. NULL does nothing. */
  void (*destroy)(tfaot_model* model);

  /* Pointers to values, at multiples of 64 bytes. They stay valid until the
   * instance is destroyed, but those of variables only until the instance takes
   * other weights, or mutable_variable is called for the same variable. NULL if
   * there is no such index. mutable_variable is NULL, too, if memory runs out:
   * it copies a variable that the model only reads. */
  void* (*input)(tfaot_model* model, size_t entry_point, size_t index);
  const void* (*output)(const tfaot_model* model, size_t entry_point,
                        size_t index);
  const void* (*variable)(const tfaot_model* model, size_t index);
  void* (*mutable_variable)(tfaot_model* model, size_t index);

  /* Writes the sizes of an output to `dims`, which has room for its rank. */
  tfaot_status (*output_dims)(const tfaot_model* model, size_t entry_point,
                              size_t index, int64_t* dims);

  /* Copies values to the input of this name, TensorFlow's or the member's, for
   * programs that offer the same inputs to different models. In the input of a
   * batch, the first size can be smaller. If the model has no such input, gives
   * TFAOT_UNKNOWN_INPUT, and error has a note. */
  tfaot_status (*offer)(tfaot_model* model, size_t entry_point,
                        const char* name, tfaot_dtype dtype, int32_t rank,
                        const int64_t* dims, const void* values);

  /* Runs an entry point on the first `batch` rows of its inputs; 0 is its
   * largest batch. Without batches, `batch` is 0. */
  tfaot_status (*run)(tfaot_model* model, size_t entry_point, int64_t batch);

  /* Loads all variables from a safetensors file, or saves them to one. A failed
   * load changes nothing. */
  tfaot_status (*load)(tfaot_model* model, const char* path);
  tfaot_status (*save)(tfaot_model* model, const char* path);

  /* Restarts the random numbers; TFAOT_UNSUPPORTED if the model draws none. */
  tfaot_status (*seed)(tfaot_model* model, uint64_t seed);

  /* Why the latest function of this instance that returns a status failed, or
   * an empty string. Valid until the next call that uses the instance. Without
   * an instance, the same as create_error. */
  const char* (*error)(const tfaot_model* model);

  /* The CPU level whose code runs. */
  const char* (*isa)(const tfaot_model* model);

  /* Makes runs use as many threads of the instance's own, the caller's among
   * them; 1, the default, uses only the caller's. 0 is one for each core that
   * the process may use. The results are bitwise identical. */
  tfaot_status (*set_threads)(tfaot_model* model, int threads);

  /* Makes runs use the program's threads. `pool` is copied; what it points to
   * must outlive the instance. NULL is set_threads(model, 1). */
  tfaot_status (*set_thread_pool)(tfaot_model* model,
                                  const tfaot_thread_pool* pool);

  /* This and what follows exist since version 2. As create, with more to
   * choose: `weights` are the values to start with, and NULL is the initial
   * ones. `allocator` is copied, and NULL is the library's own memory. */
  tfaot_status (*create_with)(const char* isa, const tfaot_weights* weights,
                              const tfaot_allocator* allocator,
                              tfaot_model** model);

  /* Loads all variables from a file, from wherever it is. The instance then
   * follows nothing. On failure, nothing changes. */
  tfaot_status (*load_from)(tfaot_model* model, const tfaot_source* source);

  /* Makes runs use your memory for an input or an output, without a copy where
   * the compiled code allows it; `input` and `output` return it, too. It must
   * have room for all values (of a batch, for all rows of a run), start at a
   * multiple of 64 bytes, not overlap with others, and stay until the last run
   * or until you call this again. NULL is for the instance's memory. No values
   * are copied. Runs don't change inputs. */
  tfaot_status (*set_input_data)(tfaot_model* model, size_t entry_point,
                                 size_t index, const void* data);
  tfaot_status (*set_output_data)(tfaot_model* model, size_t entry_point,
                                  size_t index, void* data);

  /* Calls these hooks in later runs; NULL is none, the default, which costs
   * nothing. `hooks` is copied; what it points to must outlive the last run. */
  tfaot_status (*set_hooks)(tfaot_model* model, const tfaot_hooks* hooks);

  /* With 1, `cancel` works for this instance, which costs a test for each
   * kernel of a run; with 0, the default, it doesn't. Either one ends a
   * cancellation. */
  tfaot_status (*set_cancellable)(tfaot_model* model, int cancellable);

  /* Ends a run that is under way before its next kernel, and all later ones,
   * until set_cancellable is called. Any thread may call it, at any time in the
   * instance's life. */
  void (*cancel)(tfaot_model* model);

  /* Makes weights: the initial ones (TFAOT_NO_WEIGHTS if they aren't in the
   * library), those in a file, those that an instance uses, or others with new
   * values for some variables. On failure, *weights is NULL; create_error says
   * why, or error if there is an instance. Release them with destroy_weights;
   * instances that use them keep the values. */
  tfaot_status (*initial_weights)(tfaot_weights** weights);
  tfaot_status (*load_weights)(const tfaot_source* source,
                               tfaot_weights** weights);
  tfaot_status (*weights)(tfaot_model* model, tfaot_weights** weights);
  tfaot_status (*update_weights)(const tfaot_weights* weights,
                                 const tfaot_value* values, size_t count,
                                 tfaot_weights** updated);
  void (*destroy_weights)(tfaot_weights* weights);

  /* A number that no other weights of this library have. */
  uint64_t (*weights_version)(const tfaot_weights* weights);

  /* Uses other weights of this library for the variables that the model only
   * reads. Those that it writes keep their values. On failure, nothing
   * changes. */
  tfaot_status (*set_weights)(tfaot_model* model, const tfaot_weights* weights);

  /* Live weights, which are current at first. Release them with destroy_live;
   * instances that follow them still can. Any number of threads may use them at
   * the same time. Each of the functions that change what is current either
   * succeeds or changes nothing. Of two updates at the same time, none is
   * lost. These functions, live_current among them, release values from before
   * that nobody uses anymore; runs never do. */
  tfaot_status (*create_live)(const tfaot_weights* weights,
                              tfaot_live_weights** live);
  tfaot_status (*live_swap)(tfaot_live_weights* live,
                            const tfaot_weights* weights);
  tfaot_status (*live_load)(tfaot_live_weights* live,
                            const tfaot_source* source);
  tfaot_status (*live_update)(tfaot_live_weights* live,
                              const tfaot_value* values, size_t count);
  tfaot_status (*live_current)(const tfaot_live_weights* live,
                               tfaot_weights** weights);
  void (*destroy_live)(tfaot_live_weights* live);

  /* Takes the current values, now and whenever they have changed at the start
   * of a run, so each run uses one version as a whole. NULL keeps the weights
   * that the instance has, as set_weights, load, and load_from do. On failure,
   * nothing changes. */
  tfaot_status (*follow)(tfaot_model* model, tfaot_live_weights* live);

  /* This and what follows exist since version 3. Says how runs exchange values
   * with the other replicas of a model that has some, which must outlive the
   * last run. TFAOT_UNSUPPORTED if the model has no others. */
  tfaot_status (*set_collectives)(tfaot_model* model,
                                  const struct tfaot_collectives* collectives);

  /* Describes a gradient. The first index that gives TFAOT_INVALID_ARGUMENT is
   * the number of gradients. */
  tfaot_status (*describe_gradient)(size_t index, tfaot_gradient* description);
} tfaot_api;

/* Returns the library's functions, or NULL if the library is older than
 * `version`. The table stays valid while the library is loaded. */
typedef const tfaot_api* tfaot_get_api_fn(uint32_t version);

/* For programs that link the library instead of loading it. */
const tfaot_api* tfaot_get_api(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif /* TFAOT_C_API_H_ */
