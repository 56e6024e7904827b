#include "cuda/operation_graphs.h"

#include <cstring>
#include <type_traits>

namespace lz {
namespace {

constexpr size_t kMostWorkspace = size_t{1} << 30;
constexpr int kAxes = 4, kEngines = 8;
constexpr int64_t kAlignment = 16;

// cudnnBackendDescriptorType_t
enum : int {
  kPointwise = 0,
  kEngineConfiguration = 3,
  kHeuristics = 4,
  kPlan = 5,
  kPointwiseOperation = 13,
  kGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
};
// cudnnBackendAttributeType_t
enum : int {
  kHandleType = 0,
  kDataType = 1,
  kBoolean = 2,
  kInteger = 3,
  kPointer = 6,
  kHeuristicsMode = 8,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReductionOperator = 18,
};
constexpr int kModeA = 3;  // CUDNN_HEUR_MODE_A
// cudnnDataType_t of scalars
enum : int { kFloat32 = 0, kInt32 = 4 };
// Kinds of tensors and of operations, in a graph's words.
enum : int64_t { kArray = 0, kVirtual = 1, kScalar = 2 };
enum : int64_t { kElementwise = 0, kProduct = 1, kFold = 2, kReshape = 3 };
constexpr size_t kTensorWords = 3 + 2 * kAxes, kOperationWords = 8;
constexpr int64_t kGenerateIndex = 501;  // CUDNN_POINTWISE_GEN_INDEX

#define LZ_GRAPH_CALLS(X)                                                                  \
  X(Version, "cudnnGetVersion", size_t())                                                  \
  X(Create, "cudnnCreate", int(void**))                                                    \
  X(Destroy, "cudnnDestroy", int(void*))                                                   \
  X(SetStream, "cudnnSetStream", int(void*, Stream))                                       \
  X(GetErrorString, "cudnnGetErrorString", const char*(int))                               \
  X(Describe, "cudnnBackendCreateDescriptor", int(int, void**))                            \
  X(Forget, "cudnnBackendDestroyDescriptor", int(void*))                                   \
  X(Finalize, "cudnnBackendFinalize", int(void*))                                          \
  X(Set, "cudnnBackendSetAttribute", int(void*, int, int, int64_t, const void*))           \
  X(Get, "cudnnBackendGetAttribute", int(const void*, int, int, int64_t, int64_t*, void*)) \
  X(Execute, "cudnnBackendExecute", int(void*, void*, void*))

struct Library {
#define LZ_MEMBER(name, symbol, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  LZ_GRAPH_CALLS(LZ_MEMBER)
#undef LZ_MEMBER
  std::string path;
};

OpenedLibrary<Library> opened;

const Library* library() { return opened.get(); }

std::string failed(const Library& lib, const char* what, int status) {
  return std::string(what) + " failed: " + lib.GetErrorString(status);
}

}  // namespace

std::string open_operation_graphs(const std::vector<std::string>& candidates, std::string* path,
                                  size_t* version) {
  std::string problem = opened.open(candidates, path, [](Library& table, Symbols& symbols) {
#define LZ_BIND(name, symbol, ...) symbols.bind(table.name, symbol);
    LZ_GRAPH_CALLS(LZ_BIND)
#undef LZ_BIND
  });
  if (problem.empty()) *version = opened.get()->Version();
  return problem;
}

// Descriptors of a graph, which its plan outlives; the first failure is remembered.
struct OperationGraphs::Descriptors {
  const Library& lib;
  std::vector<void*> all;
  int status = 0;
  const char* what = "";

