// The classes of Metal that the runtime uses, as strict as Metal with its validation on. What they run is run
// by the host executor.
#pragma once

#include <memory>
#include <mutex>
#include <set>

#include "fake/foundation.h"
#include "host/memory.h"
#include "lazuli/metal_host.h"

namespace lz::fake {

constexpr UInteger kPage = 16384;
constexpr UInteger kMaxBuffer = UInteger{1} << 34;

// A kernel's parameters, as its source declares them.
struct Parameter {
  uint32_t index = 0, alignment = 1;
  bool is_written = false, is_optional = false;
};
struct Declared {
  std::string name;
  std::vector<Parameter> buffers;
};
struct DeclaredConstant {
  std::string name;
  UInteger index = 0, type = 0;
};
// A source as its compiler knows it.
struct Compiled {
  std::string problem;
  int number = 0;
  std::vector<Declared> kernels;
  std::vector<DeclaredConstant> constants;
};
struct Loaded {
  std::string problem;
  const lz::Library* library = nullptr;
  bool is_checked = false;
};
// Compiles a source, with a mode of arithmetic; and loads one with values for its constants.
struct Compiler {
  std::function<Compiled(const std::string&, Integer)> compile;
  std::function<Loaded(int, const std::vector<std::pair<UInteger, double>>&)> load;
};
// The calling thread's.
Compiler& compiler();

struct Device : Object {
  static constexpr const char* kName = "MTLDevice";
  Id name();
  Id architecture();
  bool supports_family(Integer family) { return (family >= 1001 && family <= 1009) || family == 5001; }
  bool has_unified_memory() { return true; }
  UInteger max_buffer_length() { return kMaxBuffer; }
  UInteger max_threadgroup_memory_length() { return kThreadgroupBytes; }
  uint64_t recommended_working_set() { return uint64_t{1} << 33; }
  UInteger current_allocated_size();
  Id new_command_queue();
  Id new_fence();
  Id new_shared_event();
  Id new_buffer(UInteger length, UInteger options);
  Id new_buffer_no_copy(const void* bytes, UInteger length, UInteger options, Id deallocator);
  Id new_residency_set(Id descriptor, Id* error);
  Id new_library(Id source, Id options, Id* error);
  Id new_library_with_url(Id url, Id* error);
  Id new_pipeline(Id function, Id* error);
};
struct Architecture : Object {
  static constexpr const char* kName = "MTLArchitecture";
  Id name();
};

// Work that touched a buffer.
struct Work;
struct Access {
  std::shared_ptr<Work> encoder;
  UInteger interval, offset;
  uint64_t dispatch;
  bool writes;
};
struct Buffer : Object {
  static constexpr const char* kName = "MTLBuffer";
  lz::Block* block = nullptr;
  std::vector<Access> accesses;
  std::atomic<int> in_flight{0};
  int residency_sets = 0;
  void* contents() { return block->data; }
  void dealloc() override;
};

struct Options : Object {
  static constexpr const char* kName = "MTLCompileOptions";
  UInteger language = 0;
  Integer mode = 2;  // Metal's own choice
  void set_language(UInteger version);
  void set_mode(Integer m);
  void set_fast(bool on) { mode = on ? 2 : 0; }
};
struct LibraryObject : Object {
  static constexpr const char* kName = "MTLLibrary";
  Compiled compiled;
  Id names();
  Id function(Id name);
  Id function_with(Id name, Id values, Id* error);
  const Declared* find(const std::string& name) const;
};
struct Constant : Object {
  static constexpr const char* kName = "MTLFunctionConstant";
  DeclaredConstant declared;
  UInteger index() { return declared.index; }
  UInteger type() { return declared.type; }
};
struct Values : Object {
  static constexpr const char* kName = "MTLFunctionConstantValues";
  struct Value {
    UInteger type;
    double number;
  };
  std::map<UInteger, Value> all;
  void set(const void* value, UInteger type, UInteger index);
};
struct Function : Object {
  static constexpr const char* kName = "MTLFunction";
  LibraryObject* library = nullptr;
  const Declared* declared = nullptr;
  bool is_special = false;
  const lz::Kernel* kernel = nullptr;
  bool is_checked = false;
  Id constants();
  void dealloc() override { release(library); }
};
struct Pipeline : Object {
  static constexpr const char* kName = "MTLComputePipelineState";
  Declared declared;
  const lz::Kernel* kernel = nullptr;
  bool is_checked = false;
  std::atomic<int> in_flight{0};
  void dealloc() override {
    if (in_flight > 0) violation("an MTLComputePipelineState goes while the GPU uses it");
  }
  UInteger max_threads() { return kernel->max_threads ? kernel->max_threads : kMaxThreads; }
  UInteger width() { return kSimdWidth; }
};

// A time at which the host knew of the end of work; none yet.
constexpr uint64_t kNever = UINT64_MAX;
// An encoder's work, to tell what runs before what. `before` is known while its command buffer runs.
struct Work {
  uint64_t number = 0;
  uint64_t committed_at = 0, observed_at = kNever;
  std::set<std::shared_ptr<Work>> before;
};
using Works = std::set<std::shared_ptr<Work>>;

struct Fence : Object {
  static constexpr const char* kName = "MTLFence";
  Works after;
  const Object* queue = nullptr;  // of the encoder that updated it: between queues it orders nothing
};
struct Event : Object {
  static constexpr const char* kName = "MTLSharedEvent";
  uint64_t value = 0;
  std::map<uint64_t, Works> signals;  // by value: what had ended
  uint64_t known = 0;                 // all that is under way was committed after the host knew of this value
  uint64_t signaled();
  void set(uint64_t v);
  bool wait(uint64_t v, uint64_t milliseconds);
};
struct ResidencyDescriptor : Object {
  static constexpr const char* kName = "MTLResidencySetDescriptor";
};
struct Residency : Object {
  static constexpr const char* kName = "MTLResidencySet";
  std::set<Buffer*> all, pending;
  bool is_changed = false;
  void add(Id allocation);
  void remove(Id allocation);
  void commit() { is_changed = false; }
  void request();
  void end() {}
  void dealloc() override;
};

// One run of a kernel, with everything that it is bound to.
struct Run {
  Pipeline* pipeline;
  struct Bound {
    Buffer* buffer = nullptr;
    UInteger offset = 0;
    std::vector<char> bytes;
  } bound[kBuffers];
  UInteger memory[kBuffers] = {};
  apple::Size grid, group;
  bool in_threads;
};
struct Step {
  enum Kind { kEncoder, kRun, kBarrier, kEnd, kWaitFence, kUpdateFence, kSignal, kWait } kind;
  std::shared_ptr<Work> work;
  std::shared_ptr<Run> run;
  Object* object = nullptr;  // a fence or an event
  uint64_t value = 0;
  bool is_serial = false;
};

struct Queue;
struct Encoder;
struct Commands : Object {
  static constexpr const char* kName = "MTLCommandBuffer";
  Queue* queue = nullptr;
  Encoder* open = nullptr;
  std::vector<Step> steps;
  size_t next = 0;  // step to run
  UInteger state = 0;
  uint64_t committed_at = 0;
  Error* failure = nullptr;
  bool is_lost = false;  // never ends
  std::set<Buffer*> uses;
  std::set<Pipeline*> pipelines;
  void give_back();
  Id encoder(UInteger dispatch_type);
  void signal(Id event, uint64_t value);
  void wait_for(Id event, uint64_t value);
  void commit();
  UInteger status();
  Id error();
  void wait();
  void observe();
  void dealloc() override;
  bool may_encode(const char* what);
};
struct Queue : Object {
  static constexpr const char* kName = "MTLCommandQueue";
  std::vector<Commands*> committed;  // and not ended
  int unended = 0;
  Id command_buffer();
  void add_residency(Id set);
  std::vector<Residency*> sets;
  void dealloc() override;
};
struct Encoder : Object {
  static constexpr const char* kName = "MTLComputeCommandEncoder";
  Commands* commands = nullptr;
  std::shared_ptr<Work> work;
  bool is_serial = false, is_ended = false, has_updated = false;
  Run now{};
  bool usable(const char* what);
  void set_pipeline(Id pipeline);
  void set_buffer(Id buffer, UInteger offset, UInteger index);
  void set_bytes(const void* bytes, UInteger length, UInteger index);
  void set_memory(UInteger length, UInteger index);
  void dispatch_threads(apple::Size grid, apple::Size group) { dispatch(grid, group, true); }
  void dispatch_groups(apple::Size grid, apple::Size group) { dispatch(grid, group, false); }
  void dispatch(apple::Size grid, apple::Size group, bool in_threads);
  void barrier(UInteger scope);
  void wait_fence(Id fence);
  void update_fence(Id fence);
  void end();
  void dealloc() override;
};

struct CaptureDescriptor : Object {
  static constexpr const char* kName = "MTLCaptureDescriptor";
  Id object = nullptr;
  Integer destination = 1;
  std::string path;
  void set_object(Id o) { object = o; }
  void set_destination(Integer d) { destination = d; }
  void set_url(Id url);
};
struct CaptureManager : Object {
  static constexpr const char* kName = "MTLCaptureManager";
  std::string path;
  bool supports(Integer destination);
  bool is_capturing() { return !path.empty(); }
  bool start(Id descriptor, Id* error);
  void stop();
};

// The GPU: runs what was committed when somebody waits for it, or when too much waits for it.
void gpu_take(Commands* commands);
// Waits until `done` says so, or for so many milliseconds; false then.
bool gpu_wait(const std::function<bool()>& done, uint64_t milliseconds);
std::mutex& gpu_mutex();
uint64_t now();
void add_commands();

}  // namespace lz::fake
