// A double of libcuda.so.1 for tests on machines without a GPU: contexts, streams, events, memory and
// launches by the driver's own names. Work on a stream waits until somebody waits for it, so that nothing can
// rely on being done at once; kernels run on the CPU. It is long because it is one list of the driver's
// calls. It stands in for the driver's calls, their order and their failures, not for a GPU's speed or its
// memory model.
//
// LAZULI_CUDA_DOUBLE names failures, separated by commas: no-device, no-memory, launch (every launch fails),
// single-launch (every launch but that of a graph), capture (no stream is captured into a graph), upload (no
// bytes go to the device), lost (the next wait finds that a kernel has destroyed the context), slow (each
// launch takes 20 ms), loading (a module is there once the device has no other work). With `two-devices`
// there are two GPUs. With `skip` launches and libraries' work do nothing, which leaves the host's own time
// to be measured. With `guard` blocks of memory end where a page begins that nobody may touch, but for less
// than 16 bytes, so that access behind them ends the process; with `reverse` the threads, warps and blocks of
// a grid run from the last to the first, so that what needs an order and does not ask for it shows.
// LAZULI_CUDA_DOUBLE_GPU=hopper gives the device Hopper's capability and shared memory. Of a graph, what was
// captured from other streams than the first runs as late as its edges allow, so that a missing one shows.
// LAZULI_CUDA_DOUBLE_GRAPHS names a file that gets a line for each graph: its nodes, those of other streams,
// and those with several successors and with several predecessors.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "double/block.h"

#define LZ_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Pointer = unsigned long long;
enum : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNotFound = 500,
  kNotInCapture = 900,
  kInvalidatedCapture = 901,
  kOtherCapture = 903,
  kUnjoinedCapture = 904,
  kUncaptured = 905,
  kNotReady = 600,
  kUpdateFailed = 910,
  kIllegalAddress = 700,
  kOutOfResources = 701,
};
constexpr size_t kMemory = size_t{1} << 31;

bool asked(const char* failure) {
  const char* all = std::getenv("LAZULI_CUDA_DOUBLE");
  return all && (std::string(",") + all + ",").find(std::string(",") + failure + ",") != std::string::npos;
}

bool skips() {
  static const bool all = asked("skip");
  return all;
}

// Work of a graph; `what` tells one kernel from another.
struct Node {
  std::function<int()> run;
  const void* what;
  std::vector<size_t> before;  // the nodes that it comes after
  bool is_beside;              // of another stream than the capture began with
};
struct StreamState;
struct GraphState {
  std::vector<Node> nodes;
  std::vector<void*> last;             // as handles of nodes: their numbers from 1
  std::vector<StreamState*> captured;  // the streams that it is captured from, the first before the others
};
struct StreamState {
  GraphState* capture = nullptr;
  std::vector<size_t> tails;  // the nodes that the next one comes after
  std::deque<std::function<int()>> steps;
  // The number of steps so far, and of those that are done.
  uint64_t added = 0, done = 0;
};
struct EventState {
  StreamState* stream = nullptr;
  uint64_t step = 0;
  // Recorded in a capture: where that was.
  GraphState* capture = nullptr;
  std::vector<size_t> tails;
};
struct ModuleState {
  const LzKernel* kernels = nullptr;
  int count = 0;
  LzHost* host = nullptr;
};
struct FunctionState {
  const LzKernel* kernel;
  LzHost* host;
  int dynamic_shared = 48 * 1024;
};

std::map<Pointer, size_t> blocks;
size_t used = 0;
int lost = kSuccess;

// True if bytes lie in a block of the device.
bool is_device(Pointer at, size_t n) {
  auto next = blocks.upper_bound(at);
  if (next == blocks.begin()) return false;
  --next;
  return at >= next->first && at + n <= next->first + next->second;
}

// Those that have not ended.
std::set<GraphState*> captures;

// The nodes in an order that their edges allow, in which those of other streams come as late as they can.
std::vector<size_t> late_order(const std::vector<Node>& nodes) {
  std::vector<size_t> order;
  std::vector<bool> is_done(nodes.size());
  std::function<void(size_t)> run = [&](size_t i) {
    if (is_done[i]) return;
    is_done[i] = true;
    for (const size_t before : nodes[i].before) run(before);
    order.push_back(i);
  };
  for (const bool is_beside : {false, true})
    for (size_t i = 0; i < nodes.size(); i++)
      if (nodes[i].is_beside == is_beside) run(i);
  return order;
}

