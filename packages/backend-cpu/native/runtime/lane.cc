#include "runtime/lane.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <system_error>

#include "runtime/pool.h"

namespace lazuli {
namespace {

// Handing a tape to a parked thread costs about 50 µs, so threads look around for a while first.
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

// All lanes of the process: exit() does not tell isolates that it ends them, and threads must not run kernels
// while libraries are taken down.
struct Everyone {
  std::mutex mutex;
  std::vector<Lanes*> all;
};
Everyone& everyone() {
  static Everyone* it = [] {
    std::atexit([] {
      auto& them = everyone();
      std::vector<Lanes*> all;
      {
        std::lock_guard lock(them.mutex);
        all = them.all;
      }
      for (Lanes* lanes : all) lanes->stop();
    });
    return new Everyone;
  }();
  return *it;
}

}  // namespace

Lane::Lane(Lanes& all, uint32_t index) : all_(all), index_(index), tape_(all.store) {
  tape_.stop = &all.stopping_;
  tape_.wait = [this](uint32_t lane, uint64_t ticket) {
    const Lane* it = all_.find(lane);
    // Such waits would not end.
    if (!it || (it == this && ticket > done()) || (here_ && ticket > it->issued_)) return false;
    return all_.wait(*it, ticket);
  };
}

bool Lane::next(Job& job) {
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

void Lane::serve() {
  if (all_.has_clock_) Pool::work_beside(all_.clock_);
  Job job;
  while (next(job)) {
    tape_.run(job.words.data(), job.words.size());
    finish();
    if (job.tell && !all_.stopping_) all_.tell();
  }
}

void Lane::finish() {
  const uint64_t ticket = done_.load(std::memory_order_relaxed) + 1;
  if (tape_.has_poisoned()) all_.note_poison(*this, ticket);
  done_.store(ticket);
  if (all_.watchers_.load() == 0) return;
  // Whoever looked before the store above and is about to wait holds the mutex until it does.
  {
    std::lock_guard lock(all_.mutex_);
  }
  all_.finished_.notify_all();
}

Lanes::Lanes() : lanes_(new std::atomic<Lane*>[kMost]()) {
#if defined(__linux__)
  has_clock_ = pthread_getcpuclockid(pthread_self(), &clock_) == 0;
#endif
  make(0);
  auto& them = everyone();
  std::lock_guard lock(them.mutex);
  them.all.push_back(this);
}

Lanes::~Lanes() {
  stop();
  {
    auto& them = everyone();
    std::lock_guard lock(them.mutex);
    them.all.erase(std::find(them.all.begin(), them.all.end(), this));
  }
  for (uint32_t i = 0; i < count_; i++) delete lanes_[i].load();
}

Lane* Lanes::make(uint32_t lane) {
  if (Lane* there = find(lane)) return there;
  if (lane >= kMost) return nullptr;
  auto* made = new Lane(*this, lane);
  lanes_[lane].store(made, std::memory_order_release);
  count_ = std::max(count_, lane + 1);
  return made;
}

void Lanes::note_poison(Lane& lane, uint64_t ticket) {
  std::lock_guard lock(mutex_);
  for (uint32_t slot : lane.tape_.take_poisoned())
    poison_.push_back({slot, lane.index_, ticket, store.slots.find(slot)->cause});
  poisoned_.store(true, std::memory_order_release);
}

std::vector<Poison> Lanes::take_poison() {
  std::lock_guard lock(mutex_);
  poisoned_ = false;
  return std::exchange(poison_, {});
}

size_t Lanes::run(Lane& lane, const int64_t* words, size_t count) {
  if (lane.done() != lane.issued_) wait(lane, lane.issued_);
  lane.issued_++;
  lane.here_ = true;
  const size_t failed = lane.tape_.run(words, count);
  lane.here_ = false;
  lane.finish();
  return failed;
}

uint64_t Lanes::submit(Lane& lane, const int64_t* words, size_t count, bool tell_when_done) {
  if (!lane.thread_.joinable()) {
    try {
      lane.thread_ = std::thread([&lane] { lane.serve(); });
    } catch (const std::system_error&) {
      run(lane, words, count);
      if (tell_when_done) tell();
      return lane.issued_;
    }
  }
  Lane::Job job{std::vector<int64_t>(words, words + count), tell_when_done};
  {
    std::lock_guard lock(mutex_);
    lane.jobs_.push_back(std::move(job));
    lane.waiting_.fetch_add(1, std::memory_order_release);
  }
  given_.notify_all();
  return ++lane.issued_;
}

bool Lanes::wait(const Lane& lane, uint64_t ticket) {
  const auto reached = [&] { return lane.done() >= ticket || stopping_; };
  if (!spin(reached)) {
    std::unique_lock lock(mutex_);
    watchers_.fetch_add(1);
    finished_.wait(lock, [&] { return lane.done_.load() >= ticket || stopping_; });
    watchers_.fetch_sub(1);
  }
  return lane.done() >= ticket;
}

void Lanes::drain() {
  for (uint32_t i = 0; i < count_; i++)
    if (const Lane* lane = find(i)) wait(*lane, lane->issued_);
}

void Lanes::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  given_.notify_all();
  finished_.notify_all();
  for (uint32_t i = 0; i < count_; i++) {
    Lane* lane = find(i);
    if (lane && lane->thread_.joinable()) lane->thread_.join();
  }
}

// Checked here, where the error can be thrown. What was made serves the main lane, unless that is at work now
// and must make its own, as other lanes do.
uint32_t Lanes::add_program(const int64_t* words, size_t count) {
  auto made = std::make_shared<Program>(words, count);
  const uint32_t id = store.add_program(words, count);
  if (idle(main())) main().tape_.give_program(id, std::move(made));
  return id;
}

uint32_t Lanes::add_plan(const int64_t* words, size_t count, int n_in, int n_out, int64_t arena_bytes) {
  Store::PlanWords plan{std::vector<int64_t>(words, words + count), n_in, n_out, arena_bytes};
  if (!idle(main())) {
    Tape scratch(store);
    Plan(words, count, n_in, n_out, arena_bytes, scratch);
    return store.add_plan(std::move(plan));
  }
  auto made = std::make_shared<Plan>(words, count, n_in, n_out, arena_bytes, main().tape_);
  const uint32_t id = store.add_plan(std::move(plan));
  main().tape_.give_plan(id, std::move(made));
  return id;
}

bool Lanes::release_program(uint32_t id) {
  drain();
  for (uint32_t i = 0; i < count_; i++)
    if (Lane* lane = find(i)) lane->tape_.forget_program(id);
  return store.drop_program(id);
}

bool Lanes::release_plan(uint32_t id) {
  drain();
  for (uint32_t i = 0; i < count_; i++)
    if (Lane* lane = find(i)) lane->tape_.forget_plan(id);
  return store.drop_plan(id);
}

}  // namespace lazuli
