// Streams of the driver, and events by which they wait for each other.
#include <sched.h>

#include <chrono>
#include <thread>

#include "cuda/device.h"

namespace lz {
namespace {

// Work of up to some 20 ms is waited for without sleeping, which ends up to 0.1 ms late.
constexpr size_t kYields = 20'000;

// Asks until the answer is another than kNotReady, or for so long.
template <class Ask>
Result ask_for(int milliseconds, Ask ask) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  for (size_t tries = 0;; tries++) {
    const Result r = ask();
    if (r != kNotReady || std::chrono::steady_clock::now() >= until) return r;
    if (tries < kYields)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace

std::string Gpu::use_stream(uint32_t index) {
  if (index > queues_.size()) return "there is no such stream";
  if (index == queues_.size()) {
    std::unique_ptr<Queue> made;
    if (std::string error = new_queue(&made); !error.empty()) return error;
    queues_.push_back(std::move(made));
  }
  current_ = queues_[index].get();
  return {};
}

std::string Gpu::new_queue(std::unique_ptr<Queue>* queue) {
  auto made = std::make_unique<Queue>();
  if (const Result r = driver_->StreamCreate(&made->stream, kNonBlocking))
    return failure("cuStreamCreate", r);
  if (const Result r = driver_->EventCreate(&made->event, kDisableTiming)) {
    driver_->StreamDestroy(made->stream);
    return failure("cuEventCreate", r);
  }
  *queue = std::move(made);
  return {};
}

std::string Gpu::fork() {
  if (!beside_)
    if (std::string error = new_queue(&beside_); !error.empty()) return error;
  return join(*beside_, *current_);
}

std::string Gpu::end_beside(uint32_t number) {
  while (ends_beside_.size() <= number) {
    Event made = nullptr;
    if (const Result r = driver_->EventCreate(&made, kDisableTiming)) return failure("cuEventCreate", r);
    ends_beside_.push_back(made);
  }
  const Result r = driver_->EventRecord(ends_beside_[number], beside_->stream);
  return r ? failure("cuEventRecord", r) : std::string();
}

std::string Gpu::await(Event event) {
  const Result r = driver_->StreamWaitEvent(current_->stream, event, 0);
  return r ? failure("cuStreamWaitEvent", r) : std::string();
}

std::string Gpu::join(Queue& waiting, Queue& awaited) {
  if (&waiting == &awaited) return {};
  if (const Result r = driver_->EventRecord(awaited.event, awaited.stream))
    return failure("cuEventRecord", r);
  if (const Result r = driver_->StreamWaitEvent(waiting.stream, awaited.event, 0))
    return failure("cuStreamWaitEvent", r);
  return {};
}

std::string Gpu::synchronize(double stream) {
  if (std::string error = enter(); !error.empty()) return error;
  for (size_t i = 0; i < queues_.size(); i++) {
    if (stream >= 0 && stream != double(i)) continue;
    if (std::string error = conclusion(driver_->StreamSynchronize(queues_[i]->stream)); !error.empty())
      return error;
  }
  return {};
}

std::string Gpu::synchronize(double stream, int milliseconds, bool* done) {
  *done = true;
  if (std::string error = enter(); !error.empty()) return error;
  size_t i = 0;
  const Result r = ask_for(milliseconds, [&] {
    for (; i < queues_.size(); i++)
      if (stream < 0 || stream == double(i))
        if (const Result one = driver_->StreamQuery(queues_[i]->stream)) return one;
    return kSuccess;
  });
  *done = r != kNotReady;
  return *done ? conclusion(r) : std::string();
}

std::string Gpu::new_mark(uint32_t* id) {
  if (std::string error = enter(); !error.empty()) return error;
  if (free_marks_.empty()) {
    Event made = nullptr;
    if (const Result r = driver_->EventCreate(&made, kDisableTiming)) return failure("cuEventCreate", r);
    free_marks_.push_back(uint32_t(marks_.size()));
    marks_.push_back(made);
  }
  *id = free_marks_.back();
  if (const Result r = driver_->EventRecord(marks_[*id], stream_)) return failure("cuEventRecord", r);
  free_marks_.pop_back();
  return {};
}

Result Gpu::look_at_mark(double id, int milliseconds) {
  if (!(id >= 0 && id < double(marks_.size())) || !enter().empty()) return -1;
  Event mark = marks_[size_t(id)];
  if (milliseconds < 0) return driver_->EventSynchronize(mark);
  return ask_for(milliseconds, [&] { return driver_->EventQuery(mark); });
}

void Gpu::free_mark(double id) {
  if (id >= 0 && id < double(marks_.size())) free_marks_.push_back(uint32_t(id));
}

std::string Gpu::conclusion(Result r) {
  if (r == kSuccess) return {};
  failure("the work", r);
  return "the GPU's context was lost: " + (lost_.empty() ? driver_->describe(r) : lost_);
}

}  // namespace lz
