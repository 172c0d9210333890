/* How the replicas of a model exchange values: what a program gives to the
 * instances of a model whose graph has collectives. C99.
 *
 *   tfaot::ThreadReplicas replicas(2);  // tfaot/thread_replicas.h
 *   tfaot::MpiReplicas replicas;        // tfaot/mpi_replicas.h
 *   if (!model.set_collectives(replicas.collectives())) ...
 *
 * All replicas run the same model. Each run starts the same collectives in the
 * same order, whatever the replica's CPU level. A run starts a collective as
 * soon as its values are there, computes whatever doesn't need the result, and
 * then waits for it.
 */
#ifndef TFAOT_COLLECTIVES_H_
#define TFAOT_COLLECTIVES_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these structs. Later versions only add kinds and operations,
 * and members at the end. Version 2 adds TFAOT_IN_GROUPS. */
#define TFAOT_COLLECTIVES_VERSION 2

/* What a collective does to `data`. A block is `count` values. */
enum {
  /* A block becomes the reduction of all replicas' blocks. */
  TFAOT_ALL_REDUCE = 1,
  /* Of `size` blocks, the one at the replica's rank is its own. The others
   * become those of the other replicas. */
  TFAOT_ALL_GATHER = 2,
  /* Of `size` blocks, the first one becomes the reduction of those that all
   * replicas have at this replica's rank. The others are undefined then. */
  TFAOT_REDUCE_SCATTER = 3,
  /* Of `size` blocks, each becomes the one that the replica of its position has
   * at this replica's rank. */
  TFAOT_ALL_TO_ALL = 4,
  /* A block becomes that of the replica `peers[0]`. */
  TFAOT_BROADCAST = 5,
  /* Of two blocks, the first one goes to the replica `peers[rank]`, and the
   * second one becomes what another replica sends. -1 stands for none. No two
   * replicas send to the same one. */
  TFAOT_PERMUTE = 6,
  /* Added to another kind than the last one: replicas do it in groups of
   * `peers[0]`, and those of a group only with one another. The ranks of each
   * group follow in `peers`, group after group, and a replica's place in its
   * group stands for its rank. A broadcast is of the first in each group. */
  TFAOT_IN_GROUPS = 16
};

enum { TFAOT_ADD = 1, TFAOT_MUL = 2, TFAOT_MIN = 3, TFAOT_MAX = 4 };

/* A collective of a run. */
typedef struct tfaot_collective {
  int32_t id;     /* no other one of this run has it; replicas have the same */
  int32_t kind;   /* TFAOT_ALL_REDUCE, ..., also with TFAOT_IN_GROUPS */
  int32_t op;     /* TFAOT_ADD, ...; 0 if it doesn't reduce */
  int32_t dtype;  /* TFAOT_FLOAT32, ..., as in tfaot/c_api.h */
  void* data;     /* values of this replica, and then the result, in place */
  uint64_t count; /* of a block's values */
  const int32_t* peers; /* null if the kind doesn't say what they are */
} tfaot_collective;

/* What a program gives. The instance owns none of it. Only the thread that runs
 * the instance calls the functions. They return 0, or another number if the
 * exchange failed. The run then fails, too, and `error` says why. */
typedef struct tfaot_collectives {
  int32_t version; /* TFAOT_COLLECTIVES_VERSION */
  int32_t rank;    /* of this replica, from 0 to size - 1 */
  int32_t size;    /* the number of replicas */
  void* context;   /* handed to all functions */

  /* Begins a collective, without waiting for other replicas. Nothing uses the
   * data before the matching call of `wait`, which has the same values in
   * `call`. Calls of `wait` are in the order of those of `start`. Several
   * collectives can be under way. */
  int32_t (*start)(void* context, const tfaot_collective* call);
  int32_t (*wait)(void* context, const tfaot_collective* call);

  /* This replica's run has ended before its last collective, because it was
   * cancelled or has failed. Those of other replicas must not wait for it. */
  void (*abort)(void* context);

  /* Why the latest function failed. */
  const char* (*error)(void* context);

  /* Values that are reduced one after another, such as gradients, are side by
   * side, in the order in which they become final. One call reduces as many of
   * them as are needed for so many bytes. All replicas have the same number
   * here. 1 reduces each by itself, and 0 stands for 4 MiB. */
  uint64_t bucket_bytes;
} tfaot_collectives;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TFAOT_COLLECTIVES_H_ */
