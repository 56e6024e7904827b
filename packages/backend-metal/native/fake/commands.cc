#include <algorithm>
#include <cstring>

#include "fake/metal.h"

namespace lz::fake {
namespace {

std::atomic<uint64_t> works{0};
constexpr int kMaxUnended = 64;

std::string at(UInteger index) { return " at index " + std::to_string(index); }

}  // namespace

// Queues and command buffers

Id Queue::command_buffer() {
  if (fails("commandBuffer")) return nullptr;
  if (unended >= kMaxUnended) violation("a queue has more than 64 command buffers, and blocks");
  auto* made = make<Commands>();
  retain(this);
  made->queue = this;
  unended++;
  return autoreleased(made);
}
void Queue::add_residency(Id set) {
  Residency* r = as<Residency>(set, "addResidencySet:");
  if (!r) return;
  retain(r);
  sets.push_back(r);
}
void Queue::dealloc() {
  for (Residency* each : sets) release(each);
}

bool Commands::may_encode(const char* what) {
  if (state != 0)
    violation(std::string(what) + " comes after commit");
  else if (open)
    violation(std::string(what) + " comes while an encoder is open");
  else
    return true;
  return false;
}
Id Commands::encoder(UInteger dispatch_type) {
  if (!may_encode("computeCommandEncoderWithDispatchType:")) return nullptr;
  if (dispatch_type > 1)
    violation("computeCommandEncoderWithDispatchType: is given " + std::to_string(dispatch_type));
  if (fails("computeCommandEncoder")) return nullptr;
  auto* made = make<Encoder>();
  retain(this);
  made->commands = this;
  made->is_serial = dispatch_type == 0;
  made->work = std::make_shared<Work>();
  made->work->number = ++works;
  open = made;
  steps.push_back({Step::kEncoder, made->work, nullptr, nullptr, 0, made->is_serial});
  return autoreleased(made);
}
void Commands::signal(Id event, uint64_t value) {
  Event* e = as<Event>(event, "encodeSignalEvent:");
  if (!e || !may_encode("encodeSignalEvent:")) return;
  retain(e);
  steps.push_back({Step::kSignal, nullptr, nullptr, e, value});
}
void Commands::wait_for(Id event, uint64_t value) {
  Event* e = as<Event>(event, "encodeWaitForEvent:");
  if (!e || !may_encode("encodeWaitForEvent:")) return;
  retain(e);
  steps.push_back({Step::kWait, nullptr, nullptr, e, value});
}
void Commands::commit() {
  if (state != 0) return violation("commit comes twice");
  if (open) return violation("commit comes while an encoder is open");
  if (fails("commit")) {
    if (plan().code < 0)
      is_lost = true;
    else
      failure = make<Error>(plan().code, "the fake GPU was told to fail");
  }
  gpu_take(this);
}
UInteger Commands::status() {
  std::lock_guard<std::mutex> lock(gpu_mutex());
  if (state >= 4) observe();
  return state;
}
// The host knows that it has ended.
void Commands::observe() {
  for (const Step& step : steps)
    if (step.kind == Step::kEncoder && step.work->observed_at == kNever) step.work->observed_at = now();
}
Id Commands::error() {
  std::lock_guard<std::mutex> lock(gpu_mutex());
  if (state != 5 || !failure) return nullptr;
  retain(failure);
  return autoreleased(failure);
}
void Commands::wait() {
  {
    std::lock_guard<std::mutex> lock(gpu_mutex());
    if (state == 0) return violation("waitUntilCompleted comes before commit");
  }
  gpu_wait([this] { return state >= 4; }, kNever);
  status();
}
// The objects that it names may go now.
void Commands::give_back() {
  for (Buffer* each : uses) each->in_flight--;
  for (Pipeline* each : pipelines) each->in_flight--;
  uses.clear();
  pipelines.clear();
}
void Commands::dealloc() {
  if (open) violation("an MTLCommandBuffer goes while an encoder is open");
  if (state == 0) {
    queue->unended--;
    give_back();
  }
  for (Step& step : steps)
    if (step.object) release(step.object);
  steps.clear();
  if (failure) release(failure);
  release(queue);
}

// Encoders

bool Encoder::usable(const char* what) {
  if (!is_ended) return true;
  violation(std::string(what) + " comes after endEncoding");
  return false;
}
void Encoder::set_pipeline(Id pipeline) {
  Pipeline* p = as<Pipeline>(pipeline, "setComputePipelineState:");
  if (p && usable("setComputePipelineState:")) now.pipeline = p;
}
void Encoder::set_buffer(Id buffer, UInteger offset, UInteger index) {
  Buffer* b = as<Buffer>(buffer, "setBuffer:");
  if (!b || !usable("setBuffer:")) return;
  if (index >= kBuffers) return violation("setBuffer: is given the index " + std::to_string(index));
  if (offset > b->block->length)
    return violation("setBuffer: is given the offset " + std::to_string(offset) + " of a buffer of " +
                     std::to_string(b->block->length) + " bytes");
  now.bound[index] = {b, offset, {}};
}
void Encoder::set_bytes(const void* bytes, UInteger length, UInteger index) {
  if (!usable("setBytes:")) return;
  if (index >= kBuffers) return violation("setBytes: is given the index " + std::to_string(index));
  if (!bytes || length == 0 || length > 4096)
    return violation("setBytes: is given " + std::to_string(length) + " bytes");
  const char* from = static_cast<const char*>(bytes);
  now.bound[index] = {nullptr, 0, std::vector<char>(from, from + length)};
}
void Encoder::set_memory(UInteger length, UInteger index) {
  if (!usable("setThreadgroupMemoryLength:")) return;
  if (index >= kBuffers)
    return violation("setThreadgroupMemoryLength: is given the index " + std::to_string(index));
  if (length % 16 != 0)
    return violation("setThreadgroupMemoryLength: is given " + std::to_string(length) +
                     " bytes, no multiple of 16");
  now.memory[index] = length;
}
void Encoder::dispatch(apple::Size grid, apple::Size group, bool in_threads) {
  if (!usable("dispatch")) return;
  if (!now.pipeline) return violation("a dispatch has no pipeline");
  const std::string name = now.pipeline->declared.name + ": ";
  if (now.pipeline->is_gone) return violation(name + "its pipeline was released");
  const UInteger threads = group.width * group.height * group.depth;
  if (threads == 0 || threads > now.pipeline->max_threads())
    return violation(name + "a threadgroup of " + std::to_string(threads) + " threads is not between 1 and " +
                     std::to_string(now.pipeline->max_threads()));
  for (const UInteger n : {grid.width, grid.height, grid.depth})
    if (n == 0 || n > UINT32_MAX)
      return violation(name + "an axis of the grid has " + std::to_string(n) + " threads");
  UInteger memory = 0;
  for (const UInteger each : now.memory) memory += each;
  if (memory > kThreadgroupBytes)
    return violation(name + std::to_string(memory) + " bytes of threadgroup memory are too many");
  for (const Parameter& p : now.pipeline->declared.buffers) {
    const Run::Bound& bound = now.bound[p.index];
    if (!bound.buffer && bound.bytes.empty()) {
      if (!p.is_optional) return violation(name + "nothing is bound" + at(p.index));
      continue;
    }
    if (!bound.buffer) {
      if (p.is_written) return violation(name + "writes to bytes" + at(p.index));
      if (now.pipeline->kernel->bytes[p.index] > int(bound.bytes.size()))
        return violation(name + "too few bytes are bound" + at(p.index));
      continue;
    }
    if (bound.buffer->is_gone) return violation(name + "a buffer that was released is bound" + at(p.index));
    if (bound.offset % p.alignment != 0)
      return violation(name + "the offset " + std::to_string(bound.offset) + at(p.index) +
                       " is no multiple of " + std::to_string(p.alignment));
    if (now.pipeline->kernel->bytes[p.index] > 0 &&
        UInteger(now.pipeline->kernel->bytes[p.index]) > bound.buffer->block->length - bound.offset)
      return violation(name + "the buffer is too small" + at(p.index));
  }
  auto run = std::make_shared<Run>(now);
  run->grid = grid;
  run->group = group;
  run->in_threads = in_threads;
  // A buffer that the kernel does not take is no matter of the run.
  for (uint32_t i = 0; i < kBuffers; i++) {
    const auto& all = now.pipeline->declared.buffers;
    if (std::none_of(all.begin(), all.end(), [&](const Parameter& p) { return p.index == i; }))
      run->bound[i] = {};
    if (Buffer* buffer = run->bound[i].buffer)
      if (commands->uses.insert(buffer).second) buffer->in_flight++;
  }
  if (commands->pipelines.insert(run->pipeline).second) run->pipeline->in_flight++;
  commands->steps.push_back({Step::kRun, work, run});
}
void Encoder::barrier(UInteger scope) {
  if (!usable("memoryBarrierWithScope:")) return;
  if (scope != 1) return violation("memoryBarrierWithScope: is given " + std::to_string(scope));
  commands->steps.push_back({Step::kBarrier, work, nullptr});
}
void Encoder::wait_fence(Id fence) {
  Fence* f = as<Fence>(fence, "waitForFence:");
  if (!f || !usable("waitForFence:")) return;
  if (has_updated) violation("waitForFence: comes after updateFence:");
  retain(f);
  commands->steps.push_back({Step::kWaitFence, work, nullptr, f});
}
void Encoder::update_fence(Id fence) {
  Fence* f = as<Fence>(fence, "updateFence:");
  if (!f || !usable("updateFence:")) return;
  has_updated = true;
  retain(f);
  commands->steps.push_back({Step::kUpdateFence, work, nullptr, f});
}
void Encoder::end() {
  if (!usable("endEncoding")) return;
  is_ended = true;
  commands->open = nullptr;
  commands->steps.push_back({Step::kEnd, work, nullptr});
}
void Encoder::dealloc() {
  if (!is_ended) {
    violation("an MTLComputeCommandEncoder goes without endEncoding");
    commands->open = nullptr;
  }
  release(commands);
}

void add_commands() {
  add<&Queue::command_buffer>(Queue::kName, "commandBufferWithUnretainedReferences");
  add<&Queue::add_residency>(Queue::kName, "addResidencySet:");
  add<&Commands::encoder>(Commands::kName, "computeCommandEncoderWithDispatchType:");
  add<&Commands::signal>(Commands::kName, "encodeSignalEvent:value:");
  add<&Commands::wait_for>(Commands::kName, "encodeWaitForEvent:value:");
  add<&Commands::commit>(Commands::kName, "commit");
  add<&Commands::status>(Commands::kName, "status");
  add<&Commands::error>(Commands::kName, "error");
  add<&Commands::wait>(Commands::kName, "waitUntilCompleted");
  add<&Encoder::set_pipeline>(Encoder::kName, "setComputePipelineState:");
  add<&Encoder::set_buffer>(Encoder::kName, "setBuffer:offset:atIndex:");
  add<&Encoder::set_bytes>(Encoder::kName, "setBytes:length:atIndex:");
  add<&Encoder::set_memory>(Encoder::kName, "setThreadgroupMemoryLength:atIndex:");
  add<&Encoder::dispatch_threads>(Encoder::kName, "dispatchThreads:threadsPerThreadgroup:");
  add<&Encoder::dispatch_groups>(Encoder::kName, "dispatchThreadgroups:threadsPerThreadgroup:");
  add<&Encoder::barrier>(Encoder::kName, "memoryBarrierWithScope:");
  add<&Encoder::wait_fence>(Encoder::kName, "waitForFence:");
  add<&Encoder::update_fence>(Encoder::kName, "updateFence:");
  add<&Encoder::end>("MTLCommandEncoder", "endEncoding");
  add<&Event::signaled>(Event::kName, "signaledValue");
  add<&Event::set>(Event::kName, "setSignaledValue:");
  add<&Event::wait>(Event::kName, "waitUntilSignaledValue:timeoutMS:");
}

}  // namespace lz::fake
