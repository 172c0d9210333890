// Shared by tests of the runtime's headers: a non-fatal check, and a count.
#ifndef TFAOT_TESTS_RUNTIME_EXPECT_H_
#define TFAOT_TESTS_RUNTIME_EXPECT_H_

#include <cstdio>

inline int failed = 0;

// Prints the condition and its line if it is false.
#define EXPECT(...)                                                         \
  do {                                                                      \
    if (!(__VA_ARGS__)) {                                                   \
      std::printf("%s:%d: FAILED: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
      ++failed;                                                             \
    }                                                                       \
  } while (false)

#endif  // TFAOT_TESTS_RUNTIME_EXPECT_H_
