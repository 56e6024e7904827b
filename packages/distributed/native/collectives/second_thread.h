// A thread that does a part of an operation beside the one that is in it, and sleeps between operations.
#ifndef LAZULI_DISTRIBUTED_SECOND_THREAD_H
#define LAZULI_DISTRIBUTED_SECOND_THREAD_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lazuli::dist {

class SecondThread {
 public:
  // `body` returns when its part is done, and soon once `is_stopped()`. What it throws is dropped: a failure
  // is the world's, and the other thread meets it there.
  explicit SecondThread(std::function<void()> body) : body_(std::move(body)), thread_([this] { work(); }) {}
  ~SecondThread() {
    {
      std::lock_guard lock(guard_);
      ending_ = true;
      stopped_.store(true);
    }
    changed_.notify_all();
    thread_.join();
  }

  void start() {
    {
      std::lock_guard lock(guard_);
      stopped_.store(false);
      working_.store(true);
    }
    changed_.notify_all();
  }
  bool is_working() const { return working_.load(); }
  // Waits for the body's end.
  void stop() {
    stopped_.store(true);
    wake();
    std::unique_lock lock(guard_);
    changed_.wait(lock, [this] { return !working_.load(); });
  }

  // In the body:
  bool is_stopped() const { return stopped_.load(); }
  // Sleeps until `ready` may have become true, which the other thread says by wake().
  template <class Ready>
  void sleep(Ready ready) {
    std::unique_lock lock(guard_);
    sleeping_.store(true);
    // By the system's clock: glibc 2.28 cannot wait by the other.
    const auto until = std::chrono::system_clock::now() + std::chrono::milliseconds(20);
    changed_.wait_until(lock, until, [&] { return stopped_.load() || ready(); });
    sleeping_.store(false);
  }
  void wake() {
    if (!sleeping_.load()) return;
    std::lock_guard lock(guard_);
    changed_.notify_all();
  }

 private:
  void work() {
    std::unique_lock lock(guard_);
    for (;;) {
      changed_.wait(lock, [this] { return working_.load() || ending_; });
      if (ending_) return;
      lock.unlock();
      try {
        body_();
      } catch (...) {
      }
      lock.lock();
      working_.store(false);
      changed_.notify_all();
    }
  }

  const std::function<void()> body_;
  std::mutex guard_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::atomic<bool> working_{false}, stopped_{false}, sleeping_{false};
  std::thread thread_;
};

}  // namespace lazuli::dist

#endif
