#include "apple/encoder.h"

#include "apple/messages.h"

namespace lz::apple {
namespace {

constexpr uint32_t kWords[] = {0, 2, 5, 3, 3, 7, 7, 1, 3, 3};
constexpr uint32_t kMaxBytes = 4096;

}  // namespace

void malformed() { throw Failure("a command is malformed"); }

void Encoder::begin() {
  if (encoder_) return;
  encoder_ = computeEncoder(flight_.commands, DispatchTypeConcurrent);
  if (!encoder_) throw Failure("Metal gives no encoder");
  has_work_ = true;
  if (is_fenced_) waitForFence(encoder_, fence_);
  if (state_.pipeline) setPipeline(encoder_, tables_.pipelines[state_.pipeline[1]]);
  for (uint32_t i = 0; i < kBuffers; i++) {
    if (state_.bound[i]) bind(i);
    if (state_.memory[i]) setThreadgroupMemory(encoder_, (state_.memory[i][2] + 15) & ~15u, i);
  }
}

void Encoder::end() {
  if (!encoder_) return;
  updateFence(encoder_, fence_);
  endEncoding(encoder_);
  encoder_ = nullptr;
  is_fenced_ = true;
}

void Encoder::wait(Id event, uint64_t value) {
  end();
  has_work_ = false;
  encodeWaitForEvent(flight_.commands, event, value);
}

Flight Encoder::take() {
  // Of what waited and did nothing, an encoder makes the end that of what it waited for.
  if (!has_work_) begin();
  end();
  return std::move(flight_);
}

void Encoder::bind(uint32_t index) {
  const uint32_t* w = state_.bound[index];
  if (Op(w[0] & 0xff) == Op::kBytes) {
    setBytes(encoder_, w + 3, w[2], index);
    return;
  }
  Buffer& buffer = tables_.buffers[w[2]];
  buffer.last_use = flight_.number;
  setBuffer(encoder_, buffer.object, w[3] | uint64_t{w[4]} << 32, index);
}

void Encoder::record(Op op, const uint32_t* w, uint32_t size) {
  if (uint32_t(op) < 1 || uint32_t(op) > 9 || size < kWords[uint32_t(op)]) malformed();
  const uint32_t index = size > 1 ? w[1] : 0;
  switch (op) {
    case Op::kPipeline:
      if (index >= tables_.pipelines.size()) throw Failure("there is no such pipeline");
      state_.pipeline = w;
      if (encoder_) setPipeline(encoder_, tables_.pipelines[index]);
      return;
    case Op::kBuffer: {
      if (index >= kBuffers || w[2] >= tables_.buffers.size() || !tables_.buffers[w[2]].object)
        throw Failure("there is no such buffer");
      if ((w[3] | uint64_t{w[4]} << 32) > tables_.buffers[w[2]].length)
        throw Failure("an offset is beyond a buffer's end");
      state_.bound[index] = w;
      if (encoder_) bind(index);
      return;
    }
    case Op::kBytes:
      if (index >= kBuffers || w[2] == 0 || w[2] > kMaxBytes || size < 3 + (w[2] + 3) / 4) malformed();
      state_.bound[index] = w;
      if (encoder_) bind(index);
      return;
    case Op::kThreadgroup:
      if (index >= kBuffers) malformed();
      state_.memory[index] = w;
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
      wait(event, w[2]);
      for (const auto& [signalled, value] : flight_.signals)
        if (signalled == index && value >= w[2]) return;
      flight_.waits.emplace_back(index, w[2]);
      return;
    }
    case Op::kUseStream:
    case Op::kJoin:
      malformed();
  }
}

void Encoder::dispatch(const uint32_t* w, bool in_threads) {
  if (!state_.pipeline) throw Failure("no pipeline is set");
  const Size grid{w[0], w[1], w[2]}, group{w[3], w[4], w[5]};
  if (grid.width * grid.height * grid.depth == 0) return;
  begin();
  (in_threads ? dispatchThreads : dispatchThreadgroups)(encoder_, grid, group);
}

}  // namespace lz::apple
