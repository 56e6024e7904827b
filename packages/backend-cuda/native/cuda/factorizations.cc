#include "cuda/factorizations.h"

#include <type_traits>

namespace lz {
namespace {

// cudaDataType
enum : int { kFloat32 = 0, kFloat64 = 1, kComplex64 = 4 };

#define LZ_FACTORIZATION_CALLS(X)                                                                            \
  X(Create, "cusolverDnCreate", int(void**))                                                                 \
  X(Destroy, "cusolverDnDestroy", int(void*))                                                                \
  X(SetStream, "cusolverDnSetStream", int(void*, Stream))                                                    \
  X(CreateParams, "cusolverDnCreateParams", int(void**))                                                     \
  X(DestroyParams, "cusolverDnDestroyParams", int(void*))                                                    \
  X(LuRoom, "cusolverDnXgetrf_bufferSize",                                                                   \
    int(void*, void*, int64_t, int64_t, int, const void*, int64_t, int, size_t*, size_t*))                   \
  X(Lu, "cusolverDnXgetrf",                                                                                  \
    int(void*, void*, int64_t, int64_t, int, void*, int64_t, int64_t*, int, void*, size_t, void*, size_t,    \
        int*))                                                                                               \
  X(Solve, "cusolverDnXgetrs",                                                                               \
    int(void*, void*, int, int64_t, int64_t, int, const void*, int64_t, const int64_t*, int, void*, int64_t, \
        int*))                                                                                               \
  X(CholeskyRoom, "cusolverDnXpotrf_bufferSize",                                                             \
    int(void*, void*, int, int64_t, int, const void*, int64_t, int, size_t*, size_t*))                       \
  X(Cholesky, "cusolverDnXpotrf",                                                                            \
    int(void*, void*, int, int64_t, int, void*, int64_t, int, void*, size_t, void*, size_t, int*))           \
  X(QrRoom, "cusolverDnXgeqrf_bufferSize",                                                                   \
    int(void*, void*, int64_t, int64_t, int, const void*, int64_t, int, const void*, int, size_t*, size_t*)) \
  X(Qr, "cusolverDnXgeqrf",                                                                                  \
    int(void*, void*, int64_t, int64_t, int, void*, int64_t, int, void*, int, void*, size_t, void*, size_t,  \
        int*))                                                                                               \
  X(QRoom32, "cusolverDnSorgqr_bufferSize", int(void*, int, int, int, const void*, int, const void*, int*))  \
  X(QRoom64, "cusolverDnDorgqr_bufferSize", int(void*, int, int, int, const void*, int, const void*, int*))  \
  X(QRoomC, "cusolverDnCungqr_bufferSize", int(void*, int, int, int, const void*, int, const void*, int*))   \
  X(Q32, "cusolverDnSorgqr", int(void*, int, int, int, void*, int, const void*, void*, int, int*))           \
  X(Q64, "cusolverDnDorgqr", int(void*, int, int, int, void*, int, const void*, void*, int, int*))           \
  X(QC, "cusolverDnCungqr", int(void*, int, int, int, void*, int, const void*, void*, int, int*))            \
  X(EigenRoom, "cusolverDnXsyevd_bufferSize",                                                                \
    int(void*, void*, int, int, int64_t, int, const void*, int64_t, int, const void*, int, size_t*,          \
        size_t*))                                                                                            \
  X(Eigen, "cusolverDnXsyevd",                                                                               \
    int(void*, void*, int, int, int64_t, int, void*, int64_t, int, void*, int, void*, size_t, void*, size_t, \
        int*))                                                                                               \
  X(SvdRoom, "cusolverDnXgesvd_bufferSize",                                                                  \
    int(void*, void*, signed char, signed char, int64_t, int64_t, int, const void*, int64_t, int,            \
        const void*, int, const void*, int64_t, int, const void*, int64_t, int, size_t*, size_t*))           \
  X(Svd, "cusolverDnXgesvd",                                                                                 \
    int(void*, void*, signed char, signed char, int64_t, int64_t, int, void*, int64_t, int, void*, int,      \
        void*, int64_t, int, void*, int64_t, int, void*, size_t, void*, size_t, int*))

struct Library {
#define LZ_MEMBER(name, symbol, ...) std::add_pointer_t<__VA_ARGS__> name = nullptr;
  LZ_FACTORIZATION_CALLS(LZ_MEMBER)
#undef LZ_MEMBER
  std::string path;
};

OpenedLibrary<Library> opened;

const Library* library() { return opened.get(); }

std::string failed(const char* what, int status) {
  return std::string(what) + " failed with status " + std::to_string(status) + " of cuSOLVER";
}

}  // namespace

std::string open_factorizations(const std::vector<std::string>& candidates, std::string* path) {
  return opened.open(candidates, path, [](Library& table, Symbols& symbols) {
#define LZ_BIND(name, symbol, ...) symbols.bind(table.name, symbol);
    LZ_FACTORIZATION_CALLS(LZ_BIND)
#undef LZ_BIND
  });
}

std::string Factorizations::open(Stream stream) {
  if (handle_) return {};
  const Library& lib = *library();
  if (const int s = lib.Create(&handle_)) {
    handle_ = nullptr;
    return failed("cusolverDnCreate", s);
  }
  if (const int s = lib.CreateParams(&parameters_)) return failed("cusolverDnCreateParams", s);
  if (const int s = lib.SetStream(handle_, stream)) return failed("cusolverDnSetStream", s);
  return {};
}

void Factorizations::close(const Driver& driver) {
  const Library* lib = library();
  if (!lib) return;
  if (parameters_) lib->DestroyParams(parameters_);
  if (handle_) lib->Destroy(handle_);
  if (workspace_) driver.MemFree(workspace_);
  handle_ = parameters_ = nullptr;
  workspace_ = workspace_size_ = 0;
}

// Memory of the work before is in use until the stream has come so far.
std::string Factorizations::reserve(const Driver& driver, Stream stream, size_t device, size_t host) {
  if (device <= workspace_size_ && host <= host_workspace_.size()) return {};
  if (const Result r = driver.StreamSynchronize(stream)) return "the work: " + driver.describe(r);
  if (host > host_workspace_.size()) host_workspace_.resize(host);
  if (device <= workspace_size_) return {};
  if (workspace_) driver.MemFree(workspace_);
  workspace_ = workspace_size_ = 0;
  if (const Result r = driver.MemAlloc(&workspace_, device)) return "its workspace: " + driver.describe(r);
  workspace_size_ = device;
  return {};
}

std::string Factorizations::run(const Driver& driver, const Factorization& w,
                                const DevicePointer (&at)[kFactorizationArrays], Stream stream) {
  if (w.work == Factorization::kVerdict) return {};
  const Library* found = library();
  if (!found) return "cuSOLVER has not been opened";
  const Library& lib = *found;
  if (w.count < 0 || w.rows < 1 || w.columns < 1 ||
      (w.type != kFloat32 && w.type != kFloat64 && w.type != kComplex64))
    return "the record is malformed";
  if (std::string error = open(stream); !error.empty()) return error;
  const int64_t m = w.rows, n = w.columns, k = m < n ? m : n;
  const size_t size = w.type == kFloat32 ? 4 : 8;
  const int real = w.type == kFloat64 ? kFloat64 : kFloat32;
  const size_t real_size = real == kFloat64 ? 8 : 4;
  const auto pointer = [&](int array, int64_t elements, size_t each) {
    return reinterpret_cast<void*>(at[array] + DevicePointer(elements) * each);
  };
  void* const first = pointer(0, 0, size);
  const int fill = w.option & 1, mode = w.option >> 1;
  const auto job = static_cast<signed char>(w.option);
  const bool is_whole = job == 'A', has_vectors = job != 'N';
  const int64_t left = is_whole ? m : k;
  size_t device = 0, host = 0;
  int status = 0, words = 0;
  switch (w.work) {
    case Factorization::kLu:
      status = lib.LuRoom(handle_, parameters_, m, n, w.type, first, m, w.type, &device, &host);
      break;
    case Factorization::kSolve:
      break;
    case Factorization::kCholesky:
      status = lib.CholeskyRoom(handle_, parameters_, fill, n, w.type, first, n, w.type, &device, &host);
      break;
    case Factorization::kQr:
      status = lib.QrRoom(handle_, parameters_, m, n, w.type, first, m, w.type, pointer(2, 0, size), w.type,
                          &device, &host);
      break;
    case Factorization::kQ: {
      const auto room = w.type == kFloat32 ? lib.QRoom32 : w.type == kFloat64 ? lib.QRoom64 : lib.QRoomC;
      status = room(handle_, w.rows, w.columns, w.columns, first, w.rows, pointer(2, 0, size), &words);
      device = size_t(words) * size;
      break;
    }
    case Factorization::kEigen:
      status = lib.EigenRoom(handle_, parameters_, mode, fill, n, w.type, first, n, real,
                             pointer(2, 0, real_size), w.type, &device, &host);
      break;
    case Factorization::kSvd:
      status = lib.SvdRoom(handle_, parameters_, job, job, m, n, w.type, first, m, real,
                           pointer(2, 0, real_size), w.type, has_vectors ? pointer(3, 0, size) : nullptr, m,
                           w.type, has_vectors ? pointer(4, 0, size) : nullptr, n, w.type, &device, &host);
      break;
    default:
      return "the record is malformed";
  }
  if (status) return failed("the choice of a kernel", status);
  if (std::string error = reserve(driver, stream, device, host); !error.empty()) return error;
  void *room = reinterpret_cast<void*>(workspace_), *host_room = host_workspace_.data();
  for (int64_t i = 0; i < w.count; i++) {
    void* const a = pointer(0, i * w.step, size);
    int* const info = static_cast<int*>(pointer(1, i, sizeof(int)));
    switch (w.work) {
      case Factorization::kLu:
        status = lib.Lu(handle_, parameters_, m, n, w.type, a, m, static_cast<int64_t*>(pointer(2, i * k, 8)),
                        w.type, room, device, host_room, host, info);
        break;
      case Factorization::kSolve:
        status = lib.Solve(handle_, parameters_, w.option, n, w.others, w.type, a, n,
                           static_cast<const int64_t*>(pointer(2, i * n, 8)), w.type,
                           pointer(3, i * n * w.others, size), n, info);
        break;
      case Factorization::kCholesky:
        status = lib.Cholesky(handle_, parameters_, fill, n, w.type, a, n, w.type, room, device, host_room,
                              host, info);
        break;
      case Factorization::kQr:
        status = lib.Qr(handle_, parameters_, m, n, w.type, a, m, w.type, pointer(2, i * k, size), w.type,
                        room, device, host_room, host, info);
        break;
      case Factorization::kQ: {
        const auto multiply = w.type == kFloat32 ? lib.Q32 : w.type == kFloat64 ? lib.Q64 : lib.QC;
        status = multiply(handle_, w.rows, w.columns, w.columns, a, w.rows, pointer(2, i * n, size), room,
                          words, info);
        break;
      }
      case Factorization::kEigen:
        status = lib.Eigen(handle_, parameters_, mode, fill, n, w.type, a, n, real,
                           pointer(2, i * n, real_size), w.type, room, device, host_room, host, info);
        break;
      default:
        status =
            lib.Svd(handle_, parameters_, job, job, m, n, w.type, a, m, real, pointer(2, i * k, real_size),
                    w.type, has_vectors ? pointer(3, i * m * left, size) : nullptr, m, w.type,
                    has_vectors ? pointer(4, i * n * n, size) : nullptr, n, w.type, room, device, host_room,
                    host, info);
    }
    if (status) return failed("the factorization", status);
  }
  return {};
}

std::string Verdicts::add(const Driver& driver, DevicePointer from, size_t count, const Failed& if_any,
                          Stream stream) {
  if (!data_) {
    void* made = nullptr;
    if (const Result r = driver.MemHostAlloc(&made, kMost * sizeof(int), 0))
      return "memory for its outcome: " + driver.describe(r);
    data_ = static_cast<int*>(made);
  }
  if (const Result r = driver.MemcpyDtoHAsync(data_ + used_, from, count * sizeof(int), stream))
    return "the transfer of its outcome: " + driver.describe(r);
  awaited_.push_back({used_, count, if_any});
  used_ += count;
  return {};
}

void Verdicts::conclude() {
  for (const auto& [first, count, if_any] : awaited_) {
    bool any = false;
    for (size_t i = 0; i < count; i++) any = any || data_[first + i] != 0;
    if (any) failed_.push_back(if_any);
  }
  awaited_.clear();
  used_ = 0;
}

void Verdicts::close(const Driver& driver) {
  if (data_) driver.MemFreeHost(data_);
  data_ = nullptr;
}

}  // namespace lz
