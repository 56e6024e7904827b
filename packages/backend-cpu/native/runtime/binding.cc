// The functions JavaScript sees. Only this file and its binding_*.h know Node-API; every argument is checked
// here, and nothing that C++ throws passes. It is long because the functions are many, each on its own.
#include <memory>
#include <unordered_map>

#include "machine/code.h"
#include "runtime/binding_call.h"
#include "runtime/binding_handles.h"
#include "runtime/binding_signal.h"
#include "runtime/exchange.h"
#include "runtime/memory.h"
#include "runtime/pool.h"
#include "runtime/queue.h"
#include "runtime/registry.h"
#include "runtime/scalar_ops.h"
#include "simd/targets.h"

namespace lazuli {

// The part that outlives its users: host views are finalized at a time of the collector's choosing, also
// after the instance.
struct Shared {
  std::unordered_map<Buffer*, napi_ref> views;  // weak; one ArrayBuffer a buffer at a time
  std::vector<napi_ref> garbage;                // to delete at the next call
  bool closed = false;                          // no call will come

  void sweep(napi_env env) {
    for (napi_ref each : garbage) napi_delete_reference(env, each);
    garbage.clear();
  }
};

// One an isolate.
struct Instance {
  Queues queues;
  Signal signal;
  Handles handles;
  std::vector<napi_ref> words;  // the attached command buffers, by queue
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();

