#include "job/world.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "wire/checksum.h"

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0
#endif

namespace lazuli::dist {
namespace {

struct Message {
  uint32_t check;  // of what follows
  Purport type;
  int32_t rank;
  Status status;
  DeviceProgress device;
  char text[400];  // of a failure; with a goodbye, the last messages
};
static_assert(sizeof(LastMessages) < sizeof Message::text);

uint32_t check_of(const Message& m) {
  return checksum(reinterpret_cast<const char*>(&m) + sizeof m.check, sizeof m - sizeof m.check);
}

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

// So long what a rank wrote before its goodbye may take to be seen.
constexpr Clock::duration kGoodbye = std::chrono::milliseconds(200);
constexpr Clock::duration kEnding = std::chrono::milliseconds(700);

std::string in_words(double s) {
  char text[32];
  snprintf(text, sizeof text, "%g s", s);
  return text;
}

}  // namespace

World::World(const JoinOptions& options) : options_(options), device_(options.rank) {
  for (int i = 0; i < size(); i++) members_.push_back(std::make_unique<Member>());
  if (size() > 1) {
    Socket listener = is_local() ? listen_at(options_.address, 0) : listen_everywhere(0);
    if (rank() == 0)
      gather_at_rendezvous(listener.port());
    else
      meet_at_rendezvous(listener);
    connect_all(listener);
  }
  for (int* pair : {wake_, alarm_})
    if (pipe(pair) == 0)
      for (int fd : {pair[0], pair[1]}) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, O_NONBLOCK);
      }
  tick();
  for (auto& member : members_) member->heard = now();
  watcher_ = std::thread([this] { watch(); });
}

World::~World() { leave(); }

bool World::is_local() const { return options_.address == "127.0.0.1" || options_.address == "::1"; }

Clock::duration World::on_its_way() const {
  return std::min(seconds(limit()), Clock::duration(std::chrono::seconds(2)));
}

Instant World::now() const {
  const Instant end = end_.load(std::memory_order_acquire);
  return std::min(end, Clock::now() - lost_.load(std::memory_order_acquire));
}

Clock::duration World::beat() const {
  return std::clamp(seconds(limit() / 8), Clock::duration(std::chrono::milliseconds(5)),
                    Clock::duration(std::chrono::milliseconds(250)));
}

// Of the watching thread, at least once a beat.
void World::tick() {
  const Instant running = now();
  lost_.store(Clock::now() - running, std::memory_order_release);
  end_.store(running + 2 * beat(), std::memory_order_release);
}

void World::begin(const char* name, uint32_t group, uint64_t sequence) {
  if (failed_.load(std::memory_order_acquire)) {
    std::lock_guard lock(guard_);
    throw Failure(failure_->rank, std::string(failure_->what()) + " (the job failed before this operation)",
                  true);
  }
  std::lock_guard lock(guard_);
  status_.busy = Busy::host;
  status_.group = group;
  status_.sequence = sequence;
  status_.waiting_for = -1;
  const size_t length = std::min(std::strlen(name), sizeof status_.name - 1);
  std::memcpy(status_.name, name, length);
  status_.name[length] = 0;
}

void World::end() {
  std::lock_guard lock(guard_);
  // A wait for the device may go on beside it.
  status_.busy = device_since_ ? Busy::device : Busy::no;
}

// Throws the failure there is, and sees to it that all hear of it.
void World::throw_failure() {
  if (!failure_) return;
  wake();
  throw *failure_;
}

void World::wake() {
  const char byte = 0;
  (void)!write(wake_[1], &byte, 1);
}

int World::alarm() const { return fcntl(alarm_[0], F_DUPFD_CLOEXEC, 0); }

void World::note(int rank, const std::string& text) {
  if (failure_) return;
  failure_ = std::make_unique<Failure>(rank, text, true);
  failed_.store(true, std::memory_order_release);
  const char byte = 0;
  if (!leaving_) (void)!write(alarm_[1], &byte, 1);
}

void World::note_lost(int rank) {
  note(rank, "rank " + std::to_string(rank) + " was lost: its connection has ended");
}

