// Mistakes with Metal, each of objects that are otherwise right. It is long because a mistake is a few lines,
// and they are many.
#include "fake/mistakes.h"

#include <functional>

#include "apple/messages.h"
#include "fake/metal.h"

extern "C" {
lz::apple::Id objc_getClass(const char*);
lz::apple::Sel sel_registerName(const char*);
void objc_msgSend();
void* objc_autoreleasePoolPush();
void objc_autoreleasePoolPop(void*);
lz::apple::Id MTLCreateSystemDefaultDevice();
lz::apple::Id MTLCopyAllDevices();
void lazuli_expect(lz::apple::Id, lz::apple::Sel, const char*);
}

namespace lz::mistaken {
namespace {

using namespace lz::apple;

constexpr const char* kSource =
    R"(kernel void copy(device const float* x, device float* y, constant float& scale,
  uint i [[thread_position_in_grid]]) { y[i] = scale * x[i]; }
)";
constexpr UInteger kOptions = ResourceStorageModeShared | ResourceHazardTrackingModeUntracked;
constexpr Size kGrid{4, 1, 1};

Owned library_of(Id device, const char* source) {
  const Owned options(init(alloc(class_named("MTLCompileOptions"))));
  Id error = nullptr;
  return Owned(newLibraryWithSource(device, string_of(source), options, &error));
}

// Everything that a run needs, made rightly.
struct Bench {
  Pool pool;
  Owned device{functions.MTLCreateSystemDefaultDevice()};
  Owned queue{newCommandQueue(device)};
  Owned fence{newFence(device)};
  Owned event{newSharedEvent(device)};
  Owned library = library_of(device, kSource);
  Owned function{newFunction(library, string_of("copy"))};
  Owned pipeline = [&] {
    Id error = nullptr;
    return Owned(newPipeline(device, function, &error));
  }();
  Owned x{newBuffer(device, 64, kOptions)}, y{newBuffer(device, 64, kOptions)};
  Id commands = commandBuffer(queue);
  Id encoder = nullptr;

  Id begin(Id of = nullptr) { return encoder = computeEncoder(of ? of : commands, DispatchTypeConcurrent); }
  void bind(Id from, Id to) {
    const float scale = 2;
    setPipeline(encoder, pipeline);
    setBuffer(encoder, from, 0, 0);
    setBuffer(encoder, to, 0, 1);
    setBytes(encoder, &scale, 4, 2);
  }
  void run(Id from, Id to) {
    bind(from, to);
    dispatchThreads(encoder, kGrid, kGrid);
  }
  void finish(Id of = nullptr) {
    endEncoding(encoder);
    commit(of ? of : commands);
    waitUntilCompleted(of ? of : commands);
  }
  void run_and_signal() {
    begin();
    run(x, y);
    endEncoding(encoder);
    encodeSignalEvent(commands, event, 1);
    commit(commands);
  }
  // An encoder with all that a run needs.
  void ready() {
    begin();
    bind(x, y);
  }
};

struct Mistake {
  const char* name;
  std::function<void(Bench&)> make;
};

// Messages whose types are not the headers'. They stay, because they are registered.
template <typename Signature>
const Message<Signature>& lie(const char* selector) {
  auto* made = new Message<Signature>("", selector);
  Named::register_all();
  return *made;
}

