#include "cuda/products.h"

#include <algorithm>
#include <cstring>

namespace lz {
namespace {

constexpr size_t kWorkspace = 32 << 20;  // what the library wants on the newest GPUs

// cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t
enum : int { kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8 };
// A vector of m is added to each column, instead of C: a part of every epilogue that does so.
constexpr int kEpilogueBias = 4;
enum : int { kBatchCount = 5, kBatchStep = 6 };
enum : int { kMaxWorkspace = 1, kAlignA = 5, kAlignB = 6, kAlignC = 7, kAlignD = 8 };
// cudaDataType
enum : int { kFloat32 = 0, kFloat64 = 1, kComplex64 = 4 };

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

#define LZ_PRODUCT_CALLS(X)                                                                              \
  X(Create, "cublasLtCreate", int, void**)                                                               \
  X(Destroy, "cublasLtDestroy", int, void*)                                                              \
  X(OperationCreate, "cublasLtMatmulDescCreate", int, void**, int, int)                                  \
  X(OperationDestroy, "cublasLtMatmulDescDestroy", int, void*)                                           \
  X(OperationSet, "cublasLtMatmulDescSetAttribute", int, void*, int, const void*, size_t)                \
  X(LayoutCreate, "cublasLtMatrixLayoutCreate", int, void**, int, uint64_t, uint64_t, int64_t)           \
  X(LayoutDestroy, "cublasLtMatrixLayoutDestroy", int, void*)                                            \
  X(LayoutSet, "cublasLtMatrixLayoutSetAttribute", int, void*, int, const void*, size_t)                 \
  X(PreferenceCreate, "cublasLtMatmulPreferenceCreate", int, void**)                                     \
  X(PreferenceDestroy, "cublasLtMatmulPreferenceDestroy", int, void*)                                    \
  X(PreferenceSet, "cublasLtMatmulPreferenceSetAttribute", int, void*, int, const void*, size_t)         \
  X(Choose, "cublasLtMatmulAlgoGetHeuristic", int, void*, void*, void*, void*, void*, void*, void*, int, \
    Heuristic*, int*)                                                                                    \
  X(Matmul, "cublasLtMatmul", int, void*, void*, const void*, const void*, void*, const void*, void*,    \
    const void*, const void*, void*, void*, void*, const void*, void*, size_t, Stream)

struct Library {
#define LZ_MEMBER(name, symbol, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  LZ_PRODUCT_CALLS(LZ_MEMBER)
#undef LZ_MEMBER
  std::string path;
};

OpenedLibrary<Library> opened;

const Library* library() { return opened.get(); }

std::string failed(const char* what, int status) {
  return std::string(what) + " failed with status " + std::to_string(status) + " of cuBLASLt";
}

}  // namespace

std::string open_products(const std::vector<std::string>& candidates, std::string* path) {
  return opened.open(candidates, path, [](Library& table, Symbols& symbols) {
#define LZ_BIND(name, symbol, ...) symbols.bind(table.name, symbol);
    LZ_PRODUCT_CALLS(LZ_BIND)
#undef LZ_BIND
  });
}

Products::~Products() = default;

void Products::close(const Driver& driver) {
  const Library* lib = library();
  if (!lib) return;
  for (auto& [key, p] : prepared_) {
    lib->OperationDestroy(p.operation);
    for (void* layout : {p.a, p.b, p.c, p.d}) lib->LayoutDestroy(layout);
  }
  prepared_.clear();
  if (handle_) lib->Destroy(handle_);
  if (workspace_) driver.MemFree(workspace_);
  handle_ = nullptr;
  workspace_ = 0;
}

std::string Products::prepare(const Product& q, int alignment, Prepared* made) {
  const Library& lib = *library();
  const int scale = q.type == kFloat64 || q.type == kComplex64 ? q.type : int(kFloat32);
  Prepared p{};
  if (const int s = lib.OperationCreate(&p.operation, q.compute, scale)) return failed("a description", s);
  lib.OperationSet(p.operation, kTransposeA, &q.transposed_a, sizeof(int));
  lib.OperationSet(p.operation, kTransposeB, &q.transposed_b, sizeof(int));
  const int epilogue = int(q.epilogue);
  if (epilogue) lib.OperationSet(p.operation, kEpilogue, &epilogue, sizeof(int));
  const int32_t batch = int32_t(q.batch);
  auto layout = [&](void** to, int64_t rows, int64_t columns, int64_t row, int64_t step) {
    if (const int s = lib.LayoutCreate(to, q.type, uint64_t(rows), uint64_t(columns), row)) return s;
    if (batch == 1) return 0;
    if (const int s = lib.LayoutSet(*to, kBatchCount, &batch, sizeof batch)) return s;
    return lib.LayoutSet(*to, kBatchStep, &step, sizeof step);
  };
  int status = layout(&p.a, q.transposed_a ? q.k : q.m, q.transposed_a ? q.m : q.k, q.row_a, q.step_a);
  if (!status)
    status = layout(&p.b, q.transposed_b ? q.n : q.k, q.transposed_b ? q.k : q.n, q.row_b, q.step_b);
  if (!status) status = layout(&p.c, q.m, q.n, q.row_c, q.step_c);
  if (!status) status = layout(&p.d, q.m, q.n, q.row_d, q.step_d);
  if (status) return failed("a layout", status);
  void* preference = nullptr;
  if (const int s = lib.PreferenceCreate(&preference)) return failed("a preference", s);
  lib.PreferenceSet(preference, kMaxWorkspace, &kWorkspace, sizeof kWorkspace);
  for (int attribute : {kAlignA, kAlignB, kAlignC, kAlignD})
    lib.PreferenceSet(preference, attribute, &alignment, sizeof alignment);
  Heuristic found{};
  int count = 0;
  status = lib.Choose(handle_, p.operation, p.a, p.b, p.c, p.d, preference, 1, &found, &count);
  lib.PreferenceDestroy(preference);
  if (status || count == 0) return failed("the choice of a kernel", status);
  std::memcpy(p.algorithm, found.algorithm, sizeof p.algorithm);
  p.workspace = found.workspace;
  *made = p;
  return {};
}

std::string Products::run(const Driver& driver, const Product& q, const Operands& at, Stream stream) {
  const Library* lib = library();
  if (!lib) return "cuBLASLt has not been opened";
  if (!handle_) {
    if (const int s = lib->Create(&handle_)) return failed("cublasLtCreate", s);
    if (const Result r = driver.MemAlloc(&workspace_, kWorkspace))
      return "its workspace: " + driver.describe(r);
  }
  const DevicePointer bits = at.a | at.b | at.c | at.d | 256;
  const int alignment = int(bits & (~bits + 1));
  Product shape = q;
  // The choice does not depend on the scale.
  shape.alpha = 0;
  shape.beta = q.beta == 0 ? 0 : 1;
  std::string key(reinterpret_cast<const char*>(&shape), sizeof shape);
  key.append(reinterpret_cast<const char*>(&alignment), sizeof alignment);
  auto known = prepared_.find(key);
  if (known == prepared_.end()) {
    Prepared made;
    if (std::string error = prepare(q, alignment, &made); !error.empty()) return error;
    known = prepared_.emplace(std::move(key), made).first;
  }
  const Prepared& p = known->second;
  if (q.epilogue & kEpilogueBias) {
    const void* bias = reinterpret_cast<void*>(at.bias);
    lib->OperationSet(p.operation, kBiasPointer, &bias, sizeof bias);
  }
  const double alpha[2] = {q.alpha, 0}, beta[2] = {q.beta, 0};
  const float alpha32[2] = {float(q.alpha), 0}, beta32[2] = {float(q.beta), 0};
  const bool wide = q.type == kFloat64;
  auto pointer = [](DevicePointer d) { return reinterpret_cast<void*>(d); };
  const int status =
      lib->Matmul(handle_, p.operation, wide ? static_cast<const void*>(alpha) : alpha32, pointer(at.a), p.a,
                  pointer(at.b), p.b, wide ? static_cast<const void*>(beta) : beta32, pointer(at.c), p.c,
                  pointer(at.d), p.d, p.algorithm, pointer(workspace_), p.workspace, stream);
  return status ? failed("the product", status) : std::string();
}

}  // namespace lz
