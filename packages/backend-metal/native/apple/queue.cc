#include "apple/queue.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apple/messages.h"

namespace lz::apple {
namespace {

// Metal itself blocks beyond 64.
constexpr size_t kMaxFlights = 32;

}  // namespace

Queue::Queue(Id device, Tables& tables, const double& time_limit, std::function<void()> release_others)
    : tables_(tables),
      time_limit_(time_limit),
      release_others_(std::move(release_others)),
      queue_(newCommandQueue(device)),
      fence_(newFence(device)),
      ended_(newSharedEvent(device)) {
  if (!queue_ || !fence_ || !ended_) throw Failure("Metal gives no command queue");
}

std::unique_ptr<Encoder> Queue::begin(uint64_t number, State& state) {
  while (lost_.empty() && flying_.size() >= kMaxFlights) land();
  if (!lost_.empty()) throw Failure(lost_);
  Flight flight{number, Owned::retained(commandBuffer(queue_)), stamps_ + 1, {}, {}};
  if (!flight.commands) throw Failure("Metal gives no command buffer");
  return std::make_unique<Encoder>(tables_, state, fence_, stamps_ > 0, std::move(flight));
}

void Queue::commit(Encoder& encoder) {
  Flight flight = encoder.take();
  encodeSignalEvent(flight.commands, ended_, flight.stamp);
  lz::apple::commit(flight.commands);
  stamps_ = flight.stamp;
  flying_.push_back(std::move(flight));
  for (const auto& [index, value] : flying_.back().signals) {
    Event& event = tables_.events[index - 1];
    // A signal behind a wait for it does not end that wait.
    const bool held = std::any_of(flying_.begin(), flying_.end(), [&, i = index](const Flight& f) {
      return std::any_of(f.waits.begin(), f.waits.end(), [&](const auto& w) {
        return w.first == i && w.second > event.promised && w.second > signaledValue(event.object);
      });
    });
    if (!held) event.promised = std::max<uint64_t>(event.promised, value);
  }
}

// True if nobody is left who could end a wait. They are ended then: the GPU must go on for what comes later.
bool Queue::waits_in_vain(const Flight& flight, bool set_them) {
  bool in_vain = false;
  for (const auto& [index, value] : flight.waits) {
    const Event& event = tables_.events[index - 1];
    if (event.promised >= value || signaledValue(event.object) >= value) continue;
    in_vain = true;
    if (set_them) setSignaledValue(event.object, value);
  }
  return in_vain;
}

// Waits for a command buffer that was committed; what is wrong with it, or nothing.
std::string Queue::conclude(const Flight& flight) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const bool in_vain = waits_in_vain(flight, true);
  for (;;) {
    const UInteger now = status(flight.commands);
    if (now == CommandBufferStatusCompleted || now == CommandBufferStatusError) break;
    // A failed command buffer sets no event, so that its status is looked at now and then.
    if (waitUntilSignaled(ended_, flight.stamp, 50))
      waitUntilCompleted(flight.commands);
    else
      release_others_();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (time_limit_ > 0 && seconds > time_limit_) {
      char limit[32];
      std::snprintf(limit, sizeof limit, "%g", time_limit_);
      return lost_ = std::string("the GPU did not end its work within ") + limit +
                     " seconds; LAZULI_METAL_TIME_LIMIT sets another limit, 0 none";
    }
  }
  // One that failed sets no event, and others wait for it.
  release_waiting();
  for (const auto& [index, value] : flight.signals)
    if (signaledValue(tables_.events[index - 1].object) < value)
      setSignaledValue(tables_.events[index - 1].object, value);
  if (in_vain) return "waits for an event that nothing has signalled";
  if (status(flight.commands) == CommandBufferStatusCompleted) return {};
  const Id error = commandError(flight.commands);
  const std::string message = described(error, "it gave no reason");
  if (error && errorCode(error) == CommandBufferErrorOutOfMemory)
    return "the GPU has no memory for its work: " + message;
  return "the GPU failed: " + message;
}

// Later work sets the event where there is some. Where the last one failed, nothing would.
void Queue::release_waiting() {
  if (flying_.empty()) return;
  const Flight& last = flying_.back();
  if (status(last.commands) == CommandBufferStatusError && signaledValue(ended_) < last.stamp)
    setSignaledValue(ended_, last.stamp);
}

// Waits for the first that is under way, and keeps its failure.
void Queue::land() {
  std::string failure = lost_.empty() ? conclude(flying_.front()) : lost_;
  Flight flight = std::move(flying_.front());
  flying_.pop_front();
  // The GPU may still use what it names: it stays.
  if (!lost_.empty()) new Owned(std::move(flight.commands));
  if (!failure.empty()) failures_.emplace_back(flight.number, std::move(failure));
}

void Queue::drain(uint64_t number) {
  Pool pool;
  while (!flying_.empty() && flying_.front().number <= number) land();
}

std::string Queue::wait(uint64_t number) {
  drain(number);
  for (auto each = failures_.begin(); each != failures_.end(); ++each) {
    if (each->first != number) continue;
    std::string failure = std::move(each->second);
    failures_.erase(each);
    return failure;
  }
  return {};
}

bool Queue::done(uint64_t number) const {
  if (!lost_.empty()) return false;
  Pool pool;
  for (const Flight& flight : flying_) {
    if (flight.number > number) break;
    const UInteger now = status(flight.commands);
    if (now != CommandBufferStatusCompleted && now != CommandBufferStatusError) return false;
  }
  return true;
}

}  // namespace lz::apple
