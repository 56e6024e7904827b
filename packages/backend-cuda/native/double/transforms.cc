// A double of cuFFT: transforms by their definition on the double's streams. LAZULI_CUDA_DOUBLE=transform
// fails each of them, =library-memory fails the making of a plan.
#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "double/elements.h"

#define LZ_EXPORT extern "C" __attribute__((visibility("default")))

// Adds work to a stream of the double of the driver.
extern "C" int lzDoubleWork(void* stream, void (*run)(void*), void (*drop)(void*), void* data);

namespace {

enum : int { kInvalidPlan = 1, kAllocationFailed = 2, kInvalidValue = 4, kExecutionFailed = 6 };
enum : int { kRealToComplex = 0x2a, kComplexToReal = 0x2c, kComplex = 0x29 };

struct Plan {
  void* stream = nullptr;
  std::vector<int> sizes;
  int type = 0, batch = 0;
  bool allocates = true, has_room = false;
};
std::map<int, Plan> plans;
using Number = std::complex<double>;

// Along one axis of a row-major array.
void transform(std::vector<Number>& x, const std::vector<int>& sizes, size_t axis, int sign) {
  const int n = sizes[axis];
  size_t inner = 1;
  for (size_t i = axis + 1; i < sizes.size(); i++) inner *= size_t(sizes[i]);
  std::vector<Number> line(static_cast<size_t>(n));
  for (size_t start = 0; start < x.size(); start++) {
    if (start / inner % size_t(n) != 0) continue;
    for (int k = 0; k < n; k++) {
      Number sum = 0;
      for (int j = 0; j < n; j++)
        sum += x[start + size_t(j) * inner] *
               std::polar(1.0, sign * 2 * M_PI * double(int64_t(j) * k % n) / double(n));
      line[size_t(k)] = sum;
    }
    for (int k = 0; k < n; k++) x[start + size_t(k) * inner] = line[size_t(k)];
  }
}

void run(const Plan& plan, const float* from, float* to, int sign) {
  std::vector<int> half = plan.sizes;
  half.back() = half.back() / 2 + 1;
  auto count = [](const std::vector<int>& sizes) {
    size_t n = 1;
    for (int s : sizes) n *= size_t(s);
    return n;
  };
  const size_t all = count(plan.sizes), part = count(half);
  const size_t last = size_t(plan.sizes.back()), half_last = size_t(half.back());
  for (size_t b = 0; b < size_t(plan.batch); b++) {
    std::vector<Number> x(plan.type == kComplexToReal ? part : all);
    for (size_t i = 0; i < x.size(); i++)
      x[i] = plan.type == kRealToComplex
                 ? Number(from[b * all + i])
                 : Number(from[2 * (b * x.size() + i)], from[2 * (b * x.size() + i) + 1]);
    if (plan.type == kComplexToReal) {
      for (size_t axis = 0; axis + 1 < half.size(); axis++) transform(x, half, axis, sign);
      std::vector<Number> whole(all);
      for (size_t i = 0; i < all; i++) {
        const size_t k = i % last, row = i / last;
        whole[i] = k < half_last ? x[row * half_last + k] : std::conj(x[row * half_last + last - k]);
      }
      transform(whole, plan.sizes, half.size() - 1, sign);
      for (size_t i = 0; i < all; i++) to[b * all + i] = float(whole[i].real());
      continue;
    }
    for (size_t axis = 0; axis < plan.sizes.size(); axis++) transform(x, plan.sizes, axis, sign);
    size_t at = plan.type == kRealToComplex ? b * part : b * all;
    for (size_t i = 0; i < all; i++) {
      if (plan.type == kRealToComplex && i % last >= half_last) continue;
      to[2 * at] = float(x[i].real());
      to[2 * at + 1] = float(x[i].imag());
      at++;
    }
  }
}

int add(int handle, int type, void* from, void* to, int sign) {
  const auto found = plans.find(handle);
  if (found == plans.end() || found->second.type != type || !found->second.has_room) return kInvalidPlan;
  if (lz::asked("transform")) return kExecutionFailed;
  const Plan plan = found->second;
  using Work = std::function<void()>;
  auto* work = new Work([=] {
    run(plan, static_cast<const float*>(from), static_cast<float*>(to), sign);
    // The library may write over what it reads.
    if (type == kComplexToReal && from != to) static_cast<float*>(from)[0] = NAN;
  });
  return lzDoubleWork(
      plan.stream, [](void* data) { (*static_cast<Work*>(data))(); },
      [](void* data) { delete static_cast<Work*>(data); }, work);
}

}  // namespace

LZ_EXPORT int cufftCreate(int* handle) {
  if (lz::asked("library-memory")) return kAllocationFailed;
  static int next = 0;
  *handle = ++next;
  plans[*handle] = {};
  return 0;
}
LZ_EXPORT int cufftDestroy(int handle) { return plans.erase(handle) == 1 ? 0 : int(kInvalidPlan); }
LZ_EXPORT int cufftSetStream(int handle, void* stream) {
  plans[handle].stream = stream;
  return 0;
}
LZ_EXPORT int cufftSetAutoAllocation(int handle, int on) {
  plans[handle].allocates = on != 0;
  return 0;
}
LZ_EXPORT int cufftMakePlanMany(int handle, int rank, int* n, int* from, int, int from_size, int* to, int,
                                int to_size, int type, int batch, size_t* room) {
  if (rank < 1 || rank > 3 || batch < 1 || from || to || from_size < 1 || to_size < 1) return kInvalidValue;
  if (type != kComplex && type != kRealToComplex && type != kComplexToReal) return kInvalidValue;
  Plan& plan = plans[handle];
  plan.sizes.assign(n, n + rank);
  plan.type = type;
  plan.batch = batch;
  plan.has_room = plan.allocates;
  *room = 16;
  return 0;
}
LZ_EXPORT int cufftSetWorkArea(int handle, void* room) {
  plans[handle].has_room = room != nullptr;
  return 0;
}
LZ_EXPORT int cufftExecC2C(int handle, void* from, void* to, int sign) {
  return add(handle, kComplex, from, to, sign);
}
LZ_EXPORT int cufftExecR2C(int handle, void* from, void* to) {
  return add(handle, kRealToComplex, from, to, -1);
}
LZ_EXPORT int cufftExecC2R(int handle, void* from, void* to) {
  return add(handle, kComplexToReal, from, to, 1);
}
