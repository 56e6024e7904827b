// A double of cuDNN's convolutions: plain loops on the double's streams, over the layouts that a caller
// describes. LAZULI_CUDA_DOUBLE=no-algorithm leaves it without algorithms, =convolution fails each run,
// =any-order each run by the first of the two algorithms, which is not deterministic, and =library-memory the
// making of a handle.
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#include "double/elements.h"

#define LZ_EXPORT extern "C" __attribute__((visibility("default")))

// Adds work to a stream of the double of the driver.
extern "C" int lzDoubleWork(void* stream, void (*run)(void*), void (*drop)(void*), void* data);

namespace {

enum : int { kAllocationFailed = 1003, kBadParameter = 2000, kNotSupported = 3000, kExecutionFailed = 5000 };

struct Handle {
  void* stream = nullptr;
};
struct Tensor {
  int type = 0, count = 0, sizes[5] = {}, steps[5] = {};
};
struct Description {
  int axes = 0, padding[3] = {}, stride[3] = {}, dilation[3] = {}, groups = 1, math = 0;
};
struct Performance {
  int algorithm, status;
  float time;
  size_t memory;
  int determinism, math, reserved[3];
};

int type_of(const Tensor& t) { return t.type == 9 ? 14 : t.type; }

int set(void* to, int type, int count, const int* sizes, const int* steps) {
  auto* t = static_cast<Tensor*>(to);
  if (count < 4 || count > 5) return kBadParameter;
  t->type = type;
  t->count = count;
  for (int i = 0; i < count; i++) {
    if (sizes[i] <= 0 || steps[i] <= 0) return kBadParameter;
    t->sizes[i] = sizes[i];
    t->steps[i] = steps[i];
  }
  return 0;
}

// True if results of these sizes follow from the others.
bool fits(const Tensor& x, const Tensor& w, const Tensor& y, const Description& d) {
  if (x.count != d.axes + 2 || w.count != x.count || y.count != x.count || x.sizes[0] != y.sizes[0] ||
      w.sizes[0] != y.sizes[1] || w.sizes[1] * d.groups != x.sizes[1] || x.type != w.type || x.type != y.type)
    return false;
  for (int i = 0; i < d.axes; i++)
    if ((x.sizes[i + 2] + 2 * d.padding[i] - (w.sizes[i + 2] - 1) * d.dilation[i] - 1) / d.stride[i] + 1 !=
        y.sizes[i + 2])
      return false;
  return true;
}

// Calls `visit` with the offsets of each image, weight and result that belong together.
void each(const Tensor& x, const Tensor& w, const Tensor& y, const Description& d,
          const std::function<void(int64_t, int64_t, int64_t)>& visit) {
  const int per_group = y.sizes[1] / d.groups;
  const bool third = d.axes == 3;
  for (int n = 0; n < y.sizes[0]; n++)
    for (int k = 0; k < y.sizes[1]; k++)
      for (int c = 0; c < w.sizes[1]; c++)
        for (int a = 0; a < y.sizes[2] * y.sizes[3] * (third ? y.sizes[4] : 1); a++)
          for (int b = 0; b < w.sizes[2] * w.sizes[3] * (third ? w.sizes[4] : 1); b++) {
            int64_t px = n * int64_t(x.steps[0]) + (k / per_group * w.sizes[1] + c) * int64_t(x.steps[1]);
            int64_t pw = k * int64_t(w.steps[0]) + c * int64_t(w.steps[1]);
            int64_t py = n * int64_t(y.steps[0]) + k * int64_t(y.steps[1]);
            bool inside = true;
            for (int i = d.axes - 1, ra = a, rb = b; i >= 0; i--) {
              const int o = ra % y.sizes[i + 2], f = rb % w.sizes[i + 2];
              ra /= y.sizes[i + 2];
              rb /= w.sizes[i + 2];
              const int at = o * d.stride[i] + f * d.dilation[i] - d.padding[i];
              inside = inside && at >= 0 && at < x.sizes[i + 2];
              px += at * int64_t(x.steps[i + 2]);
              pw += f * int64_t(w.steps[i + 2]);
              py += o * int64_t(y.steps[i + 2]);
            }
            if (inside) visit(px, pw, py);
          }
}

// The faster one comes first, as in the library.
enum Algorithm : int { kAnyOrder, kInOrder };

int choose(const void* x, const void* w, const void* convolution, const void* y, int* count,
           Performance* found) {
  *count = 0;
  if (lz::asked("no-algorithm")) return 0;
  const auto& d = *static_cast<const Description*>(convolution);
  if (!fits(*static_cast<const Tensor*>(x), *static_cast<const Tensor*>(w), *static_cast<const Tensor*>(y),
            d))
    return kBadParameter;
  *count = 2;
  for (int i = 0; i < 2; i++) {
    found[i] = {};
    found[i].algorithm = i == 0 ? kAnyOrder : kInOrder;
    found[i].memory = 256;
    found[i].math = d.math;
    found[i].determinism = i;
  }
  return 0;
}
int room(size_t* size) {
  *size = 256;
  return 0;
}

enum Made { kImages, kWeights, kResults };
int run(void* handle, const void* x, const void* px, const void* w, const void* pw, const void* convolution,
        int algorithm, size_t size, const void* y, const void* py, Made which) {
  const Tensor X = *static_cast<const Tensor*>(x), W = *static_cast<const Tensor*>(w),
               Y = *static_cast<const Tensor*>(y);
  const Description d = *static_cast<const Description*>(convolution);
  if (lz::asked("convolution") || (lz::asked("any-order") && algorithm == kAnyOrder)) return kExecutionFailed;
  if (!fits(X, W, Y, d) || size < 256) return kBadParameter;
  auto* work = new std::function<void()>([=] {
    const Tensor& t = which == kImages ? X : which == kWeights ? W : Y;
    void* to = const_cast<void*>(which == kImages ? px : which == kWeights ? pw : py);
    int64_t last = 0;
    for (int i = 0; i < t.count; i++) last += (t.sizes[i] - 1) * int64_t(t.steps[i]);
    double* sums = new double[size_t(last) + 1]();
    each(X, W, Y, d, [&](int64_t i, int64_t f, int64_t o) {
      if (which == kResults)
        sums[o] += lz::read(px, type_of(X), i) * lz::read(pw, type_of(W), f);
      else if (which == kWeights)
        sums[f] += lz::read(px, type_of(X), i) * lz::read(py, type_of(Y), o);
      else
        sums[i] += lz::read(pw, type_of(W), f) * lz::read(py, type_of(Y), o);
    });
    for (int64_t i = 0; i <= last; i++) lz::write(to, type_of(t), i, sums[i]);
    delete[] sums;
  });
  return lzDoubleWork(
      static_cast<Handle*>(handle)->stream,
      [](void* data) { (*static_cast<std::function<void()>*>(data))(); },
      [](void* data) { delete static_cast<std::function<void()>*>(data); }, work);
}

}  // namespace

