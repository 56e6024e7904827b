// TCP connections that do not block, and the ways to wait for them: never without a deadline.
#ifndef LAZULI_DISTRIBUTED_SOCKETS_H
#define LAZULI_DISTRIBUTED_SOCKETS_H

#include <chrono>
#include <cstdint>
#include <string>

namespace lazuli::dist {

using Clock = std::chrono::steady_clock;
using Instant = Clock::time_point;

// A deadline that has passed, or a connection that has ended.
struct SocketError {
  std::string what;
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();
  void write(const void* data, size_t bytes, Instant deadline) const;
  void read(void* data, size_t bytes, Instant deadline) const;
  // The address of the other end.
  std::string peer() const;
  // The port of this end.
  int port() const;

 private:
  int fd_ = -1;
};

// At an address, by IPv4 or IPv6. Port 0 lets the system choose. @throws SocketError
Socket listen_at(const std::string& host, int port);
// At all addresses of this host.
Socket listen_everywhere(int port);
// A socket made by another program, which listens. @throws SocketError where it is none
Socket adopt(int fd);
// An empty socket where nobody came before the deadline.
Socket accept_from(const Socket& listener, Instant deadline);
// Tries again until the deadline: the other end may not listen yet.
Socket connect_to(const std::string& host, int port, Instant deadline);
// Waits until it can be read (or written); false at the deadline.
bool wait_for(int fd, bool write, Instant deadline);

}  // namespace lazuli::dist

#endif
