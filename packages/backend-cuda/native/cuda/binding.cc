// The Node-API face of the CUDA driver. Buffers, modules and kernels are numbers of one isolate; nothing else
// knows JavaScript.
#include <node_api.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "cuda/compiler.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/handles.h"
#include "cuda/products.h"

namespace lz {
namespace {

constexpr int kProtocol = 4;

// Arguments and the isolate's GPU; `fail` throws.
struct Call {
  napi_env env;
  napi_value argv[6];
  size_t argc = 6;
  Gpu* gpu = nullptr;
  explicit Call(napi_env e) : env(e), argc(0) {}
  Call(napi_env e, napi_callback_info info) : env(e) {
    for (napi_value& v : argv) v = nullptr;
    napi_get_cb_info(e, info, &argc, argv, nullptr, nullptr);
    void* data = nullptr;
    napi_get_instance_data(e, &data);
    gpu = static_cast<Gpu*>(data);
  }
  napi_value fail(const std::string& message, const char* code = "ERR_LAZULI_NATIVE") const {
    napi_throw_error(env, code, message.c_str());
    return nullptr;
  }
  napi_value done(const std::string& error) const { return error.empty() ? nullptr : fail(error); }
  double number(size_t i) const {
    double d = 0;
    if (i < argc) napi_get_value_double(env, argv[i], &d);
    return d;
  }
  std::string string_of(napi_value v) const {
    size_t length = 0;
    if (napi_get_value_string_utf8(env, v, nullptr, 0, &length) != napi_ok) return {};
    std::string s(length + 1, '\0');
    napi_get_value_string_utf8(env, v, s.data(), s.size(), &length);
    s.resize(length);
    return s;
  }
  std::string text(size_t i) const { return i < argc ? string_of(argv[i]) : std::string(); }
  std::vector<std::string> texts(size_t i) const {
    uint32_t length = 0;
    std::vector<std::string> all;
    if (i >= argc || napi_get_array_length(env, argv[i], &length) != napi_ok) return all;
    for (uint32_t k = 0; k < length; k++) {
      napi_value v;
      napi_get_element(env, argv[i], k, &v);
      all.push_back(string_of(v));
    }
    return all;
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
  napi_value value(double d) const {
    napi_value v;
    napi_create_double(env, d, &v);
    return v;
  }
  napi_value value(const std::string& s) const {
    napi_value v;
    napi_create_string_utf8(env, s.data(), s.size(), &v);
    return v;
  }
  napi_value object() const {
    napi_value v;
    napi_create_object(env, &v);
    return v;
  }
  template <class T>
  void set(napi_value to, const char* name, const T& from) const {
    napi_set_named_property(env, to, name, value(from));
  }
};

napi_value protocol(napi_env env, napi_callback_info info) { return Call(env, info).value(kProtocol); }

// openDriver(candidates) → its path
napi_value open_driver_call(napi_env env, napi_callback_info info) {
  Call c(env, info);
  std::string path;
  const std::string error = open_driver(c.texts(0), &path);
  return error.empty() ? c.value(path) : c.fail(error);
}

napi_value facts_object(const Call& c, const Facts& facts) {
  napi_value made = c.object();
  c.set(made, "name", facts.name);
  c.set(made, "driver", facts.driver);
  c.set(made, "major", facts.major);
  c.set(made, "minor", facts.minor);
  c.set(made, "processors", facts.processors);
  c.set(made, "warp", facts.warp);
  c.set(made, "maxThreads", facts.max_threads);
  c.set(made, "maxShared", facts.max_shared);
  c.set(made, "memory", double(facts.memory));
  return made;
}

// openDevice(ordinal) → facts
napi_value open_device(napi_env env, napi_callback_info info) {
  Call c(env, info);
  if (!driver()) return c.fail("the driver has not been opened");
  if (c.gpu->is_open()) return c.fail("a device is open already");
  Facts facts;
  if (const std::string error = c.gpu->open(driver(), int(c.number(0)), &facts); !error.empty())
    return c.fail(error);
  return facts_object(c, facts);
}

// devices() → [facts]; empty where the driver shows none
napi_value devices(napi_env env, napi_callback_info info) {
  Call c(env, info);
  if (!driver()) return c.fail("the driver has not been opened");
  std::vector<Facts> all;
  if (const std::string error = list_devices(*driver(), &all); !error.empty()) return c.fail(error);
  napi_value made;
  napi_create_array(env, &made);
  for (uint32_t i = 0; i < all.size(); i++) napi_set_element(env, made, i, facts_object(c, all[i]));
  return made;
}

// openCompiler(candidates) → { path, major, minor }
napi_value open_compiler_call(napi_env env, napi_callback_info info) {
  Call c(env, info);
  std::string path;
  int major = 0, minor = 0;
  const std::string error = open_compiler(c.texts(0), &path, &major, &minor);
  if (!error.empty()) return c.fail(error);
  napi_value made = c.object();
  c.set(made, "path", path);
  c.set(made, "major", major);
  c.set(made, "minor", minor);
  return made;
}

// openProducts(candidates) → its path
napi_value open_products_call(napi_env env, napi_callback_info info) {
  Call c(env, info);
  std::string path;
  const std::string error = open_products(c.texts(0), &path);
  return error.empty() ? c.value(path) : c.fail(error);
}

// openConvolutions(candidates) → its path
napi_value open_convolutions_call(napi_env env, napi_callback_info info) {
  Call c(env, info);
  std::string path;
  const std::string error = open_convolutions(c.texts(0), &path);
  return error.empty() ? c.value(path) : c.fail(error);
}

// convolvable(words) → boolean
napi_value convolvable(napi_env env, napi_callback_info info) {
  Call c(env, info);
  char* data;
  size_t length;
  Convolution work;
  if (!c.bytes(0, &data, &length) || length != sizeof work) return c.fail("needs the words of a convolution");
  std::memcpy(&work, data, sizeof work);
  napi_value made;
  napi_get_boolean(env, c.gpu->convolvable(work), &made);
  return made;
}

struct Task {
  Compilation compilation;
  napi_async_work work = nullptr;
  napi_deferred deferred = nullptr;
};

napi_value outcome(const Call& c, const Compilation& compilation) {
  napi_value made = c.object(), code;
  c.set(made, "log", compilation.log);
  if (compilation.ok) {
    void* data = nullptr;
    napi_create_buffer_copy(c.env, compilation.code.size(), compilation.code.data(), &data, &code);
  } else
    napi_get_null(c.env, &code);
  napi_set_named_property(c.env, made, "code", code);
  return made;
}

Compilation read_compilation(const Call& c) {
  Compilation work;
  work.source = c.text(0);
  work.name = c.text(1);
  const std::vector<std::string> names = c.texts(2), texts = c.texts(3);
  for (size_t i = 0; i < names.size() && i < texts.size(); i++) work.headers.push_back({names[i], texts[i]});
  work.options = c.texts(4);
  return work;
}

// compile(source, name, header names, header texts, options) → { code, log }
napi_value compile_call(napi_env env, napi_callback_info info) {
  Call c(env, info);
  Compilation work = read_compilation(c);
  compile(work);
  return outcome(c, work);
}

// The same on another thread, as a promise.
napi_value compile_later(napi_env env, napi_callback_info info) {
  Call c(env, info);
  auto task = std::make_unique<Task>();
  task->compilation = read_compilation(c);
  napi_value promise, name = c.value(std::string("lazuli-compile"));
  napi_create_promise(env, &task->deferred, &promise);
  napi_create_async_work(
      env, nullptr, name, [](napi_env, void* data) { compile(static_cast<Task*>(data)->compilation); },
      [](napi_env e, napi_status, void* data) {
        std::unique_ptr<Task> mine(static_cast<Task*>(data));
        napi_resolve_deferred(e, mine->deferred, outcome(Call(e), mine->compilation));
        napi_delete_async_work(e, mine->work);
      },
      task.get(), &task->work);
  napi_queue_async_work(env, task->work);
  task.release();
  return promise;
}

// newBuffer(bytes) → id
napi_value new_buffer(napi_env env, napi_callback_info info) {
  Call c(env, info);
  uint32_t id = 0;
  std::string error;
  const Result r = c.gpu->allocate(size_t(c.number(0)), &id, &error);
  if (r != kSuccess) return c.fail(error, r == kOutOfMemory ? "ERR_LAZULI_MEMORY" : "ERR_LAZULI_NATIVE");
  return c.value(id);
}

napi_value free_buffer(napi_env env, napi_callback_info info) {
  Call c(env, info);
  if (c.gpu->buffer(c.number(0))) c.gpu->release(uint32_t(c.number(0)));
  return nullptr;
}

// The buffer and the bytes of a transfer; says what is wrong with them.
std::string transfer(const Call& c, const Buffer** buffer, size_t* offset, char** data, size_t* length) {
  *buffer = c.gpu->buffer(c.number(0));
  if (!*buffer) return "there is no such buffer";
  if (!c.bytes(2, data, length)) return "needs bytes";
  *offset = size_t(c.number(1));
  if (*offset > (*buffer)->length || *length > (*buffer)->length - *offset)
    return "bytes " + std::to_string(*offset) + " to " + std::to_string(*offset + *length) +
           " are behind the end of a buffer of " + std::to_string((*buffer)->length);
  return {};
}

// read(buffer, offset, into)
napi_value read(napi_env env, napi_callback_info info) {
  Call c(env, info);
  const Buffer* b;
  size_t offset, length;
  char* data;
  std::string error = transfer(c, &b, &offset, &data, &length);
  return c.done(error.empty() ? c.gpu->read(*b, offset, data, length) : error);
}

// write(buffer, offset, from)
napi_value write(napi_env env, napi_callback_info info) {
  Call c(env, info);
  const Buffer* b;
  size_t offset, length;
  char* data;
  std::string error = transfer(c, &b, &offset, &data, &length);
  return c.done(error.empty() ? c.gpu->write(*b, offset, data, length) : error);
}

// memory() → { free, total }
napi_value memory(napi_env env, napi_callback_info info) {
  Call c(env, info);
  size_t free = 0, total = 0;
  if (const std::string error = c.gpu->memory(&free, &total); !error.empty()) return c.fail(error);
  napi_value made = c.object();
  c.set(made, "free", double(free));
  c.set(made, "total", double(total));
  return made;
}

// loadModule(code) → id; PTX must end with a zero
napi_value load_module(napi_env env, napi_callback_info info) {
  Call c(env, info);
  char* data;
  size_t length;
  if (!c.bytes(0, &data, &length)) return c.fail("needs bytes");
  uint32_t id = 0;
  const std::string error = c.gpu->load(data, &id);
  return error.empty() ? c.value(id) : c.fail(error);
}

// newKernel(module, name, [source, index, source, index, …]) → { id, maxThreads }
napi_value new_kernel(napi_env env, napi_callback_info info) {
  Call c(env, info);
  char* data;
  size_t length;
  if (!c.bytes(2, &data, &length)) return c.fail("needs a list of parameters");
  const auto* words = reinterpret_cast<const int32_t*>(data);
  std::vector<Parameter> parameters;
  for (size_t i = 0; i + 1 < length / 4; i += 2)
    parameters.push_back({Source(words[i]), uint32_t(words[i + 1])});
  uint32_t id = 0;
  const std::string error = c.gpu->kernel(uint32_t(c.number(0)), c.text(1), std::move(parameters), &id);
  if (!error.empty()) return c.fail(error);
  napi_value made = c.object();
  c.set(made, "id", id);
  c.set(made, "maxThreads", c.gpu->kernel(id).max_threads);
  return made;
}

// run(words, count) → null, or [{ word, message }]; word −1 concerns the whole stream
napi_value run(napi_env env, napi_callback_info info) {
  Call c(env, info);
  char* data;
  size_t length;
  if (!c.bytes(0, &data, &length)) return c.fail("needs words");
  const size_t count = size_t(c.number(1));
  if (count > length / 4) return c.fail("there are not so many words");
  std::vector<char> copy;
  if (length - count * 4 < kSlack) {
    copy.assign(data, data + count * 4);
    copy.resize(count * 4 + kSlack);
    data = copy.data();
  }
  const std::vector<Failed> failed = c.gpu->run(reinterpret_cast<const uint32_t*>(data), count);
  napi_value made;
  napi_get_null(env, &made);
  if (failed.empty()) return made;
  napi_create_array(env, &made);
  for (uint32_t i = 0; i < failed.size(); i++) {
    napi_value each = c.object();
    c.set(each, "word", failed[i].word == SIZE_MAX ? -1.0 : double(failed[i].word));
    c.set(each, "message", failed[i].message);
    napi_set_element(env, made, i, each);
  }
  return made;
}

// newPlan(words, count, bindings) → id
napi_value new_plan(napi_env env, napi_callback_info info) {
  Call c(env, info);
  size_t length = 0;
  char* data = nullptr;
  const size_t count = size_t(c.number(1));
  if (!c.bytes(0, &data, &length) || count > length / 4) return c.fail("there are not so many words");
  return c.value(
      double(c.gpu->new_plan(reinterpret_cast<const uint32_t*>(data), count, uint32_t(c.number(2)))));
}

napi_value release_plan(napi_env env, napi_callback_info info) {
  Call c(env, info);
  c.gpu->release_plan(c.number(0));
  return nullptr;
}

// synchronize() → null, or what the work failed of
napi_value synchronize(napi_env env, napi_callback_info info) {
  Call c(env, info);
  const std::string error = c.gpu->synchronize();
  napi_value none;
  napi_get_null(env, &none);
  return error.empty() ? none : c.value(error);
}

napi_value init(napi_env env, napi_value exports) {
  napi_set_instance_data(
      env, new Gpu, [](napi_env, void* data, void*) { delete static_cast<Gpu*>(data); }, nullptr);
  const struct {
    const char* name;
    napi_callback call;
  } all[] = {{"protocol", protocol},
             {"openDriver", open_driver_call},
             {"devices", devices},
             {"openDevice", open_device},
             {"openCompiler", open_compiler_call},
             {"openProducts", open_products_call},
             {"openConvolutions", open_convolutions_call},
             {"convolvable", convolvable},
             {"compile", compile_call},
             {"compileLater", compile_later},
             {"newBuffer", new_buffer},
             {"freeBuffer", free_buffer},
             {"read", read},
             {"write", write},
             {"memory", memory},
             {"loadModule", load_module},
             {"newKernel", new_kernel},
             {"run", run},
             {"newPlan", new_plan},
             {"releasePlan", release_plan},
             {"synchronize", synchronize}};
  for (const auto& [name, call] : all) {
    napi_value f;
    napi_create_function(env, name, NAPI_AUTO_LENGTH, call, nullptr, &f);
    napi_set_named_property(env, exports, name, f);
  }
  add_handles(env, exports);
  return exports;
}

}  // namespace
}  // namespace lz

NAPI_MODULE_INIT() { return lz::init(env, exports); }
