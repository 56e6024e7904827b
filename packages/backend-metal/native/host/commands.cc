#include "host/commands.h"

#include <cstring>
#include <memory>

#include "host/executor.h"

namespace lz {
namespace {

constexpr uint32_t kMaxBytes = 4096;

class Stream {
 public:
  explicit Stream(Tables& tables) : tables_(tables), scratch_(new Scratch[kBuffers]) {}
  // Runs one record of `size` words; returns what is wrong with it.
  std::string record(Op op, const uint32_t* w, uint32_t size);

 private:
  struct alignas(64) Scratch {
    char bytes[kMaxBytes];
  };
  std::string dispatch(const uint32_t* w, bool in_threads);

  Tables& tables_;
  const Kernel* kernel_ = nullptr;
  Binding bindings_[kBuffers];
  uint32_t threadgroup_[kBuffers] = {};
  std::unique_ptr<Scratch[]> scratch_;
};

std::string Stream::record(Op op, const uint32_t* w, uint32_t size) {
  const uint32_t needed[] = {0, 2, 5, 3, 3, 7, 7, 1, 3, 3};
  if (uint32_t(op) < 1 || uint32_t(op) > 9 || size < needed[uint32_t(op)]) return "the record is malformed";
  const uint32_t index = size > 1 ? w[1] : 0;
  switch (op) {
    case Op::kPipeline:
      if (index >= tables_.kernels.size()) return "there is no such pipeline";
      kernel_ = tables_.kernels[index];
      return {};
    case Op::kBuffer: {
      const uint64_t offset = w[3] | uint64_t{w[4]} << 32;
      Block* block = w[2] < tables_.buffers.size() ? tables_.buffers[w[2]] : nullptr;
      if (index >= kBuffers || !block) return "there is no such buffer";
      if (offset > block->length)
        return "the offset " + std::to_string(offset) + " is beyond the buffer's end";
      bindings_[index] = {block->data + offset, block->length - offset,
                          block->reach ? block->reach - offset : 0, false};
      return {};
    }
    case Op::kBytes:
      if (index >= kBuffers || w[2] > kMaxBytes || size < 3 + (w[2] + 3) / 4)
        return "the record is malformed";
      std::memcpy(scratch_[index].bytes, w + 3, w[2]);
      bindings_[index] = {scratch_[index].bytes, w[2], 0, true};
      return {};
    case Op::kThreadgroup:
      if (index >= kBuffers) return "the record is malformed";
      threadgroup_[index] = w[2];
      return {};
    case Op::kThreads:
    case Op::kThreadgroups:
      return dispatch(w + 1, op == Op::kThreads);
    case Op::kBarrier:
      return {};
    case Op::kSignal:
      tables_.events[index] = w[2];
      return {};
    case Op::kWait:
      // Streams run one after another, so nobody is left who could signal.
      if (tables_.events[index] < w[2]) return "waits for an event that nothing has signalled";
      return {};
  }
  return "the record is malformed";
}

// In 64 bits, because a grid may have almost 2^32 threads.
uint32_t groups_of(uint32_t threads, uint32_t size) {
  return uint32_t((uint64_t{threads} + size - 1) / size);
}

std::string Stream::dispatch(const uint32_t* w, bool in_threads) {
  if (!kernel_) return "no pipeline is set";
  Dispatch d{};
  d.kernel = kernel_;
  const Dim3 grid{w[0], w[1], w[2]}, size{w[3], w[4], w[5]};
  const uint64_t threads = uint64_t{size.x} * size.y * size.z;
  const uint32_t limit =
      kernel_->max_threads && kernel_->max_threads < kMaxThreads ? kernel_->max_threads : kMaxThreads;
  if (threads == 0 || threads > limit)
    return "a threadgroup of " + std::to_string(threads) + " threads is not between 1 and " +
           std::to_string(limit);
  d.launch.group_size = size;
  if (in_threads) {
    d.launch.threads = grid;
    d.launch.groups = {groups_of(grid.x, size.x), groups_of(grid.y, size.y), groups_of(grid.z, size.z)};
  } else {
    for (const uint64_t n : {uint64_t{grid.x} * size.x, uint64_t{grid.y} * size.y, uint64_t{grid.z} * size.z})
      if (n > UINT32_MAX) return "a grid of " + std::to_string(n) + " threads along an axis is too large";
    d.launch.groups = grid;
    d.launch.threads = {grid.x * size.x, grid.y * size.y, grid.z * size.z};
  }
  uint32_t offset = 0;
  for (uint32_t i = 0; i < kBuffers; i++) {
    d.launch.threadgroup_offset[i] = offset;
    offset += (threadgroup_[i] + 15) & ~15u;
    d.bindings[i] = bindings_[i];
    d.launch.buffers[i] = bindings_[i].data ? bindings_[i].data : unbound_memory();
    if (kernel_->bytes[i] > 0 && bindings_[i].data && bindings_[i].length < size_t(kernel_->bytes[i]))
      return "buffer " + std::to_string(i) + " has " + std::to_string(bindings_[i].length) +
             " bytes, and its parameter takes " + std::to_string(kernel_->bytes[i]);
  }
  if (offset > kThreadgroupBytes)
    return "needs more than " + std::to_string(kThreadgroupBytes) + " bytes of threadgroup memory";
  d.threadgroup_bytes = offset;
  d.checked = tables_.checked.count(kernel_) > 0;
  const std::string error = run(d);
  return error.empty() ? error : std::string(kernel_->name) + ": " + error;
}

}  // namespace

std::vector<Failed> run_stream(Tables& tables, const uint32_t* words, size_t count) {
  std::vector<Failed> failed;
  Stream stream(tables);
  for (size_t at = 0; at < count;) {
    const uint32_t size = words[at] >> 8;
    if (size == 0 || at + size > count) {
      failed.push_back({at, "the record is malformed"});
      break;
    }
    std::string error = stream.record(Op(words[at] & 0xff), words + at, size);
    if (!error.empty()) failed.push_back({at, std::move(error)});
    at += size;
  }
  return failed;
}

}  // namespace lz
