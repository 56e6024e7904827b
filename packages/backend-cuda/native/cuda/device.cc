// One GPU: its memory, kernels and commands.
// It is long because it is one class, whose commands share what they bind.
#include "cuda/device.h"

#include <algorithm>
#include <cstring>

namespace lz {
namespace {

constexpr uint32_t kMaxBytes = 4096;       // that an argument has without a buffer
constexpr size_t kHalf = 4 << 20;          // bytes of transfers under way
constexpr size_t kArgumentHalf = 1 << 20;  // and of arguments

// The driver's limits: blocks along the first axis of a grid and along the others.
constexpr uint32_t kMaxFirst = 0x7fffffff, kMaxBlocks = 65535;

// Opcodes of the command stream, as gpu-kernels writes it.
enum class Op : uint32_t {
  kPipeline = 1,
  kBuffer,
  kBytes,
  kThreadgroup,
  kThreads,
  kThreadgroups,
  kBarrier,
  kSignal,
  kWait,
  kPlan,
  kUseStream,
  kJoin,
  kUnless,
  kBeside,
  kRejoin,
  // Of this runtime alone: operands in bindings 0 to 3, then the words of a product.
  kProduct = 32,
  // Images, kernel and results in bindings 0 to 2, then the integers of a convolution.
  kConvolution = 33,
  // Input and output in bindings 0 and 1, then the integers of a collective.
  kCollective = 34,
  // The number of a graph of operations, whose arrays are in the bindings from 0 on.
  kOperationGraph = 35,
  // Input and output in bindings 0 and 1, then the integers of a transform.
  kTransform = 40,
  // Arrays from binding 0 on, then the integers of a factorization. Never of a plan.
  kFactorization = 41,
};

bool is_launch(uint32_t op) {
  return op == uint32_t(Op::kThreads) || op == uint32_t(Op::kThreadgroups) || op >= uint32_t(Op::kProduct);
}

// Failures after which a context can do nothing more: whatever a kernel did to bring them about.
bool is_fatal(Result result) {
  return result == 4 || result == 201 || result == 214 ||
         (result >= 700 && result <= 721 && result != 701 && result != 702 && result != 704 &&
          result != 705 && result != 708 && result != 711 && result != 712 && result != 713) ||
         result == 999;
}

Facts facts_of(const Driver& driver, Device device) {
  Facts facts;
  driver.DriverGetVersion(&facts.driver);
  char name[256] = "";
  driver.DeviceGetName(name, sizeof name, device);
  facts.name = name;
  driver.DeviceTotalMem(&facts.memory, device);
  auto attribute = [&](Attribute a) {
    int value = 0;
    driver.DeviceGetAttribute(&value, a, device);
    return value;
  };
  facts.major = attribute(kMajor);
  facts.minor = attribute(kMinor);
  facts.processors = attribute(kProcessors);
  facts.warp = attribute(kWarpSize);
  facts.max_threads = attribute(kMaxThreads);
  facts.max_shared = attribute(kSharedOptIn);
  return facts;
}

uint32_t round_up(uint32_t n, uint32_t to) { return (n + to - 1) / to * to; }

}  // namespace

std::string list_devices(const Driver& driver, std::vector<Facts>* all) {
  int count = 0;
  Result r = driver.Init(0);
  if (r == kSuccess) r = driver.DeviceGetCount(&count);
  if (r != kSuccess) return driver.describe(r);
  for (int i = 0; i < count; i++) {
    Device device = 0;
    if ((r = driver.DeviceGet(&device, i)) != kSuccess) return driver.describe(r);
    all->push_back(facts_of(driver, device));
  }
  return {};
}

Gpu::~Gpu() {
  if (!driver_ || !context_) return;
  driver_->CtxSetCurrent(context_);
  if (stream_) {
    for (const auto& queue : queues_) driver_->StreamSynchronize(queue->stream);
    for (uint32_t id = 0; id < buffers_.size(); id++)
      if (buffers_[id].pointer) release(id);
    for (uint32_t id = 0; id < plans_.size(); id++) release_plan(id);
    for (const auto& queue : queues_) {
      queue->products.close(*driver_);
      queue->convolutions.close(*driver_);
      queue->transforms.close(*driver_);
      queue->factorizations.close(*driver_);
    }
    collectives_.close();
    operation_graphs_.close(*driver_);
    verdicts_.close(*driver_);
    uploads_.close();
    downloads_.close();
    arguments_.close();
    driver_->MemFree(mirror_);
    for (Event mark : marks_) driver_->EventDestroy(mark);
    for (Event end : ends_beside_) driver_->EventDestroy(end);
    if (reads_) driver_->StreamDestroy(reads_);
    if (beside_) queues_.push_back(std::move(beside_));
    for (const auto& queue : queues_) {
      driver_->EventDestroy(queue->event);
      driver_->StreamDestroy(queue->stream);
    }
  }
  driver_->DevicePrimaryCtxRelease(device_);
}

std::string Gpu::failure(const char* what, Result result) {
  std::string text = std::string(what) + " failed: " + driver_->describe(result);
  if (is_fatal(result) && lost_.empty()) lost_ = text;
  return text;
}

// Another addon may have made its own context current on this thread.
std::string Gpu::enter() {
  if (!lost_.empty()) return "the GPU's context was lost: " + lost_;
  if (const Result r = driver_->CtxSetCurrent(context_)) return failure("cuCtxSetCurrent", r);
  return {};
}

std::string Gpu::open(const Driver* driver, int ordinal, Facts* facts) {
  driver_ = driver;
  if (const Result r = driver->Init(0)) return failure("cuInit", r);
  int count = 0;
  if (const Result r = driver->DeviceGetCount(&count)) return failure("cuDeviceGetCount", r);
  if (ordinal >= count)
    return "there is no GPU " + std::to_string(ordinal) + ": the driver shows " + std::to_string(count);
  if (const Result r = driver->DeviceGet(&device_, ordinal)) return failure("cuDeviceGet", r);
  *facts = facts_of(*driver, device_);
  max_shared_ = facts->max_shared;
  int pools = 0;
  driver->DeviceGetAttribute(&pools, kMemoryPools, device_);
  pools_ = pools != 0;
  if (const Result r = driver->DevicePrimaryCtxRetain(&context_, device_))
    return failure("cuDevicePrimaryCtxRetain", r);
  if (std::string error = enter(); !error.empty()) return error;
  if (const Result r = uploads_.open(driver, kHalf)) return failure("cuMemHostAlloc", r);
  if (const Result r = downloads_.open(driver, kHalf)) return failure("cuMemHostAlloc", r);
  if (const Result r = arguments_.open(driver, kArgumentHalf)) return failure("cuMemHostAlloc", r);
  if (const Result r = driver->MemAlloc(&mirror_, 2 * kArgumentHalf)) return failure("cuMemAlloc", r);
  if (std::string error = use_stream(0); !error.empty()) return error;
  stream_ = current_->stream;
  return {};
}

Result Gpu::allocate(size_t nbytes, uint32_t part, uint32_t* id, std::string* error) {
  if (*error = enter(); !error->empty()) return -1;
  DevicePointer pointer = 0;
  // The driver has no blocks without bytes.
  const size_t size = std::max<size_t>(nbytes, 1);
  const Result r =
      pools_ ? driver_->MemAllocAsync(&pointer, size, stream_) : driver_->MemAlloc(&pointer, size);
  if (r != kSuccess) {
    *error = failure("allocation", r);
    return r;
  }
  if (free_.empty()) {
    *id = uint32_t(buffers_.size());
    buffers_.push_back({pointer, nbytes, part});
  } else {
    *id = free_.back();
    free_.pop_back();
    buffers_[*id] = {pointer, nbytes, part};
  }
  return kSuccess;
}

void Gpu::release(uint32_t id) {
  Buffer& b = buffers_[id];
  if (!b.pointer) return;
  if (enter().empty()) {
    if (pools_)
      driver_->MemFreeAsync(b.pointer, stream_);
    else {
      // Nothing may use it any more, and such memory has no order.
      synchronize(-1);
      driver_->MemFree(b.pointer);
    }
  }
  b = {};
  free_.push_back(id);
}

const Buffer* Gpu::buffer(double id) const {
  if (!(id >= 0 && id < double(buffers_.size()))) return nullptr;
  const Buffer& b = buffers_[size_t(id)];
  return b.pointer ? &b : nullptr;
}

std::string Gpu::memory(size_t* free, size_t* total) {
  if (std::string error = enter(); !error.empty()) return error;
  if (const Result r = driver_->MemGetInfo(free, total)) return failure("cuMemGetInfo", r);
  return {};
}

// Two transfers at a time: one comes in while the one before is copied out of the page-locked memory.
std::string Gpu::read(const Buffer& from, size_t offset, char* into, size_t nbytes, bool is_done) {
  if (std::string error = enter(); !error.empty()) return error;
  if (is_done && !reads_)
    if (const Result r = driver_->StreamCreate(&reads_, kNonBlocking)) return failure("cuStreamCreate", r);
  Stream stream = is_done ? reads_ : stream_;
  const size_t half = downloads_.half();
  auto begin = [&](size_t at, int which) -> Result {
    const size_t n = std::min(half, nbytes - at);
    if (const Result r =
            driver_->MemcpyDtoHAsync(downloads_.at(which), from.pointer + offset + at, n, stream))
      return r;
    return driver_->EventRecord(downloads_.event(which), stream);
  };
  if (nbytes == 0) return {};
  if (const Result r = begin(0, 0)) return failure("cuMemcpyDtoHAsync", r);
  int which = 0;
  for (size_t at = 0; at < nbytes; at += half, which = 1 - which) {
    if (at + half < nbytes)
      if (const Result r = begin(at + half, 1 - which)) return failure("cuMemcpyDtoHAsync", r);
    if (const Result r = driver_->EventSynchronize(downloads_.event(which))) return failure("a read", r);
    std::memcpy(into + at, downloads_.at(which), std::min(half, nbytes - at));
  }
  return {};
}

std::string Gpu::write(const Buffer& to, size_t offset, const char* from, size_t nbytes) {
  if (std::string error = enter(); !error.empty()) return error;
  const size_t most = uploads_.half() / 2;
  for (size_t at = 0; at < nbytes; at += most) {
    const size_t n = std::min(most, nbytes - at);
    char* staged = nullptr;
    if (const Result r = uploads_.take(n, stream_, &staged)) return failure("staging", r);
    std::memcpy(staged, from + at, n);
    if (const Result r = driver_->MemcpyHtoDAsync(to.pointer + offset + at, staged, n, stream_))
      return failure("cuMemcpyHtoDAsync", r);
  }
  return {};
}

std::string Gpu::load(const char* code, uint32_t* module) {
  if (std::string error = enter(); !error.empty()) return error;
  Module made = nullptr;
  if (const Result r = driver_->ModuleLoadData(&made, code)) return failure("cuModuleLoadData", r);
  *module = uint32_t(modules_.size());
  modules_.push_back(made);
  return {};
}

std::string Gpu::kernel(uint32_t module, const std::string& name, std::vector<Parameter> parameters,
                        bool waits, uint32_t* id) {
  if (std::string error = enter(); !error.empty()) return error;
  if (module >= modules_.size()) return "there is no such module";
  Kernel k;
  k.name = name;
  k.waits = waits;
  k.parameters = std::move(parameters);
  for (const Parameter& p : k.parameters) {
    if (p.index >= kBuffers) return "a parameter's index is out of bounds";
    if (p.source == Source::kGrid) k.takes_grid = true;
  }
  if (const Result r = driver_->ModuleGetFunction(&k.function, modules_[module], name.c_str()))
    return failure("cuModuleGetFunction", r);
  if (const Result r = driver_->FuncGetAttribute(&k.max_threads, kFunctionMaxThreads, k.function))
    return failure("cuFuncGetAttribute", r);
  k.dynamic_shared = int(kSharedByDefault);
  *id = uint32_t(kernels_.size());
  kernels_.push_back(std::move(k));
  return {};
}

// Bytes that a kernel wants in memory go to where earlier ones lay, which the stream has read by then.
std::string Gpu::upload(Binding& b) {
  if (running_) {
    auto& constants = running_->plan->constants;
    for (const auto& [bytes, pointer] : constants)
      if (bytes == b.bytes) {
        b.pointer = pointer;
        return {};
      }
    // A graph would bring them from memory that serves others by then.
    running_->lacks_bytes = running_->captured != nullptr;
    if (running_->lacks_bytes) return "bytes are not in memory";
    // They stay as they are as long as the plan.
    DevicePointer made = 0;
    if (const Result r = driver_->MemAlloc(&made, b.length)) return failure("cuMemAlloc", r);
    std::string error = write({made, b.length}, 0, b.bytes, b.length);
    if (error.empty()) error = join(*current_, *queues_[0]);
    if (!error.empty()) {
      driver_->MemFree(made);
      return error;
    }
    constants.emplace_back(b.bytes, made);
    b.pointer = made;
    return {};
  }
  // Earlier arguments are written over once this stream has come so far: so must the others have.
  if (arguments_.is_full(b.length))
    for (const auto& queue : queues_)
      if (std::string error = join(*current_, *queue); !error.empty()) return error;
  char* staged = nullptr;
  if (const Result r = arguments_.take(b.length, current_->stream, &staged)) return failure("staging", r);
  std::memcpy(staged, b.bytes, b.length);
  b.pointer = mirror_ + DevicePointer(staged - arguments_.at(0));
  if (const Result r = driver_->MemcpyHtoDAsync(b.pointer, staged, b.length, current_->stream))
    return failure("cuMemcpyHtoDAsync", r);
  return {};
}

std::string Gpu::launch(Kernel& kernel, Binding* bindings, const uint32_t* shared, const uint32_t* w,
                        bool in_threads) {
  const uint32_t* size = w + 3;
  // As the prelude's Grid has it.
  struct {
    uint32_t threads[3], groups[3], flat;
  } grid{};
  for (int i = 0; i < 3; i++) {
    if (size[i] == 0 || w[i] == 0) return running_ ? note_node(*running_) : std::string();
    grid.groups[i] = in_threads ? uint32_t((uint64_t{w[i]} + size[i] - 1) / size[i]) : w[i];
    const uint64_t all = in_threads ? w[i] : uint64_t{w[i]} * size[i];
    if (all > UINT32_MAX) return "a grid of " + std::to_string(all) + " threads along an axis is too large";
    grid.threads[i] = uint32_t(all);
  }
  uint32_t blocks[3] = {grid.groups[0], grid.groups[1], grid.groups[2]};
  if (blocks[1] > kMaxBlocks || blocks[2] > kMaxBlocks) {
    if (!kernel.takes_grid)
      return "a grid of " + std::to_string(blocks[1]) + " and " + std::to_string(blocks[2]) +
             " blocks along y and z is too large: there are " + std::to_string(kMaxBlocks);
    const double groups = double(blocks[0]) * blocks[1] * blocks[2];
    if (groups > double(kMaxFirst) * kMaxBlocks) return "a grid of so many groups is too large";
    const uint64_t all = uint64_t{blocks[0]} * blocks[1] * blocks[2];
    grid.flat = 1;
    blocks[0] = uint32_t(std::min<uint64_t>(all, kMaxFirst));
    blocks[1] = uint32_t((all + blocks[0] - 1) / blocks[0]);
    blocks[2] = 1;
  }
  // Of a graph only those kernels are told that read or write something else than before.
  const bool updates = running_ && running_->updated;
  if (updates) {
    bool is_same = true;
    for (const Parameter& p : kernel.parameters)
      if (const uint32_t n = bindings[p.index].number; p.source == Source::kPointer && n != UINT32_MAX)
        is_same = is_same && !(*running_->changed)[n];
    if (is_same) {
      running_->launch++;
      return {};
    }
  }
  uint32_t offsets[kBuffers], dynamic = 0;
  for (uint32_t i = 0; i < kBuffers; i++) {
    offsets[i] = dynamic;
    dynamic += round_up(shared[i], 16);
  }
  if (int(dynamic) > kernel.dynamic_shared) {
    if (int(dynamic) > max_shared_)
      return "needs " + std::to_string(dynamic) + " bytes of threadgroup memory, and there are " +
             std::to_string(max_shared_);
    if (const Result r = driver_->FuncSetAttribute(kernel.function, kFunctionMaxDynamicShared, int(dynamic)))
      return failure("cuFuncSetAttribute", r);
    kernel.dynamic_shared = int(dynamic);
  }
  void* arguments[kBuffers + 8];
  DevicePointer pointers[kBuffers + 8];
  size_t count = 0;
  for (const Parameter& p : kernel.parameters) {
    Binding& b = bindings[p.index];
    switch (p.source) {
      case Source::kPointer:
        if (b.bytes && !b.pointer)
          if (std::string error = upload(b); !error.empty()) return error;
        // An optional buffer that is not bound stays null.
        pointers[count] = b.pointer;
        arguments[count] = &pointers[count];
        break;
      case Source::kValue:
        if (!b.bytes) return "parameter " + std::to_string(p.index) + " takes bytes";
        arguments[count] = const_cast<char*>(b.bytes);
        break;
      case Source::kGrid:
        arguments[count] = &grid;
        break;
      case Source::kThreadgroup:
        arguments[count] = &offsets[p.index];
        break;
    }
    count++;
  }
  if (updates) {
    const KernelNode node{kernel.function,
                          {blocks[0], blocks[1], blocks[2]},
                          {size[0], size[1], size[2]},
                          dynamic,
                          arguments,
                          nullptr,
                          nullptr,
                          nullptr};
    const Plan::Instance& instance = *running_->updated;
    const Result r = driver_->GraphExecSetKernel(instance.exec, instance.nodes[running_->launch++], &node);
    return r == kSuccess ? std::string() : failure("the update of a graph", r);
  }
  if (const Result r = launch(kernel, blocks, size, dynamic, arguments)) return failure("the launch", r);
  return running_ ? note_node(*running_, true) : std::string();
}

// In a graph a kernel that waits for the one before by itself is launched ahead of that one's end.
Result Gpu::launch(const Kernel& kernel, const unsigned* grid, const unsigned* block, unsigned shared,
                   void** arguments) {
  const bool ahead = running_ && running_->captured && running_->follows_kernel && kernel.waits;
  if (!ahead || !driver_->ahead)
    return driver_->LaunchKernel(kernel.function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                 shared, current_->stream, arguments, nullptr);
  LaunchAttribute attribute{kLaunchAhead, 0, {1}};
  const LaunchConfig config{
      {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared, current_->stream, &attribute, 1};
  return driver_->LaunchKernelEx(&config, kernel.function, arguments, nullptr);
}

std::vector<Failed> Gpu::run(const uint32_t* words, size_t count) {
  std::vector<Failed> failed;
  runs_++;
  if (std::string error = enter(); !error.empty()) return {{SIZE_MAX, error}};
  collectives_.begin_work();
  if (!run_again(words, count, &failed)) execute(words, count, nullptr, &failed);
  collectives_.end_work();
  return failed;
}

void Gpu::execute(const uint32_t* words, size_t count, Run* run, std::vector<Failed>* failed) {
  Binding bindings[kBuffers];
  uint32_t shared[kBuffers] = {};
  Kernel* kernel = nullptr;
  uint32_t left_out = 0;
  bool is_beside = false;  // what comes next
  uint32_t number = 0;     // of it
  for (size_t at = 0, size = 0; at < count; at += size) {
    const uint32_t* w = words + at;
    size = w[0] >> 8;
    if (size == 0 || at + size > count) {
      failed->push_back({SIZE_MAX, "the command stream is malformed"});
      break;
    }
    const uint32_t index = size > 1 ? w[1] : 0;
    std::string error;
    if (left_out > 0 && is_launch(w[0] & 0xff)) {
      left_out--;
      leave_out(*run);
      continue;
    }
    switch (Op(w[0] & 0xff)) {
      case Op::kPipeline:
        kernel = index < kernels_.size() ? &kernels_[index] : nullptr;
        break;
      case Op::kBuffer:
        if (run && w[2] < run->plan->bindings && index < kBuffers)
          bindings[index] = {run->bound[w[2]] + (w[3] | uint64_t{w[4]} << 32), nullptr, 0, w[2]};
        else if (const Buffer* b = run ? nullptr : buffer(w[2]); b && index < kBuffers)
          bindings[index] = {b->pointer + (w[3] | uint64_t{w[4]} << 32), nullptr, 0};
        else
          error = "there is no such buffer";
        break;
      case Op::kBytes:
        if (index < kBuffers && w[2] <= kMaxBytes && 3 + (w[2] + 3) / 4 <= size)
          bindings[index] = {0, reinterpret_cast<const char*>(w + 3), w[2]};
        else
          error = "the record is malformed";
        break;
      case Op::kThreadgroup:
        if (index < kBuffers) shared[index] = w[2];
        break;
      case Op::kThreads:
      case Op::kThreadgroups:
        error = kernel ? launch(*kernel, bindings, shared, w + 1, Op(w[0] & 0xff) == Op::kThreads)
                       : "no pipeline is set";
        // Lengths are of one dispatch: what the next one does not ask for would cost it blocks at a time.
        std::fill(std::begin(shared), std::end(shared), 0);
        break;
      case Op::kPlan:
        error = run ? "a plan within a plan" : run_plan(w + 1, size - 1);
        break;
      case Op::kUnless:
        // Of a plan alone: elsewhere everything is done.
        if (run && size >= 4 && w[1] < run->plan->bindings && w[2] < run->plan->bindings &&
            run->bound[w[1]] == run->bound[w[2]])
          left_out = w[3];
        break;
      case Op::kUseStream:
        error = use_stream(index);
        break;
      case Op::kJoin:
        error = index < queues_.size() ? join(*current_, *queues_[index]) : "there is no such stream";
        break;
      case Op::kBeside:
        // Graphs that are updated keep their edges.
        if (run && !run->updated) error = fork();
        is_beside = run && !run->updated && error.empty();
        number = index;
        break;
      case Op::kRejoin:
        if (run && !run->updated && index < ends_beside_.size()) error = await(ends_beside_[index]);
        // A kernel that comes after the work of both streams waits for their end.
        if (run) run->follows_kernel = false;
        break;
      case Op::kProduct:
        if (!run || !run->updated) error = product(bindings, w + 1, size - 1);
        if (run) error += note_node(*run);
        break;
      case Op::kConvolution:
        if (!run || !run->updated) error = convolution(bindings, w + 1, size - 1);
        if (run) error += note_node(*run);
        break;
      case Op::kCollective:
        if (!run || !run->updated)
          error = collective(bindings, w + 1, size - 1, is_beside ? *beside_ : *current_);
        // Also after a failure: what comes next waits for the exchanges before it.
        if (is_beside) {
          const std::string unended = end_beside(number);
          if (error.empty()) error = unended;
        }
        if (run) error += note_node(*run);
        is_beside = false;
        break;
      case Op::kOperationGraph:
        if (!run || !run->updated) error = operation_graph(bindings, w + 1, size - 1);
        if (run) error += note_node(*run);
        break;
      case Op::kTransform:
        if (!run || !run->updated) error = transform(bindings, w + 1, size - 1);
        if (run) error += note_node(*run);
        break;
      case Op::kFactorization:
        error = run ? "a factorization within a plan" : factorization(bindings, w + 1, size - 1, at);
        break;
      default:
        // A stream runs in order: barriers say nothing new.
        break;
    }
    if (!error.empty()) failed->push_back({at, std::move(error)});
  }
}

}  // namespace lz
