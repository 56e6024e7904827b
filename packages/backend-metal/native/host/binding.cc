// The Node-API face of the host runtime. Buffers, kernels and events are numbers of one isolate; nothing else
// knows JavaScript.
#include <cstring>
#include <string>
#include <vector>

#include "binding.h"
#include "host/checker.h"
#include "host/commands.h"
#include "host/executor.h"
#include "host/library.h"

namespace lz {
namespace {

struct State {
  Tables tables;
  std::vector<uint32_t> free_buffers;
  std::vector<Napi::Reference<Napi::Value>> owners;  // of borrowed memory, by buffer
  ~State() {
    for (Block* block : tables.buffers)
      if (block) drop_block(block);
  }
};
State& state(Info info) { return *info.Env().GetInstanceData<State>(); }

Block* block(Info info, size_t i) {
  const double id = number(info, i);
  const auto& all = state(info).tables.buffers;
  return id >= 0 && id < double(all.size()) ? all[size_t(id)] : nullptr;
}
uint32_t add_buffer(State& s, Block* made) {
  if (!s.free_buffers.empty()) {
    const uint32_t id = s.free_buffers.back();
    s.free_buffers.pop_back();
    s.tables.buffers[id] = made;
    return id;
  }
  s.tables.buffers.push_back(made);
  s.owners.emplace_back();
  return uint32_t(s.tables.buffers.size() - 1);
}

// newBuffer(nbytes, checked) → number
Napi::Value new_buffer(Info info) {
  const bool checked = info[1].IsBoolean() && info[1].As<Napi::Boolean>();
  const double nbytes = number(info, 0);
  if (!(nbytes >= 0 && nbytes < 1e15)) throw error(info.Env(), "a buffer's size must be a number of bytes");
  Block* made = allocate_block(size_t(nbytes), checked);
  if (!made)
    throw error(info.Env(), "no memory for a buffer of " + std::to_string(uint64_t(nbytes)) + " bytes");
  return Napi::Number::New(info.Env(), add_buffer(state(info), made));
}

// borrowBuffer(bytes) → number; keeps the bytes alive
Napi::Value borrow_buffer(Info info) {
  const Bytes b = bytes(info, 0, "expected an ArrayBuffer or a view");
  State& s = state(info);
  const uint32_t id = add_buffer(s, borrow_block(b.data, b.length));
  s.owners[id] = Napi::Persistent(info[0]);
  return Napi::Number::New(info.Env(), id);
}

// borrowAddress(address, nbytes) → number; whoever owns the memory keeps it
Napi::Value borrow_address(Info info) {
  bool exact = false;
  const uint64_t address = info[0].IsBigInt() ? info[0].As<Napi::BigInt>().Uint64Value(&exact) : 0;
  const double nbytes = number(info, 1);
  if (!exact || !address || !(nbytes >= 0 && nbytes < 1e15))
    throw error(info.Env(), "expected an address and a number of bytes");
  return Napi::Number::New(
      info.Env(),
      add_buffer(state(info), borrow_block(reinterpret_cast<char*>(uintptr_t(address)), size_t(nbytes))));
}

// freeBuffer(buffer)
void free_buffer(Info info) {
  Block* given = block(info, 0);
  if (!given) return;
  State& s = state(info);
  const uint32_t id = uint32_t(number(info, 0));
  s.tables.buffers[id] = nullptr;
  s.owners[id].Reset();
  s.free_buffers.push_back(id);
  drop_block(given);
}

// contents(buffer) → ArrayBuffer over the memory, which lives as long as it
Napi::Value contents(Info info) {
  Block* given = block(info, 0);
  if (!given) throw error(info.Env(), "there is no such buffer");
  auto& owner = state(info).owners[size_t(number(info, 0))];
  if (!owner.IsEmpty()) return owner.Value();
  given->refs++;
  return Napi::ArrayBuffer::New(
      info.Env(), given->data, given->length, [](Napi::Env, void*, Block* hint) { drop_block(hint); }, given);
}

struct Transfer {
  Block* block;
  size_t offset;
  Bytes bytes;
};
Transfer transfer(Info info) {
  constexpr const char* expected = "expected a buffer, an offset and bytes";
  Block* given = block(info, 0);
  const Bytes b = bytes(info, 2, expected);
  if (!given) throw error(info.Env(), expected);
  const double offset = number(info, 1);
  if (!(offset >= 0) || offset + double(b.length) > double(given->length))
    throw error(info.Env(), "the bytes are outside the buffer");
  return {given, size_t(offset), b};
}
// read(buffer, offset, into), write(buffer, offset, from)
void read_buffer(Info info) {
  const Transfer t = transfer(info);
  if (t.bytes.length) std::memcpy(t.bytes.data, t.block->data + t.offset, t.bytes.length);
}
void write_buffer(Info info) {
  const Transfer t = transfer(info);
  if (t.bytes.length) std::memcpy(t.block->data + t.offset, t.bytes.data, t.bytes.length);
}

// address(buffer) → bigint
Napi::Value address(Info info) {
  Block* given = block(info, 0);
  if (!given) throw error(info.Env(), "there is no such buffer");
  return Napi::BigInt::New(info.Env(), reinterpret_cast<uint64_t>(given->data));
}

// loadLibrary(path, symbol) → [{ name, id, maxThreads }]
Napi::Value load_library(Info info) {
  if (!info[0].IsString() || !info[1].IsString()) throw error(info.Env(), "expected a path and a symbol");
  const Opened opened = open_library(info[0].As<Napi::String>(), info[1].As<Napi::String>());
  if (!opened.library) throw error(info.Env(), opened.problem);
  const Library* library = opened.library;
  State& s = state(info);
  Napi::Array list = Napi::Array::New(info.Env(), library->count);
  for (u32 i = 0; i < library->count; i++) {
    const Kernel& kernel = library->kernels[i];
    Napi::Object entry = Napi::Object::New(info.Env());
    entry.Set("name", kernel.name);
    entry.Set("id", double(s.tables.kernels.size()));
    entry.Set("maxThreads", double(kernel.max_threads ? kernel.max_threads : kMaxThreads));
    s.tables.kernels.push_back(&kernel);
    if (opened.is_checked) s.tables.checked.insert(&kernel);
    list.Set(i, entry);
  }
  return list;
}

// run(words, count) → null, or [{ word, message }]
Napi::Value run_words(Info info) {
  constexpr const char* expected = "expected words and their count";
  const Bytes words = bytes(info, 0, expected);
  if (number(info, 1) * 4 > double(words.length)) throw error(info.Env(), expected);
  const std::vector<Failed> failed =
      run_stream(state(info).tables, reinterpret_cast<const uint32_t*>(words.data), size_t(number(info, 1)));
  if (failed.empty()) return info.Env().Null();
  Napi::Array list = Napi::Array::New(info.Env(), failed.size());
  for (size_t i = 0; i < failed.size(); i++) {
    Napi::Object entry = Napi::Object::New(info.Env());
    entry.Set("word", double(failed[i].word));
    entry.Set("message", failed[i].message);
    list.Set(uint32_t(i), entry);
  }
  return list;
}

Napi::Value event_value(Info info) {
  return Napi::Number::New(info.Env(), state(info).tables.events[uint32_t(number(info, 0))]);
}
void set_threads(Info info) { set_workers(u32(number(info, 0))); }
Napi::Value threads(Info info) { return Napi::Number::New(info.Env(), workers()); }
// setTimeLimit(seconds)
void time_limit_to(Info info) { set_time_limit(number(info, 0)); }
// traffic() → [loads, stores, distinct loads, distinct stores] of checked kernels, in bytes, since the last
// call
Napi::Value traffic(Info info) {
  const Traffic t = take_traffic();
  Napi::Array list = Napi::Array::New(info.Env(), 4);
  const uint64_t values[] = {t.loads, t.stores, t.distinct_loads, t.distinct_stores};
  for (uint32_t i = 0; i < 4; i++) list.Set(i, double(values[i]));
  return list;
}
// The version of these functions and of the commands, which src/host-native.ts states too: raise both
// together.
constexpr int kProtocol = 3;

Napi::Value protocol(Info info) { return Napi::Number::New(info.Env(), kProtocol); }
Napi::Value abi(Info info) { return Napi::Number::New(info.Env(), kAbi); }

Napi::Object init(Napi::Env env, Napi::Object exports) {
  env.SetInstanceData(new State);
  const auto add = [&](const char* name, auto call) {
    exports.Set(name, Napi::Function::New(env, call, name));
  };
  add("newBuffer", new_buffer);
  add("borrowBuffer", borrow_buffer);
  add("borrowAddress", borrow_address);
  add("freeBuffer", free_buffer);
  add("contents", contents);
  add("read", read_buffer);
  add("write", write_buffer);
  add("address", address);
  add("loadLibrary", load_library);
  add("run", run_words);
  add("eventValue", event_value);
  add("setThreads", set_threads);
  add("threads", threads);
  add("setTimeLimit", time_limit_to);
  add("traffic", traffic);
  add("abi", abi);
  add("protocol", protocol);
  return exports;
}

}  // namespace
}  // namespace lz

static Napi::Object Start(Napi::Env env, Napi::Object exports) { return lz::init(env, exports); }
NODE_API_MODULE(lazuli_metal_host, Start)
