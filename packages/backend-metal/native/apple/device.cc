#include "apple/device.h"

#include <algorithm>

#include "apple/messages.h"

namespace lz::apple {
namespace {

constexpr UInteger kOptions = ResourceStorageModeShared | ResourceHazardTrackingModeUntracked;
constexpr const char* kMemory = "ERR_LAZULI_MEMORY";
constexpr uint32_t kMaxStreams = 1024;

Owned make(const char* name) { return Owned(init(alloc(class_named(name)))); }

Owned find_device() {
  Pool pool;
  Owned device(functions.MTLCreateSystemDefaultDevice());
  if (device) return device;
  // Programs without a window may have no default.
  const Owned all(functions.MTLCopyAllDevices());
  if (all && arrayCount(all) > 0) return Owned::retained(objectAtIndex(all, 0));
  throw Failure("Metal shows no GPU");
}

}  // namespace

Device::Device(const std::vector<std::string>& libraries) {
  open_functions(libraries);
  Pool pool;
  device_ = find_device();
  new_queue();
}

Device::~Device() {
  Pool pool;
  try {
    if (captures_) stop_capture();
  } catch (const Failure&) {
    // It ends with the process.
  }
  bool all_done = true;
  for (const auto& queue : queues_) {
    queue->drain(submissions_);
    all_done = all_done && queue->done(submissions_);
  }
  for (auto& [number, buffer] : leaving_) drop(buffer);
  for (Buffer& buffer : tables_.buffers) drop(buffer);
  // A GPU that never ended its work keeps what it may use.
  if (!all_done) new Tables(std::move(tables_));
}

Facts Device::facts() const {
  Pool pool;
  const Id device = device_;
  Facts f{};
  f.name = text_of(deviceName(device));
  if (responds(device, architecture)) f.architecture = text_of(architectureName(architecture(device)));
  f.max_buffer = double(maxBufferLength(device));
  f.working_set = double(recommendedMaxWorkingSetSize(device));
  f.threadgroup_memory = double(maxThreadgroupMemoryLength(device));
  f.allocated = double(currentAllocatedSize(device));
  f.unified = hasUnifiedMemory(device);
  f.apple7 = supportsFamily(device, GPUFamilyApple7);
  f.metal3 = supportsFamily(device, GPUFamilyMetal3);
  return f;
}

// Memory

uint32_t Device::add(Owned object, size_t length) {
  Buffer made{std::move(object), length, nullptr, 0, false};
  made.data = static_cast<char*>(contents(made.object));
  if (!made.data) throw Failure("the memory of a buffer cannot be seen", kMemory);
  keep_in_memory(made);
  if (free_ids_.empty()) {
    // Number 0 stands for none.
    if (tables_.buffers.empty()) tables_.buffers.emplace_back();
    tables_.buffers.push_back(std::move(made));
    return uint32_t(tables_.buffers.size() - 1);
  }
  const uint32_t id = free_ids_.back();
  free_ids_.pop_back();
  tables_.buffers[id] = std::move(made);
  return id;
}

uint32_t Device::new_buffer(size_t length) {
  Pool pool;
  // Metal has no empty buffers.
  Owned made(newBuffer(device_, std::max<size_t>(length, 1), kOptions));
  if (!made) throw Failure("no memory for a buffer of " + std::to_string(length) + " bytes", kMemory);
  return add(std::move(made), length);
}

uint32_t Device::wrap(void* address, size_t length) {
  Pool pool;
  Owned made(newBufferNoCopy(device_, address, length, kOptions, nullptr));
  return made ? add(std::move(made), length) : 0;
}

Buffer& Device::living(uint32_t id) {
  if (id >= tables_.buffers.size() || !tables_.buffers[id].object) throw Failure("there is no such buffer");
  return tables_.buffers[id];
}

void Device::free_buffer(uint32_t id) {
  Pool pool;
  Buffer& buffer = living(id);
  leaving_.emplace_back(buffer.last_use, std::move(buffer));
  buffer = {};
  free_ids_.push_back(id);
  collect();
}

void Device::collect() {
  const auto gone = [&](auto& each) {
    if (each.first != 0)
      for (const auto& queue : queues_)
        if (!queue->done(each.first)) return false;
    drop(each.second);
    return true;
  };
  leaving_.erase(std::remove_if(leaving_.begin(), leaving_.end(), gone), leaving_.end());
}

void Device::drop(Buffer& buffer) {
  if (!buffer.wired) return;
  buffer.wired = false;
  wired_ -= double(buffer.length);
  removeAllocation(residency_, buffer.object);
  commitResidency(residency_);
}

char* Device::read(uint32_t id, size_t offset, size_t length) {
  Buffer& buffer = living(id);
  if (offset > buffer.length || length > buffer.length - offset)
    throw Failure("the bytes are outside the buffer");
  if (buffer.last_use != 0)
    for (const auto& queue : queues_) queue->drain(buffer.last_use);
  return buffer.data + offset;
}

void Device::keep_in_memory(Buffer& buffer) {
  if (!residency_ || wired_ + double(buffer.length) > wired_limit_) return;
  addAllocation(residency_, buffer.object);
  commitResidency(residency_);
  requestResidency(residency_);
  buffer.wired = true;
  wired_ += double(buffer.length);
}

bool Device::wire(double bytes) {
  Pool pool;
  if (!responds(device_, newResidencySet)) return false;
  if (bytes > double(recommendedMaxWorkingSetSize(device_)))
    throw Failure("the device's working set cannot hold that many bytes");
  if (!residency_) {
    const Owned descriptor = make("MTLResidencySetDescriptor");
    Id error = nullptr;
    Owned made(newResidencySet(device_, descriptor, &error));
    if (!made) throw Failure("Metal gives no residency set: " + described(error, "it gave no reason"));
    for (const auto& queue : queues_) addResidencySet(queue->object(), made);
    residency_ = std::move(made);
  }
  wired_limit_ = bytes;
  for (Buffer& buffer : tables_.buffers)
    if (wired_ > bytes) drop(buffer);
  for (Buffer& buffer : tables_.buffers)
    if (buffer.object && !buffer.wired) keep_in_memory(buffer);
  if (bytes == 0) endResidency(residency_);
  return true;
}

// Libraries and pipelines

uint32_t Device::new_library(const std::string& source, int math_mode) {
  Pool pool;
  const Owned options = make("MTLCompileOptions");
  setLanguageVersion(options, LanguageVersion3_1);
  const Integer modes[] = {MathModeSafe, MathModeRelaxed, MathModeFast};
  if (responds(options, setMathMode))
    setMathMode(options, modes[math_mode]);
  else
    setFastMathEnabled(options, math_mode == 2);
  Id error = nullptr;
  Owned made(newLibraryWithSource(device_, string_of(source), options, &error));
  if (!made) throw Failure(described(error, "Metal gave no reason"), "ERR_LAZULI_COMPILE");
  libraries_.push_back(std::move(made));
  return uint32_t(libraries_.size() - 1);
}

uint32_t Device::load_library(const std::string& path) {
  Pool pool;
  Id error = nullptr;
  Owned made(newLibraryWithURL(device_, fileURLWithPath(class_named("NSURL"), string_of(path)), &error));
  if (!made) throw Failure(path + " cannot be loaded: " + described(error, "Metal gave no reason"));
  libraries_.push_back(std::move(made));
  return uint32_t(libraries_.size() - 1);
}

Id Device::library(uint32_t id) const {
  if (id >= libraries_.size()) throw Failure("there is no such library");
  return libraries_[id];
}

std::vector<std::string> Device::kernels(uint32_t id) const {
  Pool pool;
  const Id names = functionNames(library(id));
  std::vector<std::string> all;
  for (UInteger i = 0; names && i < arrayCount(names); i++) all.push_back(text_of(objectAtIndex(names, i)));
  return all;
}

namespace {

// A constant's value in the type that its source declares.
void set_constant(Id values, UInteger type, UInteger index, double value) {
  union {
    bool b;
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    float f;
    uint16_t half;
  } as;
  switch (type) {
    case DataTypeBool:
      as.b = value != 0;
      break;
    case DataTypeChar:
    case DataTypeUChar:
      as.i8 = int8_t(int64_t(value));
      break;
    case DataTypeShort:
    case DataTypeUShort:
      as.i16 = int16_t(int64_t(value));
      break;
    case DataTypeInt:
    case DataTypeUInt:
      as.i32 = int32_t(int64_t(value));
      break;
    case DataTypeLong:
    case DataTypeULong:
      as.i64 = int64_t(value);
      break;
    case DataTypeFloat:
      as.f = float(value);
      break;
    default:
      throw Failure("function constant " + std::to_string(index) + " has a type that cannot be set");
  }
  setConstantValue(values, &as, type, index);
}

}  // namespace

Kernel Device::new_pipeline(uint32_t id, const std::string& name,
                            const std::vector<std::pair<uint32_t, double>>& constants) {
  Pool pool;
  const Id from = library(id), named = string_of(name);
  Owned function(newFunction(from, named));
  if (!function) throw Failure("the library has no kernel \"" + name + "\"", "ERR_LAZULI_NO_KERNEL");
  const Id declared = functionConstants(function);
  const Id names = declared ? keyEnumerator(declared) : nullptr;
  Owned values;
  for (Id key = names ? nextObject(names) : nullptr; key; key = nextObject(names)) {
    // A function with constants runs once they are set, be it none of them.
    if (!values) values = make("MTLFunctionConstantValues");
    const Id constant = objectForKey(declared, key);
    const UInteger index = constantIndex(constant);
    for (const auto& [at, value] : constants)
      if (at == index) set_constant(values, constantType(constant), index, value);
  }
  Id error = nullptr;
  if (values) {
    function = Owned(newFunctionWithConstants(from, named, values, &error));
    if (!function) throw Failure(described(error, "Metal gave no reason"), "ERR_LAZULI_COMPILE");
  }
  Owned made(newPipeline(device_, function, &error));
  if (!made) throw Failure(described(error, "Metal gave no reason"), "ERR_LAZULI_COMPILE");
  const uint32_t threads = uint32_t(maxTotalThreads(made)), width = uint32_t(threadExecutionWidth(made));
  tables_.pipelines.push_back(std::move(made));
  return {uint32_t(tables_.pipelines.size() - 1), threads, width};
}

// Work

uint32_t Device::new_queue() {
  Pool pool;
  auto made = std::make_unique<Queue>(device_, tables_, time_limit, [this] {
    for (const auto& queue : queues_) queue->release_waiting();
  });
  if (residency_) addResidencySet(made->object(), residency_);
  queues_.push_back(std::move(made));
  return uint32_t(queues_.size() - 1);
}

uint32_t Device::new_event() {
  Pool pool;
  Owned made(newSharedEvent(device_));
  if (!made) throw Failure("Metal gives no event");
  tables_.events.push_back({std::move(made), 0});
  return uint32_t(tables_.events.size());
}

uint64_t Device::event_value(uint32_t id) const {
  if (id == 0 || id > tables_.events.size()) throw Failure("there is no such event");
  return signaledValue(tables_.events[id - 1].object);
}

// Streams beyond the first have queues of their own.
Queue& Device::queue_of(uint32_t stream, uint32_t first) {
  while (stream > streams_.size()) streams_.push_back(new_queue());
  return *queues_[stream == 0 ? first : streams_[stream - 1]];
}

uint64_t Device::commit(uint32_t queue, const uint32_t* words, size_t count) {
  if (queue >= queues_.size()) throw Failure("there is no such queue");
  Pool pool;
  const uint64_t number = ++submissions_;
  State state;
  std::vector<std::pair<Queue*, std::unique_ptr<Encoder>>> open;
  const auto opened = [&](Queue& on) {
    return std::find_if(open.begin(), open.end(), [&](const auto& each) { return each.first == &on; });
  };
  Queue* current = &queue_of(stream_, queue);
  // The next commit goes on with the stream in use, whatever becomes of this one.
  for (size_t at = 0; at + 1 < count && words[at] >> 8; at += words[at] >> 8)
    if (Op(words[at] & 0xff) == Op::kUseStream && words[at + 1] < kMaxStreams) stream_ = words[at + 1];
  const auto encoder = [&]() -> Encoder& {
    const auto found = opened(*current);
    return *(found != open.end() ? *found : open.emplace_back(current, current->begin(number, state))).second;
  };
  encoder();
  for (size_t at = 0; at < count;) {
    const uint32_t* w = words + at;
    const uint32_t size = w[0] >> 8;
    const Op op = Op(w[0] & 0xff);
    if (size == 0 || at + size > count) malformed();
    at += size;
    if (op != Op::kUseStream && op != Op::kJoin) {
      encoder().record(op, w, size);
      continue;
    }
    if (size < 2 || w[1] >= kMaxStreams) malformed();
    Queue& named = queue_of(w[1], queue);
    if (op == Op::kUseStream) {
      // Encoders end where others begin, so that fences order what a queue does before and after.
      if (const auto found = opened(*current); found != open.end()) found->second->end();
      current = &named;
      continue;
    }
    if (&named == current) continue;
    if (const auto found = opened(named); found != open.end()) {
      named.commit(*found->second);
      open.erase(found);
    }
    if (named.last() > 0) encoder().wait(named.ended(), named.last());
  }
  for (const auto& [on, commands] : open) on->commit(*commands);
  if (!leaving_.empty()) collect();
  return number;
}

std::string Device::wait(uint64_t submission) {
  std::string failure;
  for (const auto& queue : queues_) {
    std::string mine = queue->wait(submission);
    if (failure.empty()) failure = std::move(mine);
  }
  return failure;
}

// Captures

void Device::start_capture(const std::string& path) {
  Pool pool;
  const Id manager = sharedCaptureManager(class_named("MTLCaptureManager"));
  if (!manager || !supportsDestination(manager, CaptureDestinationGPUTraceDocument))
    throw Failure(
        "Metal cannot capture into a file; METAL_CAPTURE_ENABLED=1 must be set before the process starts");
  if (isCapturing(manager)) throw Failure("a capture is already under way");
  const Owned descriptor = make("MTLCaptureDescriptor");
  setCaptureObject(descriptor, device_);
  setDestination(descriptor, CaptureDestinationGPUTraceDocument);
  setOutputURL(descriptor, fileURLWithPath(class_named("NSURL"), string_of(path)));
  Id error = nullptr;
  if (!startCapture(manager, descriptor, &error))
    throw Failure("Metal does not start the capture: " + described(error, "it gave no reason"));
  captures_ = true;
}

void Device::stop_capture() {
  Pool pool;
  const Id manager = sharedCaptureManager(class_named("MTLCaptureManager"));
  if (!manager || !isCapturing(manager)) throw Failure("no capture is under way");
  stopCapture(manager);
  captures_ = false;
}

}  // namespace lz::apple
