#include "runtime/queue.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>

#include "runtime/pool.h"

namespace lazuli {
namespace {

// Handing a command buffer to a parked thread costs about 50 µs, so threads look around for a while first.
constexpr auto kSpinTime = std::chrono::microseconds(30);

template <class Condition>
bool spin(Condition&& holds) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  for (;;) {
    for (int i = 0; i < 16; i++) {
      if (holds()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("yield");
#endif
    }
    if (std::chrono::steady_clock::now() > deadline) return false;
  }
}

// All queues of the process: exit() does not tell isolates that it ends them, and threads must not run
// kernels while libraries are taken down.
struct Everyone {
  std::mutex mutex;
  std::vector<Queues*> all;
};
Everyone& everyone() {
  static Everyone* it = [] {
    std::atexit([] {
      auto& them = everyone();
      std::vector<Queues*> all;
      {
        std::lock_guard lock(them.mutex);
        all = them.all;
      }
      for (Queues* queues : all) queues->stop();
    });
    return new Everyone;
  }();
  return *it;
}

}  // namespace

Queue::Queue(Queues& all, uint32_t index) : all_(all), index_(index), executor_(all.store) {
  executor_.stop = &all.stopping_;
  executor_.wait = [this](uint32_t queue, uint64_t ticket) {
    const Queue* it = all_.find(queue);
    // Such waits would not end.
    if (!it || (it == this && ticket > done()) || (here_ && ticket > it->issued_)) return false;
    return all_.wait(*it, ticket);
  };
}

bool Queue::next(Job& job) {
  const auto given = [this] { return waiting_.load(std::memory_order_acquire) > 0 || all_.stopping_; };
  spin(given);
  std::unique_lock lock(all_.mutex_);
  all_.given_.wait(lock, given);
  if (all_.stopping_) return false;
  job = std::move(jobs_.front());
  jobs_.pop_front();
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

void Queue::serve() {
  if (all_.has_clock_) Pool::work_beside(all_.clock_);
  Job job;
  while (next(job)) {
    executor_.run(job.words.data(), job.words.size());
    finish();
    if (job.tell && !all_.stopping_) tell();
  }
}

// The thread that is woken may take the processor of the one that wakes it, which has more to do where
// another job waits.
void Queue::tell() {
  const auto body = [](void* all) { static_cast<Queues*>(all)->tell(); };
  if (waiting_.load(std::memory_order_relaxed) == 0 || !pool().ask(body, &all_)) all_.tell();
}

void Queue::finish() {
  const uint64_t ticket = done_.load(std::memory_order_relaxed) + 1;
  if (executor_.has_poisoned()) all_.note_poison(*this, ticket);
  done_.store(ticket);
  if (all_.watchers_.load() == 0) return;
  // A thread that looked before the store above and is about to wait holds the mutex until it does.
  {
    std::lock_guard lock(all_.mutex_);
  }
  all_.finished_.notify_all();
}

Queues::Queues() : queues_(new std::atomic<Queue*>[kMost]()) {
#if defined(__linux__)
  has_clock_ = pthread_getcpuclockid(pthread_self(), &clock_) == 0;
#endif
  make(0);
  auto& them = everyone();
  std::lock_guard lock(them.mutex);
  them.all.push_back(this);
}

Queues::~Queues() {
  stop();
  {
    auto& them = everyone();
    std::lock_guard lock(them.mutex);
    them.all.erase(std::find(them.all.begin(), them.all.end(), this));
  }
  for (uint32_t i = 0; i < count_; i++) delete queues_[i].load();
}

Queue* Queues::make(uint32_t queue) {
  if (Queue* there = find(queue)) return there;
  if (queue >= kMost) return nullptr;
  auto* made = new Queue(*this, queue);
  queues_[queue].store(made, std::memory_order_release);
  count_ = std::max(count_, queue + 1);
  return made;
}

void Queues::note_poison(Queue& queue, uint64_t ticket) {
  std::lock_guard lock(mutex_);
  for (uint32_t id : queue.executor_.take_poisoned())
    poison_.push_back({id, queue.index_, ticket, store.buffers.find(id)->cause});
  poisoned_.store(true, std::memory_order_release);
}

std::vector<Poison> Queues::take_poison() {
  std::lock_guard lock(mutex_);
  poisoned_ = false;
  return std::exchange(poison_, {});
}

size_t Queues::run(Queue& queue, const int64_t* words, size_t count) {
  if (queue.done() != queue.issued_) wait(queue, queue.issued_);
  queue.issued_++;
  queue.here_ = true;
  const size_t failed = queue.executor_.run(words, count);
  queue.here_ = false;
  queue.finish();
  return failed;
}

uint64_t Queues::submit(Queue& queue, const int64_t* words, size_t count, bool tell_when_done) {
  if (!queue.thread_.joinable()) {
    try {
      queue.thread_ = std::thread([&queue] { queue.serve(); });
    } catch (const std::system_error&) {
      run(queue, words, count);
      if (tell_when_done) tell();
      return queue.issued_;
    }
  }
  Queue::Job job{std::vector<int64_t>(words, words + count), tell_when_done};
  {
    std::lock_guard lock(mutex_);
    queue.jobs_.push_back(std::move(job));
    queue.waiting_.fetch_add(1, std::memory_order_release);
  }
  given_.notify_all();
  return ++queue.issued_;
}

bool Queues::wait(const Queue& queue, uint64_t ticket) {
  const auto reached = [&] { return queue.done() >= ticket || stopping_; };
  if (!spin(reached)) {
    std::unique_lock lock(mutex_);
    watchers_.fetch_add(1);
    finished_.wait(lock, [&] { return queue.done_.load() >= ticket || stopping_; });
    watchers_.fetch_sub(1);
  }
  return queue.done() >= ticket;
}

void Queues::drain() {
  for (uint32_t i = 0; i < count_; i++)
    if (const Queue* queue = find(i)) wait(*queue, queue->issued_);
}

void Queues::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  given_.notify_all();
  finished_.notify_all();
  for (uint32_t i = 0; i < count_; i++) {
    Queue* queue = find(i);
    if (queue && queue->thread_.joinable()) queue->thread_.join();
  }
  pool().forget(this);
}

// Checked here, where the error can be thrown. What was made serves the main queue, unless that is at work
// now and must make its own, as other queues do.
uint32_t Queues::add_program(const int64_t* words, size_t count) {
  auto made = std::make_shared<Program>(words, count);
  const uint32_t id = store.add_program(words, count);
  if (idle(main())) main().executor_.give_program(id, std::move(made));
  return id;
}

uint32_t Queues::add_plan(const int64_t* words, size_t count, int n_in, int n_out, int64_t arena_bytes) {
  Store::PlanWords plan{std::vector<int64_t>(words, words + count), n_in, n_out, arena_bytes};
  if (!idle(main())) {
    Executor scratch(store);
    Plan(words, count, n_in, n_out, arena_bytes, scratch);
    return store.add_plan(std::move(plan));
  }
  auto made = std::make_shared<Plan>(words, count, n_in, n_out, arena_bytes, main().executor_);
  const uint32_t id = store.add_plan(std::move(plan));
  main().executor_.give_plan(id, std::move(made));
  return id;
}

bool Queues::release_program(uint32_t id) {
  drain();
  for (uint32_t i = 0; i < count_; i++)
    if (Queue* queue = find(i)) queue->executor_.forget_program(id);
  return store.drop_program(id);
}

bool Queues::release_plan(uint32_t id) {
  drain();
  for (uint32_t i = 0; i < count_; i++)
    if (Queue* queue = find(i)) queue->executor_.forget_plan(id);
  return store.drop_plan(id);
}

}  // namespace lazuli