const std::vector<Mistake>& all() {
  static const std::vector<Mistake> list = {
      // Messages
      {"an unknown selector", [](Bench& b) { lie<Id()>("newQueueOfCommands")(b.device); }},
      {"a selector of another class", [](Bench& b) { endEncoding(b.queue); }},
      {"a class's selector sent to an object", [](Bench& b) { alloc(b.device); }},
      {"an object's selector sent to a class", [](Bench&) { deviceName(class_named("NSString")); }},
      {"an unknown class", [](Bench&) { functions.objc_getClass("MTLGraph"); }},
      {"a message to nil", [](Bench&) { commit(nullptr); }},
      {"a message to what is no object",
       [](Bench& b) { release(reinterpret_cast<Id>(uintptr_t(contents(b.x)))); }},
      {"a message without a selector",
       [](Bench& b) { reinterpret_cast<void (*)(Id, Sel)>(functions.objc_msgSend)(b.device, nullptr); }},
      {"a message without types",
       [](Bench& b) {
         reinterpret_cast<Id (*)(Id, Sel)>(functions.objc_msgSend)(b.device, deviceName.sel());
       }},
      {"an integer for an object",
       [](Bench& b) {
         lie<void(UInteger)>("setComputePipelineState:")((b.begin(), b.encoder), 1);
         endEncoding(b.encoder);
       }},
      {"an argument too few",
       [](Bench& b) { lie<Id(UInteger)>("newBufferWithLength:options:")(b.device, 64); }},
      {"an argument too many", [](Bench& b) { lie<void(UInteger)>("commit")(b.commands, 0); }},
      {"a signed integer for an unsigned one",
       [](Bench& b) { lie<Id(Integer, UInteger)>("newBufferWithLength:options:")(b.device, 64, kOptions); }},
      {"a result of another type", [](Bench& b) { lie<bool()>("status")(b.commands); }},
      {"a boolean for an integer", [](Bench& b) { lie<bool(bool)>("supportsFamily:")(b.device, true); }},
      {"an object of another class",
       [](Bench& b) {
         b.begin();
         setPipeline(b.encoder, b.function);
         endEncoding(b.encoder);
       }},
      {"nil for an object",
       [](Bench& b) {
         b.begin();
         setBuffer(b.encoder, nullptr, 0, 0);
         endEncoding(b.encoder);
       }},
      // Ownership
      {"a release too many",
       [](Bench& b) {
         release(b.event);
         release(b.event);
         b.event.forget();
       }},
      {"use after release",
       [](Bench& b) {
         release(b.x);
         contents(b.x);
         b.x.forget();
       }},
      {"a released object as an argument",
       [](Bench& b) {
         b.begin();
         release(b.x);
         setBuffer(b.encoder, b.x, 0, 0);
         endEncoding(b.encoder);
         b.x.forget();
       }},
      {"a release of what is autoreleased",
       [](Bench& b) {
         Pool pool;
         release(deviceName(b.device));
       }},
      {"an object before init",
       [](Bench& b) {
         const Owned options(alloc(class_named("MTLCompileOptions")));
         setMathMode(options, MathModeSafe);
         Id error = nullptr;
         newLibraryWithSource(b.device, string_of(kSource), options, &error);
         init(options);
       }},
      {"init twice",
       [](Bench&) {
         const Owned options(init(alloc(class_named("MTLCompileOptions"))));
         init(options);
       }},
      {"an allocation of what a device makes", [](Bench&) { alloc(class_named("MTLBuffer")); }},
      {"pools that are closed out of order",
       [](Bench&) {
         void* outer = functions.objc_autoreleasePoolPush();
         void* inner = functions.objc_autoreleasePoolPush();
         functions.objc_autoreleasePoolPop(outer);
         functions.objc_autoreleasePoolPop(inner);
         functions.objc_autoreleasePoolPop(outer);
       }},
      {"a buffer that goes while the GPU uses it",
       [](Bench& b) {
         b.begin();
         b.run(b.x, b.y);
         endEncoding(b.encoder);
         commit(b.commands);
         b.y = Owned();
       }},
      {"a pipeline that goes while the GPU uses it",
       [](Bench& b) {
         b.begin();
         b.run(b.x, b.y);
         endEncoding(b.encoder);
         commit(b.commands);
         b.pipeline = Owned();
       }},
      // Memory
      {"an empty buffer", [](Bench& b) { newBuffer(b.device, 0, kOptions); }},
      {"a buffer beyond the largest", [](Bench& b) { newBuffer(b.device, UInteger{1} << 40, kOptions); }},
      {"a tracked buffer", [](Bench& b) { Owned made(newBuffer(b.device, 64, 0)); }},
      {"private memory", [](Bench& b) { Owned made(newBuffer(b.device, 64, kOptions | 1 << 5)); }},
      {"memory of others within a page",
       [](Bench& b) {
         newBufferNoCopy(b.device, reinterpret_cast<void*>((uintptr_t{1} << 20) + 64), 16384, kOptions,
                         nullptr);
       }},
      {"parts of pages of others",
       [](Bench& b) {
         newBufferNoCopy(b.device, reinterpret_cast<void*>(uintptr_t{1} << 20), 100, kOptions, nullptr);
       }},
      {"memory that is not there",
       [](Bench& b) {
         newBufferNoCopy(b.device, reinterpret_cast<void*>(uintptr_t{1} << 20), 16384, kOptions, nullptr);
       }},
      {"residency asked for before commit",
       [](Bench& b) {
         Id error = nullptr;
         const Owned made(
             newResidencySet(b.device, Owned(init(alloc(class_named("MTLResidencySetDescriptor")))), &error));
         addAllocation(made, b.x);
         requestResidency(made);
       }},
      {"a buffer twice in a residency set",
       [](Bench& b) {
         Id error = nullptr;
         const Owned made(
             newResidencySet(b.device, Owned(init(alloc(class_named("MTLResidencySetDescriptor")))), &error));
         addAllocation(made, b.x);
         addAllocation(made, b.x);
       }},
      {"a buffer that goes while a residency set has it",
       [](Bench& b) {
         Id error = nullptr;
         const Owned made(
             newResidencySet(b.device, Owned(init(alloc(class_named("MTLResidencySetDescriptor")))), &error));
         addAllocation(made, b.x);
         b.x = Owned();
         b.x.forget();
       }},
      // Libraries
      {"a constant of another type",
       [](Bench& b) {
         const Owned made = library_of(
             b.device,
             "constant int n [[function_constant(0)]];\nkernel void k(device int* y) { y[0] = n; }\n");
         const Owned values(init(alloc(class_named("MTLFunctionConstantValues"))));
         const float value = 1;
         setConstantValue(values, &value, DataTypeFloat, 0);
         Id error = nullptr;
         const Owned function(newFunctionWithConstants(made, string_of("k"), values, &error));
       }},
      {"a constant that is not there",
       [](Bench& b) {
         const Owned values(init(alloc(class_named("MTLFunctionConstantValues"))));
         const int value = 1;
         setConstantValue(values, &value, DataTypeInt, 3);
         Id error = nullptr;
         const Owned function(newFunctionWithConstants(b.library, string_of("copy"), values, &error));
       }},
      {"a pipeline whose constants are not set",
       [](Bench& b) {
         const Owned made = library_of(
             b.device,
             "constant int n [[function_constant(0)]];\nkernel void k(device int* y) { y[0] = n; }\n");
         const Owned function(newFunction(made, string_of("k")));
         Id error = nullptr;
         newPipeline(b.device, function, &error);
       }},
      {"a language that is not there",
       [](Bench&) {
         const Owned options(init(alloc(class_named("MTLCompileOptions"))));
         setLanguageVersion(options, 7);
       }},
      {"a mode of arithmetic that is not there",
       [](Bench&) {
         const Owned options(init(alloc(class_named("MTLCompileOptions"))));
         setMathMode(options, 3);
       }},
      // Encoders
      {"a dispatch without a pipeline",
       [](Bench& b) {
         b.begin();
         dispatchThreads(b.encoder, kGrid, kGrid);
         endEncoding(b.encoder);
       }},
      {"a buffer that is not bound",
       [](Bench& b) {
         b.begin();
         setPipeline(b.encoder, b.pipeline);
         setBuffer(b.encoder, b.x, 0, 0);
         dispatchThreads(b.encoder, kGrid, kGrid);
         endEncoding(b.encoder);
       }},
      {"bytes where a kernel writes",
       [](Bench& b) {
         b.ready();
         const float v = 1;
         setBytes(b.encoder, &v, 4, 1);
         dispatchThreads(b.encoder, kGrid, kGrid);
         endEncoding(b.encoder);
       }},
      {"too few bytes for a constant",
       [](Bench& b) {
         b.ready();
         const char v = 1;
         setBytes(b.encoder, &v, 1, 2);
         dispatchThreads(b.encoder, kGrid, kGrid);
         endEncoding(b.encoder);
       }},
      {"a buffer too small for a constant",
       [](Bench& b) {
         b.ready();
         setBuffer(b.encoder, b.x, 64, 2);
         dispatchThreads(b.encoder, kGrid, kGrid);
         endEncoding(b.encoder);
       }},
      {"a misaligned offset",
       [](Bench& b) {
         b.ready();
         setBuffer(b.encoder, b.x, 2, 0);
         dispatchThreads(b.encoder, kGrid, kGrid);
         endEncoding(b.encoder);
       }},
      {"an offset behind the end",
       [](Bench& b) {
         b.ready();
         setBuffer(b.encoder, b.x, 68, 0);
         endEncoding(b.encoder);
       }},
      {"a buffer's index beyond 30",
       [](Bench& b) {
         b.ready();
         setBuffer(b.encoder, b.x, 0, 31);
         endEncoding(b.encoder);
       }},
      {"no bytes",
       [](Bench& b) {
         b.ready();
         setBytes(b.encoder, contents(b.x), 0, 2);
         endEncoding(b.encoder);
       }},
      {"bytes beyond 4 KB",
       [](Bench& b) {
         b.ready();
         setBytes(b.encoder, contents(b.x), 4097, 2);
         endEncoding(b.encoder);
       }},
      {"an empty threadgroup",
       [](Bench& b) {
         b.ready();
         dispatchThreads(b.encoder, kGrid, {0, 1, 1});
         endEncoding(b.encoder);
       }},
      {"a threadgroup too large",
       [](Bench& b) {
         b.ready();
         dispatchThreads(b.encoder, kGrid, {32, 32, 2});
         endEncoding(b.encoder);
       }},
      {"an empty grid",
       [](Bench& b) {
         b.ready();
         dispatchThreadgroups(b.encoder, {4, 0, 1}, kGrid);
         endEncoding(b.encoder);
       }},
      {"threadgroup memory of an odd size",
       [](Bench& b) {
         b.ready();
         setThreadgroupMemory(b.encoder, 24, 0);
         endEncoding(b.encoder);
       }},
      {"too much threadgroup memory",
       [](Bench& b) {
         b.ready();
         setThreadgroupMemory(b.encoder, 32768, 0);
         setThreadgroupMemory(b.encoder, 16, 1);
         dispatchThreads(b.encoder, kGrid, kGrid);
         endEncoding(b.encoder);
       }},
      {"a scope that is not there",
       [](Bench& b) {
         b.ready();
         memoryBarrier(b.encoder, 0);
         endEncoding(b.encoder);
       }},
      {"a dispatch after the end of its encoder",
       [](Bench& b) {
         b.ready();
         endEncoding(b.encoder);
         dispatchThreads(b.encoder, kGrid, kGrid);
       }},
      {"an encoder that ends twice",
       [](Bench& b) {
         b.ready();
         endEncoding(b.encoder);
         endEncoding(b.encoder);
       }},
      {"an encoder that does not end",
       [](Bench& b) {
         Pool pool;
         computeEncoder(b.commands, DispatchTypeConcurrent);
       }},
      {"two encoders at once",
       [](Bench& b) {
         b.begin();
         computeEncoder(b.commands, DispatchTypeConcurrent);
         endEncoding(b.encoder);
       }},
      {"a type of dispatch that is not there", [](Bench& b) { endEncoding(computeEncoder(b.commands, 2)); }},
      // Command buffers
      {"commit with an open encoder",
       [](Bench& b) {
         b.begin();
         commit(b.commands);
         endEncoding(b.encoder);
       }},
      {"commit twice",
       [](Bench& b) {
         commit(b.commands);
         commit(b.commands);
         waitUntilCompleted(b.commands);
       }},
      {"an encoder after commit",
       [](Bench& b) {
         commit(b.commands);
         computeEncoder(b.commands, DispatchTypeConcurrent);
         waitUntilCompleted(b.commands);
       }},
      {"waiting before commit", [](Bench& b) { waitUntilCompleted(b.commands); }},
      {"an event within an encoder",
       [](Bench& b) {
         b.begin();
         encodeSignalEvent(b.commands, b.event, 1);
         endEncoding(b.encoder);
       }},
      {"an event that goes back",
       [](Bench& b) {
         setSignaledValue(b.event, 2);
         setSignaledValue(b.event, 1);
       }},
      {"a signal of what was signalled",
       [](Bench& b) {
         setSignaledValue(b.event, 2);
         encodeSignalEvent(b.commands, b.event, 2);
         commit(b.commands);
         waitUntilCompleted(b.commands);
       }},
      {"more command buffers than a queue has",
       [](Bench& b) {
         for (int i = 0; i < 64; i++) commandBuffer(b.queue);
       }},
      // Order
      {"a read of what was written, without a barrier",
       [](Bench& b) {
         b.begin();
         b.run(b.x, b.y);
         b.run(b.y, b.x);
         b.finish();
       }},
      {"a write of what was written, without a barrier",
       [](Bench& b) {
         b.begin();
         b.run(b.x, b.y);
         b.run(b.x, b.y);
         b.finish();
       }},
      {"a write of what is read, without a barrier",
       [](Bench& b) {
         const Owned z(newBuffer(b.device, 64, kOptions));
         b.begin();
         b.run(b.x, b.y);
         b.run(z, b.x);
         b.finish();
       }},
      {"dependent encoders without a fence",
       [](Bench& b) {
         b.begin();
         b.run(b.x, b.y);
         endEncoding(b.encoder);
         b.begin();
         b.run(b.y, b.x);
         b.finish();
       }},
      {"dependent command buffers without a fence",
       [](Bench& b) {
         b.begin();
         b.run(b.x, b.y);
         endEncoding(b.encoder);
         commit(b.commands);
         const Id next = commandBuffer(b.queue);
         b.begin(next);
         b.run(b.y, b.x);
         b.finish(next);
       }},
      {"a fence that is waited for, and updated by nobody",
       [](Bench& b) {
         b.begin();
         b.run(b.x, b.y);
         endEncoding(b.encoder);
         b.begin();
         waitForFence(b.encoder, b.fence);
         b.run(b.y, b.x);
         b.finish();
       }},
      {"a fence that is updated before it is waited for",
       [](Bench& b) {
         b.begin();
         updateFence(b.encoder, b.fence);
         waitForFence(b.encoder, b.fence);
         b.finish();
       }},
      {"dependent queues without an event",
       [](Bench& b) {
         b.begin();
         b.run(b.x, b.y);
         endEncoding(b.encoder);
         commit(b.commands);
         const Owned other(newCommandQueue(b.device));
         const Id next = commandBuffer(other);
         b.begin(next);
         b.run(b.y, b.x);
         b.finish(next);
         waitUntilCompleted(b.commands);
       }},
      {"a fence between queues, instead of an event",
       [](Bench& b) {
         const Owned other(newCommandQueue(b.device));
         b.begin();
         b.run(b.x, b.y);
         updateFence(b.encoder, b.fence);
         endEncoding(b.encoder);
         commit(b.commands);
         const Id next = commandBuffer(other);
         b.begin(next);
         waitForFence(b.encoder, b.fence);
         b.run(b.y, b.x);
         b.finish(next);
         waitUntilCompleted(b.commands);
       }},
      // Captures
      {"an end of no capture",
       [](Bench&) { stopCapture(sharedCaptureManager(class_named("MTLCaptureManager"))); }},
      {"a capture of nothing",
       [](Bench&) {
         const Owned descriptor(init(alloc(class_named("MTLCaptureDescriptor"))));
         Id error = nullptr;
         startCapture(sharedCaptureManager(class_named("MTLCaptureManager")), descriptor, &error);
       }},
      {"a capture into no file",
       [](Bench& b) {
         const Owned descriptor(init(alloc(class_named("MTLCaptureDescriptor"))));
         setCaptureObject(descriptor, b.device);
         setDestination(descriptor, CaptureDestinationGPUTraceDocument);
         Id error = nullptr;
         startCapture(sharedCaptureManager(class_named("MTLCaptureManager")), descriptor, &error);
       }},
  };
  return list;
}