  explicit Descriptors(const Library& l) : lib(l) {}
  Descriptors(const Descriptors&) = delete;
  ~Descriptors() {
    for (size_t i = all.size(); i-- > 0;) lib.Forget(all[i]);
  }
  void note(int result, const char* step) {
    if (status || !result) return;
    status = result;
    what = step;
  }
  void* make(int type, const char* step) {
    void* made = nullptr;
    note(lib.Describe(type, &made), step);
    if (made) all.push_back(made);
    return made;
  }
  template <class T>
  void set(void* to, int attribute, int type, const T* values, int64_t count, const char* step) {
    if (!status) note(lib.Set(to, attribute, type, count, values), step);
  }
  template <class T>
  void set(void* to, int attribute, int type, T value, const char* step) {
    set(to, attribute, type, &value, 1, step);
  }
  void finish(void* descriptor, const char* step) {
    if (!status) note(lib.Finalize(descriptor), step);
  }
  void* tensor(const int64_t* w, int64_t id, Prepared* made);
  void* operation(const int64_t* w, const std::vector<void*>& tensors);
};

// A tensor from its words; `made` notes the arrays and scalars among them.
void* OperationGraphs::Descriptors::tensor(const int64_t* w, int64_t id, Prepared* made) {
  const int type = int(w[1]);
  void* t = make(kTensor, "a tensor");
  set(t, 901, kDataType, type, "a tensor's type");
  set(t, 902, kInteger, w + 3, kAxes, "a tensor's sizes");
  set(t, 903, kInteger, w + 3 + kAxes, kAxes, "a tensor's strides");
  set(t, 906, kInteger, id, "a tensor's number");
  set(t, 900, kInteger, kAlignment, "a tensor's alignment");
  if (w[0] == kVirtual) set(t, 907, kBoolean, true, "a tensor in between");
  if (w[0] == kScalar) {
    set(t, 908, kBoolean, true, "a scalar");
    double value;
    std::memcpy(&value, &w[2], sizeof value);
    Scalar scalar{id, 0};
    const float narrow = float(value);
    const int32_t integer = int32_t(value);
    if (type == kInt32)
      std::memcpy(&scalar.bits, &integer, sizeof integer);
    else
      std::memcpy(&scalar.bits, &narrow, sizeof narrow);
    made->scalars.push_back(scalar);
  }
  if (w[0] == kArray) made->arrays.push_back(id);
  finish(t, "a tensor");
  return t;
}

// An operation from its words, which are malformed where it is null and nothing failed.
void* OperationGraphs::Descriptors::operation(const int64_t* w, const std::vector<void*>& tensors) {
  const int64_t kind = w[0], mode = w[1], axis = w[3];
  const int compute = int(w[2]);
  void* of[4] = {};
  for (int k = 0; k < 4; k++) {
    if (w[4 + k] >= int64_t(tensors.size())) return nullptr;
    if (w[4 + k] >= 0) of[k] = tensors[size_t(w[4 + k])];
  }
  const auto [x, b, t, y] = of;
  if (!x || !y) return nullptr;
  void* o = nullptr;
  if (kind == kElementwise) {
    void* pointwise = make(kPointwise, "a pointwise mode");
    set(pointwise, 0, kPointwiseMode, int(mode), "a pointwise mode");
    set(pointwise, 1, kDataType, compute, "its precision");
    if (mode == kGenerateIndex) set(pointwise, 9, kInteger, axis, "its axis");
    finish(pointwise, "a pointwise mode");
    o = make(kPointwiseOperation, "a pointwise operation");
    set(o, 750, kDescriptor, pointwise, "its mode");
    set(o, 751, kDescriptor, x, "its first operand");
    if (b) set(o, 752, kDescriptor, b, "its second operand");
    if (t) set(o, 758, kDescriptor, t, "its third operand");
    set(o, 753, kDescriptor, y, "its result");
  } else if (kind == kProduct) {
    void* matmul = make(kMatmul, "a product");
    set(matmul, 1500, kDataType, compute, "its precision");
    finish(matmul, "a product");
    o = make(kMatmulOperation, "a product's operation");
    set(o, 1520, kDescriptor, x, "its first factor");
    set(o, 1521, kDescriptor, b, "its second factor");
    set(o, 1522, kDescriptor, y, "its result");
    set(o, 1523, kDescriptor, matmul, "its product");
  } else if (kind == kFold) {
    void* reduction = make(kReduction, "a reduction");
    set(reduction, 1600, kReductionOperator, int(mode), "a reduction's operator");
    set(reduction, 1601, kDataType, compute, "its precision");
    finish(reduction, "a reduction");
    o = make(kReductionOperation, "a reduction's operation");
    set(o, 1610, kDescriptor, x, "its operand");
    set(o, 1611, kDescriptor, y, "its result");
    set(o, 1612, kDescriptor, reduction, "its reduction");
  } else if (kind == kReshape) {
    o = make(kReshapeOperation, "a reshape");
    set(o, 2200, kDescriptor, x, "its operand");
    set(o, 2201, kDescriptor, y, "its result");
  } else {
    return nullptr;
  }
  finish(o, "an operation");
  return o;
}

std::string OperationGraphs::build(const int64_t* words, size_t count, Descriptors* all, Prepared* made) {
  if (count < 2) return "the record is malformed";
  const size_t tensors = size_t(words[0]), operations = size_t(words[1]);
  if (tensors > 1000 || operations > 1000 ||
      count != 2 + tensors * kTensorWords + operations * kOperationWords)
    return "the record is malformed";
  Descriptors& d = *all;
  std::vector<void*> tensor(tensors), operation(operations);
  const int64_t* w = words + 2;
  for (size_t i = 0; i < tensors; i++, w += kTensorWords) tensor[i] = d.tensor(w, int64_t(i) + 1, made);
  for (size_t i = 0; i < operations; i++, w += kOperationWords) {
    operation[i] = d.operation(w, tensor);
    if (!operation[i] && !d.status) return "the record is malformed";
  }
  void* graph = d.make(kGraph, "the graph");
  d.set(graph, 800, kHandleType, handle_, "its handle");
  d.set(graph, 801, kDescriptor, operation.data(), int64_t(operations), "its operations");
  d.finish(graph, "the graph");
  void* heuristics = d.make(kHeuristics, "the heuristics");
  d.set(heuristics, 201, kDescriptor, graph, "their graph");
  d.set(heuristics, 200, kHeuristicsMode, kModeA, "their mode");
  d.finish(heuristics, "the heuristics");
  if (d.status) return failed(d.lib, d.what, d.status);
  return plan(heuristics, all, made);
}

// A plan by the first engine that has one and needs no more memory than there may be.
std::string OperationGraphs::plan(void* heuristics, Descriptors* all, Prepared* made) {
  const Library& lib = all->lib;
  void* engine[kEngines];
  for (void*& each : engine) each = all->make(kEngineConfiguration, "an engine");
  int64_t found = 0;
  if (const int s = lib.Get(heuristics, 202, kDescriptor, kEngines, &found, engine))
    return failed(lib, "the choice of an engine", s);
  std::string problem = "cuDNN has no engine for it";
  for (int64_t i = 0; i < found && i < kEngines; i++) {
    void* plan = nullptr;
    int64_t workspace = 0, one = 0;
    int s = lib.Describe(kPlan, &plan);
    if (!s) s = lib.Set(plan, 401, kDescriptor, 1, &engine[i]);
    if (!s) s = lib.Set(plan, 400, kHandleType, 1, &handle_);
    if (!s) s = lib.Finalize(plan);
    if (!s) s = lib.Get(plan, 402, kInteger, 1, &one, &workspace);
    if (!s && size_t(workspace) <= kMostWorkspace) {
      made->plan = plan;
      made->workspace = size_t(workspace);
      return {};
    }
    if (s) problem = failed(lib, "the plan", s);
    if (plan) lib.Forget(plan);
  }
  return problem;
}

std::string OperationGraphs::prepare(const int64_t* words, size_t count, Stream stream, uint32_t* id) {
  const Library* lib = library();
  if (!lib) return "cuDNN has not been opened";
  if (!handle_) {
    if (const int s = lib->Create(&handle_)) return failed(*lib, "cudnnCreate", s);
    if (const int s = lib->SetStream(handle_, stream)) return failed(*lib, "cudnnSetStream", s);
    stream_ = stream;
  }
  Prepared made;
  Descriptors all(*lib);
  if (std::string error = build(words, count, &all, &made); !error.empty()) return error;
  *id = uint32_t(prepared_.size());
  prepared_.push_back(std::move(made));
  return {};
}

std::string OperationGraphs::run(const Driver& driver, uint32_t id, const std::vector<DevicePointer>& at,
                                 Stream stream) {
  const Library* lib = library();
  if (!lib || id >= prepared_.size()) return "there is no such graph";
  const Prepared& p = prepared_[id];
  if (at.size() != p.arrays.size()) return "the record is malformed";
  Workspaces& room = workspaces_[stream];
  if (p.workspace > room.size) {
    DevicePointer larger = 0;
    if (const Result r = driver.MemAlloc(&larger, p.workspace)) return "its workspace: " + driver.describe(r);
    room.all.push_back(larger);
    room.size = p.workspace;
  }
  if (stream != stream_) {
    if (const int s = lib->SetStream(handle_, stream)) return failed(*lib, "cudnnSetStream", s);
    stream_ = stream;
  }
  std::vector<int64_t> ids = p.arrays;
  std::vector<const void*> pointers;
  for (DevicePointer each : at) pointers.push_back(reinterpret_cast<void*>(each));
  for (const Scalar& each : p.scalars) {
    ids.push_back(each.id);
    pointers.push_back(&each.bits);
  }
  const void* workspace = room.all.empty() ? nullptr : reinterpret_cast<void*>(room.all.back());
  Descriptors all(*lib);
  void* pack = all.make(kVariantPack, "the arrays");
  all.set(pack, 1000, kInteger, ids.data(), int64_t(ids.size()), "their numbers");
  all.set(pack, 1001, kPointer, pointers.data(), int64_t(pointers.size()), "the arrays");
  all.set(pack, 1003, kPointer, workspace, "the workspace");
  all.finish(pack, "the arrays");
  if (!all.status) all.note(lib->Execute(handle_, p.plan, pack), "the graph");
  return all.status ? failed(*lib, all.what, all.status) : std::string();
}

void OperationGraphs::close(const Driver& driver) {
  const Library* lib = library();
  if (!lib) return;
  for (const Prepared& p : prepared_) lib->Forget(p.plan);
  prepared_.clear();
  if (handle_) lib->Destroy(handle_);
  for (const auto& [stream, room] : workspaces_)
    for (DevicePointer each : room.all) driver.MemFree(each);
  workspaces_.clear();
  handle_ = nullptr;
}

}  // namespace lz
