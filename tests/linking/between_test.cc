// Protects tests and programs of shared libraries, as Bazel links cc_test by
// default: a library between the program and a model finds the class and the
// runtime.
#include "tests/linking/between.h"

int main() { return Between(11) == 13 ? 0 : 1; }