// Right programs that look like mistakes where the fake forgets too early what orders it.
const std::vector<Mistake>& all_right() {
  static const std::vector<Mistake> list = {
      {"an event that the host knows of before the queue that waits for it",
       [](Bench& b) {
         b.run_and_signal();
         const Owned other(newCommandQueue(b.device)), gate(newSharedEvent(b.device));
         const Id next = commandBuffer(other);
         encodeWaitForEvent(next, gate, 1);
         encodeWaitForEvent(next, b.event, 1);
         b.begin(next);
         b.run(b.y, b.x);
         endEncoding(b.encoder);
         commit(next);
         waitUntilSignaled(b.event, 1, 10000);
         setSignaledValue(gate, 1);
         waitUntilCompleted(next);
       }},
      {"an event behind one that the host knows of, for work of a third queue",
       [](Bench& b) {
         b.run_and_signal();
         const Owned second(newCommandQueue(b.device)), third(newCommandQueue(b.device));
         const Owned gate(newSharedEvent(b.device)), early(newSharedEvent(b.device)),
             late(newSharedEvent(b.device));
         const Owned z(newBuffer(b.device, 64, kOptions));
         const Id between = commandBuffer(second), next = commandBuffer(third);
         encodeWaitForEvent(between, b.event, 1);
         b.begin(between);
         b.run(b.y, z);
         endEncoding(b.encoder);
         encodeSignalEvent(between, early, 1);
         encodeWaitForEvent(between, gate, 1);
         encodeSignalEvent(between, late, 1);
         commit(between);
         encodeWaitForEvent(next, late, 1);
         b.begin(next);
         b.run(b.y, b.x);
         endEncoding(b.encoder);
         commit(next);
         waitUntilSignaled(early, 1, 10000);
         setSignaledValue(gate, 1);
         waitUntilCompleted(next);
         waitUntilCompleted(between);
       }},
  };
  return list;
}

void open_here() {
  if (functions.objc_msgSend) return;
  functions = {objc_getClass,
               sel_registerName,
               objc_msgSend,
               objc_autoreleasePoolPush,
               objc_autoreleasePoolPop,
               MTLCreateSystemDefaultDevice,
               MTLCopyAllDevices,
               lazuli_expect};
  Named::register_all();
}

}  // namespace

std::vector<std::string> names(bool right) {
  std::vector<std::string> made;
  for (const Mistake& each : right ? all_right() : all()) made.push_back(each.name);
  return made;
}

void make(const std::string& name) {
  open_here();
  for (const auto* list : {&all(), &all_right()})
    for (const Mistake& each : *list) {
      if (each.name != name) continue;
      Bench bench;
      each.make(bench);
      // Work that was committed ends before its buffers go.
      if (status(bench.commands) == 2) waitUntilCompleted(bench.commands);
    }
}

}  // namespace lz::mistaken

namespace lz::fake {

std::vector<std::string> mistake_names() { return mistaken::names(false); }
std::vector<std::string> right_names() { return mistaken::names(true); }
std::vector<std::string> make_mistake(const std::string& name) {
  expect_violations();
  mistaken::make(name);
  return noted();
}

}  // namespace lz::fake
