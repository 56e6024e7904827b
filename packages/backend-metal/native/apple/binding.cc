// The Node-API face of the runtime on Metal.framework. Buffers, libraries, pipelines, queues and events are
// numbers of one isolate; nothing else knows JavaScript.
#include "binding.h"

#include <cstring>
#include <memory>

#include "apple/device.h"

namespace lz::apple {
namespace {

struct State {
  std::unique_ptr<Device> device;
};
State& state(Info info) { return *info.Env().GetInstanceData<State>(); }
Device& device(Info info) {
  if (!state(info).device) throw Failure("Metal is not open");
  return *state(info).device;
}

uint32_t id(Info info, size_t i) { return uint32_t(number(info, i)); }
std::string text(Info info, size_t i) {
  if (!info[i].IsString()) throw Failure("expected a string");
  return info[i].As<Napi::String>();
}

// Failures of the runtime as errors of JavaScript.
template <auto call>
Napi::Value guarded(Info info) {
  try {
    if constexpr (std::is_void_v<decltype(call(info))>) {
      call(info);
      return info.Env().Undefined();
    } else
      return call(info);
  } catch (const Failure& failure) {
    throw error(info.Env(), failure.what(), failure.code);
  }
}

// open(libraries)
void open(Info info) {
  if (state(info).device) return;
  std::vector<std::string> libraries;
  const auto list = info[0].As<Napi::Array>();
  for (uint32_t i = 0; i < list.Length(); i++) libraries.push_back(list.Get(i).As<Napi::String>());
  state(info).device = std::make_unique<Device>(libraries);
}
// close(): releases everything; for tests, and for threads that end
void close(Info info) { state(info).device.reset(); }

Napi::Value facts(Info info) {
  const Facts f = device(info).facts();
  Napi::Object made = Napi::Object::New(info.Env());
  made.Set("name", f.name);
  made.Set("architecture", f.architecture);
  made.Set("maxBufferLength", f.max_buffer);
  made.Set("recommendedWorkingSet", f.working_set);
  made.Set("maxThreadgroupMemory", f.threadgroup_memory);
  made.Set("allocated", f.allocated);
  made.Set("unified", f.unified);
  made.Set("apple7", f.apple7);
  made.Set("metal3", f.metal3);
  return made;
}

// newBuffer(nbytes) → number
Napi::Value new_buffer(Info info) {
  const double nbytes = number(info, 0);
  if (!(nbytes >= 0 && nbytes < 1e15)) throw Failure("a buffer's size must be a number of bytes");
  return Napi::Number::New(info.Env(), device(info).new_buffer(size_t(nbytes)));
}
// wrapAddress(address, nbytes) → number, 0 where the device does not take it
Napi::Value wrap_address(Info info) {
  bool exact = false;
  const uint64_t address = info[0].IsBigInt() ? info[0].As<Napi::BigInt>().Uint64Value(&exact) : 0;
  if (!exact || !address) throw Failure("expected an address and a number of bytes");
  return Napi::Number::New(
      info.Env(), device(info).wrap(reinterpret_cast<void*>(uintptr_t(address)), size_t(number(info, 1))));
}
void free_buffer(Info info) {
  // The device may be closed: its buffers are gone then.
  if (state(info).device) device(info).free_buffer(id(info, 0));
}
// contents(buffer) → ArrayBuffer over the memory, which lives as long as it
Napi::Value contents(Info info) {
  Device& d = device(info);
  auto* owner = new Owned(d.object(id(info, 0)));
  return Napi::ArrayBuffer::New(
      info.Env(), d.data(id(info, 0)), d.length(id(info, 0)),
      [](Napi::Env, void*, Owned* hint) { delete hint; }, owner);
}
Napi::Value address(Info info) {
  return Napi::BigInt::New(info.Env(), reinterpret_cast<uint64_t>(device(info).data(id(info, 0))));
}

struct Transfer {
  char* data;
  Bytes bytes;
};
Transfer transfer(Info info) {
  const Bytes b = bytes(info, 2, "expected a buffer, an offset and bytes");
  const double offset = number(info, 1);
  if (!(offset >= 0)) throw Failure("the bytes are outside the buffer");
  return {device(info).read(id(info, 0), size_t(offset), b.length), b};
}
// read(buffer, offset, into), write(buffer, offset, from): after the work that uses the buffer
void read(Info info) {
  const Transfer t = transfer(info);
  if (t.bytes.length) std::memcpy(t.bytes.data, t.data, t.bytes.length);
}
void write(Info info) {
  const Transfer t = transfer(info);
  if (t.bytes.length) std::memcpy(t.data, t.bytes.data, t.bytes.length);
}

// wire(bytes) → whether the system can
Napi::Value wire(Info info) { return Napi::Boolean::New(info.Env(), device(info).wire(number(info, 0))); }

// newLibrary(source, mathMode), loadLibrary(path) → number
Napi::Value new_library(Info info) {
  const int mode = int(number(info, 1));
  if (mode < 0 || mode > 2) throw Failure("there is no such mode of arithmetic");
  return Napi::Number::New(info.Env(), device(info).new_library(text(info, 0), mode));
}
Napi::Value load_library(Info info) {
  return Napi::Number::New(info.Env(), device(info).load_library(text(info, 0)));
}
// kernels(library) → names
Napi::Value kernels(Info info) {
  const std::vector<std::string> all = device(info).kernels(id(info, 0));
  Napi::Array made = Napi::Array::New(info.Env(), all.size());
  for (uint32_t i = 0; i < all.size(); i++) made.Set(i, all[i]);
  return made;
}
// newPipeline(library, name, [index, value, …]) → { id, maxThreads, simdWidth }
Napi::Value new_pipeline(Info info) {
  std::vector<std::pair<uint32_t, double>> constants;
  const auto list = info[2].As<Napi::Array>();
  for (uint32_t i = 0; i + 1 < list.Length(); i += 2)
    constants.emplace_back(list.Get(i).As<Napi::Number>().Uint32Value(),
                           list.Get(i + 1).As<Napi::Number>().DoubleValue());
  const Kernel kernel = device(info).new_pipeline(id(info, 0), text(info, 1), constants);
  Napi::Object made = Napi::Object::New(info.Env());
  made.Set("id", kernel.id);
  made.Set("maxThreads", kernel.max_threads);
  made.Set("simdWidth", kernel.simd_width);
  return made;
}

Napi::Value new_queue(Info info) { return Napi::Number::New(info.Env(), device(info).new_queue()); }
Napi::Value new_event(Info info) { return Napi::Number::New(info.Env(), device(info).new_event()); }
Napi::Value event_value(Info info) {
  return Napi::Number::New(info.Env(), double(device(info).event_value(id(info, 0))));
}

// commit(queue, words, count) → the submission's number
Napi::Value commit(Info info) {
  constexpr const char* expected = "expected words and their count";
  const Bytes words = bytes(info, 1, expected);
  const double count = number(info, 2);
  if (!(count >= 0) || count * 4 > double(words.length)) throw Failure(expected);
  return Napi::Number::New(
      info.Env(),
      double(device(info).commit(id(info, 0), reinterpret_cast<const uint32_t*>(words.data), size_t(count))));
}
// wait(submission) → null, or what went wrong
Napi::Value wait(Info info) {
  const std::string failure = device(info).wait(uint64_t(number(info, 0)));
  if (failure.empty()) return info.Env().Null();
  return Napi::String::New(info.Env(), failure);
}

void set_time_limit(Info info) { device(info).time_limit = number(info, 0); }
void start_capture(Info info) { device(info).start_capture(text(info, 0)); }
void stop_capture(Info info) { device(info).stop_capture(); }

// The version of these functions and of the commands, which src/apple-native.ts states too: raise both
// together.
constexpr int kProtocol = 1;
Napi::Value protocol(Info info) { return Napi::Number::New(info.Env(), kProtocol); }

Napi::Object start(Napi::Env env, Napi::Object exports) {
  env.SetInstanceData(new State);
  const auto add = [&](const char* name, auto call) {
    exports.Set(name, Napi::Function::New(env, call, name));
  };
  add("protocol", protocol);
  add("open", guarded<open>);
  add("close", guarded<close>);
  add("facts", guarded<facts>);
  add("newBuffer", guarded<new_buffer>);
  add("wrapAddress", guarded<wrap_address>);
  add("freeBuffer", guarded<free_buffer>);
  add("contents", guarded<contents>);
  add("address", guarded<address>);
  add("read", guarded<read>);
  add("write", guarded<write>);
  add("wire", guarded<wire>);
  add("newLibrary", guarded<new_library>);
  add("loadLibrary", guarded<load_library>);
  add("kernels", guarded<kernels>);
  add("newPipeline", guarded<new_pipeline>);
  add("newQueue", guarded<new_queue>);
  add("newEvent", guarded<new_event>);
  add("eventValue", guarded<event_value>);
  add("commit", guarded<commit>);
  add("wait", guarded<wait>);
  add("setTimeLimit", guarded<set_time_limit>);
  add("startCapture", guarded<start_capture>);
  add("stopCapture", guarded<stop_capture>);
  return exports;
}

}  // namespace
}  // namespace lz::apple

static Napi::Object Start(Napi::Env env, Napi::Object exports) { return lz::apple::start(env, exports); }
NODE_API_MODULE(lazuli_metal_apple, Start)
