// The calls of CUDA's driver that this addon uses, declared here: no header of CUDA is needed. The library is
// opened when it is first asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lz {

using Result = int;  // CUresult
using Device = int;
using DevicePointer = unsigned long long;
using Context = void*;
using Stream = void*;
using Event = void*;
using Module = void*;
using Function = void*;
using Graph = void*;
using GraphExec = void*;
using GraphNode = void*;

constexpr Result kSuccess = 0;
constexpr Result kOutOfMemory = 2;
constexpr Result kNotReady = 600;

// CUdevice_attribute
enum Attribute : int {
  kMaxThreads = 1,
  kWarpSize = 10,
  kClockRate = 13,
  kProcessors = 16,
  kMajor = 75,
  kMinor = 76,
  kSharedOptIn = 97,
  kMemoryPools = 115,
};
// CUfunction_attribute
enum FunctionAttribute : int { kFunctionMaxThreads = 0, kFunctionMaxDynamicShared = 8 };
constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING
constexpr unsigned kDisableTiming = 2;  // CU_EVENT_DISABLE_TIMING
constexpr int kCaptureRelaxed = 2;      // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr size_t kSharedByDefault = 48 * 1024;

#define LZ_DRIVER_CALLS(X)                                                                                \
  X(Init, "cuInit", unsigned)                                                                             \
  X(DriverGetVersion, "cuDriverGetVersion", int*)                                                         \
  X(GetErrorName, "cuGetErrorName", Result, const char**)                                                 \
  X(GetErrorString, "cuGetErrorString", Result, const char**)                                             \
  X(DeviceGetCount, "cuDeviceGetCount", int*)                                                             \
  X(DeviceGet, "cuDeviceGet", Device*, int)                                                               \
  X(DeviceGetName, "cuDeviceGetName", char*, int, Device)                                                 \
  X(DeviceTotalMem, "cuDeviceTotalMem_v2", size_t*, Device)                                               \
  X(DeviceGetAttribute, "cuDeviceGetAttribute", int*, int, Device)                                        \
  X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", Context*, Device)                                 \
  X(DevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", Device)                                      \
  X(CtxSetCurrent, "cuCtxSetCurrent", Context)                                                            \
  X(MemGetInfo, "cuMemGetInfo_v2", size_t*, size_t*)                                                      \
  X(MemAlloc, "cuMemAlloc_v2", DevicePointer*, size_t)                                                    \
  X(MemFree, "cuMemFree_v2", DevicePointer)                                                               \
  X(MemAllocAsync, "cuMemAllocAsync", DevicePointer*, size_t, Stream)                                     \
  X(MemFreeAsync, "cuMemFreeAsync", DevicePointer, Stream)                                                \
  X(MemHostAlloc, "cuMemHostAlloc", void**, size_t, unsigned)                                             \
  X(MemFreeHost, "cuMemFreeHost", void*)                                                                  \
  X(MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", DevicePointer, const void*, size_t, Stream)                  \
  X(MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", void*, DevicePointer, size_t, Stream)                        \
  X(StreamCreate, "cuStreamCreate", Stream*, unsigned)                                                    \
  X(StreamDestroy, "cuStreamDestroy_v2", Stream)                                                          \
  X(StreamSynchronize, "cuStreamSynchronize", Stream)                                                     \
  X(StreamWaitEvent, "cuStreamWaitEvent", Stream, Event, unsigned)                                        \
  X(StreamQuery, "cuStreamQuery", Stream)                                                                 \
  X(EventCreate, "cuEventCreate", Event*, unsigned)                                                       \
  X(EventDestroy, "cuEventDestroy_v2", Event)                                                             \
  X(EventRecord, "cuEventRecord", Event, Stream)                                                          \
  X(EventSynchronize, "cuEventSynchronize", Event)                                                        \
  X(EventQuery, "cuEventQuery", Event)                                                                    \
  X(ModuleLoadData, "cuModuleLoadData", Module*, const void*)                                             \
  X(ModuleGetFunction, "cuModuleGetFunction", Function*, Module, const char*)                             \
  X(FuncGetAttribute, "cuFuncGetAttribute", int*, int, Function)                                          \
  X(FuncSetAttribute, "cuFuncSetAttribute", Function, int, int)                                           \
  X(LaunchKernel, "cuLaunchKernel", Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
    unsigned, Stream, void**, void**)

