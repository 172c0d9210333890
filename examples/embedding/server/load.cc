// Puts load on the server, and prints latencies.
//
//   ./bazelw run -c opt //examples/embedding/server:load -- [--seconds=10]
//       [--threads=1] [--connections=8] [--requests=0] [--swap-ms=100]
//
// It starts the server, finds the most requests a second that it answers, and
// then sends 25, 50, 75, and 90 % of them, at times that don't depend on the
// answers. A latency starts when a request was due, even if its connection was
// still busy, so a stall counts for every request that waits. Meanwhile,
// another connection replaces the weights every `swap-ms` milliseconds (0:
// never).
//
// Each load ends after `seconds`, or after `requests` of them, if not 0. The
// weights of a version are all the same number, so an answer that isn't of one
// whole version fails the program.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "examples/embedding/server/protocol.h"
#include "examples/embedding/threads/scorer_aot.h"

namespace {

using Clock = std::chrono::steady_clock;
using examples::Header;
using examples::Scorer;

constexpr std::size_t kWidth = 1024;
constexpr int kFiles = 8;

struct Options {
  std::string server;
  double seconds = 10;
  long requests = 0;
  int threads = 1;
  int connections = 8;
  int swap_ms = 100;
};

std::atomic<bool> failed{false};

void Fail(const std::string& what) {
  std::fprintf(stderr, "load: %s\n", what.c_str());
  failed = true;
}

int Connect(const std::string& path) {
  sockaddr_un address;
  if (!examples::AddressOf(path.c_str(), &address)) return -1;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
      0) {
    const timeval limit = {30, 0};  // a server that hangs ends the program
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
  }
  close(fd);
  return -1;
}

// The version of the weights in an answer of 1024 scores, or -1.
float VersionOf(const std::vector<float>& scores) {
  for (const float score : scores) {
    if (score != scores[0]) return -1;
  }
  const float version = scores[0] / (kWidth + 1);
  return version >= 1 && version == std::floor(version) ? version : -1;
}

bool Ask(int fd, const std::vector<float>& ones, std::vector<float>* scores) {
  Header header;
  return examples::WriteMessage(fd, examples::kScore, ones.data(),
                                ones.size() * sizeof(float)) &&
         examples::ReadAll(fd, &header, sizeof(header)) &&
         header.kind == examples::kOk &&
         header.bytes == scores->size() * sizeof(float) &&
         examples::ReadAll(fd, scores->data(), header.bytes);
}

// Sends requests on one connection: `rate` a second on average, or if that is
// 0, one after the other. Adds their latencies in microseconds.
void Send(const Options& options, const std::string& socket, double rate,
          unsigned seed, Clock::time_point start, long requests,
          std::vector<float>* latencies) {
  prctl(PR_SET_TIMERSLACK, 1);
  const int fd = Connect(socket);
  if (fd < 0) return Fail("can't connect to " + socket);
  const std::vector<float> ones(kWidth, 1.0f);
  std::vector<float> scores(kWidth);
  std::mt19937 random(seed);
  std::exponential_distribution<double> gap(rate > 0 ? rate : 1);
  const auto end = start + std::chrono::duration_cast<Clock::duration>(
                               std::chrono::duration<double>(options.seconds));
  auto due = start;
  for (long sent = 0; requests == 0 || sent < requests; ++sent) {
    if (rate > 0) {
      due += std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(gap(random)));
      std::this_thread::sleep_until(due);
    } else {
      due = Clock::now();
    }
    if (due >= end) break;
    if (!Ask(fd, ones, &scores)) {
      Fail("a request wasn't answered");
      break;
    }
    latencies->push_back(
        std::chrono::duration<float, std::micro>(Clock::now() - due).count());
    if (VersionOf(scores) < 0) {
      Fail("an answer isn't of one version of the weights");
      break;
    }
  }
  close(fd);
}

// Replaces the weights until `done`, and then checks that the last ones
// arrived.
void Swap(const Options& options, const std::string& socket,
          const std::string& folder, const std::atomic<bool>& done,
          long* swaps) {
  const int fd = Connect(socket);
  if (fd < 0) return Fail("can't connect to " + socket);
  const std::vector<float> ones(kWidth, 1.0f);
  std::vector<float> scores(kWidth);
  while (!done) {
    const int version = static_cast<int>(++*swaps % kFiles) + 1;
    const std::string path = folder + "/" + std::to_string(version);
    Header header;
    std::string text;
    bool ok =
        examples::WriteMessage(fd, examples::kLoad, path.data(), path.size()) &&
        examples::ReadAll(fd, &header, sizeof(header));
    if (ok) {
      text.resize(header.bytes);
      ok = examples::ReadAll(fd, &text[0], text.size()) &&
           header.kind == examples::kOk;
    }
    if (!ok) {
      Fail("a swap failed: " + text);
      break;
    }
    if (!Ask(fd, ones, &scores) || VersionOf(scores) != version) {
      Fail("a run after a swap used older weights");
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(options.swap_ms));
  }
  close(fd);
}