void tell_of(const GraphState& graph) {
  const char* path = std::getenv("LAZULI_CUDA_DOUBLE_GRAPHS");
  FILE* file = path ? std::fopen(path, "a") : nullptr;
  if (!file) return;
  std::vector<int> after(graph.nodes.size());
  size_t beside = 0, forks = 0, joins = 0;
  for (const Node& node : graph.nodes) {
    for (const size_t before : node.before) forks += ++after[before] == 2;
    beside += node.is_beside;
    joins += node.before.size() > 1;
  }
  std::fprintf(file, "%zu %zu %zu %zu\n", graph.nodes.size(), beside, forks, joins);
  std::fclose(file);
}

int add(void* stream, std::function<int()> step, const void* what = nullptr) {
  if (lost) return lost;
  auto* s = static_cast<StreamState*>(stream);
  if (s->capture) {
    auto& nodes = s->capture->nodes;
    nodes.push_back({std::move(step), what, s->tails, s->capture->captured[0] != s});
    s->tails = {nodes.size() - 1};
    return kSuccess;
  }
  s->steps.push_back(std::move(step));
  s->added++;
  return kSuccess;
}
// Runs a stream's steps up to a number of them.
int advance(StreamState* s, uint64_t until) {
  if (asked("lost") && !s->steps.empty()) lost = kIllegalAddress;
  while (s->done < until && !lost) {
    const int result = s->steps.front()();
    if (result == kNotReady) return result;
    s->steps.pop_front();
    s->done++;
    if (result) lost = result;
  }
  return lost;
}

int wait(StreamState* s, uint64_t until) {
  for (;;) {
    const int result = advance(s, until);
    if (result != kNotReady) return result;
    usleep(100);
  }
}

std::set<StreamState*> streams;

// Pages before one that nobody may touch, by the address of the memory at their end.
std::map<Pointer, std::pair<void*, size_t>> guards;
constexpr size_t kPage = 4096;
void* guarded(size_t n) {
  const size_t bytes = (n + kPage - 1) / kPage * kPage;
  void* pages = mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  mprotect(static_cast<char*>(pages) + bytes, kPage, PROT_NONE);
  char* memory = static_cast<char*>(pages) + bytes - (n + 15) / 16 * 16;
  guards[reinterpret_cast<Pointer>(memory)] = {pages, bytes + kPage};
  return memory;
}

int allocate(Pointer* made, size_t n) {
  if (n == 0) return kInvalidValue;
  if (asked("no-memory") || used + n > kMemory) return kOutOfMemory;
  void* memory = asked("guard") ? guarded(n) : std::aligned_alloc(512, (n + 511) / 512 * 512);
  if (!memory) return kOutOfMemory;
  std::memset(memory, 0xff, n);  // NaN
  *made = reinterpret_cast<Pointer>(memory);
  blocks[*made] = n;
  used += n;
  return kSuccess;
}
int release(Pointer p) {
  auto found = blocks.find(p);
  if (found == blocks.end()) return kInvalidValue;
  used -= found->second;
  if (auto guard = guards.find(p); guard != guards.end()) {
    munmap(guard->second.first, guard->second.second);
    guards.erase(guard);
  } else {
    std::free(reinterpret_cast<void*>(p));
  }
  blocks.erase(found);
  return kSuccess;
}

}  // namespace

