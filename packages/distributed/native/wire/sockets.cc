#include "wire/sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

namespace lazuli::dist {
namespace {

void prepare(int fd, bool connection) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  if (connection) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
  setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

#ifdef __linux__
// Bytes on their way between two processes of a host, where the system permits so many.
constexpr int kLocalBuffer = 2 * 1024 * 1024;

bool permits_buffer() {
  long most = 0;
  if (FILE* file = fopen("/proc/sys/net/core/wmem_max", "r")) {
    if (fscanf(file, "%ld", &most) != 1) most = 0;
    fclose(file);
  }
  return most >= kLocalBuffer;
}
#endif

// Within a host nothing is lost, and an algorithm that paces by measured times, as BBR does, takes longer.
void hasten_local(int fd) {
#ifdef __linux__
  sockaddr_in own{}, peer{};
  socklen_t sizes[] = {sizeof own, sizeof peer};
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &sizes[0]) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &sizes[1]) != 0 ||
      own.sin_addr.s_addr != peer.sin_addr.s_addr)
    return;
  setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  static const bool permitted = permits_buffer();
  if (permitted) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kLocalBuffer, sizeof kLocalBuffer);
#else
  (void)fd;
#endif
}

struct Addresses {
  addrinfo* first = nullptr;
  Addresses(const std::string& host, int port, bool passive) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    if (passive) hints.ai_flags = AI_PASSIVE;
    const std::string service = std::to_string(port);
    const int status = getaddrinfo(host.empty() ? nullptr : host.c_str(), service.c_str(), &hints, &first);
    if (status != 0) throw SocketError{"cannot find the host " + host + ": " + gai_strerror(status)};
  }
  ~Addresses() {
    if (first) freeaddrinfo(first);
  }
};

std::string reason() { return std::strerror(errno); }

}  // namespace

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.fd_;
    other.fd_ = -1;
  }
  return *this;
}

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool wait_for(int fd, bool write, Instant deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{fd, short(write ? POLLOUT : POLLIN), 0};
    const int ready = poll(&entry, 1, int(std::clamp<int64_t>(left + 1, 0, 60000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) throw SocketError{reason()};
    if (Clock::now() >= deadline) return false;
  }
}

void Socket::write(const void* data, size_t bytes, Instant deadline) const {
  const char* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(fd_, p, bytes, MSG_NOSIGNAL);
    if (n > 0) {
      p += n;
      bytes -= size_t(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd_, true, deadline)) throw SocketError{"it accepted nothing in time"};
    } else if (errno != EINTR) {
      throw SocketError{reason()};
    }
  }
}

void Socket::read(void* data, size_t bytes, Instant deadline) const {
  char* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(fd_, p, bytes, 0);
    if (n > 0) {
      p += n;
      bytes -= size_t(n);
    } else if (n == 0) {
      throw SocketError{"the connection was closed"};
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd_, false, deadline)) throw SocketError{"it sent nothing in time"};
    } else if (errno != EINTR) {
      throw SocketError{reason()};
    }
  }
}

std::string Socket::peer() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  char text[INET_ADDRSTRLEN] = "";
  if (getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return text;
}

int Socket::port() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.sin_port);
}

Socket listen_at(const std::string& host, int port) {
  Addresses addresses(host, port, true);
  Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  if (!socket) throw SocketError{reason()};
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  prepare(socket.fd(), false);
  if (bind(socket.fd(), addresses.first->ai_addr, addresses.first->ai_addrlen) != 0 ||
      listen(socket.fd(), 1024) != 0)
    throw SocketError{"cannot listen at port " + std::to_string(port) + ": " + reason()};
  return socket;
}

Socket adopt(int fd) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens)
    throw SocketError{"the descriptor " + std::to_string(fd) + " is no socket that listens"};
  prepare(fd, false);
  return Socket(fd);
}

Socket accept_from(const Socket& listener, Instant deadline) {
  for (;;) {
    const int fd = ::accept(listener.fd(), nullptr, nullptr);
    if (fd >= 0) {
      prepare(fd, true);
      hasten_local(fd);
      return Socket(fd);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(listener.fd(), false, deadline)) return Socket();
    } else if (errno == EMFILE || errno == ENFILE) {
      // Others may have gone by the next time.
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return Socket();
    } else if (errno != EINTR && errno != ECONNABORTED) {
      throw SocketError{reason()};
    }
  }
}

Socket connect_to(const std::string& host, int port, Instant deadline) {
  Addresses addresses(host, port, false);
  for (;;) {
    Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
    if (!socket) throw SocketError{reason()};
    prepare(socket.fd(), true);
    int failed = connect(socket.fd(), addresses.first->ai_addr, addresses.first->ai_addrlen) == 0 ? 0 : errno;
    if (failed == EINPROGRESS && wait_for(socket.fd(), true, deadline)) {
      socklen_t size = sizeof failed;
      getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &failed, &size);
    }
    if (failed == 0) {
      hasten_local(socket.fd());
      return socket;
    }
    if (Clock::now() + std::chrono::milliseconds(20) >= deadline)
      throw SocketError{"cannot connect to " + host + ":" + std::to_string(port) + ": " +
                        std::strerror(failed)};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace lazuli::dist
