// The processes of a job: connections between all of them, and a thread that tells the others how this one is
// and hears how they are. The first failure that anybody notices is everybody's.
#ifndef LAZULI_DISTRIBUTED_WORLD_H
#define LAZULI_DISTRIBUTED_WORLD_H

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "failure.h"
#include "job/device_work.h"
#include "job/handshake.h"
#include "job/processors.h"
#include "job/yielding_mutex.h"
#include "wire/sockets.h"

namespace lazuli::dist {

struct JoinOptions {
  int rank = 0;
  int size = 1;
  std::string address;  // of the rendezvous, at which rank 0 listens
  int port = 0;
  int listener = -1;  // a socket that listens there already, for rank 0
  std::string secret;
  double limit = 5;        // seconds without progress
  double join_limit = 60;  // seconds until everybody is there
  int connections = 1;     // for data, between two ranks
  std::string proxy;       // host:port of a relay through which ranks reach each other
};

struct Seat {         // what the rendezvous tells of a rank
  char address[256];  // as long as names of hosts may be
  int32_t port;
  int64_t pid;
  char host[64];
  Processors processors;
};

enum class Busy : uint32_t { no, host, device };

// Kinds of messages to other ranks. One that asks is answered once this rank has added what the other waits
// for.
enum class Purport : uint32_t { beat = 1, fail, bye, ask, answer };

// The operation that a rank is in, or was in last.
struct Status {
  Busy busy = Busy::no;
  uint32_t group = 0;
  uint64_t sequence = 0;
  int32_t waiting_for = -1;
  char name[20] = {};
};

struct Member {
  Seat seat;
  Socket control;
  std::vector<Socket> data;
  std::string incoming, outgoing;  // parts of control messages
  Instant heard;
  Status status;
  DeviceProgress device, asked, told;
  LastMessages last_messages;
  bool asks = false;  // to be told once this rank has added what it waits for
  bool left = false;
};

class World {
 public:
  explicit World(const JoinOptions& options);
  ~World();
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  double limit() const { return options_.limit; }
  // So long what a rank wrote before its goodbye may take to come by a network.
  Clock::duration on_its_way() const;
  Member& member(int rank) { return *members_[rank]; }

  // The time in which this process ran. It stands still where the watching thread does not run: what stops
  // this process, as a suspended machine does, says nothing about the others.
  Instant now() const;

  void begin(const char* name, uint32_t group, uint64_t sequence);
  void end();
  // Called while nothing comes from (or goes to) a rank: throws when that has gone on for too long, since a
  // moment by now(). What a rank has sent may come after its goodbye, so one that has left is given time too,
  // but where all that it wrote is seen before that.
  void check(int peer, Instant since, bool is_seen_at_once = false);
  // The same while it is not known who keeps this one waiting.
  void check_members(Instant since, const std::vector<int>& members);
  // Adds an operation of this rank's device. Returns its place among all.
  uint64_t add_device_work(const Lane& lane, const std::vector<int>& members, uint32_t operation);
  // Asks the others whether they have added the same operations up to a place, of which `done` is the last
  // that the device is known to have passed.
  void ask_of_device(uint64_t place, uint64_t done);
  // True once they are known to have, or within so many milliseconds.
  bool agrees_on_device(uint64_t place, int milliseconds);
  // Called while this rank waits for its device to pass a place, which may take longer than the limit where
  // all have added what it waits for; place 0 is behind what all members of a group must come to. The wait
  // lasts from the first call until end_device(), which says if there are other waits.
  void await_device(const char* name, uint64_t place, const std::vector<int>& members);
  void end_device(bool is_waiting);
  // Around a call of this rank's thread that may not return before its device is done: until it has, the
  // watching thread looks after the wait.
  void begin_device_call(bool is_begin);
  // A file that can be read from once the job has failed, and ends where this process leaves it; to be
  // closed.
  int alarm() const;
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  // A connection for data has ended.
  [[noreturn]] void ended(int peer);
  // Makes this the failure of all ranks, unless there is one; throws the one there is.
  [[noreturn]] void fail(const Failure& failure);
  // Says goodbye, and waits until all others have. False where one of them is lost, or anything else failed.
  bool part();
  // Says goodbye and closes everything.
  void leave();

  // Operations of this process take turns.
  std::mutex turn;

 private:
  void check_others(Instant since, Busy mine, const std::function<Part(int)>& part_of);
  std::optional<Failure> fault_of_others(Instant since, Busy mine,
                                         const std::function<Part(int)>& part_of) const;
  Part part_in_device(int rank) const;
  // The part of a rank in what all of these must come to.
  static Part part_in(const std::vector<int>& members, int rank);
  std::string other_operation(int rank) const;
  std::string crossed() const;
  int who_holds_up() const;
  bool waits_for_me(int rank) const;
  void compare_device(int rank);
  void answer(int rank);
  void throw_failure();
  void wake();
  // All ranks are on this host.
  bool is_local() const;
  void meet_at_rendezvous(Socket& listener);
  void take_own_link(Seat& seat) const;
  void gather_at_rendezvous(int port);
  void connect_all(const Socket& listener);
  void connect_to_member(int rank);
  void accept_members(const Socket& listener);
  void hear_members();
  void tell_all_of(const Failure& failure);
  Clock::duration beat() const;
  void tick();
  void watch();
  void tell_all(Purport type, int rank, const std::string& text);
  void tell(int to, Purport type, int rank, const std::string& text);
  bool hear(Member& from, int rank);
  void push(Member& to);
  void note(int rank, const std::string& text);
  void note_lost(int rank);
  [[noreturn]] void suspect(int peer);
  Hello hello(Purpose purpose, int index, int port) const;

  JoinOptions options_;
  std::vector<std::unique_ptr<Member>> members_;
  YieldingMutex guard_;  // of all that the thread and operations share
  Status status_;
  DeviceWork device_;
  uint64_t device_place_ = 0;
  std::optional<Instant> device_since_;
  bool is_in_device_call_ = false;
  std::atomic<bool> failed_{false};
  // now() is the clock's time less what was lost, but not beyond the end.
  std::atomic<Clock::duration> lost_{Clock::duration::zero()};
  std::atomic<Instant> end_{Instant::max()};
  std::unique_ptr<Failure> failure_;
  bool told_ = false, leaving_ = false;
  int wake_[2] = {-1, -1}, alarm_[2] = {-1, -1};
  std::thread watcher_;
};

}  // namespace lazuli::dist

#endif