void World::fail(const Failure& failure) {
  {
    std::lock_guard lock(guard_);
    note(failure.rank, failure.what());
  }
  std::lock_guard lock(guard_);
  wake();
  throw *failure_;
}

void World::ended(int peer) {
  // The control connections tell who was lost first, if they have not yet.
  const Instant until = Clock::now() + std::chrono::milliseconds(150);
  while (!failed_.load(std::memory_order_acquire) && Clock::now() < until) {
    {
      std::lock_guard lock(guard_);
      if (members_[peer]->left) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  bool left;
  {
    std::lock_guard lock(guard_);
    left = members_[peer]->left;
  }
  fail(Failure(peer, left ? "left the job" : "was lost: a connection to it has ended"));
}

void World::check(int peer, Instant since, bool is_seen_at_once) {
  if (failed_.load(std::memory_order_acquire)) {
    std::lock_guard lock(guard_);
    throw *failure_;
  }
  const Instant now = this->now();
  const auto waited = now - since;
  bool left, silent;
  {
    std::lock_guard lock(guard_);
    status_.waiting_for = peer;
    left = members_[peer]->left;
    silent = !left && now - members_[peer]->heard > seconds(limit()) - beat();
  }
  if (left && waited > (is_seen_at_once ? kGoodbye : on_its_way())) fail(Failure(peer, "left the job"));
  // However long this rank had work of its own before it came here.
  if (silent || waited > seconds(limit())) suspect(peer);
}

std::string World::crossed() const {
  return "and rank " + std::to_string(rank()) +
         " wait for each other's devices, or for others that do: all ranks must do the same, also with "
         "several "
         "groups, in the same order";
}

// The place of another rank in words, where it is at another operation than this one.
std::string World::other_operation(int r) const {
  const Member& member = *members_[r];
  const Status& theirs = member.status;
  const bool differs = theirs.sequence != status_.sequence ||
                       std::strncmp(theirs.name, status_.name, sizeof status_.name) != 0;
  if (status_.busy == Busy::device && theirs.busy == Busy::device) {
    if (r != status_.waiting_for || !waits_for_me(r)) return "";
    if (!differs) return crossed();
  }
  if (!differs) return "";
  return "is at operation " + std::to_string(theirs.sequence) + ", " + theirs.name + ", and rank " +
         std::to_string(rank()) + " at operation " + std::to_string(status_.sequence) + ", " + status_.name +
         ": all ranks must do the same in the same order";
}

Part World::part_in(const std::vector<int>& members, int rank) {
  return std::find(members.begin(), members.end(), rank) == members.end() ? Part::none : Part::behind;
}

void World::check_members(Instant since, const std::vector<int>& members) {
  check_others(since, Busy::host, [&](int r) { return part_in(members, r); });
}

// `part_of` tells of another rank's part in what this one waits for.
void World::check_others(Instant since, Busy mine, const std::function<Part(int)>& part_of) {
  if (!has_failed() && now() - since < std::chrono::milliseconds(100)) return;
  std::unique_lock lock(guard_);
  if (failure_) throw *failure_;
  const auto fault = fault_of_others(since, mine, part_of);
  lock.unlock();
  if (fault) fail(*fault);
}

std::optional<Failure> World::fault_of_others(Instant since, Busy mine,
                                              const std::function<Part(int)>& part_of) const {
  std::optional<Failure> found;
  const Instant now = this->now();
  const auto waited = now - since;
  // A device's library takes a while to end what runs.
  const auto ending = mine == Busy::host ? Clock::duration() : std::min(kEnding, seconds(limit() / 4));
  const bool late = waited > seconds(limit()) - ending;
  // However long this rank had work of its own before it came here.
  const auto silence = seconds(limit()) - std::max(ending, beat());
  const auto look_for = [&](const std::function<std::string(int)>& fault) {
    for (int r = 0; r < size() && !found; r++) {
      if (r == rank()) continue;
      const std::string text = fault(r);
      if (!text.empty()) found.emplace(r, text);
    }
  };
  // Ranks that wait for one that is gone or stopped may wait at different operations, so those are the last
  // to be blamed.
  look_for([&](int r) -> std::string {
    const Member& member = *members_[r];
    // The device of one that has left may have yet to do what it added.
    const bool is_due = mine == Busy::host           ? waited > on_its_way()
                        : part_of(r) == Part::behind ? waited > kGoodbye
                                                     : late;
    if (member.left && is_due && part_of(r) != Part::none) return "left the job";
    const bool is_silent = late                       ? now - member.heard > seconds(limit() / 2)
                           : part_of(r) != Part::none ? now - member.heard > silence
                                                      : false;
    if (member.left || !is_silent) return "";
    return "has not been heard of for " + in_words(limit()) + ": it was stopped, or cannot be reached";
  });
  if (!late) return found;
  look_for([&](int r) -> std::string {
    if (members_[r]->status.busy != Busy::no || part_of(r) < Part::unknown) return "";
    return "has not reached this operation within " + in_words(limit());
  });
  look_for([&](int r) { return part_of(r) == Part::behind ? other_operation(r) : ""; });
  // Each device is at an operation that the next one's has behind its own.
  look_for([&](int r) -> std::string {
    return mine == Busy::device && r == status_.waiting_for && waits_for_me(r) ? crossed() : "";
  });
  if (mine == Busy::host)
    for (int r = size() - 1; r >= 0 && !found; r--)
      if (r != rank() && part_of(r) != Part::none)
        found.emplace(r, "does not finish this operation within " + in_words(limit()));
  return found;
}

// Follows who waits for whom to the one that all wait for.
void World::suspect(int peer) {
  std::string text;
  int at = peer;
  {
    std::lock_guard lock(guard_);
    const Instant now = this->now();
    for (int steps = 0;; steps++) {
      const Member& member = *members_[at];
      if (now - member.heard > seconds(limit() / 2)) {
        text = "has not been heard of for " + in_words(limit()) + ": it was stopped, or cannot be reached";
        break;
      }
      const int next = member.status.waiting_for;
      if (member.status.busy == Busy::no) {
        text = "has not reached this operation within " + in_words(limit());
        break;
      }
      if (next < 0 || next == rank() || next == at || steps >= size()) {
        text = "has neither sent nor received anything for " + in_words(limit());
        break;
      }
      at = next;
    }
  }
  fail(Failure(at, text));
}

void World::tell_all(Purport type, int rank, const std::string& text) {
  for (int r = 0; r < size(); r++) tell(r, type, rank, text);
}

void World::tell(int to, Purport type, int rank, const std::string& text) {
  Member& member = *members_[to];
  if (!member.control) return;
  Message message{};
  // A rank that takes nothing gets no more heartbeats, but hears of failures.
  if (type == Purport::beat && !member.outgoing.empty()) return;
  if (member.outgoing.size() > 16 * sizeof message) return;
  message.type = type;
  message.rank = rank;
  message.status = status_;
  message.device = member.told = device_.progress(device_place_, to, member.device);
  if (type == Purport::bye) {
    const LastMessages last = device_.last_messages(to);
    std::memcpy(message.text, &last, sizeof last);
  } else {
    snprintf(message.text, sizeof message.text, "%s", text.c_str());
  }
  message.check = check_of(message);
  member.outgoing.append(reinterpret_cast<const char*>(&message), sizeof message);
  push(member);
}

void World::push(Member& to) {
  while (!to.outgoing.empty()) {
    const ssize_t n = send(to.control.fd(), to.outgoing.data(), to.outgoing.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    to.outgoing.erase(0, size_t(n));
  }
}

// False when the connection has ended.
bool World::hear(Member& from, int rank) {
  char bytes[4096];
  for (;;) {
    const ssize_t n = recv(from.control.fd(), bytes, sizeof bytes, 0);
    if (n == 0) return false;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    from.heard = now();
    from.incoming.append(bytes, size_t(n));
    const bool is_all = size_t(n) < sizeof bytes;
    while (from.incoming.size() >= sizeof(Message)) {
      Message message;
      std::memcpy(&message, from.incoming.data(), sizeof message);
      from.incoming.erase(0, sizeof message);
      if (message.check != check_of(message)) {
        note(rank, "rank " + std::to_string(rank) + " sent a damaged message");
        return false;
      }
      message.text[sizeof message.text - 1] = 0;
      from.status = message.status;
      from.status.name[sizeof from.status.name - 1] = 0;
      if (from.status.waiting_for >= size()) from.status.waiting_for = -1;
      from.device = message.device;
      if (message.type == Purport::bye) {
        from.left = true;
        std::memcpy(&from.last_messages, message.text, sizeof from.last_messages);
      }
      compare_device(rank);
      if (message.type == Purport::ask) {
        from.asked = message.device;
        from.asks = true;
        answer(rank);
      }
      if (message.type == Purport::fail && message.rank >= 0 && message.rank < size()) {
        note(message.rank, message.text);
        told_ = true;
      }
    }
    if (is_all) return true;
  }
}

// Of those that are connected before the watching thread begins; throws the failure that one of them knows
// of, or has met.
void World::hear_members() {
  for (int r = 0; r < size(); r++) {
    Member& member = *members_[r];
    if (member.control && !member.left && !hear(member, r) && !member.left) note_lost(r);
  }
  if (failure_) throw *failure_;
}

void World::tell_all_of(const Failure& failure) {
  note(failure.rank, failure.what());
  told_ = true;
  tell_all(Purport::fail, failure_->rank, failure_->what());
}

void World::watch() {
  const int milliseconds = int(std::chrono::duration_cast<std::chrono::milliseconds>(beat()).count());
  std::vector<pollfd> fds;
  std::vector<int> ranks;
  Instant next = Clock::now();
  for (;;) {
    fds.assign(1, {wake_[0], POLLIN, 0});
    ranks.assign(1, -1);
    {
      std::lock_guard lock(guard_);
      if (leaving_) return;
      for (int i = 0; i < size(); i++)
        if (members_[i]->control) {
          fds.push_back({members_[i]->control.fd(), POLLIN, 0});
          ranks.push_back(i);
        }
    }
    poll(fds.data(), nfds_t(fds.size()), milliseconds);
    tick();
    char drain[64];
    while (read(wake_[0], drain, sizeof drain) > 0) {
    }
    for (size_t i = 1; i < fds.size(); i++) {
      if (!fds[i].revents) continue;
      // One by one: operations wait for the lock.
      std::lock_guard lock(guard_);
      Member& member = *members_[ranks[i]];
      if (!leaving_ && member.control && !hear(member, ranks[i])) {
        member.control.close();
        if (!member.left) note_lost(ranks[i]);
      }
    }
    std::lock_guard lock(guard_);
    if (leaving_) return;
    if (is_in_device_call_ && device_since_ && !failure_)
      if (const auto fault =
              fault_of_others(*device_since_, Busy::device, [this](int r) { return part_in_device(r); }))
        note(fault->rank, fault->what());
    if (failure_ && !told_) tell_all_of(*failure_);
    if (Clock::now() >= next) {
      next = Clock::now() + beat();
      tell_all(Purport::beat, rank(), "");
    }
    for (auto& member : members_)
      if (member->control) push(*member);
  }
}

bool World::part() {
  bool told = false;
  for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    std::lock_guard lock(guard_);
    if (failure_) return false;
    if (!told) tell_all(Purport::bye, rank(), "");
    told = true;
    bool all = true;
    for (int r = 0; r < size(); r++) all = all && (r == rank() || members_[size_t(r)]->left);
    if (all) return true;
  }
}

void World::leave() {
  {
    std::lock_guard lock(guard_);
    if (leaving_) return;
    // Told again if another rank told of it: those that hear of this end first must learn why.
    if (failure_) tell_all_of(*failure_);
    tell_all(Purport::bye, rank(), "");
    leaving_ = true;
    note(rank(), "rank " + std::to_string(rank()) + " has left the job: this process");
  }
  wake();
  if (watcher_.joinable()) watcher_.join();
  // An operation on another thread notices the failure, and ends.
  std::lock_guard busy(turn);
  for (auto& member : members_) {
    member->control.close();
    member->data.clear();
  }
  for (int* fd : {&wake_[0], &wake_[1], &alarm_[0], &alarm_[1]}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

}  // namespace lazuli::dist
