// Lanes: queues of tapes, each run in order, different ones at once. A tape runs on the calling thread where
// the lane is idle, or is submitted to the lane's own thread, which is started when it is first needed. Every
// tape of a lane has a ticket, one higher than the last; a WAIT record holds a lane back until another one
// has done a ticket.
#ifndef LAZULI_RUNTIME_LANE_H
#define LAZULI_RUNTIME_LANE_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/store.h"
#include "runtime/tape.h"

namespace lazuli {

// A slot without a value, and the tape that should have given it one.
struct Poison {
  uint32_t slot, lane;
  uint64_t ticket;
  uint32_t cause;
};

class Lanes;

class Lane {
 public:
  Lane(Lanes& all, uint32_t index);

  // Only for use while the lane is idle: see Lanes::drain.
  Tape& tape() { return tape_; }
  uint64_t done() const { return done_.load(std::memory_order_acquire); }
  uint64_t issued() const { return issued_; }
  uint32_t index() const { return index_; }

 private:
  friend class Lanes;
  struct Job {
    std::vector<int64_t> words;
    bool tell;
  };
  void serve();
  bool next(Job& job);
  void finish();

  Lanes& all_;
  const uint32_t index_;
  Tape tape_;
  uint64_t issued_ = 0;  // of the JavaScript thread
  bool here_ = false;    // a tape runs on that thread: nobody else issues tickets meanwhile
  std::atomic<uint64_t> done_{0};
  std::atomic<uint32_t> waiting_{0};  // jobs in the queue
  std::deque<Job> jobs_;              // under the lanes' mutex
  std::thread thread_;
};

// The lanes of an isolate. For the thread of JavaScript, but for find, wait and what is private.
class Lanes {
 public:
  static constexpr uint32_t kMost = 4096;

  Lanes();
  ~Lanes();

  Store store;
  // Called by lanes when a tape is done that was submitted with `tell`.
  std::function<void()> tell;

  // Makes the lane on first use; null when the number is out of range. Lane 0 is always there.
  Lane* find(uint32_t lane) const {
    return lane < kMost ? lanes_[lane].load(std::memory_order_acquire) : nullptr;
  }
  Lane* make(uint32_t lane);
  Lane& main() const { return *find(0); }

  // Runs on the calling thread, once the lane has done what it was given before. Returns how many records
  // failed.
  size_t run(Lane& lane, const int64_t* words, size_t count);
  // Gives a copy of the words to the lane's thread and returns their ticket. Where the system has no thread
  // to give, they run at once.
  uint64_t submit(Lane& lane, const int64_t* words, size_t count, bool tell);
  // Returns false when the lanes are stopped.
  bool wait(const Lane& lane, uint64_t ticket);
  // Waits for everything.
  void drain();
  // Ends what runs after the record at hand, drops what waits, and ends the threads.
  void stop();

  bool has_poison() const { return poisoned_.load(std::memory_order_acquire); }
  std::vector<Poison> take_poison();

  // Registers for the tapes of all lanes.
  uint32_t add_program(const int64_t* words, size_t count);
  bool release_program(uint32_t id);
  uint32_t add_plan(const int64_t* words, size_t count, int n_in, int n_out, int64_t arena_bytes);
  bool release_plan(uint32_t id);

 private:
  friend class Lane;
  static bool idle(const Lane& lane) { return lane.done() == lane.issued_; }
  void note_poison(Lane& lane, uint64_t ticket);

  clockid_t clock_{};  // of JavaScript's thread, where it can be had
  bool has_clock_ = false;
  std::unique_ptr<std::atomic<Lane*>[]> lanes_;
  uint32_t count_ = 0;  // lanes below are made, or never were
  std::mutex mutex_;
  std::condition_variable given_, finished_;
  std::atomic<uint32_t> watchers_{0};  // who wait for finished_
  std::atomic<bool> stopping_{false};
  std::atomic<bool> poisoned_{false};
  std::vector<Poison> poison_;
};

}  // namespace lazuli

#endif