  // An environment that ends deletes no reference: a worker would leave each behind.
  static void close(napi_env env, void* data, void*) {
    auto* instance = static_cast<Instance*>(data);
    const std::shared_ptr<Shared> shared = instance->shared;
    instance->handles.clear(env);
    for (napi_ref each : instance->words)
      if (each) napi_delete_reference(env, each);
    delete instance;
    shared->sweep(env);
    shared->closed = true;
  }
};

namespace {

Buffer* buffer_of(const Call& call, size_t index) {
  const int64_t id = call.integer(index, "buffer");
  const BufferEntry* entry = call.instance->queues.store.buffers.find(uint64_t(id));
  if (!entry || !entry->buffer) call.refuse("there is no buffer " + std::to_string(id));
  return entry->buffer.get();
}

BufferEntry& entry_at(const Call& call, size_t index) {
  const int64_t id = call.integer(index, "buffer");
  BufferEntry* entry = call.instance->queues.store.buffers.make(uint64_t(id));
  if (!entry) call.refuse("buffer id " + std::to_string(id) + " is out of range");
  return *entry;
}

char* range_of(const Call& call, Buffer* buffer, int64_t offset, size_t size) {
  if (uint64_t(offset) > buffer->bytes || size > buffer->bytes - uint64_t(offset)) {
    call.refuse(std::to_string(size) + " bytes at offset " + std::to_string(offset) +
                " do not fit the buffer's " + std::to_string(buffer->bytes));
  }
  return static_cast<char*>(buffer->data) + offset;
}

// --- What there is

napi_value version(Call& call) { return call.string(LAZULI_VERSION); }
napi_value protocol(Call& call) { return call.number(kProtocol); }
napi_value simd_target_text(Call& call) { return call.string(simd_target_name()); }

napi_value machine_code(Call& call) {
  return call.object({{"state", call.string(machine_code_state())},
                      {"programs", call.number(double(machine_code_count()))}});
}

napi_value kernels(Call& call) {
  return call.array(registry().names(), [&](const std::string& name) { return call.string(name); });
}

napi_value kernel_dtypes(Call& call) {
  return call.array(registry().dtypes(), [&](uint32_t dtypes) { return call.number(dtypes); });
}

napi_value load_kernels(Call& call) {
  return call.array(registry().load(call.text(0, "path")),
                    [&](const std::string& name) { return call.string(name); });
}

napi_value scalar_ops(Call& call) {
  std::vector<Op> all;
  for (int i = 0; i < kOps; i++) all.push_back(Op(i));
  return call.array(all, [&](Op op) { return call.string(op_name(op)); });
}

napi_value scalar_support(Call& call) {
  const std::string name = call.text(0, "op");
  return call.boolean(op_supported(op_named(name), int32_t(call.integer(1, "dtype", 0, 255))));
}

// --- Command buffers

Queue& queue_at(const Call& call, size_t index) {
  const int64_t id = call.has(index) ? call.integer(index, "queue", 0, Queues::kMost - 1) : 0;
  return *call.instance->queues.make(uint32_t(id));
}

napi_value attach_commands(Call& call) {
  const napi_value buffer = call.value(0, "commands");
  bool is = false;
  call.check(napi_is_arraybuffer(call.env, buffer, &is));
  if (!is) call.refuse("commands must be an ArrayBuffer");
  const auto queue = size_t(call.has(1) ? call.integer(1, "queue", 0, Queues::kMost - 1) : 0);
  napi_ref made;
  call.check(napi_create_reference(call.env, buffer, 1, &made));
  auto& words = call.instance->words;
  if (words.size() <= queue) words.resize(queue + 1);
  if (words[queue]) napi_delete_reference(call.env, words[queue]);
  words[queue] = made;
  return nullptr;
}

// The first `nWords` words of the queue's command buffer.
const int64_t* attached_words(Call& call, size_t queue, int64_t count) {
  Instance& it = *call.instance;
  if (!it.shared->garbage.empty()) it.shared->sweep(call.env);
  napi_value buffer = nullptr;
  if (queue < it.words.size() && it.words[queue])
    call.check(napi_get_reference_value(call.env, it.words[queue], &buffer));
  if (!buffer) call.refuse("no command buffer is attached");
  void* data;
  size_t size;
  // Asked anew each time: the ArrayBuffer may have been detached or resized.
  call.check(napi_get_arraybuffer_info(call.env, buffer, &data, &size));
  if (uint64_t(count) > size / 8)
    call.refuse(std::to_string(count) + " words do not fit the attached command buffer of " +
                std::to_string(size) + " bytes");
  return static_cast<const int64_t*>(data);
}

napi_value run(Call& call) {
  const int64_t count = call.integer(0, "nWords");
  Queue& queue = queue_at(call, 1);
  const int64_t* words = attached_words(call, queue.index(), count);
  return call.number(double(call.instance->queues.run(queue, words, size_t(count))));
}

napi_value submit(Call& call) {
  const int64_t count = call.integer(0, "nWords");
  Queue& queue = queue_at(call, 1);
  const int64_t* words = attached_words(call, queue.index(), count);
  const bool tell = call.has(2) && call.integer(2, "tell", 0, 1) == 1;
  if (tell && !call.instance->queues.tell) call.refuse("there is no listener: call onDone first");
  return call.number(double(call.instance->queues.submit(queue, words, size_t(count), tell)));
}

napi_value wait(Call& call) {
  auto& queues = call.instance->queues;
  Queue& queue = queue_at(call, 0);
  const auto ticket = uint64_t(call.integer(1, "ticket"));
  if (ticket > queue.issued()) call.refuse("queue has no ticket " + std::to_string(ticket) + " yet");
  queues.wait(queue, ticket);
  return call.boolean(queues.has_poison());
}

napi_value done(Call& call) { return call.number(double(queue_at(call, 0).done())); }

napi_value on_done(Call& call) {
  Instance& it = *call.instance;
  if (!it.signal.open(call.env, call.value(0, "callback"))) call.refuse("callback must be a function");
  it.queues.tell = [&it] { it.signal.raise(); };
  // Before the signal goes, which was made earlier: threads that might raise it must be gone by then.
  call.check(napi_add_env_cleanup_hook(
      call.env, [](void* queues) { static_cast<Queues*>(queues)->stop(); }, &it.queues));
  return nullptr;
}

napi_value hold(Call& call) {
  call.instance->signal.hold(call.env, call.integer(0, "held", 0, 1) == 1);
  return nullptr;
}

napi_value failures(Call& call) {
  return call.array(call.instance->queues.main().executor().failures(), [&](const Failure& failure) {
    return call.object(
        {{"word", call.number(double(failure.word))}, {"message", call.string(failure.message)}});
  });
}

napi_value poisoned(Call& call) {
  auto& queues = call.instance->queues;
  return call.array(queues.take_poison(), [&](const Poison& poison) {
    return call.object({{"id", call.number(poison.id)},
                        {"queue", call.number(poison.queue)},
                        {"ticket", call.number(double(poison.ticket))},
                        {"cause", call.number(poison.cause)},
                        {"message", call.string(queues.store.cause(poison.cause))}});
  });
}

napi_value register_program(Call& call) {
  const auto words = call.words(0, "words");
  return call.number(call.instance->queues.add_program(words.data(), words.size()));
}

napi_value release_program(Call& call) {
  const int64_t id = call.integer(0, "id", 0, UINT32_MAX);
  if (!call.instance->queues.release_program(uint32_t(id)))
    call.refuse("there is no scalar program " + std::to_string(id));
  return nullptr;
}

napi_value register_plan(Call& call) {
  const auto words = call.words(0, "words");
  // Each is a binding of its own where the plan runs.
  constexpr int64_t kMost = PagedTable<BufferEntry>::kLimit;
  const int64_t n_in = call.integer(1, "nIn", 0, kMost), n_out = call.integer(2, "nOut", 0, kMost);
  const int64_t arena = call.integer(3, "arenaBytes", 0, int64_t(1) << 46);
  return call.number(
      call.instance->queues.add_plan(words.data(), words.size(), int(n_in), int(n_out), arena));
}

napi_value release_plan(Call& call) {
  const int64_t id = call.integer(0, "id", 0, UINT32_MAX);
  if (!call.instance->queues.release_plan(uint32_t(id)))
    call.refuse("there is no plan " + std::to_string(id));
  return nullptr;
}

// --- Buffers

napi_value allocate(Call& call) {
  const int64_t bytes = call.integer(1, "nbytes");
  std::string error;
  const int64_t id = call.integer(0, "buffer");
  if (!call.instance->queues.main().executor().allocate(uint64_t(id), bytes, &error))
    throw std::runtime_error("[allocate] " + error);
  return nullptr;
}

napi_value free_buffer(Call& call) {
  const int64_t id = call.integer(0, "buffer");
  if (BufferEntry* entry = call.instance->queues.store.buffers.find(uint64_t(id))) {
    entry->buffer.reset();
    entry->cause = 0;
  }
  return nullptr;
}

napi_value share(Call& call) {
  Buffer* buffer = buffer_of(call, 0);
  BufferEntry& other = entry_at(call, 1);
  Memory::share(buffer);
  other.buffer = BufferRef(buffer);
  other.cause = call.instance->queues.store.buffers.find(uint64_t(call.integer(0, "buffer")))->cause;
  return nullptr;
}

// To another isolate, and from one.
napi_value give(Call& call) {
  Buffer* buffer = buffer_of(call, 0);
  if (buffer->adopted) call.refuse("the memory is another backend's");
  Memory::share(buffer);
  return call.number(double(exchange().put(BufferRef(buffer))));
}

napi_value take(Call& call) {
  BufferEntry& entry = entry_at(call, 0);
  const int64_t number = call.integer(1, "number"), bytes = call.integer(2, "nbytes");
  BufferRef buffer = exchange().take(uint64_t(number));
  if (!buffer) call.refuse("no buffer waits under number " + std::to_string(number));
  if (size_t(bytes) > buffer->capacity)
    call.refuse("the buffer has " + std::to_string(buffer->capacity) + " bytes, not " +
                std::to_string(bytes));
  entry.buffer = std::move(buffer);
  entry.cause = 0;
  return nullptr;
}

napi_value write(Call& call) {
  Buffer* buffer = buffer_of(call, 0);
  const Bytes from = call.bytes(2, "data");
  char* to = range_of(call, buffer, call.integer(1, "byteOffset"), from.size);
  if (from.size) std::memmove(to, from.data, from.size);
  return nullptr;
}

napi_value read(Call& call) {
  Buffer* buffer = buffer_of(call, 0);
  const Bytes to = call.bytes(2, "target");
  const char* from = range_of(call, buffer, call.integer(1, "byteOffset"), to.size);
  if (to.size) std::memmove(to.data, from, to.size);
  return nullptr;
}

napi_value address(Call& call) {
  napi_value out;
  call.check(
      napi_create_bigint_uint64(call.env, reinterpret_cast<uintptr_t>(buffer_of(call, 0)->data), &out));
  return out;
}

// Keeps a buffer alive for an ArrayBuffer over its memory.
struct View {
  BufferRef buffer;
  std::shared_ptr<Shared> shared;
  napi_ref weak = nullptr;

