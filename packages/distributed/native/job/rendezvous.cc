// The ranks of a job find each other at rank 0, which tells everybody where everybody is. Then all
// connect with all, and nobody listens any more.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "job/world.h"

namespace lazuli::dist {
namespace {

// A connection that has not said whose it is in this time is dropped.
constexpr auto kPatience = std::chrono::milliseconds(1500);

// Those who come to a listener. They wait beside each other until what they say next is there, so that
// silent ones keep nobody waiting.
class Door {
 public:
  Door(const Socket& listener, const std::string& secret) : listener_(listener), secret_(secret) {}

  // The next that knows the secret; an empty socket where nobody came before the deadline.
  Socket admit(Hello& hello, Instant deadline) {
    for (;;) {
      // Others come in when some have gone.
      fds_.assign(1, {guests_.size() < kMostGuests ? listener_.fd() : -1, POLLIN, 0});
      Instant next = deadline;
      for (const Guest& guest : guests_) {
        fds_.push_back({guest.socket.fd(), POLLIN, 0});
        next = std::min(next, guest.until);
      }
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count();
      poll(fds_.data(), nfds_t(fds_.size()), int(std::clamp<int64_t>(left + 1, 0, 60000)));
      const Instant now = Clock::now();
      for (size_t i = guests_.size(); i-- > 0;) {
        const bool speaks = fds_[i + 1].revents != 0;
        if (!speaks && now < guests_[i].until) continue;
        Guest guest = std::move(guests_[i]);
        guests_.erase(guests_.begin() + ptrdiff_t(i));
        if (!speaks) continue;
        const Instant soon = now + kPatience;
        if (guest.challenges.empty()) {
          if (!answer_challenge(guest.socket, secret_, guest.challenges, soon)) continue;
          wake_by(guest.socket, sizeof(Introduction));
          guests_.push_back({std::move(guest.socket), soon, std::move(guest.challenges)});
        } else if (hear_introduction(guest.socket, secret_, guest.challenges, hello, soon)) {
          wake_by(guest.socket, 1);
          return std::move(guest.socket);
        }
      }
      if (fds_[0].revents)
        if (Socket socket = accept_from(listener_, now)) {
          wake_by(socket, sizeof(Challenge));
          guests_.push_back({std::move(socket), now + kPatience, ""});
        }
      if (Clock::now() >= deadline) return Socket();
    }
  }