// CUgraphExecUpdateResultInfo
struct UpdateInfo {
  int result;
  void *node, *from;
};

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNode {
  Function function;
  unsigned grid[3], block[3], shared;
  void **arguments, **extra;
  void *kernel, *context;
};

// Calls of CUDA 12: without them plans are launched kernel by kernel.
#define LZ_GRAPH_CALLS(X)                                                                                  \
  X(StreamBeginCapture, "cuStreamBeginCapture_v2", Stream, int)                                            \
  X(StreamEndCapture, "cuStreamEndCapture", Stream, Graph*)                                                \
  X(StreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2", Stream, int*, uint64_t*, Graph*, const GraphNode**, \
    size_t*)                                                                                               \
  X(GraphInstantiate, "cuGraphInstantiateWithFlags", GraphExec*, Graph, unsigned long long)                \
  X(GraphExecUpdate, "cuGraphExecUpdate_v2", GraphExec, Graph, UpdateInfo*)                                \
  X(GraphExecSetKernel, "cuGraphExecKernelNodeSetParams_v2", GraphExec, GraphNode, const KernelNode*)      \
  X(GraphLaunch, "cuGraphLaunch", GraphExec, Stream)                                                       \
  X(GraphDestroy, "cuGraphDestroy", Graph)                                                                 \
  X(GraphExecDestroy, "cuGraphExecDestroy", GraphExec)

// CUlaunchAttribute and CUlaunchConfig
struct LaunchAttribute {
  int id, unused;
  union {
    int is_allowed;
    uint64_t words[8];
  } value;
};
constexpr int kLaunchAhead = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  Stream stream;
  const LaunchAttribute* attributes;
  unsigned count;
};

// Calls of CUDA 12.3: without them kernels of a graph are launched at the end of those before.
#define LZ_AHEAD_CALLS(X)                                                                                   \
  X(LaunchKernelEx, "cuLaunchKernelEx", const LaunchConfig*, Function, void**, void**)                      \
  X(StreamGetCaptureEdges, "cuStreamGetCaptureInfo_v3", Stream, int*, uint64_t*, Graph*, const GraphNode**, \
    const void**, size_t*)

struct Driver {
#define LZ_MEMBER(name, symbol, ...) Result (*name)(__VA_ARGS__) = nullptr;
  LZ_DRIVER_CALLS(LZ_MEMBER)
  LZ_GRAPH_CALLS(LZ_MEMBER)
  LZ_AHEAD_CALLS(LZ_MEMBER)
#undef LZ_MEMBER
  // True where it has all calls of graphs, and those of launches ahead.
  bool graphs = false, ahead = false;

  // `CUDA_ERROR_X (what it means)`.
  std::string describe(Result result) const;
};

// The first library that opens, of several names and folders; `problems` says of each why it does not.
void* open_first(const std::vector<std::string>& candidates, std::string* path, std::string* problems);

// The functions of a library, looked for by name.
struct Symbols {
  void* library;
  // The names that it does not have, separated by commas.
  std::string missing;

  template <class Call>
  void bind(Call& call, const char* name) {
    call = reinterpret_cast<Call>(find(name));
  }

 private:
  void* find(const char* name);
};

// A library that the process opens once. Table has a `path` and the functions that are looked for by name.
template <class Table>
class OpenedLibrary {
 public:
  // Null before it is opened.
  const Table* get() {
    std::lock_guard<std::mutex> lock(mutex_);
    return table_.get();
  }
  // Opens the first of the candidates that is there, whose functions `bind` looks for. Gives what is wrong.
  template <class Bind>
  std::string open(const std::vector<std::string>& candidates, std::string* path, Bind bind) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!table_) {
      std::string problems;
      auto table = std::make_unique<Table>();
      void* found = open_first(candidates, &table->path, &problems);
      if (!found) return problems;
      Symbols symbols{found, {}};
      bind(*table, symbols);
      if (!symbols.missing.empty()) return table->path + " has no " + symbols.missing;
      table_ = std::move(table);
    }
    *path = table_->path;
    return {};
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Table> table_;
};

// The process's driver, once it has been opened; null before.
const Driver* driver();
// Opens it. Returns what is wrong, or an empty string.
std::string open_driver(const std::vector<std::string>& candidates, std::string* path);

}  // namespace lz
