// Queues of command buffers, each run in order, different ones at once. A command buffer runs on the calling
// thread where the queue is idle, or is submitted to the queue's own thread, which is started when it is
// first needed. Every command buffer of a queue has a ticket, one higher than the last; a WAIT record holds a
// queue back until another one has done a ticket.
#ifndef LAZULI_RUNTIME_QUEUE_H
#define LAZULI_RUNTIME_QUEUE_H

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

#include "runtime/executor.h"
#include "runtime/store.h"

namespace lazuli {

// A buffer without a value, and the command buffer that should have given it one.
struct Poison {
  uint32_t id, queue;
  uint64_t ticket;
  uint32_t cause;
};

class Queues;

class Queue {
 public:
  Queue(Queues& all, uint32_t index);

  // Only for use while the queue is idle: see Queues::drain.
  Executor& executor() { return executor_; }
  uint64_t done() const { return done_.load(std::memory_order_acquire); }
  uint64_t issued() const { return issued_; }
  uint32_t index() const { return index_; }

 private:
  friend class Queues;
  struct Job {
    std::vector<int64_t> words;
    bool tell;
  };
  void serve();
  bool next(Job& job);
  void finish();
  void tell();

  Queues& all_;
  const uint32_t index_;
  Executor executor_;
  uint64_t issued_ = 0;  // of the JavaScript thread
  bool here_ = false;    // a command buffer runs on that thread: nobody else issues tickets meanwhile
  std::atomic<uint64_t> done_{0};
  std::atomic<uint32_t> waiting_{0};  // jobs
  std::deque<Job> jobs_;              // under the queues' mutex
  std::thread thread_;
};

// The queues of an isolate. For the thread of JavaScript, but for find, wait and what is private.
class Queues {
 public:
  static constexpr uint32_t kMost = 4096;

  Queues();
  ~Queues();

  Store store;
  // Called by queues when a command buffer is done that was submitted with `tell`.
  std::function<void()> tell;

  // Makes the queue on first use; null when the number is out of range. Queue 0 is always there.
  Queue* find(uint32_t queue) const {
    return queue < kMost ? queues_[queue].load(std::memory_order_acquire) : nullptr;
  }
  Queue* make(uint32_t queue);
  Queue& main() const { return *find(0); }

  // Runs on the calling thread, once the queue has done what it was given before. Returns how many records
  // failed.
  size_t run(Queue& queue, const int64_t* words, size_t count);
  // Gives a copy of the words to the queue's thread and returns their ticket. Where the system has no thread
  // to give, they run at once.
  uint64_t submit(Queue& queue, const int64_t* words, size_t count, bool tell);
  // Returns false when the queues are stopped.
  bool wait(const Queue& queue, uint64_t ticket);
  // Waits for everything.
  void drain();
  // Ends what runs after the record at hand, drops what waits, and ends the threads.
  void stop();

  bool has_poison() const { return poisoned_.load(std::memory_order_acquire); }
  std::vector<Poison> take_poison();

  // Registers for the command buffers of all queues.
  uint32_t add_program(const int64_t* words, size_t count);
  bool release_program(uint32_t id);
  uint32_t add_plan(const int64_t* words, size_t count, int n_in, int n_out, int64_t arena_bytes);
  bool release_plan(uint32_t id);

 private:
  friend class Queue;
  static bool idle(const Queue& queue) { return queue.done() == queue.issued_; }
  void note_poison(Queue& queue, uint64_t ticket);

  clockid_t clock_{};  // of JavaScript's thread, where it can be had
  bool has_clock_ = false;
  std::unique_ptr<std::atomic<Queue*>[]> queues_;
  uint32_t count_ = 0;  // queues below are made, or never were
  std::mutex mutex_;
  std::condition_variable given_, finished_;
  std::atomic<uint32_t> watchers_{0};  // who wait for finished_
  std::atomic<bool> stopping_{false};
  std::atomic<bool> poisoned_{false};
  std::vector<Poison> poison_;
};

}  // namespace lazuli

#endif
