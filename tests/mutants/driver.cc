// Runs mutants of one model: driver GOLDENS VARIABLES INPUTS MUTANTS.
//
// MUTANTS has one mutant per line: isa kind site operand dtype count rows
// columns a b value. For each, two forked children run: one observes what the
// model computes, the other is the generated test. Prints a line for each: how
// the observer ended, how the test ended, whether any bit changed, by how much,
// how many of the values that the test compares changed, how many of these it
// noticed, which call, which tensor. Ends are "ok", "exit N", "signal N".
//
// With `survey ISA...` as MUTANTS, prints what kernels' operands hold instead:
// site, operand, and a letter.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "mutation.h"
#include "observer.h"

// The generated test's main().
int GeneratedTest(int argc, char** argv);

namespace tfaot::mutants {
namespace {

constexpr int kRoundings = 3;

std::string Read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s can't be read\n", path);
    std::exit(2);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// Calls `work` in a child with a limit of `seconds` of CPU time. Discards its
// output.
template <typename Work>
std::string InChild(rlim_t seconds, Work work) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    const rlimit limit = {seconds, seconds + 1};
    if (std::freopen("/dev/null", "w", stdout) == nullptr ||
        std::freopen("/dev/null", "w", stderr) == nullptr ||
        setrlimit(RLIMIT_CPU, &limit) != 0) {
      _exit(3);
    }
    const int status = work();
    std::fflush(nullptr);
    _exit(status);
  }
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return "lost";
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0
             ? "ok"
             : "exit " + std::to_string(WEXITSTATUS(status));
}

// CPU time of all children that have ended, in seconds.
double Used() {
  rusage usage = {};
  getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// An observer for this level that knows the original's results and how far
// rounding moves them.
Observer& Knowing(const std::string& isa, const std::string& inputs,
                  const char* variables) {
  static std::map<std::string, std::unique_ptr<Observer>> known;
  auto& observer = known[isa];
  if (observer == nullptr) {
    observer = std::make_unique<Observer>(inputs);
    Choose({});
    observer->Begin(Observer::Mode::kRecord);
    Observe(isa.c_str(), variables, *observer);
    for (int seed = 1; seed <= kRoundings; ++seed) {
      Mutation rounding;
      rounding.kind = Kind::kRounding;
      rounding.value = seed;
      rounding.a = 1;
      Choose(rounding);
      observer->Begin(Observer::Mode::kRounding);
      Observe(isa.c_str(), variables, *observer);
    }
    Choose({});
  }
  return *observer;
}

void SurveyAll(const std::string& inputs, int argc, char** argv) {
  Mutation survey;
  survey.kind = Kind::kSurvey;
  Choose(survey);
  for (int i = 5; i < argc; ++i) {
    Observer observer(inputs);
    observer.Begin(Observer::Mode::kRecord);
    Observe(argv[i], argv[2], observer);
  }
  for (const auto& [place, letter] : Survey()) {
    std::printf("%d\t%d\t%c\n", place.first, place.second, letter);
  }
}

// Keeps the values that the test compares, and how far rounding moves them.
void KnowValues(char** argv) {
  std::fflush(nullptr);
  const int out = dup(STDOUT_FILENO);
  if (std::freopen("/dev/null", "w", stdout) == nullptr) std::exit(3);
  for (int seed = 0; seed <= kRoundings; ++seed) {
    Mutation rounding;
    if (seed > 0) rounding.kind = Kind::kRounding;
    rounding.value = seed;
    rounding.a = 1;
    Choose(rounding);
    Count(seed == 0 ? Mode::kRecord : Mode::kRounding);
    GeneratedTest(3, argv);
  }
  Choose({});
  std::fflush(nullptr);
  dup2(out, STDOUT_FILENO);
  close(out);
}

// What children report.
struct Report {
  Change change;
  Counts counts;
};

int Main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: driver GOLDENS VARIABLES INPUTS MUTANTS\n");
    return 2;
  }
  // Children inherit a used heap. Zero what they allocate, as in a separate
  // process, so that they don't see what the original left there.
  mallopt(M_PERTURB, 0xff);
  const std::string inputs = Read(argv[3]);
  if (std::string(argv[4]) == "survey") {
    SurveyAll(inputs, argc, argv);
    return 0;
  }
  KnowValues(argv);
  auto* const report =
      static_cast<Report*>(mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::istringstream lines(Read(argv[4]));
  rlim_t seconds = 300;
  for (std::string isa; lines >> isa;) {
    Mutation m;
    int kind = 0;
    if (!(lines >> kind >> m.site >> m.operand >> m.dtype >> m.count >>
          m.rows >> m.columns >> m.a >> m.b >> m.value)) {
      std::fprintf(stderr, "%s has an unknown line\n", argv[4]);
      return 2;
    }
    m.kind = static_cast<Kind>(kind);
    Observer& observer = Knowing(isa, inputs, argv[2]);
    *report = Report();
    const std::string observed = InChild(seconds, [&] {
      Choose(m);
      observer.Begin(Observer::Mode::kCompare);
      Observe(isa.c_str(), argv[2], observer);
      report->change = observer.change();
      return 0;
    });
    const double before = Used();
    // A mutant that never ends doesn't end under the test either.
    const bool hangs = observed == "signal " + std::to_string(SIGXCPU);
    const std::string tested = hangs ? observed : InChild(seconds, [&] {
      Choose(m);
      Count(Mode::kCompare);
      const int status = GeneratedTest(3, argv);
      report->counts = Counted();
      return status;
    });
    if (m.kind == Kind::kNone) {
      seconds = 2 + static_cast<rlim_t>(5 * (Used() - before));
    }
    const auto& [change, counts] = *report;
    std::printf("%s\t%s\t%d\t%.6g\t%lld\t%lld\t%d\t%s\n", observed.c_str(),
                tested.c_str(), change.any ? 1 : 0, change.largest,
                static_cast<long long>(counts.changed),
                static_cast<long long>(counts.noticed), change.call,
                change.name);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tfaot::mutants

int main(int argc, char** argv) { return tfaot::mutants::Main(argc, argv); }
