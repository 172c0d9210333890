// Serves a model over a Unix socket.
//
//   server SOCKET [THREADS]     # 1 thread; ends on SIGTERM
//
// Each thread has an instance, and all share the weights, which a request can
// replace while the others run. A thread waits for any connection that has a
// request, reads it into the instance's input, runs, and answers from the
// instance's output. So there are no queues and no copies, and the kernel
// shares out the requests.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "examples/embedding/server/protocol.h"
#include "examples/embedding/threads/scorer_aot.h"

namespace {

using examples::Header;
using examples::Scorer;

// No request has more than this; a longer path isn't a file's.
constexpr std::uint32_t kMostPath = 4096;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "server: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

// Makes epoll report the next request of a connection to one thread.
bool Await(int epoll, int fd) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLONESHOT;
  event.data.fd = fd;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// The same for a connection that has been reported. EPOLL_CTL_MOD would do it
// in one call, but ThreadSanitizer doesn't know that the next thread comes
// after.
bool AwaitAgain(int epoll, int fd) {
  return epoll_ctl(epoll, EPOLL_CTL_DEL, fd, nullptr) == 0 && Await(epoll, fd);
}

void Accept(int listener, int epoll) {
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;  // it has left already
  // A client that stops in the middle of a request holds a thread for this
  // long.
  const timeval limit = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (!Await(epoll, fd)) close(fd);
}

// Answers one request. Returns false if the connection can't go on.
bool Answer(int fd, Scorer& model, tfaot::LiveWeights& live) {
  Header header;
  if (!examples::ReadAll(fd, &header, sizeof(header))) return false;
  if (header.kind == examples::kScore &&
      header.bytes == decltype(model.x())::size_bytes()) {
    if (!examples::ReadAll(fd, model.x().data(), header.bytes)) return false;
    if (!model.Run()) {
      return examples::WriteMessage(fd, examples::kError, model.error(),
                                    std::strlen(model.error()));
    }
    return examples::WriteMessage(fd, examples::kOk, model.score().data(),
                                  decltype(model.score())::size_bytes());
  }
  if (header.kind == examples::kLoad && header.bytes <= kMostPath) {
    std::string path(header.bytes, '\0');
    if (!examples::ReadAll(fd, &path[0], path.size())) return false;
    const tfaot::Status status = live.Load(tfaot::Source::Path(path.c_str()));
    return examples::WriteMessage(fd, status ? examples::kOk : examples::kError,
                                  status.message(),
                                  std::strlen(status.message()));
  }
  const char kWhat[] = "a request of this kind and size doesn't exist";
  examples::WriteMessage(fd, examples::kError, kWhat, sizeof(kWhat) - 1);
  return false;
}

// A thread: it serves until `stop` is readable.
void Serve(int epoll, int listener, int stop, tfaot::LiveWeights& live) {
  tfaot::Status status;
  Scorer model = Scorer::Create(tfaot::Options(), &status);
  if (!model || !model.Follow(&live)) {
    std::fprintf(stderr, "server: %s\n",
                 model ? model.error() : status.message());
    std::exit(1);
  }
  for (;;) {
    epoll_event event;
    const int found = epoll_wait(epoll, &event, 1, -1);
    if (found < 0 && errno == EINTR) continue;
    if (found < 0) Fail("epoll_wait");
    const int fd = event.data.fd;
    if (fd == stop) return;
    if (fd == listener) {
      Accept(listener, epoll);
      AwaitAgain(epoll, listener);
    } else if (!Answer(fd, model, live) || !AwaitAgain(epoll, fd)) {
      close(fd);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 2 ? std::atoi(argv[2]) : 1;
  sockaddr_un address;
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    std::puts("usage: server SOCKET [THREADS]");
    return 0;
  }
  if (argc < 2 || threads < 1 || !examples::AddressOf(argv[1], &address)) {
    std::fprintf(stderr, "usage: server SOCKET [THREADS]\n");
    return 2;
  }
  // All threads leave these to main.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  umask(077);  // only this user connects, because a request can name files
  if (listener < 0 ||
      bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ||
      listen(listener, 128)) {
    Fail(argv[1]);
  }
  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  const int stop = eventfd(0, EFD_CLOEXEC);
  epoll_event ends = {};
  ends.events = EPOLLIN;  // for all threads, and forever
  ends.data.fd = stop;
  if (epoll < 0 || stop < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, stop, &ends) ||
      !Await(epoll, listener)) {
    Fail("epoll");
  }

  tfaot::LiveWeights live(Scorer::InitialWeights());
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) {
    pool.emplace_back([&] { Serve(epoll, listener, stop, live); });
  }
  int signal = 0;
  sigwait(&signals, &signal);
  const std::uint64_t one = 1;
  if (write(stop, &one, sizeof(one)) != sizeof(one)) Fail("eventfd");
  for (std::thread& thread : pool) thread.join();
  unlink(argv[1]);
  return 0;
}
