// Protects weights that change under running threads: each run uses one version
// as a whole, every version that is published counts, and old ones are
// released.
//
//   live_test SWAPS        at least as many swaps, and as many runs
//
// One thread publishes versions 1, 2, and so on: by turns from a file that is
// mapped, as new values of named variables, and as weights made before. Three
// threads each run an instance. In version v, every weight of the head is v, so
// a mixture shows in the results.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tests/models/variables/chosen_aot.h"
#include "tests/models/variables/maps.h"
#include "tests/runtime/expect.h"

namespace {

using tests::Chosen;

constexpr int kRunners = 3;

// Floats count exactly to here, times the sum of the inputs of the head. Then
// versions start again.
constexpr long kVersions = 500'000;
constexpr int kFiles = 8;

std::string FileOf(int which) {
  return Scratch("live" + std::to_string(which) + ".safetensors");
}

// The values of a version.
struct Head {
  explicit Head(float value) {
    std::fill(std::begin(kernel), std::end(kernel), value);
    std::fill(std::begin(bias), std::end(bias), value);
  }
  float kernel[32];
  float bias[2];
};

void Values(const Head& head, tfaot::NamedValue (&values)[2]) {
  values[0] = {"head/kernel", head.kernel, sizeof(head.kernel)};
  values[1] = {"head/bias", head.bias, sizeof(head.bias)};
}

// Puts a file with these values in the place of one that may be in use. `file`
// is one with others, which are at its end.
void Replace(const std::string& path, std::string file, const Head& head) {
  file.replace(file.size() - sizeof(Head), sizeof(Head),
               reinterpret_cast<const char*>(&head), sizeof(Head));
  const std::string fresh = path + ".new";
  std::ofstream(fresh, std::ios::binary) << file;
  if (std::rename(fresh.c_str(), path.c_str()) != 0) std::abort();
}

// Counts of one runner.
struct Counts {
  long runs = 0;
  long mixed = 0;      // results of no version
  long backwards = 0;  // of an older version than the run before
  long changes = 0;
  float last = -1;
};

std::atomic<bool> done{false};

// Runs until all versions are published, and then once more.
void Run(const tfaot::LiveWeights& live, long runs, Counts* counts) {
  tfaot::Status status;
  Chosen model = Chosen::Create(tfaot::Options(), &status);
  if (!model || !model.Follow(&live)) {
    std::fprintf(stderr, "%s\n", model ? model.error() : status.message());
    std::abort();
  }
  for (int i = 0; i < 4; ++i) model.x()[i] = static_cast<float>(i + 1);
  for (bool last = false; !last || counts->runs < runs;) {
    last = done.load();
    if (!model.Run()) {
      std::fprintf(stderr, "%s\n", model.error());
      std::abort();
    }
    ++counts->runs;
    // The weights that the run used stay until the next one.
    const float value = model.head_bias()[0];
    bool whole = model.head_bias()[1] == value;
    for (const float weight : model.head_kernel()) whole &= weight == value;
    // The head has inputs whose sum is 26.
    whole &= model.y()[0] == 27 * value && model.y()[1] == 27 * value;
    if (!whole) ++counts->mixed;
    // Version 0 follows the last one.
    if (value < counts->last && counts->last - value < kVersions / 2) {
      ++counts->backwards;
    }
    // Where there are fewer cores than threads, the publisher gets its turn.
    if (value == counts->last) std::this_thread::yield();
    if (value != counts->last) ++counts->changes;
    counts->last = value;
  }
}

// Mappings of the files, in this process.
int Mapped() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(".safetensors") != line.npos) ++found;
  }
  return found;
}

}  // namespace

int main(int argc, char** argv) {
  const long swaps = argc > 1 ? std::atol(argv[1]) : 0;
  if (swaps < kFiles) {
    const bool help = argc > 1 && std::strcmp(argv[1], "--help") == 0;
    std::fprintf(help ? stdout : stderr, "usage: live SWAPS, at least %d\n",
                 kFiles);
    return help ? 0 : 2;
  }
  tfaot::NamedValue values[2];
  const Head zero(0);
  Values(zero, values);
  tfaot::Weights start;
  EXPECT(Chosen::InitialWeights().Update(values, 2, &start).ok());
  tfaot::LiveWeights live(start);
  const std::string path = Scratch("live.safetensors");
  EXPECT(Chosen().Save(path.c_str()).ok());
  std::ifstream saved(path, std::ios::binary);
  const std::string file{std::istreambuf_iterator<char>(saved), {}};

  std::vector<Counts> counts(kRunners);
  std::vector<std::thread> threads;
  for (Counts& each : counts) {
    threads.emplace_back(
        [&] { Run(live, (swaps + kRunners - 1) / kRunners, &each); });
  }

  long failed_swaps = 0, files = 0, updates = 0, prepared = 0;
  int most_mapped = 0;
  for (long swap = 1; swap <= swaps; ++swap) {
    const float version = static_cast<float>(swap % kVersions);
    const Head head(version);
    Values(head, values);
    tfaot::Status status;
    tfaot::Weights next;
    switch (swap % 4) {
      case 0: {  // a file, which replaces one that may be in use
        const std::string path = FileOf(static_cast<int>(swap / 4 % kFiles));
        Replace(path, file, head);
        status = live.Load(tfaot::Source::Path(path.c_str()));
        ++files;
        break;
      }
      case 1:
        status = start.Update(values, 2, &next);
        if (status) status = live.Swap(std::move(next));
        ++prepared;
        break;
      default:
        status = live.Update(values, 2);
        ++updates;
    }
    if (!status) {
      std::printf("%s\n", status.message());
      ++failed_swaps;
    }
    if (swap % 1024 == 0) most_mapped = std::max(most_mapped, Mapped());
  }
  done = true;
  for (std::thread& thread : threads) thread.join();

  long runs = 0, changes = 0;
  const float last = static_cast<float>(swaps % kVersions);
  for (const Counts& each : counts) {
    EXPECT(each.mixed == 0 && each.backwards == 0);
    EXPECT(each.last == last);  // nothing is lost
    runs += each.runs;
    changes += each.changes;
  }
  EXPECT(failed_swaps == 0 && runs >= swaps);
  // The current version, and one for each thread at most.
  EXPECT(most_mapped <= kRunners + 2);
  EXPECT(live.Swap(start).ok());
  EXPECT(Mapped() == 0);
  std::printf(
      "%ld swaps (%ld of files, %ld updates, %ld prepared), %ld runs on %d "
      "threads that saw %ld changes; 0 mixed, at most %d file(s) mapped, 0 at "
      "the end\n",
      swaps, files, updates, prepared, runs, kRunners, changes, most_mapped);
  return failed == 0 ? 0 : 1;
}
