#include "cuda/transforms.h"

#include <type_traits>

namespace lz {
namespace {

// cufftType
enum : int { kRealToComplex = 0x2a, kComplexToReal = 0x2c, kComplex = 0x29 };
constexpr int kForward = -1, kInverse = 1;

#define LZ_TRANSFORM_CALLS(X)                                                                              \
  X(Create, "cufftCreate", int(int*))                                                                      \
  X(Destroy, "cufftDestroy", int(int))                                                                     \
  X(SetStream, "cufftSetStream", int(int, Stream))                                                         \
  X(SetAutoAllocation, "cufftSetAutoAllocation", int(int, int))                                            \
  X(MakePlan, "cufftMakePlanMany", int(int, int, int*, int*, int, int, int*, int, int, int, int, size_t*)) \
  X(SetWorkArea, "cufftSetWorkArea", int(int, void*))                                                      \
  X(Complex, "cufftExecC2C", int(int, void*, void*, int))                                                  \
  X(ToComplex, "cufftExecR2C", int(int, void*, void*))                                                     \
  X(ToReal, "cufftExecC2R", int(int, void*, void*))

struct Library {
#define LZ_MEMBER(name, symbol, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  LZ_TRANSFORM_CALLS(LZ_MEMBER)
#undef LZ_MEMBER
  std::string path;
};

OpenedLibrary<Library> opened;

const Library* library() { return opened.get(); }

std::string failed(const char* what, int status) {
  return std::string(what) + " failed with status " + std::to_string(status) + " of cuFFT";
}

}  // namespace

std::string open_transforms(const std::vector<std::string>& candidates, std::string* path) {
  return opened.open(candidates, path, [](Library& table, Symbols& symbols) {
#define LZ_BIND(name, symbol, ...) symbols.bind(table.name, symbol);
    LZ_TRANSFORM_CALLS(LZ_BIND)
#undef LZ_BIND
  });
}

void Transforms::close(const Driver& driver) {
  const Library* lib = library();
  if (!lib) return;
  for (auto& [key, p] : prepared_) lib->Destroy(p.handle);
  prepared_.clear();
  for (DevicePointer each : workspaces_) driver.MemFree(each);
  workspaces_.clear();
  workspace_size_ = 0;
}

std::string Transforms::prepare(const Transform& w, Stream stream, Prepared* made) {
  const Library& lib = *library();
  if (const int s = lib.Create(&made->handle)) return failed("cufftCreate", s);
  int sizes[3], whole = 1, half = 1;
  for (int i = 0; i < w.axes; i++) {
    sizes[i] = w.sizes[i];
    whole *= sizes[i];
    half *= i == w.axes - 1 ? sizes[i] / 2 + 1 : sizes[i];
  }
  const int from = w.type == kComplexToReal ? half : whole, to = w.type == kRealToComplex ? half : whole;
  int status = lib.SetAutoAllocation(made->handle, 0);
  // Without embedding the arrays are packed, and strides are not read.
  if (!status)
    status = lib.MakePlan(made->handle, w.axes, sizes, nullptr, 1, from, nullptr, 1, to, w.type, w.batch,
                          &made->workspace);
  if (!status) status = lib.SetStream(made->handle, stream);
  if (!status) return {};
  lib.Destroy(made->handle);
  return failed("the choice of a transform", status);
}

std::string Transforms::run(const Driver& driver, const Transform& w, DevicePointer from, DevicePointer to,
                            Stream stream) {
  const Library* lib = library();
  if (!lib) return "cuFFT has not been opened";
  if (w.axes < 1 || w.axes > 3) return "the record is malformed";
  Transform shape = w;
  // A plan has both directions.
  shape.inverse = 0;
  std::string key(reinterpret_cast<const char*>(&shape), sizeof shape);
  auto known = prepared_.find(key);
  if (known == prepared_.end()) {
    Prepared made{};
    if (std::string error = prepare(w, stream, &made); !error.empty()) return error;
    known = prepared_.emplace(std::move(key), made).first;
  }
  const auto [handle, room] = known->second;
  if (room > workspace_size_) {
    DevicePointer larger = 0;
    if (const Result r = driver.MemAlloc(&larger, room)) return "its workspace: " + driver.describe(r);
    workspaces_.push_back(larger);
    workspace_size_ = room;
  }
  if (room > 0)
    if (const int s = lib->SetWorkArea(handle, reinterpret_cast<void*>(workspaces_.back())))
      return failed("cufftSetWorkArea", s);
  void *x = reinterpret_cast<void*>(from), *y = reinterpret_cast<void*>(to);
  const int status = w.type == kComplex         ? lib->Complex(handle, x, y, w.inverse ? kInverse : kForward)
                     : w.type == kRealToComplex ? lib->ToComplex(handle, x, y)
                                                : lib->ToReal(handle, x, y);
  return status ? failed("the transform", status) : std::string();
}

}  // namespace lz
