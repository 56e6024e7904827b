#include "cuda/convolutions.h"

#include <cstring>
#include <type_traits>

namespace lz {
namespace {

constexpr size_t kMostWorkspace = size_t{512} << 20;
constexpr int kMostAlgorithms = 10;
constexpr int kDeterministic = 1;     // CUDNN_DETERMINISTIC
constexpr int kByChannelsLast = 1;    // CUDNN_TENSOR_NHWC
constexpr int kCrossCorrelation = 1;  // the kernel is read from its beginning
// cudnnDataType_t
enum : int { kFloat32 = 0, kFloat64 = 1 };

// cudnnConvolutionFwdAlgoPerf_t and the like
struct Performance {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};

// Forms differ in the order of the descriptors and of the arrays alone.
using Choose = int(void*, const void*, const void*, const void*, const void*, int, int*, Performance*);
using Room = int(void*, const void*, const void*, const void*, const void*, int, size_t*);
using Run = int(void*, const void*, const void*, const void*, const void*, const void*, const void*, int,
                void*, size_t, const void*, const void*, void*);

#define LZ_CONVOLUTION_CALLS(X)                                                            \
  X(Create, "cudnnCreate", int(void**))                                                    \
  X(Destroy, "cudnnDestroy", int(void*))                                                   \
  X(SetStream, "cudnnSetStream", int(void*, Stream))                                       \
  X(GetErrorString, "cudnnGetErrorString", const char*(int))                               \
  X(TensorCreate, "cudnnCreateTensorDescriptor", int(void**))                              \
  X(TensorSet, "cudnnSetTensorNdDescriptor", int(void*, int, int, const int*, const int*)) \
  X(TensorDestroy, "cudnnDestroyTensorDescriptor", int(void*))                             \
  X(FilterCreate, "cudnnCreateFilterDescriptor", int(void**))                              \
  X(FilterSet, "cudnnSetFilterNdDescriptor", int(void*, int, int, int, const int*))        \
  X(FilterDestroy, "cudnnDestroyFilterDescriptor", int(void*))                             \
  X(ConvolutionCreate, "cudnnCreateConvolutionDescriptor", int(void**))                    \
  X(ConvolutionSet, "cudnnSetConvolutionNdDescriptor",                                     \
    int(void*, int, const int*, const int*, const int*, int, int))                         \
  X(SetGroups, "cudnnSetConvolutionGroupCount", int(void*, int))                           \
  X(SetMath, "cudnnSetConvolutionMathType", int(void*, int))                               \
  X(ConvolutionDestroy, "cudnnDestroyConvolutionDescriptor", int(void*))                   \
  X(ChooseForward, "cudnnGetConvolutionForwardAlgorithm_v7", Choose)                       \
  X(ChooseImages, "cudnnGetConvolutionBackwardDataAlgorithm_v7", Choose)                   \
  X(ChooseKernel, "cudnnGetConvolutionBackwardFilterAlgorithm_v7", Choose)                 \
  X(RoomForward, "cudnnGetConvolutionForwardWorkspaceSize", Room)                          \
  X(RoomImages, "cudnnGetConvolutionBackwardDataWorkspaceSize", Room)                      \
  X(RoomKernel, "cudnnGetConvolutionBackwardFilterWorkspaceSize", Room)                    \
  X(Forward, "cudnnConvolutionForward", Run)                                               \
  X(BackwardData, "cudnnConvolutionBackwardData", Run)                                     \
  X(BackwardFilter, "cudnnConvolutionBackwardFilter", Run)

struct Library {
#define LZ_MEMBER(name, symbol, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  LZ_CONVOLUTION_CALLS(LZ_MEMBER)
#undef LZ_MEMBER
  std::string path;
};

OpenedLibrary<Library> opened;

const Library* library() { return opened.get(); }

std::string failed(const Library& lib, const char* what, int status) {
  return std::string(what) + " failed: " + lib.GetErrorString(status);
}

}  // namespace

std::string open_convolutions(const std::vector<std::string>& candidates, std::string* path) {
  return opened.open(candidates, path, [](Library& table, Symbols& symbols) {
#define LZ_BIND(name, symbol, ...) symbols.bind(table.name, symbol);
    LZ_CONVOLUTION_CALLS(LZ_BIND)
#undef LZ_BIND
  });
}

void Convolutions::close(const Driver& driver) {
  const Library* lib = library();
  if (!lib) return;
  for (auto& [key, p] : prepared_) {
    lib->TensorDestroy(p.images);
    lib->TensorDestroy(p.results);
    lib->FilterDestroy(p.kernel);
    lib->ConvolutionDestroy(p.convolution);
  }
  prepared_.clear();
  if (handle_) lib->Destroy(handle_);
  for (DevicePointer each : workspaces_) driver.MemFree(each);
  workspaces_.clear();
  handle_ = nullptr;
  workspace_size_ = 0;
}

std::string Convolutions::prepare(const Convolution& w, Prepared* made) {
  const Library& lib = *library();
  Prepared p;
  int status = lib.TensorCreate(&p.images);
  if (!status) status = lib.TensorCreate(&p.results);
  if (!status) status = lib.FilterCreate(&p.kernel);
  if (!status) status = lib.ConvolutionCreate(&p.convolution);
  *made = p;
  if (!status) status = lib.TensorSet(p.images, w.type, w.axes + 2, w.images, w.image_steps);
  if (!status) status = lib.TensorSet(p.results, w.type, w.axes + 2, w.results, w.result_steps);
  if (!status) status = lib.FilterSet(p.kernel, w.type, kByChannelsLast, w.axes + 2, w.kernel);
  const int sums = w.type == kFloat64 ? kFloat64 : kFloat32;
  if (!status)
    status =
        lib.ConvolutionSet(p.convolution, w.axes, w.padding, w.stride, w.dilation, kCrossCorrelation, sums);
  if (!status) status = lib.SetGroups(p.convolution, w.groups);
  if (!status) status = lib.SetMath(p.convolution, w.math);
  if (status) return failed(lib, "a description", status);
  Performance found[kMostAlgorithms];
  int count = 0;
  const auto choose = w.form == Convolution::kForward  ? lib.ChooseForward
                      : w.form == Convolution::kImages ? lib.ChooseImages
                                                       : lib.ChooseKernel;
  const auto room = w.form == Convolution::kForward  ? lib.RoomForward
                    : w.form == Convolution::kImages ? lib.RoomImages
                                                     : lib.RoomKernel;
  const void* order[3][3] = {
      {p.images, p.kernel, p.results}, {p.kernel, p.results, p.images}, {p.images, p.results, p.kernel}};
  const auto& [first, second, third] = order[w.form];
  // The forms name the descriptor of the convolution third.
  status = choose(handle_, first, second, p.convolution, third, kMostAlgorithms, &count, found);
  if (status) return failed(lib, "the choice of an algorithm", status);
  for (int i = 0; i < count; i++) {
    if (found[i].status || found[i].memory > kMostWorkspace) continue;
    if (w.ordered && found[i].determinism != kDeterministic) continue;
    lib.SetMath(p.convolution, found[i].math);
    size_t size = 0;
    if (room(handle_, first, second, p.convolution, third, found[i].algorithm, &size) ||
        size > kMostWorkspace)
      continue;
    made->algorithm = found[i].algorithm;
    made->workspace = size;
    return {};
  }
  return "cuDNN has no algorithm for it";
}

std::string Convolutions::find(const Convolution& w, Stream stream, const Prepared** found) {
  const Library* lib = library();
  if (!lib) return "cuDNN has not been opened";
  if (w.form < 0 || w.form > 2 || w.axes < 2 || w.axes > 3) return "the record is malformed";
  if (!handle_) {
    if (const int s = lib->Create(&handle_)) return failed(*lib, "cudnnCreate", s);
    if (const int s = lib->SetStream(handle_, stream)) return failed(*lib, "cudnnSetStream", s);
  }
  const std::string key(reinterpret_cast<const char*>(&w), sizeof w);
  auto known = prepared_.find(key);
  if (known == prepared_.end()) {
    Prepared made;
    const std::string error = prepare(w, &made);
    if (!error.empty()) made.algorithm = -1;
    known = prepared_.emplace(key, made).first;
    if (!error.empty()) return error;
  }
  *found = &known->second;
  return known->second.algorithm < 0 ? "cuDNN has no algorithm for it" : std::string();
}

bool Convolutions::takes(const Convolution& work, Stream stream) {
  const Prepared* found = nullptr;
  return find(work, stream, &found).empty();
}

std::string Convolutions::run(const Driver& driver, const Convolution& w, const DevicePointer (&at)[3],
                              Stream stream) {
  const Prepared* found = nullptr;
  if (std::string error = find(w, stream, &found); !error.empty()) return error;
  const Library* lib = library();
  const Prepared& p = *found;
  if (p.workspace > workspace_size_) {
    // Graphs that were captured use the ones before.
    DevicePointer larger = 0;
    if (const Result r = driver.MemAlloc(&larger, p.workspace)) return "its workspace: " + driver.describe(r);
    workspaces_.push_back(larger);
    workspace_size_ = p.workspace;
  }
  const double one64 = 1, zero64 = 0;
  const float one32 = 1, zero32 = 0;
  const bool wide = w.type == kFloat64;
  const void* one = wide ? static_cast<const void*>(&one64) : &one32;
  const void* zero = wide ? static_cast<const void*>(&zero64) : &zero32;
  void* array[3];
  for (int i = 0; i < 3; i++) array[i] = reinterpret_cast<void*>(at[i]);
  const auto [images, kernel, results] = array;
  void* room = workspaces_.empty() ? nullptr : reinterpret_cast<void*>(workspaces_.back());
  int status;
  if (w.form == Convolution::kForward)
    status = lib->Forward(handle_, one, p.images, images, p.kernel, kernel, p.convolution, p.algorithm, room,
                          p.workspace, zero, p.results, results);
  else if (w.form == Convolution::kImages)
    status = lib->BackwardData(handle_, one, p.kernel, kernel, p.results, results, p.convolution, p.algorithm,
                               room, p.workspace, zero, p.images, images);
  else
    status = lib->BackwardFilter(handle_, one, p.images, images, p.results, results, p.convolution,
                                 p.algorithm, room, p.workspace, zero, p.kernel, kernel);
  return status ? failed(*lib, "the convolution", status) : std::string();
}

}  // namespace lz