// Runs one load, and prints a row. Returns the answers a second.
double Load(const Options& options, const std::string& socket,
            const std::string& folder, double rate) {
  std::vector<std::vector<float>> latencies(
      static_cast<std::size_t>(options.connections));
  std::vector<std::thread> threads;
  std::atomic<bool> done{false};
  long swaps = 0;
  const auto start = Clock::now() + std::chrono::milliseconds(20);
  unsigned seed = 1;
  for (std::vector<float>& each : latencies) {
    each.reserve(1 << 16);
    threads.emplace_back(Send, options, socket, rate / options.connections,
                         seed++, start, options.requests / options.connections,
                         &each);
  }
  std::thread swapper;
  if (options.swap_ms > 0) {
    swapper =
        std::thread(Swap, options, socket, folder, std::cref(done), &swaps);
  }
  for (std::thread& thread : threads) thread.join();
  const double took =
      std::chrono::duration<double>(Clock::now() - start).count();
  done = true;
  if (swapper.joinable()) swapper.join();

  std::vector<float> all;
  for (const std::vector<float>& each : latencies) {
    all.insert(all.end(), each.begin(), each.end());
  }
  if (all.empty()) {
    Fail("no request was answered");
    return 0;
  }
  std::sort(all.begin(), all.end());
  const auto at = [&](double part) {
    return static_cast<double>(all[std::min(
        all.size() - 1,
        static_cast<std::size_t>(part * static_cast<double>(all.size())))]);
  };
  const double answers = static_cast<double>(all.size()) / took;
  char offered[32] = "one after the other";
  if (rate > 0) std::snprintf(offered, sizeof(offered), "%.0f", rate);
  std::printf("| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %zu | %ld |\n",
              offered, answers, at(0.5), at(0.9), at(0.99), at(0.999),
              static_cast<double>(all.back()), all.size(), swaps);
  std::fflush(stdout);
  return answers;
}

// Files of weights that are all 1, all 2, and so on.
bool WriteWeights(const std::string& folder) {
  Scorer model;
  for (int version = 1; version <= kFiles; ++version) {
    auto kernel = model.mutable_kernel();
    auto bias = model.mutable_bias();
    std::fill(kernel.begin(), kernel.end(), static_cast<float>(version));
    std::fill(bias.begin(), bias.end(), static_cast<float>(version));
    const tfaot::Status saved =
        model.Save((folder + "/" + std::to_string(version)).c_str());
    if (!saved) {
      Fail(saved.message());
      return false;
    }
  }
  return true;
}

// Starts the server, runs all loads, and ends the server.
void Measure(const Options& options, const std::string& folder) {
  const std::string socket = folder + "/socket";
  const std::string threads = std::to_string(options.threads);
  const pid_t server = fork();
  if (server < 0) return Fail("can't fork");
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // it never outlives this program
    execl(options.server.c_str(), "server", socket.c_str(), threads.c_str(),
          nullptr);
    std::perror(options.server.c_str());
    _exit(127);
  }
  int fd = -1;
  for (int tries = 0; tries < 1000 && (fd = Connect(socket)) < 0; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (fd < 0) {
    Fail("the server doesn't answer at " + socket);
  } else {
    close(fd);
    std::printf(
        "| offered, 1/s | answered, 1/s | p50, µs | p90, µs | p99, µs | "
        "p99.9, µs | most, µs | requests | swaps |\n"
        "|---|---|---|---|---|---|---|---|---|\n");
    const double most = Load(options, socket, folder, 0);
    for (const double part : {0.25, 0.5, 0.75, 0.9}) {
      if (!failed) Load(options, socket, folder, part * most);
    }
  }
  kill(server, SIGTERM);
  int status = 0;
  waitpid(server, &status, 0);
  if (status != 0)
    Fail("the server ended with status " + std::to_string(status));
}

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const char* value = equals == argument.npos ? "" : argv[i] + equals + 1;
    if (argument[0] != '-') {
      options->server = argument;
    } else if (name == "--seconds") {
      options->seconds = std::atof(value);
    } else if (name == "--requests") {
      options->requests = std::atol(value);
    } else if (name == "--threads") {
      options->threads = std::atoi(value);
    } else if (name == "--connections") {
      options->connections = std::atoi(value);
    } else if (name == "--swap-ms") {
      options->swap_ms = std::atoi(value);
    } else {
      return false;
    }
  }
  return !options->server.empty() && options->seconds > 0 &&
         options->seconds <= 600 && options->threads > 0 &&
         options->connections > 0 && options->connections <= 1000;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    const bool help = std::strcmp(argv[argc - 1], "--help") == 0;
    std::fprintf(help ? stdout : stderr,
                 "usage: load SERVER [--seconds=10] [--requests=0] "
                 "[--threads=1] [--connections=8] [--swap-ms=100]\n");
    return help ? 0 : 2;
  }
  const char* temporary = std::getenv("TEST_TMPDIR");
  // In /tmp, the socket's path is short enough.
  std::string folder = "/tmp/tfaot_server.XXXXXX";
  if (temporary != nullptr && std::strlen(temporary) < 64) {
    folder = std::string(temporary) + "/server.XXXXXX";
  }
  if (mkdtemp(&folder[0]) == nullptr) {
    std::perror(folder.c_str());
    return 1;
  }
  if (WriteWeights(folder)) Measure(options, folder);
  for (int version = 1; version <= kFiles; ++version) {
    unlink((folder + "/" + std::to_string(version)).c_str());
  }
  rmdir(folder.c_str());
  return failed ? 1 : 0;
}
