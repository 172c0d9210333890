/* Shared by tests in C and C++: a non-fatal check, and a count. */
#ifndef TFAOT_TESTS_RUNTIME_EXPECT_H_
#define TFAOT_TESTS_RUNTIME_EXPECT_H_

#include <stdio.h>

#if defined(__cplusplus)
#include <atomic>

inline std::atomic<int> failed{0};

/* Prints what doesn't hold. Threads may call it. */
inline void Expect(bool holds, const char* what) {
  if (holds) return;
  printf("FAILED: %s\n", what);
  ++failed;
}
#else
static int failed = 0;
#endif

/* Prints the condition and its line if it is false. */
#define EXPECT(...)                                                    \
  do {                                                                 \
    if (!(__VA_ARGS__)) {                                              \
      printf("%s:%d: FAILED: %s\n", __FILE__, __LINE__, #__VA_ARGS__); \
      ++failed;                                                        \
    }                                                                  \
  } while (0)

#endif /* TFAOT_TESTS_RUNTIME_EXPECT_H_ */
