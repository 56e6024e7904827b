// Messages over the connections between ranks, each piece behind a header that says to which operation it
// belongs. Anything unexpected is a failure. Where there are processors for it, a second thread sends what is
// large while this one receives.
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>

#include "collectives/exchange.h"
#include "collectives/patience.h"
#include "collectives/scratch.h"
#include "collectives/second_thread.h"
#include "wire/checksum.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

namespace lazuli::dist {
namespace {

struct Header {
  uint32_t check;  // of what follows
  uint32_t piece;  // its number on the connection, in this operation
  uint32_t bytes;
  uint32_t data_check;
  Label label;
};

uint32_t check_of(const Header& header) {
  return checksum(reinterpret_cast<const char*>(&header) + sizeof header.check,
                  sizeof header - sizeof header.check);
}

// Bytes that are worth the waking of a sleeper.
constexpr size_t kWorth = 64 * 1024;
constexpr size_t kPiece = 256 * 1024;
// Pieces, of both directions, that are worth the waking of the second thread.
constexpr size_t kMany = 8;

class SocketExchange : public Exchange {
 public:
  SocketExchange(bool crowded, bool sharing, bool alone) : patience_(crowded, sharing), alone_(alone) {}

  void run() override {
    World& world = group_->world();
    Instant moved_at = world.now();
    const bool large = !alone_ && open_ >= kMany && has_both();
    if (large && !sender_) sender_ = std::make_unique<SecondThread>([this] { push_all(); });
    // However this ends, the second thread does not go on.
    struct Sending {
      SecondThread* thread;
      explicit Sending(SecondThread* it) : thread(it) {
        if (it) it->start();
      }
      ~Sending() { stop(); }
      void stop() {
        if (thread) thread->stop();
        thread = nullptr;
      }
    } sending(large ? sender_.get() : nullptr);
    while (open_ > 0) {
      // Once all is there, the rest is sent by this thread, which looks at how the others are.
      if (sending.thread && (!sending.thread->is_working() || !has_in())) {
        sending.stop();
        continue;
      }
      const bool second = sending.thread != nullptr;
      const auto move = [this, second] {
        bool moved = false;
        for (Lane& lane : lanes_) {
          if (!second && !lane.out.empty()) moved |= push(lane);
          if (!lane.in.empty()) moved |= pull(lane);
        }
        return moved;
      };
      if (patience_.wait(move) || (second && pushed_.exchange(false)))
        moved_at = world.now();
      else
        sleep(moved_at, second);
    }
    sending.stop();
    for (Lane& lane : lanes_) wake_by(lane, 1);
  }

 private:
  // A connection.
  struct Lane {
    int world_rank, fd;
    Line<Out> out;
    Line<In> in;
    uint32_t sent = 0, received = 0;  // pieces
    Header out_header, in_header;
    size_t out_done = 0, in_done = 0;  // bytes of the current pieces, headers included
    bool out_open = false;
    bool checked = false;
    int least = 1;  // bytes that wake a sleeper
    Scratch scratch;
  };

  size_t most_of(size_t) const override { return kPiece; }
  void clear() override {
    turns_.assign(size_t(group_->size()), {0, 0});
    for (Lane& lane : lanes_) {
      lane.out.clear();
      lane.in.clear();
      lane.sent = lane.received = 0;
      lane.out_done = lane.in_done = 0;
      lane.out_open = lane.checked = false;
    }
  }
  void add(int to, const Out& piece) override { lane(to, turns_[size_t(to)].first).out.push(piece); }
  void add(int from, const In& piece) override { lane(from, turns_[size_t(from)].second).in.push(piece); }

  // The connections to a rank take turns.
  Lane& lane(int rank, int& turn) {
    const int world_rank = group_->world_rank(rank);
    const auto& data = group_->world().member(world_rank).data;
    const int fd = data[size_t(turn)].fd();
    turn = (turn + 1) % int(data.size());
    for (Lane& it : lanes_)
      if (it.fd == fd) return it;
    Lane& it = lanes_.emplace_back();
    it.world_rank = world_rank;
    it.fd = fd;
    return it;
  }

