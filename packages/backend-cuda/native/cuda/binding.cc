// The Node-API face of the CUDA driver. Buffers, modules and kernels are numbers of one isolate; nothing else
// knows JavaScript.
#include "binding.h"

#include <cstring>
#include <string>
#include <vector>

#include "cuda/compiler.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/factorizations.h"
#include "cuda/handles.h"
#include "cuda/operation_graphs.h"
#include "cuda/products.h"
#include "cuda/transforms.h"

namespace lz {
namespace {

constexpr int kProtocol = 14;
constexpr const char* kExpectedId = "expected the 128 bytes of an id";

Gpu& gpu(Info info) { return *info.Env().GetInstanceData<Gpu>(); }

std::string text(Info info, size_t i) {
  return info[i].IsString() ? info[i].As<Napi::String>().Utf8Value() : std::string();
}
std::vector<std::string> texts(Info info, size_t i) {
  std::vector<std::string> all;
  if (!info[i].IsArray()) return all;
  const Napi::Array list = info[i].As<Napi::Array>();
  for (uint32_t k = 0; k < list.Length(); k++) all.push_back(list.Get(k).ToString());
  return all;
}
void check(Info info, const std::string& problem) {
  if (!problem.empty()) throw error(info.Env(), problem);
}

Napi::Value protocol(Info info) { return Napi::Number::New(info.Env(), kProtocol); }

// openDriver(candidates), openProducts(candidates) and so on → the library's path
template <std::string (*open)(const std::vector<std::string>&, std::string*)>
Napi::Value open_library(Info info) {
  std::string path;
  check(info, open(texts(info, 0), &path));
  return Napi::String::New(info.Env(), path);
}

Napi::Object facts_object(Info info, const Facts& facts) {
  Napi::Object made = Napi::Object::New(info.Env());
  made.Set("name", facts.name);
  made.Set("driver", facts.driver);
  made.Set("major", facts.major);
  made.Set("minor", facts.minor);
  made.Set("processors", facts.processors);
  made.Set("warp", facts.warp);
  made.Set("maxThreads", facts.max_threads);
  made.Set("maxShared", facts.max_shared);
  made.Set("memory", double(facts.memory));
  return made;
}

const Driver& opened(Info info) {
  if (!driver()) throw error(info.Env(), "the driver has not been opened");
  return *driver();
}

// openDevice(ordinal) → facts
Napi::Value open_device(Info info) {
  const Driver& driver = opened(info);
  if (gpu(info).is_open()) throw error(info.Env(), "a device is already open");
  Facts facts;
  check(info, gpu(info).open(&driver, int(number(info, 0)), &facts));
  return facts_object(info, facts);
}

// devices() → [facts]; empty where the driver shows none
Napi::Value devices(Info info) {
  std::vector<Facts> all;
  check(info, list_devices(opened(info), &all));
  Napi::Array made = Napi::Array::New(info.Env(), all.size());
  for (uint32_t i = 0; i < all.size(); i++) made.Set(i, facts_object(info, all[i]));
  return made;
}

// openCompiler(candidates) → { path, major, minor }
Napi::Value open_compiler_call(Info info) {
  std::string path;
  int major = 0, minor = 0;
  check(info, open_compiler(texts(info, 0), &path, &major, &minor));
  Napi::Object made = Napi::Object::New(info.Env());
  made.Set("path", path);
  made.Set("major", major);
  made.Set("minor", minor);
  return made;
}

// newCollectiveId(into)
void new_collective_id_call(Info info) {
  const Bytes into = bytes(info, 0, kExpectedId);
  CollectiveId id;
  if (into.length != sizeof id) throw error(info.Env(), kExpectedId);
  check(info, new_collective_id(&id));
  std::memcpy(into.data, &id, sizeof id);
}

// beginJoin(id, rank, size)
void begin_join(Info info) {
  const Bytes given = bytes(info, 0, kExpectedId);
  CollectiveId id;
  if (given.length != sizeof id) throw error(info.Env(), kExpectedId);
  std::memcpy(&id, given.data, sizeof id);
  check(info, gpu(info).begin_join(id, int(number(info, 1)), int(number(info, 2))));
}

// endJoin(milliseconds) → the communicator's number; undefined where others are missing after that time
Napi::Value end_join(Info info) {
  uint32_t communicator = 0;
  bool done = false;
  check(info, gpu(info).end_join(int(number(info, 0)), &communicator, &done));
  return done ? Napi::Value(Napi::Number::New(info.Env(), communicator)) : info.Env().Undefined();
}

void abort_collectives(Info info) { gpu(info).abort_collectives(); }

// abortCollectivesBy(alarm)
void abort_collectives_by(Info info) { gpu(info).abort_collectives_by(int(number(info, 0))); }

// convolvable(words) → boolean
Napi::Value convolvable(Info info) {
  constexpr const char* expected = "expected the words of a convolution";
  const Bytes words = bytes(info, 0, expected);
  Convolution work;
  if (words.length != sizeof work) throw error(info.Env(), expected);
  std::memcpy(&work, words.data, sizeof work);
  return Napi::Boolean::New(info.Env(), gpu(info).convolvable(work));
}

// openOperationGraphs(candidates) → cuDNN's version
Napi::Value open_operation_graphs_call(Info info) {
  std::string path;
  size_t version = 0;
  check(info, open_operation_graphs(texts(info, 0), &path, &version));
  return Napi::Number::New(info.Env(), double(version));
}

// prepareGraph(words) → its number, or what is wrong
Napi::Value prepare_graph(Info info) {
  const Bytes words = bytes(info, 0, "expected the words of a graph");
  uint32_t id = 0;
  const std::string problem =
      gpu(info).prepare_graph(reinterpret_cast<const int64_t*>(words.data), words.length / 8, &id);
  if (problem.empty()) return Napi::Number::New(info.Env(), id);
  return Napi::String::New(info.Env(), problem);
}

Napi::Object outcome(Napi::Env env, const Compilation& compilation) {
  Napi::Object made = Napi::Object::New(env);
  made.Set("log", compilation.log);
  if (compilation.ok)
    made.Set("code", Napi::Buffer<char>::Copy(env, compilation.code.data(), compilation.code.size()));
  else
    made.Set("code", env.Null());
  return made;
}

Compilation read_compilation(Info info) {
  Compilation work;
  work.source = text(info, 0);
  work.name = text(info, 1);
  const std::vector<std::string> names = texts(info, 2), contents = texts(info, 3);
  for (size_t i = 0; i < names.size() && i < contents.size(); i++)
    work.headers.push_back({names[i], contents[i]});
  work.options = texts(info, 4);
  return work;
}

// compile(source, name, header names, header texts, options) → { code, log }
Napi::Value compile_call(Info info) {
  Compilation work = read_compilation(info);
  compile(work);
  return outcome(info.Env(), work);
}

// The same on another thread, as a promise.
class Compiling : public Napi::AsyncWorker {
 public:
  explicit Compiling(Info info)
      : AsyncWorker(info.Env(), "lazuli-compile"),
        work_(read_compilation(info)),
        promise_(Napi::Promise::Deferred::New(info.Env())) {}
  Napi::Promise promise() const { return promise_.Promise(); }
  void Execute() override { compile(work_); }
  void OnOK() override { promise_.Resolve(outcome(Env(), work_)); }

