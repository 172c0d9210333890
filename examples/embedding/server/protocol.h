// What the server and its clients say to each other, over a Unix socket: a
// Header, and as many bytes as it names, in both directions.
#ifndef EXAMPLES_EMBEDDING_SERVER_PROTOCOL_H_
#define EXAMPLES_EMBEDDING_SERVER_PROTOCOL_H_

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace examples {

enum Kind : std::uint32_t {
  kScore = 1,  // the inputs; answered by kOk and the scores
  kLoad = 2,   // the path of new weights; answered by kOk once they are current
  kOk = 3,
  kError = 4,  // a text
};

struct Header {
  std::uint32_t kind;
  std::uint32_t bytes;
};

// Reads or writes everything. Returns false if the other side is gone, or is
// slower than the socket's timeout.
inline bool ReadAll(int fd, void* data, std::size_t bytes) {
  auto* next = static_cast<unsigned char*>(data);
  while (bytes > 0) {
    const ssize_t got = read(fd, next, bytes);
    if (got <= 0) return false;
    next += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}
inline bool WriteAll(int fd, const void* data, std::size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  while (bytes > 0) {
    // A client that has left isn't a signal.
    const ssize_t put = send(fd, next, bytes, MSG_NOSIGNAL);
    if (put <= 0) return false;
    next += put;
    bytes -= static_cast<std::size_t>(put);
  }
  return true;
}

inline bool WriteMessage(int fd, Kind kind, const void* data,
                         std::size_t bytes) {
  const Header header = {kind, static_cast<std::uint32_t>(bytes)};
  return WriteAll(fd, &header, sizeof(header)) && WriteAll(fd, data, bytes);
}

inline bool AddressOf(const char* path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof(address->sun_path)) return false;
  std::strcpy(address->sun_path, path);
  return true;
}

}  // namespace examples

#endif  // EXAMPLES_EMBEDDING_SERVER_PROTOCOL_H_