  bool has_in() const {
    return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.in.empty(); });
  }
  bool has_both() const {
    return has_in() &&
           std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return !lane.out.empty(); });
  }

  // The second thread's part: everything that goes out. It touches nothing of a connection but that.
  void push_all() {
    Patience patience(false, false);
    for (;;) {
      bool left = false;
      const auto move = [&] {
        bool moved = false;
        left = false;
        for (Lane& lane : lanes_) {
          if (lane.out.empty()) continue;
          moved |= push(lane);
          left |= !lane.out.empty();
        }
        if (moved) pushed_.store(true);
        return moved || !left || sender_->is_stopped();
      };
      const bool moved = patience.wait(move);
      if (!left || sender_->is_stopped()) return;
      if (moved) continue;
      // Until a connection takes more, or what is to go on has come.
      sending_fds_.clear();
      for (Lane& lane : lanes_)
        if (!lane.out.empty() && may_go(lane.out.front())) sending_fds_.push_back({lane.fd, POLLOUT, 0});
      if (!sending_fds_.empty())
        poll(sending_fds_.data(), nfds_t(sending_fds_.size()), 2);
      else
        sender_->sleep([this] {
          return std::any_of(lanes_.begin(), lanes_.end(),
                             [this](Lane& lane) { return !lane.out.empty() && may_go(lane.out.front()); });
        });
    }
  }

  bool push(Lane& lane);
  bool pull(Lane& lane);
  void check_header(Lane& lane) const;

  // Sleeps until a connection can take or give something.
  void sleep(Instant since, bool second) {
    fds_.clear();
    int waiting = -1;
    for (Lane& lane : lanes_) {
      short events = 0;
      if (!lane.in.empty()) {
        events |= POLLIN;
        // The missing part of a piece, or enough of it.
        const size_t missing = sizeof(Header) + lane.in.front().bytes - lane.in_done;
        wake_by(lane, int(std::min(missing, kWorth)));
      }
      if (!second && !lane.out.empty() && may_go(lane.out.front())) events |= POLLOUT;
      if (!events) continue;
      fds_.push_back({lane.fd, events, 0});
      if (waiting < 0 || (events & POLLIN)) waiting = lane.world_rank;
    }
    group_->world().check(waiting, since);
    const int milliseconds = std::clamp(int(group_->world().limit() * 1000 / 10), 1, 20);
    poll(fds_.data(), nfds_t(fds_.size()), milliseconds);
  }
  static void wake_by(Lane& lane, int bytes) {
    if (lane.least == bytes) return;
    lane.least = bytes;
    setsockopt(lane.fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
  }

  Patience patience_;
  const bool alone_;
  std::atomic<bool> pushed_{false};  // by the second thread, since this one looked
  std::vector<pollfd> sending_fds_;
  std::deque<Lane> lanes_;
  std::vector<std::pair<int, int>> turns_;  // by rank: the connections of the next pieces, out and in
  std::vector<pollfd> fds_;
  // The last, so that it ends before what it uses.
  std::unique_ptr<SecondThread> sender_;
};

// True if no second thread is wanted: LAZULI_SECOND_THREAD says 0 or 1; otherwise members take two processors
// each where there are so many.
bool goes_alone(const Group& group) {
  const char* asked = std::getenv("LAZULI_SECOND_THREAD");
  // The package warns of anything else.
  for (const char* choice : {"0", "1"})
    if (asked && std::strcmp(asked, choice) == 0) return *asked == '0';
  return group.shares_processors();
}

bool SocketExchange::push(Lane& lane) {
  bool moved = false;
  while (!lane.out.empty()) {
    const Out& piece = lane.out.front();
    if (!may_go(piece)) return moved;
    Header& header = lane.out_header;
    if (!lane.out_open) {
      header = {0, lane.sent, piece.bytes, checksum(piece.data, piece.bytes), label_};
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
      group_->world().ended(lane.world_rank);
    }
    moved = true;
    lane.out_done += size_t(n);
    if (lane.out_done < total) continue;
    lane.out.pop();
    lane.out_open = false;
    lane.sent++;
    open_--;
  }
  return moved;
}

bool SocketExchange::pull(Lane& lane) {
  bool moved = false;
  while (!lane.in.empty()) {
    const In& piece = lane.in.front();
    Header& header = lane.in_header;
    char* target = piece.target;
    if (piece.with) target = lane.scratch.take(piece.bytes);
    iovec parts[2];
    int count = 0;
    if (lane.in_done < sizeof header)
      parts[count++] = {reinterpret_cast<char*>(&header) + lane.in_done, sizeof header - lane.in_done};
    const size_t done = lane.in_done > sizeof header ? lane.in_done - sizeof header : 0;
    if (piece.bytes > done) parts[count++] = {target + done, piece.bytes - done};
    const ssize_t n = readv(lane.fd, parts, count);
    if (n == 0) group_->world().ended(lane.world_rank);
    if (n < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return moved;
      if (errno == EINTR) continue;
      group_->world().ended(lane.world_rank);
    }
    moved = true;
    lane.in_done += size_t(n);
    if (lane.in_done >= sizeof header && !lane.checked) {
      check_header(lane);
      lane.checked = true;
    }
    if (lane.in_done < sizeof header + piece.bytes) continue;
    if (checksum(target, piece.bytes) != header.data_check)
      fail(lane.world_rank, "sent damaged data: the checksum of a piece is wrong");
    finish(piece, target);
    if (sender_) sender_->wake();
    lane.in.pop();
    lane.in_done = 0;
    lane.checked = false;
    lane.received++;
  }
  return moved;
}

void SocketExchange::check_header(Lane& lane) const {
  const Header& header = lane.in_header;
  if (header.check != check_of(header)) fail(lane.world_rank, "sent a damaged header");
  compare(lane.world_rank, header.label);
  if (header.piece != lane.received || header.bytes != lane.in.front().bytes)
    fail(lane.world_rank, "sent pieces in an unexpected order");
}

}  // namespace

std::unique_ptr<Exchange> make_socket_exchange(const Group& group) {
  return std::make_unique<SocketExchange>(group.is_crowded(), group.shares_processors(), goes_alone(group));
}

}  // namespace lazuli::dist
