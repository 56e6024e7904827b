#include "apple/queue.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "apple/messages.h"

namespace lz::apple {
namespace {

// As gpu-kernels/src/runtime/command-stream.ts numbers them.
enum class Op : uint32_t {
  kPipeline = 1,
  kBuffer = 2,
  kBytes = 3,
  kThreadgroup = 4,
  kThreads = 5,
  kThreadgroups = 6,
  kBarrier = 7,
  kSignal = 8,
  kWait = 9,
};
constexpr uint32_t kWords[] = {0, 2, 5, 3, 3, 7, 7, 1, 3, 3};

// Metal itself blocks beyond 64.
constexpr size_t kMaxFlights = 32;
constexpr uint32_t kMaxBytes = 4096;

[[noreturn]] void malformed() { throw Failure("a command is malformed"); }

}  // namespace

// Encodes one stream. The state that a stream sets holds for all of its dispatches, and Metal's for those of
// an encoder.
class Queue::Encoder {
 public:
  Encoder(Queue& queue, Flight& flight)
      : queue_(queue), tables_(queue.tables_), flight_(flight), is_fenced_(queue.fence_is_used_) {}
  ~Encoder() { end(); }

  void record(Op op, const uint32_t* w, uint32_t size);
  void end() {
    if (!encoder_) return;
    updateFence(encoder_, queue_.fence_);
    endEncoding(encoder_);
    encoder_ = nullptr;
    is_fenced_ = true;
  }
  // True if the fence was updated, now or before.
  bool is_fenced() const { return is_fenced_; }

 private:
  void begin();
  void bind(uint32_t index);
  void dispatch(const uint32_t* w, bool in_threads);

  Queue& queue_;
  Tables& tables_;
  Flight& flight_;
  bool is_fenced_;
  Id encoder_ = nullptr;                // the command buffer's
  const uint32_t* pipeline_ = nullptr;  // the records that hold now
  const uint32_t* bound_[kBuffers] = {};
  const uint32_t* memory_[kBuffers] = {};
};

void Queue::Encoder::begin() {
  if (encoder_) return;
  encoder_ = computeEncoder(flight_.commands, DispatchTypeConcurrent);
  if (!encoder_) throw Failure("Metal gives no encoder");
  if (is_fenced_) waitForFence(encoder_, queue_.fence_);
  if (pipeline_) setPipeline(encoder_, tables_.pipelines[pipeline_[1]]);
  for (uint32_t i = 0; i < kBuffers; i++) {
    if (bound_[i]) bind(i);
    if (memory_[i]) setThreadgroupMemory(encoder_, (memory_[i][2] + 15) & ~15u, i);
  }
}

void Queue::Encoder::bind(uint32_t index) {
  const uint32_t* w = bound_[index];
  if (Op(w[0] & 0xff) == Op::kBytes) {
    setBytes(encoder_, w + 3, w[2], index);
    return;
  }
  Buffer& buffer = tables_.buffers[w[2]];
  buffer.last_use = flight_.number;
  setBuffer(encoder_, buffer.object, w[3] | uint64_t{w[4]} << 32, index);
}

void Queue::Encoder::record(Op op, const uint32_t* w, uint32_t size) {
  if (uint32_t(op) < 1 || uint32_t(op) > 9 || size < kWords[uint32_t(op)]) malformed();
  const uint32_t index = size > 1 ? w[1] : 0;
  switch (op) {
    case Op::kPipeline:
      if (index >= tables_.pipelines.size()) throw Failure("there is no such pipeline");
      pipeline_ = w;
      if (encoder_) setPipeline(encoder_, tables_.pipelines[index]);
      return;
    case Op::kBuffer: {
      if (index >= kBuffers || w[2] >= tables_.buffers.size() || !tables_.buffers[w[2]].object)
        throw Failure("there is no such buffer");
      if ((w[3] | uint64_t{w[4]} << 32) > tables_.buffers[w[2]].length)
        throw Failure("an offset is beyond a buffer's end");
      bound_[index] = w;
      if (encoder_) bind(index);
      return;
    }
    case Op::kBytes:
      if (index >= kBuffers || w[2] == 0 || w[2] > kMaxBytes || size < 3 + (w[2] + 3) / 4) malformed();
      bound_[index] = w;
      if (encoder_) bind(index);
      return;
    case Op::kThreadgroup:
      if (index >= kBuffers) malformed();
      memory_[index] = w;
      if (encoder_) setThreadgroupMemory(encoder_, (w[2] + 15) & ~15u, index);
      return;
    case Op::kThreads:
    case Op::kThreadgroups:
      return dispatch(w + 1, op == Op::kThreads);
    case Op::kBarrier:
      if (encoder_) memoryBarrier(encoder_, BarrierScopeBuffers);
      return;
    case Op::kSignal:
    case Op::kWait: {
      if (index == 0 || index > tables_.events.size()) throw Failure("there is no such event");
      end();
      const Id event = tables_.events[index - 1].object;
      if (op == Op::kSignal) {
        encodeSignalEvent(flight_.commands, event, w[2]);
        flight_.signals.emplace_back(index, w[2]);
        return;
      }
      encodeWaitForEvent(flight_.commands, event, w[2]);
      for (const auto& [signalled, value] : flight_.signals)
        if (signalled == index && value >= w[2]) return;
      flight_.waits.emplace_back(index, w[2]);
      return;
    }
  }
}

void Queue::Encoder::dispatch(const uint32_t* w, bool in_threads) {
  if (!pipeline_) throw Failure("no pipeline is set");
  const Size grid{w[0], w[1], w[2]}, group{w[3], w[4], w[5]};
  if (grid.width * grid.height * grid.depth == 0) return;
  begin();
  (in_threads ? dispatchThreads : dispatchThreadgroups)(encoder_, grid, group);
}

Queue::Queue(Id device, Tables& tables, const double& time_limit)
    : tables_(tables),
      time_limit_(time_limit),
      queue_(newCommandQueue(device)),
      fence_(newFence(device)),
      ended_(newSharedEvent(device)) {
  if (!queue_ || !fence_ || !ended_) throw Failure("Metal gives no command queue");
}

void Queue::commit(uint64_t number, const uint32_t* words, size_t count) {
  Pool pool;
  while (lost_.empty() && flying_.size() >= kMaxFlights) land();
  if (!lost_.empty()) throw Failure(lost_);
  Flight flight{number, Owned::retained(commandBuffer(queue_)), stamps_ + 1, {}, {}};
  if (!flight.commands) throw Failure("Metal gives no command buffer");
  Encoder encoder(*this, flight);
  for (size_t at = 0; at < count;) {
    const uint32_t size = words[at] >> 8;
    if (size == 0 || at + size > count) malformed();
    encoder.record(Op(words[at] & 0xff), words + at, size);
    at += size;
  }
  encoder.end();
  encodeSignalEvent(flight.commands, ended_, flight.stamp);
  lz::apple::commit(flight.commands);
  stamps_++;
  last_ = number;
  fence_is_used_ = encoder.is_fenced();
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
    if (waitUntilSignaled(ended_, flight.stamp, 50)) waitUntilCompleted(flight.commands);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (time_limit_ > 0 && seconds > time_limit_) {
      char limit[32];
      std::snprintf(limit, sizeof limit, "%g", time_limit_);
      return lost_ = std::string("the GPU did not end its work within ") + limit +
                     " seconds; LAZULI_METAL_TIME_LIMIT sets another limit, 0 none";
    }
  }
  // One that failed sets no event, and others wait for it.
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
