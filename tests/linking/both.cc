// A program of two sources or shared libraries, each with a model.
#include <cstdio>
#include <cstdlib>

extern "C" float Score1();
extern "C" float Score2();

int main(int, char** argv) {
  const float one = Score1(), other = Score2();
  std::printf("%g %g\n", one, other);
  return one == std::atof(argv[1]) && other == std::atof(argv[2]) ? 0 : 1;
}