LZ_EXPORT int cuInit(unsigned) { return asked("no-device") ? kNoDevice : kSuccess; }
LZ_EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
LZ_EXPORT int cuGetErrorName(int result, const char** name) {
  switch (result) {
    case kSuccess:
      *name = "CUDA_SUCCESS";
      break;
    case kInvalidValue:
      *name = "CUDA_ERROR_INVALID_VALUE";
      break;
    case kOutOfMemory:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      break;
    case kNoDevice:
      *name = "CUDA_ERROR_NO_DEVICE";
      break;
    case kInvalidImage:
      *name = "CUDA_ERROR_INVALID_IMAGE";
      break;
    case kNotFound:
      *name = "CUDA_ERROR_NOT_FOUND";
      break;
    case kIllegalAddress:
      *name = "CUDA_ERROR_ILLEGAL_ADDRESS";
      break;
    case kOutOfResources:
      *name = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES";
      break;
    default:
      return kInvalidValue;
  }
  return kSuccess;
}
LZ_EXPORT int cuGetErrorString(int result, const char** text) {
  *text = "from the test double";
  return kSuccess;
}
LZ_EXPORT int cuDeviceGetCount(int* count) {
  *count = asked("two-devices") ? 2 : 1;
  return kSuccess;
}
LZ_EXPORT int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 || (ordinal == 1 && asked("two-devices")) ? kSuccess : kInvalidValue;
}
LZ_EXPORT int cuDeviceGetName(char* name, int size, int) {
  std::strncpy(name, "test double", size_t(size));
  return kSuccess;
}
LZ_EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = kMemory;
  return kSuccess;
}
LZ_EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  const char* model = std::getenv("LAZULI_CUDA_DOUBLE_GPU");
  const bool is_hopper = model && std::strcmp(model, "hopper") == 0;
  switch (attribute) {
    case 1:
      *value = 1024;
      break;
    case 10:
      *value = 32;
      break;
    case 16:
      *value = 1;
      break;
    // A capability that no GPU has, so that nobody's kernels are taken for another's.
    case 75:
      *value = is_hopper ? 9 : 999;
      break;
    case 76:
      *value = 0;
      break;
    // The least that GPUs have since Ampere.
    case 97:
      *value = (is_hopper ? 227 : 99) * 1024;
      break;
    case 115:
      *value = 1;
      break;
    default:
      *value = 0;
  }
  return kSuccess;
}
LZ_EXPORT int cuDevicePrimaryCtxRetain(void** context, int) {
  static int token;
  *context = &token;
  return kSuccess;
}
LZ_EXPORT int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
LZ_EXPORT int cuCtxSetCurrent(void*) { return kSuccess; }
LZ_EXPORT int cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = kMemory - used;
  *total = kMemory;
  return kSuccess;
}
LZ_EXPORT int cuMemAlloc_v2(Pointer* made, size_t n) { return lost ? lost : allocate(made, n); }
LZ_EXPORT int cuMemFree_v2(Pointer p) { return release(p); }
// Allocations have no place in a graph: the double refuses more than the driver does.
bool is_capturing(void* stream) { return static_cast<StreamState*>(stream)->capture != nullptr; }
LZ_EXPORT int cuMemAllocAsync(Pointer* made, size_t n, void* stream) {
  if (is_capturing(stream)) return kNotInCapture;
  return lost ? lost : allocate(made, n);
}
LZ_EXPORT int cuMemFreeAsync(Pointer p, void* stream) {
  if (is_capturing(stream)) return kNotInCapture;
  return add(stream, [p] { return release(p); });
}
LZ_EXPORT int cuMemHostAlloc(void** made, size_t n, unsigned) {
  *made = std::aligned_alloc(4096, (n + 4095) / 4096 * 4096);
  return *made ? kSuccess : kOutOfMemory;
}
LZ_EXPORT int cuMemFreeHost(void* p) {
  std::free(p);
  return kSuccess;
}
LZ_EXPORT int cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t n, void* stream) {
  if (!is_device(to, n)) return kInvalidValue;
  if (asked("upload")) return kOutOfResources;
  return add(stream, [=] {
    std::memcpy(reinterpret_cast<void*>(to), from, n);
    return int(kSuccess);
  });
}
LZ_EXPORT int cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t n, void* stream) {
  if (!is_device(from, n)) return kInvalidValue;
  return add(stream, [=] {
    std::memcpy(to, reinterpret_cast<void*>(from), n);
    return int(kSuccess);
  });
}
LZ_EXPORT int cuStreamCreate(void** stream, unsigned) {
  auto* made = new StreamState;
  streams.insert(made);
  *stream = made;
  return kSuccess;
}
LZ_EXPORT int cuStreamDestroy_v2(void* stream) {
  streams.erase(static_cast<StreamState*>(stream));
  delete static_cast<StreamState*>(stream);
  return kSuccess;
}
LZ_EXPORT int cuStreamSynchronize(void* stream) {
  auto* s = static_cast<StreamState*>(stream);
  return s->capture ? int(kNotInCapture) : wait(s, s->added);
}
LZ_EXPORT int cuStreamQuery(void* stream) {
  auto* s = static_cast<StreamState*>(stream);
  return s->capture ? int(kNotInCapture) : advance(s, s->added);
}
LZ_EXPORT int cuStreamBeginCapture_v2(void* stream, int) {
  auto* s = static_cast<StreamState*>(stream);
  if (s->capture || asked("capture")) return kInvalidValue;
  s->capture = new GraphState;
  s->capture->captured = {s};
  s->tails.clear();
  captures.insert(s->capture);
  return kSuccess;
}
LZ_EXPORT int cuStreamEndCapture(void* stream, void** graph) {
  auto* s = static_cast<StreamState*>(stream);
  GraphState* g = s->capture;
  if (!g || g->captured[0] != s) return kInvalidatedCapture;
  std::vector<bool> is_joined(g->nodes.size());
  for (const size_t tail : s->tails) is_joined[tail] = true;
  bool all = true;
  for (size_t i = g->nodes.size(); i-- > 0;) {
    all = all && is_joined[i];
    for (const size_t before : g->nodes[i].before) is_joined[before] = is_joined[before] || is_joined[i];
  }
  for (StreamState* each : g->captured) each->capture = nullptr;
  captures.erase(g);
  *graph = all ? g : nullptr;
  if (!all) delete g;
  return all ? kSuccess : kUnjoinedCapture;
}
LZ_EXPORT int cuStreamGetCaptureInfo_v2(void* stream, int* status, uint64_t* id, void** graph,
                                        void* const** last, size_t* count) {
  GraphState* g = static_cast<StreamState*>(stream)->capture;
  *status = g ? 1 : 0;
  if (!g) return kSuccess;
  *id = 1;
  *graph = g;
  g->last.clear();
  for (const size_t tail : static_cast<StreamState*>(stream)->tails)
    g->last.push_back(reinterpret_cast<void*>(tail + 1));
  *last = g->last.data();
  *count = g->last.size();
  return kSuccess;
}
LZ_EXPORT int cuStreamGetCaptureInfo_v3(void* stream, int* status, uint64_t* id, void** graph,
                                        void* const** last, const void** edges, size_t* count) {
  *edges = nullptr;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, last, count);
}
LZ_EXPORT int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  if (asked("no-memory")) return kOutOfMemory;
  *exec = new GraphState(*static_cast<GraphState*>(graph));
  tell_of(*static_cast<GraphState*>(graph));
  return kSuccess;
}
// Kernels take other arguments, and nothing else changes.
LZ_EXPORT int cuGraphExecUpdate_v2(void* exec, void* graph, void*) {
  auto &old = static_cast<GraphState*>(exec)->nodes, &made = static_cast<GraphState*>(graph)->nodes;
  if (old.size() != made.size()) return kUpdateFailed;
  for (size_t i = 0; i < old.size(); i++)
    if (old[i].what != made[i].what || old[i].before != made[i].before) return kUpdateFailed;
  old = made;
  return kSuccess;
}
LZ_EXPORT int cuGraphLaunch(void* exec, void* stream) {
  if (asked("launch")) return kOutOfResources;
  const auto& nodes = static_cast<GraphState*>(exec)->nodes;
  for (const size_t i : late_order(nodes))
    if (const int result = add(stream, nodes[i].run)) return result;
  return kSuccess;
}
LZ_EXPORT int cuGraphDestroy(void* graph) {
  delete static_cast<GraphState*>(graph);
  return kSuccess;
}
LZ_EXPORT int cuGraphExecDestroy(void* exec) { return cuGraphDestroy(exec); }
LZ_EXPORT int cuEventCreate(void** event, unsigned) {
  *event = new EventState;
  return kSuccess;
}
LZ_EXPORT int cuEventDestroy_v2(void* event) {
  delete static_cast<EventState*>(event);
  return kSuccess;
}
LZ_EXPORT int cuEventRecord(void* event, void* stream) {
  if (lost) return lost;
  auto* s = static_cast<StreamState*>(stream);
  *static_cast<EventState*>(event) = {s, s->added, s->capture, s->tails};
  return kSuccess;
}
LZ_EXPORT int cuEventSynchronize(void* event) {
  auto* e = static_cast<EventState*>(event);
  return e->stream ? wait(e->stream, e->step) : int(kSuccess);
}
LZ_EXPORT int cuEventQuery(void* event) {
  auto* e = static_cast<EventState*>(event);
  return e->stream ? advance(e->stream, e->step) : int(kSuccess);
}
LZ_EXPORT int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  // Of the event as it is now, whatever is recorded later.
  const EventState e = *static_cast<EventState*>(event);
  auto* s = static_cast<StreamState*>(stream);
  if (e.capture) {
    // The stream becomes one of those that are captured.
    if (captures.count(e.capture) == 0) return kInvalidatedCapture;
    if (s->capture && s->capture != e.capture) return kOtherCapture;
    if (!s->capture) {
      s->capture = e.capture;
      s->tails.clear();
      if (std::find(e.capture->captured.begin(), e.capture->captured.end(), s) == e.capture->captured.end())
        e.capture->captured.push_back(s);
    }
    for (const size_t tail : e.tails)
      if (std::find(s->tails.begin(), s->tails.end(), tail) == s->tails.end()) s->tails.push_back(tail);
    return kSuccess;
  }
  if (s->capture) return kUncaptured;
  return add(stream, [e] { return e.stream ? advance(e.stream, e.step) : int(kSuccess); });
}
// A module is a shared library behind a header, as the double of the compiler makes it.
LZ_EXPORT int cuModuleLoadData(void** module, const void* image) {
  // As CUDA's may wait for the device.
  if (asked("loading"))
    for (StreamState* each : streams) wait(each, each->added);
  uint64_t head[2];
  std::memcpy(head, image, sizeof head);
  if (std::memcmp(head, "LZDOUBLE", 8) != 0) return kInvalidImage;
  const int file = memfd_create("lazuli-kernel", MFD_CLOEXEC);
  if (file < 0 || write(file, static_cast<const char*>(image) + 16, head[1]) != ssize_t(head[1]))
    return kInvalidImage;
  // It stays open: a second library under a number that is free again would be taken for the first.
  void* library = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return kInvalidImage;
  auto* made = new ModuleState;
  made->kernels = static_cast<const LzKernel*>(dlsym(library, "lz_kernels"));
  made->count = *static_cast<const int*>(dlsym(library, "lz_kernel_count"));
  auto** slot = static_cast<LzHost**>(dlsym(library, "lz_host"));
  made->host = new LzHost{};
  lz::prepare_host(made->host);
  *slot = made->host;
  *module = made;
  return kSuccess;
}
LZ_EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  auto* m = static_cast<ModuleState*>(module);
  for (int i = 0; i < m->count; i++)
    if (std::strcmp(m->kernels[i].name, name) == 0) {
      *function = new FunctionState{&m->kernels[i], m->host};
      return kSuccess;
    }
  return kNotFound;
}
LZ_EXPORT int cuFuncGetAttribute(int* value, int attribute, void* function) {
  *value = attribute == 0 ? static_cast<FunctionState*>(function)->kernel->max_threads : 0;
  return kSuccess;
}
LZ_EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute == 8) static_cast<FunctionState*>(function)->dynamic_shared = value;
  return kSuccess;
}
namespace {
// Checks a launch, and makes it work with the arguments as they are now.
int prepare(void* function, const unsigned* g, const unsigned* b, unsigned shared, void** arguments,
            std::function<int()>* work) {
  auto* f = static_cast<FunctionState*>(function);
  const uint64_t threads = uint64_t{b[0]} * b[1] * b[2];
  if (threads > uint64_t(f->kernel->max_threads)) return kOutOfResources;
  if (g[0] == 0 || g[1] == 0 || g[2] == 0 || threads == 0 || g[0] > 0x7fffffffu || g[1] > 65535 ||
      g[2] > 65535 || int(shared) > f->dynamic_shared)
    return kInvalidValue;
  auto values = std::make_shared<std::vector<std::vector<char>>>();
  for (int i = 0; i < f->kernel->count; i++) {
    const char* from = static_cast<const char*>(arguments[i]);
    values->emplace_back(from, from + f->kernel->sizes[i]);
  }
  const bool reversed = asked("reverse");
  *work = [=, gx = g[0], gy = g[1], gz = g[2], bx = b[0], by = b[1], bz = b[2]] {
    std::vector<void*> pointers;
    for (auto& value : *values) pointers.push_back(value.data());
    return lz::run_grid(*f->kernel, f->host, {{gx, gy, gz}, {bx, by, bz}, shared, reversed}, pointers.data())
                   .empty()
               ? int(kSuccess)
               : int(kIllegalAddress);
  };
  return kSuccess;
}

std::function<int()> delayed(std::function<int()> work) {
  using Clock = std::chrono::steady_clock;
  return [work = std::move(work), due = Clock::time_point::max()]() mutable {
    if (due == Clock::time_point::max()) due = Clock::now() + std::chrono::milliseconds(20);
    if (Clock::now() < due) return int(kNotReady);
    due = Clock::time_point::max();
    return work();
  };
}
}  // namespace
LZ_EXPORT int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared, void* stream, void** arguments, void**) {
  if (lost) return lost;
  if (asked("launch") || asked("single-launch")) return kOutOfResources;
  if (skips()) return kSuccess;
  const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  std::function<int()> work;
  if (const int result = prepare(function, grid, block, shared, arguments, &work)) return result;
  if (asked("slow")) work = delayed(std::move(work));
  return add(stream, std::move(work), static_cast<FunctionState*>(function)->kernel);
}
// Of the attributes it knows one, by which a kernel may begin before the one before it has ended: such a
// kernel must wait by itself.
LZ_EXPORT int cuLaunchKernelEx(const void* configuration, void* function, void** arguments, void** extra) {
  struct Attribute {
    int id, unused, value, others[15];
  };
  struct Configuration {
    unsigned grid[3], block[3], shared;
    void* stream;
    const Attribute* attributes;
    unsigned count;
  };
  const auto& c = *static_cast<const Configuration*>(configuration);
  for (unsigned i = 0; i < c.count; i++)
    if (c.attributes[i].id != 6 || !static_cast<FunctionState*>(function)->kernel->waits)
      return kInvalidValue;
  return cuLaunchKernel(function, c.grid[0], c.grid[1], c.grid[2], c.block[0], c.block[1], c.block[2],
                        c.shared, c.stream, arguments, extra);
}
LZ_EXPORT int cuGraphExecKernelNodeSetParams_v2(void* exec, void* node, const void* parameters) {
  struct Parameters {
    void* function;
    unsigned grid[3], block[3], shared;
    void** arguments;
  };
  if (skips()) return kSuccess;
  const auto& p = *static_cast<const Parameters*>(parameters);
  auto& nodes = static_cast<GraphState*>(exec)->nodes;
  const size_t number = reinterpret_cast<size_t>(node);
  if (number == 0 || number > nodes.size()) return kInvalidValue;
  Node& changed = nodes[number - 1];
  if (changed.what != static_cast<FunctionState*>(p.function)->kernel) return kInvalidValue;
  return prepare(p.function, p.grid, p.block, p.shared, p.arguments, &changed.run);
}

// Work of the doubles of CUDA's other libraries, which a graph may run many times; `drop` frees its data.
LZ_EXPORT int lzDoubleWork(void* stream, void (*run)(void*), void (*drop)(void*), void* data) {
  std::shared_ptr<void> held(data, drop);
  if (skips()) return kSuccess;
  return add(
      stream,
      [run, held] {
        run(held.get());
        return int(kSuccess);
      },
      reinterpret_cast<const void*>(run));
}
// Work that waits for other processes: called until it gives 1.
LZ_EXPORT int lzDoublePoll(void* stream, int (*run)(void*), void (*drop)(void*), void* data) {
  std::shared_ptr<void> held(data, drop);
  return add(
      stream, [run, held] { return run(held.get()) ? int(kSuccess) : int(kNotReady); },
      reinterpret_cast<const void*>(run));
}
