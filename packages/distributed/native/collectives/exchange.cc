#include "collectives/exchange.h"

#include <lazuli/kernel.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/checksum.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

namespace lazuli::dist {
namespace {

uint32_t check_of(const Header& header) {
  return checksum(reinterpret_cast<const char*>(&header) + sizeof header.check,
                  sizeof header - sizeof header.check);
}

constexpr size_t kWorth = 64 * 1024;

// The sender of a message and its receiver do different things.
uint8_t wire_kind(Kind kind) { return uint8_t(kind == Kind::recv ? Kind::send : kind); }

}  // namespace

Exchange::Lane& Exchange::lane(int rank, bool outgoing) {
  const auto& data = group_.world().member(group_.world_rank(rank)).data;
  if (next_.empty()) next_.resize(size_t(group_.size()));
  int& next = outgoing ? next_[size_t(rank)].first : next_[size_t(rank)].second;
  const int fd = data[size_t(next)].fd();
  next = (next + 1) % int(data.size());
  for (Lane& it : lanes_)
    if (it.fd == fd) return it;
  Lane& it = lanes_.emplace_back();
  it.rank = rank;
  it.world_rank = group_.world_rank(rank);
  it.fd = fd;
  return it;
}

void Exchange::send(int to, const void* data, size_t bytes, int after) {
  size_t at = 0;
  do {
    const size_t n = std::min(kPiece, bytes - at);
    lane(to, true).out.push_back({static_cast<const char*>(data) + at, uint32_t(n), after});
    open_++;
    at += n;
    if (after >= 0) after++;
  } while (at < bytes);
}

int Exchange::receive(int from, void* target, size_t bytes, const void* with) {
  const int first = int(arrived_.size());
  size_t at = 0;
  do {
    const size_t n = std::min(kPiece, bytes - at);
    lane(from, false)
        .in.push_back({static_cast<char*>(target) + at, uint32_t(n),
                       with ? static_cast<const char*>(with) + at : nullptr, int(arrived_.size())});
    arrived_.push_back(0);
    open_++;
    at += n;
  } while (at < bytes);
  return first;
}

bool Exchange::push(Lane& lane) {
  bool moved = false;
  while (!lane.out.empty()) {
    const Out& piece = lane.out.front();
    if (piece.after >= 0 && !arrived_[size_t(piece.after)]) return moved;
    Header& header = lane.out_header;
    if (!lane.out_open) {
      header = {0,
                group_.id(),
                sequence_,
                work_.count,
                work_.shape,
                wire_kind(work_.kind),
                uint8_t(work_.reduction),
                uint8_t(work_.dtype),
                0,
                work_.kind == Kind::broadcast ? work_.peer : 0,
                lane.sent,
                piece.bytes,
                checksum(piece.data, piece.bytes)};
      header.check = check_of(header);
      lane.out_open = true;
      lane.out_done = 0;
    }
    const size_t total = sizeof header + piece.bytes;
    iovec parts[2];
    int count = 0;
    if (lane.out_done < sizeof header)
      parts[count++] = {reinterpret_cast<char*>(&header) + lane.out_done, sizeof header - lane.out_done};
    const size_t done = lane.out_done > sizeof header ? lane.out_done - sizeof header : 0;
    if (piece.bytes > done) parts[count++] = {const_cast<char*>(piece.data) + done, piece.bytes - done};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = size_t(count);
    const ssize_t n = sendmsg(lane.fd, &message, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return moved;
      if (errno == EINTR) continue;
      group_.world().ended(lane.world_rank);
    }
    moved = true;
    lane.out_done += size_t(n);
    if (lane.out_done < total) continue;
    lane.out.pop_front();
    lane.out_open = false;
    lane.sent++;
    open_--;
  }
  return moved;
}

bool Exchange::pull(Lane& lane) {
  bool moved = false;
  while (!lane.in.empty()) {
    const In& piece = lane.in.front();
    Header& header = lane.in_header;
    char* target = piece.target;
    if (piece.with) {
      if (lane.scratch.size() < piece.bytes) lane.scratch.resize(piece.bytes);
      target = lane.scratch.data();
    }
    iovec parts[2];
    int count = 0;
    if (lane.in_done < sizeof header)
      parts[count++] = {reinterpret_cast<char*>(&header) + lane.in_done, sizeof header - lane.in_done};
    const size_t done = lane.in_done > sizeof header ? lane.in_done - sizeof header : 0;
    if (piece.bytes > done) parts[count++] = {target + done, piece.bytes - done};
    const ssize_t n = readv(lane.fd, parts, count);
    if (n == 0) group_.world().ended(lane.world_rank);
    if (n < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return moved;
      if (errno == EINTR) continue;
      group_.world().ended(lane.world_rank);
    }
    moved = true;
    lane.in_done += size_t(n);
    if (lane.in_done >= sizeof header && !lane.checked) {
      check_header(lane, header);
      lane.checked = true;
    }
    if (lane.in_done < sizeof header + piece.bytes) continue;
    if (checksum(target, piece.bytes) != header.data_check)
      group_.world().fail(Failure(lane.world_rank, "sent damaged data: the checksum of a piece is wrong"));
    if (piece.with)
      reduce(work_.reduction, work_.dtype, piece.target, piece.with, target,
             int64_t(piece.bytes / size_of(work_.dtype)));
    arrived_[size_t(piece.number)] = 1;
    lane.in.pop_front();
    lane.in_done = 0;
    lane.checked = false;
    lane.received++;
    open_--;
  }
  return moved;
}

void Exchange::check_header(const Lane& lane, const Header& header) const {
  const auto fail = [&](const std::string& fact) { group_.world().fail(Failure(lane.world_rank, fact)); };
  if (header.check != check_of(header)) fail("sent a damaged header");
  const int root = work_.kind == Kind::broadcast ? work_.peer : 0;
  if (header.group != group_.id() || header.kind != wire_kind(work_.kind) || header.sequence != sequence_ ||
      header.dtype != work_.dtype || header.reduction != uint8_t(work_.reduction) ||
      header.count != work_.count || header.root != root || header.shape != work_.shape) {
    Work theirs{Kind(header.kind)};
    theirs.reduction = Reduction(header.reduction);
    theirs.dtype = header.dtype;
    theirs.count = header.count;
    theirs.peer = header.root;
    fail(difference(theirs, header.sequence, header.group == group_.id(), work_, sequence_));
  }
  if (header.piece != lane.received || header.bytes != lane.in.front().bytes)
    fail("sent pieces in an unexpected order");
}

void Exchange::run() {
  const auto move = [this] {
    bool moved = false;
    for (Lane& lane : lanes_) {
      if (!lane.out.empty()) moved |= push(lane);
      if (!lane.in.empty()) moved |= pull(lane);
    }
    return moved;
  };
  Instant moved_at = Clock::now();
  while (open_ > 0) {
    if (patience_.wait(move)) {
      moved_at = Clock::now();
      continue;
    }
    sleep(moved_at);
  }
  for (Lane& lane : lanes_) wake_by(lane, 1);
}

void Exchange::wake_by(Lane& lane, int bytes) {
  if (lane.least == bytes) return;
  lane.least = bytes;
  setsockopt(lane.fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

void Exchange::sleep(Instant since) {
  fds_.clear();
  int waiting = -1;
  for (Lane& lane : lanes_) {
    short events = 0;
    if (!lane.in.empty()) {
      events |= POLLIN;
      // The missing part of a piece, or enough of it to be worth the waking.
      const size_t missing = sizeof(Header) + lane.in.front().bytes - lane.in_done;
      wake_by(lane, int(std::min(missing, kWorth)));
    }
    if (!lane.out.empty() && (lane.out.front().after < 0 || arrived_[size_t(lane.out.front().after)]))
      events |= POLLOUT;
    if (!events) continue;
    fds_.push_back({lane.fd, events, 0});
    if (waiting < 0 || (events & POLLIN)) waiting = lane.world_rank;
  }
  group_.world().check(waiting, since);
  const int milliseconds = std::clamp(int(group_.world().limit() * 1000 / 10), 1, 20);
  poll(fds_.data(), nfds_t(fds_.size()), milliseconds);
}

}  // namespace lazuli::dist
