// Runs a model with more than 5 GB, for large_test.py.
//
//   large WEIGHTS SAVED ROW... COLUMN...      8 rows, 4 columns
//
// Prints the scores, the last row that was found, and memory in kB. Then runs
// again, saves, and loads what was saved.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/models/variables/large_aot.h"

namespace {

using tests::Large;

bool Run(Large& model, char** places) {
  for (int i = 0; i < 8; ++i) model.rows()[i] = std::atoi(places[i]);
  for (int i = 0; i < 4; ++i) model.columns()[i] = std::atoi(places[8 + i]);
  if (!model.Run()) return false;
  std::printf("scores");
  for (const float score : model.scores()) std::printf(" %.9g", score);
  std::printf("\nfound");
  for (int i = 0; i < model.found().dim(1); ++i) {
    std::printf(" %.9g", model.found()(7, i));
  }
  const Large& read = model;
  std::printf("\ncalls %lld\n", static_cast<long long>(*read.calls()));
  return true;
}

// Reads a line of /proc/self/status.
void PrintMemory(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key, 0) == 0) std::printf("%s\n", line.c_str());
  }
}

int Fail(const Large& model) {
  std::fprintf(stderr, "%s\n", model.error());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 15) return 2;
  Large model;
  if (!model.Load(argv[1]) || !Run(model, argv + 3)) return Fail(model);
  PrintMemory("VmHWM");
  PrintMemory("RssAnon");

  if (!Run(model, argv + 3)) return Fail(model);
  PrintMemory("RssAnon");
  const tfaot::Status saved = model.Save(argv[2]);
  if (!saved) {
    std::fprintf(stderr, "%s\n", saved.message());
    return 1;
  }
  Large other;
  if (!other.Load(argv[2]) || !Run(other, argv + 3)) return Fail(other);
  PrintMemory("RssAnon");
  return 0;
}
