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

// Between attempts to connect, and for one address of several.
constexpr auto kPause = std::chrono::milliseconds(20);
constexpr auto kAddress = std::chrono::seconds(1);

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

// An address without its port; empty where there is none.
std::string text_of(const sockaddr_storage& address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text, sizeof text, nullptr, 0,
                  NI_NUMERICHOST) != 0)
    return "";
  // One of IPv4, to a socket that takes both.
  const std::string mapped = "::ffff:", whole = text;
  return whole.rfind(mapped, 0) == 0 ? whole.substr(mapped.size()) : whole;
}

std::string address_of(int fd, int (*name)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  return name(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? text_of(address, size) : "";
}

// Within a host nothing is lost, and an algorithm that paces by measured times, as BBR does, takes longer.
void hasten_local(int fd) {
#ifdef __linux__
  const std::string own = address_of(fd, getsockname);
  if (own.empty() || own != address_of(fd, getpeername)) return;
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
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    if (passive) hints.ai_flags = AI_PASSIVE;
    const std::string service = std::to_string(port);
    const int status = getaddrinfo(host.c_str(), service.c_str(), &hints, &first);
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

std::string Socket::peer() const { return address_of(fd_, getpeername); }

int Socket::port() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

Socket listen_at(const std::string& host, int port) {
  Addresses addresses(host, port, true);
  Socket socket(::socket(addresses.first->ai_family, SOCK_STREAM, 0));
  if (!socket) throw SocketError{reason()};
  const int on = 1, off = 0;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // Those of IPv4 come to all addresses too.
  if (addresses.first->ai_family == AF_INET6)
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  prepare(socket.fd(), false);
  if (bind(socket.fd(), addresses.first->ai_addr, addresses.first->ai_addrlen) != 0 ||
      listen(socket.fd(), 1024) != 0)
    throw SocketError{"cannot listen at port " + std::to_string(port) + ": " + reason()};
  return socket;
}

Socket listen_everywhere(int port) {
  try {
    return listen_at("::", port);
  } catch (const SocketError&) {
    // A system without IPv6.
    return listen_at("0.0.0.0", port);
  }
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
  const Addresses addresses(host, port, false);
  for (const addrinfo* at = addresses.first;;) {
    Socket socket(::socket(at->ai_family, SOCK_STREAM, 0));
    int failed = socket ? 0 : errno;
    if (socket) {
      prepare(socket.fd(), true);
      if (connect(socket.fd(), at->ai_addr, at->ai_addrlen) != 0) failed = errno;
      // Another address may answer where this one does not.
      const Instant until = addresses.first->ai_next ? std::min(deadline, Clock::now() + kAddress) : deadline;
      if (failed == EINPROGRESS) {
        failed = ETIMEDOUT;
        socklen_t size = sizeof failed;
        if (wait_for(socket.fd(), true, until)) getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &failed, &size);
      }
    }
    if (failed == 0) {
      hasten_local(socket.fd());
      return socket;
    }
    if (Clock::now() + kPause >= deadline)
      throw SocketError{"cannot connect to " + host + ":" + std::to_string(port) + ": " +
                        std::strerror(failed)};
    at = at->ai_next;
    if (at) continue;
    at = addresses.first;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace lazuli::dist