 private:
  Compilation work_;
  Napi::Promise::Deferred promise_;
};
Napi::Value compile_later(Info info) {
  auto* work = new Compiling(info);  // deletes itself
  const Napi::Promise promise = work->promise();
  work->Queue();
  return promise;
}

// newBuffer(bytes, bytes of a part) → id
Napi::Value new_buffer(Info info) {
  uint32_t id = 0;
  std::string problem;
  const Result r = gpu(info).allocate(size_t(number(info, 0)), uint32_t(number(info, 1)), &id, &problem);
  if (r != kSuccess)
    throw error(info.Env(), problem, r == kOutOfMemory ? "ERR_LAZULI_MEMORY" : "ERR_LAZULI_NATIVE");
  return Napi::Number::New(info.Env(), id);
}

void free_buffer(Info info) {
  if (gpu(info).buffer(number(info, 0))) gpu(info).release(uint32_t(number(info, 0)));
}

struct Transfer {
  const Buffer& buffer;
  size_t offset;
  Bytes bytes;
};
Transfer transfer(Info info) {
  const Buffer* buffer = gpu(info).buffer(number(info, 0));
  if (!buffer) throw error(info.Env(), "there is no such buffer");
  const Bytes b = bytes(info, 2, "expected a buffer, an offset and bytes");
  const size_t offset = size_t(number(info, 1));
  if (offset > buffer->length || b.length > buffer->length - offset)
    throw error(info.Env(), "bytes " + std::to_string(offset) + " to " + std::to_string(offset + b.length) +
                                " are beyond the end of a buffer of " + std::to_string(buffer->length));
  return {*buffer, offset, b};
}
// read(buffer, offset, into, isDone), write(buffer, offset, from)
void read(Info info) {
  const Transfer t = transfer(info);
  check(info, gpu(info).read(t.buffer, t.offset, t.bytes.data, t.bytes.length, number(info, 3) != 0));
}
void write(Info info) {
  const Transfer t = transfer(info);
  check(info, gpu(info).write(t.buffer, t.offset, t.bytes.data, t.bytes.length));
}

// memory() → { free, total }
Napi::Value memory(Info info) {
  size_t free = 0, total = 0;
  check(info, gpu(info).memory(&free, &total));
  Napi::Object made = Napi::Object::New(info.Env());
  made.Set("free", double(free));
  made.Set("total", double(total));
  return made;
}

// loadModule(code) → id; PTX must end with a zero
Napi::Value load_module(Info info) {
  uint32_t id = 0;
  check(info, gpu(info).load(bytes(info, 0, "expected code").data, &id));
  return Napi::Number::New(info.Env(), id);
}

// newKernel(module, name, [source, index, source, index, …], waits) → { id, maxThreads }
Napi::Value new_kernel(Info info) {
  const Bytes list = bytes(info, 2, "expected a list of parameters");
  const auto* words = reinterpret_cast<const int32_t*>(list.data);
  std::vector<Parameter> parameters;
  for (size_t i = 0; i + 1 < list.length / 4; i += 2)
    parameters.push_back({Source(words[i]), uint32_t(words[i + 1])});
  uint32_t id = 0;
  check(info, gpu(info).kernel(uint32_t(number(info, 0)), text(info, 1), std::move(parameters),
                               info[3].ToBoolean(), &id));
  Napi::Object made = Napi::Object::New(info.Env());
  made.Set("id", id);
  made.Set("maxThreads", gpu(info).kernel(id).max_threads);
  return made;
}

struct Words {
  const uint32_t* data;
  size_t count, length;
};
Words words(napi_env env, napi_value given, napi_value count) {
  constexpr const char* expected = "expected words and their count";
  const Bytes b = bytes(env, given, expected);
  double n = -1;
  napi_get_value_double(env, count, &n);
  if (!(n >= 0 && n * 4 <= double(b.length))) throw error(env, expected);
  return {reinterpret_cast<const uint32_t*>(b.data), size_t(n), b.length / 4};
}

// run(words, count) → null, or [{ word, message }]; word −1 concerns the whole stream. A function of
// Node-API: every evaluation calls it, and the wrapper's takes a tenth longer.
napi_value run(napi_env env, napi_callback_info info) {
  return Napi::details::WrapCallback(env, [&]() -> napi_value {
    size_t argc = 2;
    napi_value argv[2];
    void* gpu = nullptr;
    napi_get_cb_info(env, info, &argc, argv, nullptr, &gpu);
    const Words given = words(env, argv[0], argv[1]);
    const uint32_t* data = given.data;
    std::vector<uint32_t> copy;
    if ((given.length - given.count) * 4 < kSlack) {
      copy.assign(data, data + given.count);
      copy.resize(given.count + kSlack / 4);
      data = copy.data();
    }
    const std::vector<Failed> failed = static_cast<Gpu*>(gpu)->run(data, given.count);
    if (failed.empty()) return Napi::Env(env).Null();
    Napi::Array made = Napi::Array::New(env, failed.size());
    for (uint32_t i = 0; i < failed.size(); i++) {
      Napi::Object each = Napi::Object::New(env);
      each.Set("word", failed[i].word == SIZE_MAX ? -1.0 : double(failed[i].word));
      each.Set("message", failed[i].message);
      made.Set(i, each);
    }
    return made;
  });
}

// newPlan(words, count, sizes, inputs, stage) → id
Napi::Value new_plan(Info info) {
  const Words given = words(info.Env(), info[0], info[1]);
  const auto sizes = info[2].As<Napi::Uint32Array>();
  const uint32_t inputs = uint32_t(number(info, 3));
  const uint32_t id =
      gpu(info).new_plan(given.data, given.count, sizes.Data(), uint32_t(sizes.ElementLength()), inputs,
                         inputs, uint32_t(number(info, 4)));
  return Napi::Number::New(info.Env(), double(id));
}
// wantsStage() → true once a stream has repeated so often that it needs the kernel; giveStage(stage), or −1
// where there is none
Napi::Value wants_stage(Info info) { return Napi::Boolean::New(info.Env(), gpu(info).wants_stage()); }
void give_stage(Info info) {
  const double stage = number(info, 0);
  gpu(info).give_stage(stage < 0 ? Repeats::kNone : uint32_t(stage));
}
// stagedRuns() → number
Napi::Value staged_runs(Info info) { return Napi::Number::New(info.Env(), gpu(info).staged_runs()); }
void release_plan(Info info) { gpu(info).release_plan(number(info, 0)); }

// synchronize(stream[, milliseconds]) → null, or what the work failed of; −1 waits for all streams; undefined
// where there is work left after that time
Napi::Value synchronize(Info info) {
  bool done = true;
  const std::string problem = info.Length() > 1
                                  ? gpu(info).synchronize(number(info, 0), int(number(info, 1)), &done)
                                  : gpu(info).synchronize(number(info, 0));
  if (!done) return info.Env().Undefined();
  if (problem.empty()) return info.Env().Null();
  return Napi::String::New(info.Env(), problem);
}

// newMark() → id
Napi::Value new_mark(Info info) {
  uint32_t id = 0;
  check(info, gpu(info).new_mark(&id));
  return Napi::Number::New(info.Env(), id);
}
// lookAtMark(id, milliseconds) → true once it is passed, null where it is not by then, false where the work
// failed; a negative time is without end
Napi::Value look_at_mark(Info info) {
  const Result r = gpu(info).look_at_mark(number(info, 0), int(number(info, 1)));
  if (r == kNotReady) return info.Env().Null();
  return Napi::Boolean::New(info.Env(), r == kSuccess);
}
void free_mark(Info info) { gpu(info).free_mark(number(info, 0)); }

// verdicts() → the run, the word and the verdict of each command that had no result, of work that is done
Napi::Value verdicts(Info info) {
  Napi::Array made = Napi::Array::New(info.Env());
  uint32_t i = 0;
  for (const auto& [run, word, verdict] : gpu(info).verdicts()) {
    made.Set(i++, run);
    made.Set(i++, double(word));
    made.Set(i++, verdict);
  }
  return made;
}

Napi::Object init(Napi::Env env, Napi::Object exports) {
  auto* gpu = new Gpu;
  env.SetInstanceData(gpu);
  const auto add = [&](const char* name, auto call) {
    exports.Set(name, Napi::Function::New(env, call, name));
  };
  add("protocol", protocol);
  add("openDriver", open_library<open_driver>);
  add("devices", devices);
  add("openDevice", open_device);
  add("openCompiler", open_compiler_call);
  add("openProducts", open_library<open_products>);
  add("openConvolutions", open_library<open_convolutions>);
  add("openTransforms", open_library<open_transforms>);
  add("openFactorizations", open_library<open_factorizations>);
  add("openCollectives", open_library<open_collectives>);
  add("newCollectiveId", new_collective_id_call);
  add("beginJoin", begin_join);
  add("endJoin", end_join);
  add("abortCollectives", abort_collectives);
  add("abortCollectivesBy", abort_collectives_by);
  add("convolvable", convolvable);
  add("openOperationGraphs", open_operation_graphs_call);
  add("prepareGraph", prepare_graph);
  add("compile", compile_call);
  add("compileLater", compile_later);
  add("newBuffer", new_buffer);
  add("freeBuffer", free_buffer);
  add("read", read);
  add("write", write);
  add("memory", memory);
  add("loadModule", load_module);
  add("newKernel", new_kernel);
  add("newPlan", new_plan);
  add("releasePlan", release_plan);
  add("wantsStage", wants_stage);
  add("giveStage", give_stage);
  add("stagedRuns", staged_runs);
  add("synchronize", synchronize);
  add("newMark", new_mark);
  add("lookAtMark", look_at_mark);
  add("freeMark", free_mark);
  add("verdicts", verdicts);
  napi_value function;
  napi_create_function(env, "run", NAPI_AUTO_LENGTH, run, gpu, &function);
  exports.Set("run", function);
  add_handles(env, exports);
  return exports;
}

}  // namespace
}  // namespace lz

static Napi::Object Start(Napi::Env env, Napi::Object exports) { return lz::init(env, exports); }
NODE_API_MODULE(lazuli_cuda, Start)