LZ_EXPORT int cudnnCreate(void** handle) {
  if (lz::asked("library-memory")) return kAllocationFailed;
  *handle = new Handle;
  return 0;
}
LZ_EXPORT int cudnnDestroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}
LZ_EXPORT int cudnnSetStream(void* handle, void* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}
LZ_EXPORT const char* cudnnGetErrorString(int status) {
  return status == kBadParameter       ? "CUDNN_STATUS_BAD_PARAM"
         : status == kAllocationFailed ? "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"
         : status == kExecutionFailed  ? "CUDNN_STATUS_EXECUTION_FAILED"
                                       : "CUDNN_STATUS_NOT_SUPPORTED";
}
LZ_EXPORT int cudnnCreateTensorDescriptor(void** made) {
  *made = new Tensor;
  return 0;
}
LZ_EXPORT int cudnnSetTensorNdDescriptor(void* t, int type, int count, const int* sizes, const int* steps) {
  return set(t, type, count, sizes, steps);
}
LZ_EXPORT int cudnnDestroyTensorDescriptor(void* t) {
  delete static_cast<Tensor*>(t);
  return 0;
}
LZ_EXPORT int cudnnCreateFilterDescriptor(void** made) { return cudnnCreateTensorDescriptor(made); }
LZ_EXPORT int cudnnSetFilterNdDescriptor(void* t, int type, int format, int count, const int* sizes) {
  if (format != 1 || count < 4 || count > 5) return kNotSupported;
  // Channels are neighbours.
  int steps[5] = {}, step = sizes[1];
  steps[1] = 1;
  for (int i = count - 1; i >= 2; i--) {
    steps[i] = step;
    step *= sizes[i];
  }
  steps[0] = step;
  return set(t, type, count, sizes, steps);
}
LZ_EXPORT int cudnnDestroyFilterDescriptor(void* t) { return cudnnDestroyTensorDescriptor(t); }
LZ_EXPORT int cudnnCreateConvolutionDescriptor(void** made) {
  *made = new Description;
  return 0;
}
LZ_EXPORT int cudnnSetConvolutionNdDescriptor(void* to, int axes, const int* padding, const int* stride,
                                              const int* dilation, int mode, int) {
  auto* d = static_cast<Description*>(to);
  if (mode != 1 || axes < 2 || axes > 3) return kNotSupported;
  d->axes = axes;
  for (int i = 0; i < axes; i++) {
    if (padding[i] < 0 || stride[i] < 1 || dilation[i] < 1) return kBadParameter;
    d->padding[i] = padding[i];
    d->stride[i] = stride[i];
    d->dilation[i] = dilation[i];
  }
  return 0;
}
LZ_EXPORT int cudnnSetConvolutionGroupCount(void* to, int groups) {
  static_cast<Description*>(to)->groups = groups;
  return 0;
}
LZ_EXPORT int cudnnSetConvolutionMathType(void* to, int math) {
  static_cast<Description*>(to)->math = math;
  return 0;
}
LZ_EXPORT int cudnnDestroyConvolutionDescriptor(void* d) {
  delete static_cast<Description*>(d);
  return 0;
}
LZ_EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(void*, const void* x, const void* w, const void* d,
                                                     const void* y, int, int* count, Performance* found) {
  return choose(x, w, d, y, count, found);
}
LZ_EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(void*, const void* w, const void* y, const void* d,
                                                          const void* x, int, int* count,
                                                          Performance* found) {
  return choose(x, w, d, y, count, found);
}
LZ_EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void*, const void* x, const void* y,
                                                            const void* d, const void* w, int, int* count,
                                                            Performance* found) {
  return choose(x, w, d, y, count, found);
}
LZ_EXPORT int cudnnGetConvolutionForwardWorkspaceSize(void*, const void*, const void*, const void*,
                                                      const void*, int, size_t* size) {
  return room(size);
}
LZ_EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(void*, const void*, const void*, const void*,
                                                           const void*, int, size_t* size) {
  return room(size);
}
LZ_EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(void*, const void*, const void*, const void*,
                                                             const void*, int, size_t* size) {
  return room(size);
}
LZ_EXPORT int cudnnConvolutionForward(void* handle, const void*, const void* x, const void* px, const void* w,
                                      const void* pw, const void* d, int algorithm, void*, size_t size,
                                      const void*, const void* y, void* py) {
  return run(handle, x, px, w, pw, d, algorithm, size, y, py, kResults);
}
LZ_EXPORT int cudnnConvolutionBackwardData(void* handle, const void*, const void* w, const void* pw,
                                           const void* y, const void* py, const void* d, int algorithm, void*,
                                           size_t size, const void*, const void* x, void* px) {
  return run(handle, x, px, w, pw, d, algorithm, size, y, py, kImages);
}
LZ_EXPORT int cudnnConvolutionBackwardFilter(void* handle, const void*, const void* x, const void* px,
                                             const void* y, const void* py, const void* d, int algorithm,
                                             void*, size_t size, const void*, const void* w, void* pw) {
  return run(handle, x, px, w, pw, d, algorithm, size, y, py, kWeights);
}