  static void finalize(napi_env env, void*, void* hint) {
    std::unique_ptr<View> view(static_cast<View*>(hint));
    auto& views = view->shared->views;
    const auto found = views.find(view->buffer.get());
    // A newer view of the same buffer may have replaced it.
    if (found != views.end() && found->second == view->weak) views.erase(found);
    if (view->weak) view->shared->garbage.push_back(view->weak);
    if (view->shared->closed) view->shared->sweep(env);
  }
};

napi_value host_view(Call& call) {
  Instance& it = *call.instance;
  it.shared->sweep(call.env);
  Buffer* buffer = buffer_of(call, 0);
  napi_value out = nullptr;
  if (buffer->bytes == 0) {
    void* none;
    call.check(napi_create_arraybuffer(call.env, 0, &none, &out));
    return out;
  }
  if (const auto found = it.shared->views.find(buffer); found != it.shared->views.end()) {
    call.check(napi_get_reference_value(call.env, found->second, &out));
    bool detached = false;
    if (out) call.check(napi_is_detached_arraybuffer(call.env, out, &detached));
    if (out && !detached) return out;
  }
  auto view = std::make_unique<View>();
  Memory::share(buffer);
  view->buffer = BufferRef(buffer);
  view->shared = it.shared;
  const napi_status status = napi_create_external_arraybuffer(call.env, buffer->data, buffer->bytes,
                                                              View::finalize, view.get(), &out);
  if (status != napi_ok)
    call.refuse("this runtime does not allow an ArrayBuffer over native memory; use read()");
  View* made = view.release();
  call.check(napi_create_reference(call.env, out, 0, &made->weak));
  it.shared->views[buffer] = made->weak;
  return out;
}

// Memory of another backend: `owner` is kept alive until the last reference to the buffer is gone.
napi_value adopt(Call& call) {
  Instance& it = *call.instance;
  it.shared->sweep(call.env);
  BufferEntry& entry = entry_at(call, 0);
  const uint64_t at = call.address(1, "address");
  const int64_t bytes = call.integer(2, "nbytes");
  if (at == 0 && bytes > 0) call.refuse("address must not be 0");
  struct Owner {
    std::shared_ptr<Shared> shared;
    napi_ref reference = nullptr;
  };
  auto owner = std::make_unique<Owner>();
  owner->shared = it.shared;
  if (call.has(3)) call.check(napi_create_reference(call.env, call.value(3, "owner"), 1, &owner->reference));
  const auto release = [](void* held) {
    std::unique_ptr<Owner> owner(static_cast<Owner*>(held));
    if (owner->reference) owner->shared->garbage.push_back(owner->reference);
  };
  entry.buffer = BufferRef(memory().adopt(reinterpret_cast<void*>(at), size_t(bytes), release, owner.get()));
  entry.cause = 0;
  owner.release();
  return nullptr;
}

// --- Handles

napi_value track(Call& call) {
  const napi_value array = call.value(0, "array");
  bool is = false;
  call.check(napi_is_array(call.env, array, &is));
  if (!is) call.refuse("array must be an array");
  const auto ids = call.int32s(2, "ids");
  const int64_t count = call.integer(1, "count", 0, UINT32_MAX);
  if (size_t(count) > ids.count) call.refuse("ids is shorter than count");
  constexpr int64_t kBatch = 256;
  for (int64_t from = 0; from < count; from += kBatch) {
    napi_handle_scope scope;
    call.check(napi_open_handle_scope(call.env, &scope));
    std::string wrong;
    for (int64_t i = from; i < std::min(count, from + kBatch) && wrong.empty(); i++) {
      napi_value object = nullptr;
      napi_valuetype type = napi_undefined;
      if (napi_get_element(call.env, array, uint32_t(i), &object) == napi_ok)
        napi_typeof(call.env, object, &type);
      if (type != napi_object && type != napi_function) {
        wrong = "element " + std::to_string(i) + " is not an object";
      } else if (ids.data[i] < 0 || !call.instance->handles.track(call.env, object, uint32_t(ids.data[i]))) {
        wrong = "id " + std::to_string(ids.data[i]) + " is out of range";
      }
    }
    napi_close_handle_scope(call.env, scope);
    if (!wrong.empty()) call.refuse(wrong);
  }
  return nullptr;
}

napi_value untrack(Call& call) {
  call.instance->handles.untrack(call.env, uint32_t(call.integer(0, "id", 0, INT32_MAX)));
  return nullptr;
}

napi_value is_alive(Call& call) {
  return call.boolean(call.instance->handles.alive(call.env, uint32_t(call.integer(0, "id", 0, INT32_MAX))));
}

napi_value poll(Call& call) {
  const bool all = call.integer(0, "generation", 0, 1) == 1;
  const auto out = call.int32s(1, "out");
  return call.number(double(call.instance->handles.poll(call.env, all, out.data, out.count)));
}

// Where `gc` cannot be had: V8 collects at once when it is told of more memory outside its heap than it
// tolerates.
napi_value press_collector(Call& call) {
  constexpr int64_t kMuch = int64_t(1) << 50;
  int64_t now;
  call.check(napi_adjust_external_memory(call.env, kMuch, &now));
  call.check(napi_adjust_external_memory(call.env, -kMuch, &now));
  return nullptr;
}

// --- Memory and threads

napi_value memory_stats(Call& call) {
  const MemoryStats now = memory().stats();
  const auto number = [&](size_t value) { return call.number(double(value)); };
  return call.object({{"active", number(now.active)},
                      {"scratch", number(now.scratch)},
                      {"peak", number(now.peak)},
                      {"cache", number(now.cache)},
                      {"buffers", number(now.buffers)},
                      {"limit", number(now.limit)},
                      {"cacheLimit", number(now.cache_limit)}});
}

// Asked before each evaluation of much memory, where an object would take longer than the answer.
napi_value free_memory(Call& call) {
  const MemoryStats now = memory().stats();
  return call.number(double(now.limit) - double(now.active - now.scratch));
}

napi_value set_memory_limit(Call& call) {
  return memory().set_limit(size_t(call.integer(0, "bytes"))), nullptr;
}
napi_value set_cache_limit(Call& call) {
  return memory().set_cache_limit(size_t(call.integer(0, "bytes"))), nullptr;
}
napi_value clear_cache(Call&) { return memory().clear_cache(), nullptr; }
napi_value reset_peak_memory(Call&) { return memory().reset_peak(), nullptr; }
napi_value set_threads(Call& call) {
  return pool().set_threads(int(call.integer(0, "count", 1, 256))), nullptr;
}
napi_value threads(Call& call) { return call.number(pool().threads()); }

// --- The table

struct Function {
  const char* name;
  napi_value (*run)(Call&);
};

constexpr Function kFunctions[] = {
    {"version", version},
    {"protocol", protocol},
    {"kernels", kernels},
    {"kernelDtypes", kernel_dtypes},
    {"loadKernels", load_kernels},
    {"scalarOps", scalar_ops},
    {"scalarSupport", scalar_support},
    {"simdTarget", simd_target_text},
    {"machineCode", machine_code},
    {"attachCommands", attach_commands},
    {"run", run},
    {"submit", submit},
    {"wait", wait},
    {"done", done},
    {"onDone", on_done},
    {"hold", hold},
    {"failures", failures},
    {"poisoned", poisoned},
    {"registerProgram", register_program},
    {"releaseProgram", release_program},
    {"registerPlan", register_plan},
    {"releasePlan", release_plan},
    {"allocate", allocate},
    {"free", free_buffer},
    {"share", share},
    {"give", give},
    {"take", take},
    {"write", write},
    {"read", read},
    {"address", address},
    {"hostView", host_view},
    {"adopt", adopt},
    {"track", track},
    {"untrack", untrack},
    {"isAlive", is_alive},
    {"poll", poll},
    {"pressCollector", press_collector},
    {"memory", memory_stats},
    {"freeMemory", free_memory},
    {"setMemoryLimit", set_memory_limit},
    {"setCacheLimit", set_cache_limit},
    {"clearCache", clear_cache},
    {"resetPeakMemory", reset_peak_memory},
    {"setThreads", set_threads},
    {"threads", threads},
};

template <size_t kIndex>
napi_value entry(napi_env env, napi_callback_info info) {
  try {
    Call call(env, info, kFunctions[kIndex].name);
    return kFunctions[kIndex].run(call);
  } catch (const ArgumentError& error) {
    napi_throw_type_error(env, "ERR_LAZULI_ARGUMENT", error.what());
  } catch (const std::exception& error) {
    napi_throw_error(env, "ERR_LAZULI_NATIVE", error.what());
  } catch (const Pending&) {
  } catch (...) {
    napi_throw_error(env, "ERR_LAZULI_NATIVE", "an unknown native error");
  }
  return nullptr;
}

template <size_t... kIndex>
napi_status define(napi_env env, napi_value exports, Instance* instance, std::index_sequence<kIndex...>) {
  const napi_property_descriptor properties[] = {{kFunctions[kIndex].name, nullptr, entry<kIndex>, nullptr,
                                                  nullptr, nullptr, napi_enumerable, instance}...};
  return napi_define_properties(env, exports, std::size(properties), properties);
}

}  // namespace
}  // namespace lazuli

NAPI_MODULE_INIT() {
  using namespace lazuli;
  if (!simd_supported()) {
    napi_throw_error(env, "ERR_LAZULI_NATIVE", "this processor lacks SSE4.2, which the CPU backend needs");
    return exports;
  }
  auto* instance = new Instance;
  napi_set_instance_data(env, instance, Instance::close, nullptr);
  if (define(env, exports, instance, std::make_index_sequence<std::size(kFunctions)>()) != napi_ok) {
    napi_throw_error(env, "ERR_LAZULI_NATIVE", "the addon's functions cannot be defined");
  }
  return exports;
}
