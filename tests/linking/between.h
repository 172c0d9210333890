#ifndef TESTS_LINKING_BETWEEN_H_
#define TESTS_LINKING_BETWEEN_H_

// What the model gives for ones, with a pool, and with other weights.
float Between(float weight);

#endif  // TESTS_LINKING_BETWEEN_H_
