// The Node-API face of the host runtime. Buffers, kernels and events are numbers of one isolate; nothing else
// knows JavaScript.
#include <dlfcn.h>
#include <node_api.h>

#include <cstring>
#include <string>
#include <vector>

#include "host/checker.h"
#include "host/commands.h"
#include "host/executor.h"

namespace lz {
namespace {

struct State {
  Tables tables;
  std::vector<uint32_t> free_buffers;
  std::vector<napi_ref> owners;  // of borrowed memory, by buffer
};

// Arguments and the isolate's state; throws by returning null after napi_throw_error.
struct Call {
  napi_env env;
  napi_value argv[4];
  size_t argc = 4;
  State* state = nullptr;
  Call(napi_env e, napi_callback_info info) : env(e) {
    for (napi_value& v : argv) v = nullptr;
    napi_get_cb_info(e, info, &argc, argv, nullptr, nullptr);
    void* data = nullptr;
    napi_get_instance_data(e, &data);
    state = static_cast<State*>(data);
  }
  napi_value fail(const std::string& message) const {
    napi_throw_error(env, "ERR_LAZULI_NATIVE", message.c_str());
    return nullptr;
  }
  double number(size_t i) const {
    double d = 0;
    if (i < argc) napi_get_value_double(env, argv[i], &d);
    return d;
  }
  napi_value number_value(double d) const {
    napi_value v;
    napi_create_double(env, d, &v);
    return v;
  }
  Block* block(size_t i) const {
    const double id = number(i);
    return id >= 0 && id < double(state->tables.buffers.size()) ? state->tables.buffers[size_t(id)] : nullptr;
  }
  // The bytes of a view or of an ArrayBuffer.
  bool bytes(size_t i, char** data, size_t* length) const {
    bool is = false;
    void* start = nullptr;
    if (i >= argc) return false;
    if (napi_is_typedarray(env, argv[i], &is) == napi_ok && is) {
      napi_typedarray_type type;
      size_t count = 0;
      napi_get_typedarray_info(env, argv[i], &type, &count, &start, nullptr, nullptr);
      static const size_t sizes[] = {1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8};
      *length = count * sizes[type];
    } else if (napi_is_dataview(env, argv[i], &is) == napi_ok && is) {
      napi_get_dataview_info(env, argv[i], length, &start, nullptr, nullptr);
    } else if (napi_is_arraybuffer(env, argv[i], &is) == napi_ok && is) {
      napi_get_arraybuffer_info(env, argv[i], &start, length);
    } else
      return false;
    *data = static_cast<char*>(start);
    return true;
  }
};

uint32_t add_buffer(State* s, Block* block) {
  if (!s->free_buffers.empty()) {
    const uint32_t id = s->free_buffers.back();
    s->free_buffers.pop_back();
    s->tables.buffers[id] = block;
    return id;
  }
  s->tables.buffers.push_back(block);
  s->owners.push_back(nullptr);
  return uint32_t(s->tables.buffers.size() - 1);
}

// newBuffer(nbytes, checked) → number
napi_value new_buffer(napi_env env, napi_callback_info info) {
  Call c(env, info);
  bool checked = false;
  if (c.argc > 1) napi_get_value_bool(env, c.argv[1], &checked);
  const double nbytes = c.number(0);
  if (!(nbytes >= 0 && nbytes < 1e15)) return c.fail("a buffer's size must be a number of bytes");
  Block* block = allocate_block(size_t(nbytes), checked);
  if (!block) return c.fail("no memory for a buffer of " + std::to_string(uint64_t(nbytes)) + " bytes");
  return c.number_value(add_buffer(c.state, block));
}

// borrowBuffer(bytes) → number; keeps the bytes alive
napi_value borrow_buffer(napi_env env, napi_callback_info info) {
  Call c(env, info);
  char* data = nullptr;
  size_t length = 0;
  if (!c.bytes(0, &data, &length)) return c.fail("expected an ArrayBuffer or a view");
  const uint32_t id = add_buffer(c.state, borrow_block(data, length));
  napi_create_reference(env, c.argv[0], 1, &c.state->owners[id]);
  return c.number_value(id);
}

// borrowAddress(address, nbytes) → number; whoever owns the memory keeps it
napi_value borrow_address(napi_env env, napi_callback_info info) {
  Call c(env, info);
  uint64_t address = 0;
  bool exact = false;
  const double nbytes = c.number(1);
  if (c.argc < 2 || napi_get_value_bigint_uint64(env, c.argv[0], &address, &exact) != napi_ok || !exact ||
      !address || !(nbytes >= 0 && nbytes < 1e15))
    return c.fail("expected an address and a number of bytes");
  return c.number_value(
      add_buffer(c.state, borrow_block(reinterpret_cast<char*>(uintptr_t(address)), size_t(nbytes))));
}

// freeBuffer(buffer)
napi_value free_buffer(napi_env env, napi_callback_info info) {
  Call c(env, info);
  Block* block = c.block(0);
  if (!block) return nullptr;
  const uint32_t id = uint32_t(c.number(0));
  c.state->tables.buffers[id] = nullptr;
  if (c.state->owners[id]) napi_delete_reference(env, c.state->owners[id]);
  c.state->owners[id] = nullptr;
  c.state->free_buffers.push_back(id);
  drop_block(block);
  return nullptr;
}

// contents(buffer) → ArrayBuffer over the memory, which lives as long as it
napi_value contents(napi_env env, napi_callback_info info) {
  Call c(env, info);
  Block* block = c.block(0);
  if (!block) return c.fail("there is no such buffer");
  napi_value result;
  if (napi_ref owner = c.state->owners[size_t(c.number(0))]) {
    napi_get_reference_value(env, owner, &result);
    return result;
  }
  block->refs++;
  const napi_status status = napi_create_external_arraybuffer(
      env, block->data, block->length,
      [](napi_env, void*, void* hint) { drop_block(static_cast<Block*>(hint)); }, block, &result);
  if (status == napi_ok) return result;
  block->refs--;
  return c.fail("this runtime allows no ArrayBuffer over native memory");
}

napi_value transfer(napi_env env, napi_callback_info info, bool out) {
  Call c(env, info);
  Block* block = c.block(0);
  char* data = nullptr;
  size_t length = 0;
  const double offset = c.number(1);
  if (!block || !c.bytes(2, &data, &length)) return c.fail("expected a buffer, an offset and bytes");
  if (!(offset >= 0) || offset + double(length) > double(block->length))
    return c.fail("the bytes are outside the buffer");
  if (length == 0) return nullptr;
  if (out)
    std::memcpy(data, block->data + size_t(offset), length);
  else
    std::memcpy(block->data + size_t(offset), data, length);
  return nullptr;
}
// read(buffer, offset, into), write(buffer, offset, from)
napi_value read_buffer(napi_env env, napi_callback_info info) { return transfer(env, info, true); }
napi_value write_buffer(napi_env env, napi_callback_info info) { return transfer(env, info, false); }

// address(buffer) → bigint
napi_value address(napi_env env, napi_callback_info info) {
  Call c(env, info);
  Block* block = c.block(0);
  if (!block) return c.fail("there is no such buffer");
  napi_value result;
  napi_create_bigint_uint64(env, reinterpret_cast<uint64_t>(block->data), &result);
  return result;
}

// loadLibrary(path, symbol) → [{ name, id, maxThreads }]
napi_value load_library(napi_env env, napi_callback_info info) {
  Call c(env, info);
  char path[4096], symbol[128];
  size_t length = 0;
  if (c.argc < 2 || napi_get_value_string_utf8(env, c.argv[0], path, sizeof path, &length) != napi_ok ||
      napi_get_value_string_utf8(env, c.argv[1], symbol, sizeof symbol, &length) != napi_ok)
    return c.fail("expected a path and a symbol");
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return c.fail(dlerror());
  const Library* library = static_cast<const Library*>(dlsym(handle, symbol));
  if (!library || library->abi != kAbi)
    return c.fail(std::string(path) + " is not a kernel library of this version");
  using Hook = void (*)(const void*, u32, u32);
  Hook* hook = static_cast<Hook*>(dlsym(handle, "lazuli_metal_access"));
  if (hook) *hook = note_access;
  add_kernel_code(library);
  napi_value list;
  napi_create_array_with_length(env, library->count, &list);
  for (u32 i = 0; i < library->count; i++) {
    const Kernel& kernel = library->kernels[i];
    napi_value entry, name;
    napi_create_object(env, &entry);
    napi_create_string_utf8(env, kernel.name, NAPI_AUTO_LENGTH, &name);
    napi_set_named_property(env, entry, "name", name);
    napi_set_named_property(env, entry, "id", c.number_value(double(c.state->tables.kernels.size())));
    napi_set_named_property(env, entry, "maxThreads",
                            c.number_value(kernel.max_threads ? kernel.max_threads : kMaxThreads));
    c.state->tables.kernels.push_back(&kernel);
    if (hook) c.state->tables.checked.insert(&kernel);
    napi_set_element(env, list, i, entry);
  }
  return list;
}

// run(words, count) → null, or [{ word, message }]
napi_value run_words(napi_env env, napi_callback_info info) {
  Call c(env, info);
  char* data = nullptr;
  size_t length = 0;
  if (!c.bytes(0, &data, &length) || c.number(1) * 4 > double(length))
    return c.fail("expected words and their count");
  const std::vector<Failed> failed =
      run_stream(c.state->tables, reinterpret_cast<const uint32_t*>(data), size_t(c.number(1)));
  napi_value result;
  if (failed.empty()) {
    napi_get_null(env, &result);
    return result;
  }
  napi_create_array_with_length(env, failed.size(), &result);
  for (size_t i = 0; i < failed.size(); i++) {
    napi_value entry, message;
    napi_create_object(env, &entry);
    napi_set_named_property(env, entry, "word", c.number_value(double(failed[i].word)));
    napi_create_string_utf8(env, failed[i].message.c_str(), NAPI_AUTO_LENGTH, &message);
    napi_set_named_property(env, entry, "message", message);
    napi_set_element(env, result, uint32_t(i), entry);
  }
  return result;
}

napi_value event_value(napi_env env, napi_callback_info info) {
  Call c(env, info);
  return c.number_value(c.state->tables.events[uint32_t(c.number(0))]);
}
napi_value set_threads(napi_env env, napi_callback_info info) {
  Call c(env, info);
  set_workers(u32(c.number(0)));
  return nullptr;
}
napi_value threads(napi_env env, napi_callback_info info) { return Call(env, info).number_value(workers()); }
// setTimeLimit(seconds)
napi_value time_limit_to(napi_env env, napi_callback_info info) {
  set_time_limit(Call(env, info).number(0));
  return nullptr;
}
// traffic() → [loads, stores, distinct loads, distinct stores] of checked kernels, in bytes, since the last
// call
napi_value traffic(napi_env env, napi_callback_info info) {
  Call c(env, info);
  const Traffic t = take_traffic();
  napi_value list;
  napi_create_array_with_length(env, 4, &list);
  const uint64_t values[] = {t.loads, t.stores, t.distinct_loads, t.distinct_stores};
  for (uint32_t i = 0; i < 4; i++) napi_set_element(env, list, i, c.number_value(double(values[i])));
  return list;
}
// The version of these functions and of the commands, which src/host-native.ts states too: raise both
// together.
constexpr int kProtocol = 3;

napi_value protocol(napi_env env, napi_callback_info info) { return Call(env, info).number_value(kProtocol); }
napi_value abi(napi_env env, napi_callback_info info) { return Call(env, info).number_value(kAbi); }

void forget(napi_env env, void* data, void*) {
  State* s = static_cast<State*>(data);
  for (size_t i = 0; i < s->tables.buffers.size(); i++)
    if (s->tables.buffers[i]) drop_block(s->tables.buffers[i]);
  for (napi_ref owner : s->owners)
    if (owner) napi_delete_reference(env, owner);
  delete s;
}

napi_value init(napi_env env, napi_value exports) {
  napi_set_instance_data(env, new State, forget, nullptr);
  const struct {
    const char* name;
    napi_callback call;
  } functions[] = {{"newBuffer", new_buffer},
                   {"borrowBuffer", borrow_buffer},
                   {"borrowAddress", borrow_address},
                   {"freeBuffer", free_buffer},
                   {"contents", contents},
                   {"read", read_buffer},
                   {"write", write_buffer},
                   {"address", address},
                   {"loadLibrary", load_library},
                   {"run", run_words},
                   {"eventValue", event_value},
                   {"setThreads", set_threads},
                   {"threads", threads},
                   {"setTimeLimit", time_limit_to},
                   {"traffic", traffic},
                   {"abi", abi},
                   {"protocol", protocol}};
  for (const auto& f : functions) {
    napi_value value;
    napi_create_function(env, f.name, NAPI_AUTO_LENGTH, f.call, nullptr, &value);
    napi_set_named_property(env, exports, f.name, value);
  }
  return exports;
}

}  // namespace
}  // namespace lz

NAPI_MODULE_INIT() { return lz::init(env, exports); }