 private:
  struct Guest {
    Socket socket;
    Instant until;
    std::string challenges;  // empty before its own
  };
  static constexpr size_t kMostGuests = 256;
  // The bytes with which one may be read from.
  static void wake_by(const Socket& socket, int bytes) {
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
  }
  const Socket& listener_;
  const std::string& secret_;
  std::vector<Guest> guests_;
  std::vector<pollfd> fds_;
};

struct Verdict {
  int32_t refused_rank = -1;
  char text[252] = {};
};

Instant after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Processes with the same text can map each other's memory.
std::string host_text() {
  char text[64] = {};
  gethostname(text, sizeof text - 1);
#ifdef __linux__
  if (FILE* file = fopen("/proc/sys/kernel/random/boot_id", "r")) {
    if (fread(text, 1, 36, file) != 36) text[0] = 0;
    fclose(file);
  }
  char space[64] = {};
  if (readlink("/proc/self/ns/pid", space, sizeof space - 1) > 0) {
    std::string number;
    for (const char* c = space; *c; c++)
      if (*c >= '0' && *c <= '9') number += *c;
    snprintf(text + 36, sizeof text - 36, "/%.20s", number.c_str());
  }
#endif
  return text;
}

}  // namespace

// An address of one link, as fe80::1%eth0, names it as rank 0 does.
void World::take_own_link(Seat& seat) const {
  const size_t own = options_.address.find('%');
  const std::string theirs = seat.address;
  const size_t link = theirs.find('%');
  if (own == std::string::npos || link == std::string::npos) return;
  snprintf(seat.address, sizeof seat.address, "%s%s", theirs.substr(0, link).c_str(),
           options_.address.substr(own).c_str());
}

Hello World::hello(Purpose purpose, int index, int port) const {
  Hello it;
  it.rank = rank();
  it.size = size();
  it.purpose = purpose;
  it.index = index;
  it.port = port;
  it.pid = getpid();
  snprintf(it.host, sizeof it.host, "%s", host_text().c_str());
  return it;
}

void World::gather_at_rendezvous(int port) {
  // The launcher's serves one job of the process, in whichever thread: then it is closed, and its number may
  // be another file's.
  static std::atomic<bool> adopted{false};
  const Socket listener = options_.listener >= 0 && !adopted.exchange(true) ? adopt(options_.listener)
                          : is_local() ? listen_at(options_.address, options_.port)
                                       : listen_everywhere(options_.port);
  Door door(listener, options_.secret);
  const Instant deadline = after(options_.join_limit);
  std::vector<Socket> arrived(static_cast<size_t>(size()));
  Verdict verdict;
  const auto refuse = [&](int rank, const std::string& text) {
    if (verdict.refused_rank >= 0) return;
    verdict.refused_rank = rank;
    snprintf(verdict.text, sizeof verdict.text, "rank %d %s", rank, text.c_str());
  };
  Instant until = deadline;
  for (int missing = size() - 1; missing > 0;) {
    Hello hello;
    Socket socket = door.admit(hello, until);
    if (!socket) break;
    hello.host[sizeof hello.host - 1] = 0;
    // Said after the hello, whose layout other versions know.
    Processors processors{};
    try {
      if (hello.protocol == kProtocol) socket.read(&processors, sizeof processors, Clock::now() + kPatience);
    } catch (const SocketError&) {
      continue;
    }
    const int r = hello.rank;
    if (hello.protocol != kProtocol)
      refuse(r, "speaks version " + std::to_string(hello.protocol) +
                    " of the protocol, but rank 0 speaks version " + std::to_string(kProtocol) +
                    ": install the same version of @lazuli/distributed everywhere");
    else if (hello.size != size() || r <= 0 || r >= size())
      refuse(r, "says that the job has " + std::to_string(hello.size) +
                    " ranks, but rank 0 says that it has " + std::to_string(size()));
    else if (arrived[r])
      refuse(r, "appears twice");
    if (verdict.refused_rank >= 0) {
      socket.write(&verdict, sizeof verdict, Clock::now() + kPatience);
      // Those that come yet hear of it too.
      until = std::min(until, Clock::now() + std::chrono::milliseconds(1000));
    }
    if (r > 0 && r < size() && !arrived[r]) {
      Seat& seat = members_[r]->seat;
      // Those of this host may have come by addresses that mean another one elsewhere.
      const std::string peer = socket.peer();
      const bool is_here = !is_local() && (peer.rfind("127.", 0) == 0 || peer == "::1");
      snprintf(seat.address, sizeof seat.address, "%s", (is_here ? options_.address : peer).c_str());
      seat.port = hello.port;
      seat.pid = hello.pid;
      std::memcpy(seat.host, hello.host, sizeof seat.host);
      seat.processors = processors;
      arrived[r] = std::move(socket);
      missing--;
    }
  }
  for (int r = 1; r < size(); r++)
    if (!arrived[r]) refuse(r, "did not join the job in time");
  const Hello mine = hello(Purpose::rendezvous, 0, port);
  Seat& seat = members_[0]->seat;
  snprintf(seat.address, sizeof seat.address, "%s", options_.address.c_str());
  seat.port = port;
  seat.pid = mine.pid;
  std::memcpy(seat.host, mine.host, sizeof seat.host);
  seat.processors = own_processors();
  for (int r = 1; r < size(); r++) {
    if (!arrived[r]) continue;
    try {
      arrived[r].write(&verdict, sizeof verdict, after(limit()));
      if (verdict.refused_rank >= 0) continue;
      for (auto& member : members_) arrived[r].write(&member->seat, sizeof member->seat, after(limit()));
    } catch (const SocketError& error) {
      refuse(r, "was lost while the job began: " + error.what);
    }
  }
  if (verdict.refused_rank >= 0) throw Failure(verdict.refused_rank, verdict.text, true);
}

void World::meet_at_rendezvous(Socket& listener) {
  try {
    const Instant deadline = after(options_.join_limit);
    const Socket socket = connect_to(options_.address, options_.port, deadline);
    introduce(socket, options_.secret, hello(Purpose::rendezvous, 0, listener.port()), deadline);
    const Processors own = own_processors();
    socket.write(&own, sizeof own, deadline);
    Verdict verdict;
    socket.read(&verdict, sizeof verdict, deadline);
    verdict.text[sizeof verdict.text - 1] = 0;
    if (verdict.refused_rank >= 0) throw Failure(verdict.refused_rank, verdict.text, true);
    for (auto& member : members_) {
      socket.read(&member->seat, sizeof member->seat, deadline);
      member->seat.address[sizeof member->seat.address - 1] = 0;
      member->seat.host[sizeof member->seat.host - 1] = 0;
      take_own_link(member->seat);
    }
  } catch (const SocketError& error) {
    throw Failure(
        0, "cannot be met at " + options_.address + ":" + std::to_string(options_.port) + ": " + error.what);
  }
}

// Each rank connects to those before it, and is met by those behind it. The first loss that one of them
// notices is told to all that are connected by then.
void World::connect_all(const Socket& listener) {
  for (auto& member : members_) member->data.resize(size_t(options_.connections));
  try {
    for (int r = 0; r < rank(); r++) connect_to_member(r);
    accept_members(listener);
  } catch (const Failure& failure) {
    tell_all_of(failure);
    throw;
  }
}

void World::connect_to_member(int r) {
  const Seat& seat = members_[r]->seat;
  const size_t colon = options_.proxy.rfind(':');
  try {
    for (int i = -1; i < options_.connections; i++) {
      hear_members();
      const Instant deadline = after(limit());
      Socket socket;
      if (colon != std::string::npos) {
        socket = connect_to(options_.proxy.substr(0, colon), std::stoi(options_.proxy.substr(colon + 1)),
                            deadline);
        const std::string target = std::string(seat.address) + ":" + std::to_string(seat.port) + "\n";
        socket.write(target.data(), target.size(), deadline);
      } else {
        socket = connect_to(seat.address, seat.port, deadline);
      }
      introduce(socket, options_.secret, hello(i < 0 ? Purpose::control : Purpose::data, i, 0), deadline);
      (i < 0 ? members_[r]->control : members_[r]->data[size_t(i)]) = std::move(socket);
    }
  } catch (const SocketError& error) {
    throw Failure(r, "cannot be reached by rank " + std::to_string(rank()) + ": " + error.what);
  }
}

// Waits as long as connections keep coming.
void World::accept_members(const Socket& listener) {
  const int count = options_.connections;
  int missing = (size() - 1 - rank()) * (count + 1);
  Instant deadline = after(limit());
  Door door(listener, options_.secret);
  while (missing > 0) {
    hear_members();
    const Instant now = Clock::now();
    if (now >= deadline) break;
    Hello hello;
    Socket socket = door.admit(hello, std::min(deadline, now + std::chrono::milliseconds(20)));
    if (!socket) continue;
    if (hello.rank <= rank() || hello.rank >= size() || hello.index >= count) continue;
    Member& member = *members_[hello.rank];
    Socket& connection =
        hello.purpose == Purpose::control ? member.control : member.data[size_t(std::max(hello.index, 0))];
    if (connection) continue;
    connection = std::move(socket);
    missing--;
    deadline = after(limit());
  }
  for (int r = rank() + 1; r < size(); r++) {
    bool complete = bool(members_[r]->control);
    for (const Socket& socket : members_[r]->data) complete = complete && socket;
    if (!complete) throw Failure(r, "did not connect with rank " + std::to_string(rank()) + " in time");
  }
}

}  // namespace lazuli::dist
