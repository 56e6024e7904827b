// A double of cuSOLVER: factorizations by textbook loops in doubles, on the double's streams.
// LAZULI_CUDA_DOUBLE=factorization fails each of them, =no-convergence gives no singular or eigenvalues, and
// =library-memory fails the making of a handle.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "double/elements.h"

#define LZ_EXPORT extern "C" __attribute__((visibility("default")))

// Adds work to a stream of the double of the driver.
extern "C" int lzDoubleWork(void* stream, void (*run)(void*), void (*drop)(void*), void* data);

namespace {

enum : int { kAllocationFailed = 2, kInvalidValue = 3, kExecutionFailed = 5 };
enum : int { kFloat32 = 0, kFloat64 = 1, kComplex64 = 4 };
constexpr size_t kRoom = 64, kHostRoom = 16;

using Number = std::complex<double>;
struct Handle {
  void* stream = nullptr;
};

Number read(const void* at, int type, int64_t i) {
  if (type == kComplex64) {
    const float* x = static_cast<const float*>(at) + 2 * i;
    return {x[0], x[1]};
  }
  return lz::read(at, type, i);
}
void write(void* at, int type, int64_t i, Number v) {
  if (type == kComplex64) {
    float* x = static_cast<float*>(at) + 2 * i;
    x[0] = float(v.real());
    x[1] = float(v.imag());
  } else
    lz::write(at, type, i, v.real());
}

// By columns.
struct Matrix {
  int64_t rows, columns;
  std::vector<Number> values;
  Matrix(int64_t m, int64_t n) : rows(m), columns(n), values(size_t(m * n)) {}
  Matrix(const void* at, int type, int64_t m, int64_t n, int64_t step) : Matrix(m, n) {
    for (int64_t j = 0; j < n; j++)
      for (int64_t i = 0; i < m; i++) (*this)(i, j) = read(at, type, i + j * step);
  }
  Number& operator()(int64_t i, int64_t j) { return values[size_t(i + j * rows)]; }
  const Number& operator()(int64_t i, int64_t j) const { return values[size_t(i + j * rows)]; }
  void store(void* at, int type, int64_t step) const {
    for (int64_t j = 0; j < columns; j++)
      for (int64_t i = 0; i < rows; i++) write(at, type, i + j * step, (*this)(i, j));
  }
};

bool is_type(int type) { return type == kFloat32 || type == kFloat64 || type == kComplex64; }

template <class F>
int later(void* handle, F work) {
  if (lz::asked("factorization")) return kExecutionFailed;
  using Work = std::function<void()>;
  return lzDoubleWork(
      static_cast<Handle*>(handle)->stream, [](void* data) { (*static_cast<Work*>(data))(); },
      [](void* data) { delete static_cast<Work*>(data); }, new Work(std::move(work)));
}
int rooms(size_t* device, size_t* host) {
  *device = kRoom;
  *host = kHostRoom;
  return 0;
}
bool has_rooms(const void* device, size_t device_size, const void* host, size_t host_size) {
  return device && device_size >= kRoom && host && host_size >= kHostRoom;
}

int lu(Matrix& a, int64_t* pivots) {
  int info = 0;
  const int64_t m = a.rows, n = a.columns;
  for (int64_t k = 0; k < std::min(m, n); k++) {
    int64_t best = k;
    // As BLAS measures complex numbers.
    const auto size = [&](int64_t i) { return std::abs(a(i, k).real()) + std::abs(a(i, k).imag()); };
    for (int64_t i = k + 1; i < m; i++)
      if (size(i) > size(best)) best = i;
    pivots[k] = best + 1;
    for (int64_t j = 0; j < n; j++) std::swap(a(k, j), a(best, j));
    if (a(k, k) == 0.0) {
      if (info == 0) info = int(k) + 1;
      continue;
    }
    for (int64_t i = k + 1; i < m; i++) {
      a(i, k) /= a(k, k);
      for (int64_t j = k + 1; j < n; j++) a(i, j) -= a(i, k) * a(k, j);
    }
  }
  return info;
}

void solve(const Matrix& a, const int64_t* pivots, bool transposed, Matrix& b) {
  const int64_t n = a.rows;
  for (int64_t c = 0; c < b.columns; c++) {
    const auto substitute = [&](bool upward, bool is_unit) {
      for (int64_t s = 0; s < n; s++) {
        const int64_t i = upward ? n - 1 - s : s;
        for (int64_t t = 0; t < s; t++) {
          const int64_t j = upward ? n - 1 - t : t;
          b(i, c) -= (transposed ? a(j, i) : a(i, j)) * b(j, c);
        }
        if (!is_unit) b(i, c) /= a(i, i);
      }
    };
    if (!transposed) {
      for (int64_t i = 0; i < n; i++) std::swap(b(i, c), b(pivots[i] - 1, c));
      substitute(false, true);
      substitute(true, false);
    } else {
      substitute(false, false);
      substitute(true, true);
      for (int64_t i = n - 1; i >= 0; i--) std::swap(b(i, c), b(pivots[i] - 1, c));
    }
  }
}

// Reflections I − τ·v·vᴴ below R, and their factors.
void qr(Matrix& a, std::vector<Number>& tau) {
  for (int64_t k = 0; k < std::min(a.rows, a.columns); k++) {
    double norm = 0;
    for (int64_t i = k; i < a.rows; i++) norm += std::norm(a(i, k));
    norm = std::sqrt(norm);
    const Number first = a(k, k);
    tau.push_back(0);
    if (norm == 0 || (norm == std::abs(first) && first.imag() == 0)) continue;
    const double beta = first.real() >= 0 ? -norm : norm;
    tau.back() = Number((beta - first.real()) / beta, -first.imag() / beta);
    for (int64_t i = k + 1; i < a.rows; i++) a(i, k) /= first - beta;
    a(k, k) = beta;
    for (int64_t j = k + 1; j < a.columns; j++) {
      Number sum = a(k, j);
      for (int64_t i = k + 1; i < a.rows; i++) sum += std::conj(a(i, k)) * a(i, j);
      sum *= std::conj(tau.back());
      a(k, j) -= sum;
      for (int64_t i = k + 1; i < a.rows; i++) a(i, j) -= a(i, k) * sum;
    }
  }
}
Matrix q_of(const Matrix& a, const std::vector<Number>& tau) {
  const int64_t m = a.rows, k = a.columns;
  Matrix q(m, k);
  for (int64_t i = 0; i < k; i++) q(i, i) = 1;
  for (int64_t r = k - 1; r >= 0; r--)
    for (int64_t j = r; j < k; j++) {
      Number sum = q(r, j);
      for (int64_t i = r + 1; i < m; i++) sum += std::conj(a(i, r)) * q(i, j);
      sum *= tau[size_t(r)];
      q(r, j) -= sum;
      for (int64_t i = r + 1; i < m; i++) q(i, j) -= a(i, r) * sum;
    }
  return q;
}

// Rotates pairs of columns until they are orthogonal; v has the rotations.
void orthogonalize(Matrix& a, Matrix& v) {
  const int64_t n = a.columns;
  for (int sweep = 0, moved = 1; moved && sweep < 60; sweep++) {
    moved = 0;
    for (int64_t p = 0; p < n; p++)
      for (int64_t q = p + 1; q < n; q++) {
        double x = 0, y = 0;
        Number c = 0;
        for (int64_t i = 0; i < a.rows; i++) {
          x += std::norm(a(i, p));
          y += std::norm(a(i, q));
          c += std::conj(a(i, p)) * a(i, q);
        }
        if (std::abs(c) <= 1e-15 * std::sqrt(x * y) || std::abs(c) < 1e-300) continue;
        moved = 1;
        const double zeta = (y - x) / (2 * std::abs(c));
        const double t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::hypot(1, zeta));
        const double cosine = 1 / std::hypot(1, t), sine = cosine * t;
        const Number phase = c / std::abs(c);
        for (Matrix* each : {&a, &v})
          for (int64_t i = 0; i < each->rows; i++) {
            const Number left = (*each)(i, p), right = (*each)(i, q);
            (*each)(i, p) = cosine * left - sine * std::conj(phase) * right;
            (*each)(i, q) = sine * phase * left + cosine * right;
          }
      }
  }
}

struct Svd {
  Matrix u, vt;
  std::vector<double> s;
};
// Of at least as many rows as columns; with all left vectors.
Svd svd(Matrix a) {
  const int64_t m = a.rows, n = a.columns;
  Matrix v(n, n);
  for (int64_t i = 0; i < n; i++) v(i, i) = 1;
  orthogonalize(a, v);
  std::vector<double> norms(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; j++) {
    double sum = 0;
    for (int64_t i = 0; i < m; i++) sum += std::norm(a(i, j));
    norms[size_t(j)] = std::sqrt(sum);
  }
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t i, int64_t j) { return norms[size_t(i)] > norms[size_t(j)]; });
  Svd made{Matrix(m, m), Matrix(n, n), {}};
  int64_t filled = 0, axis = 0;
  for (int64_t j = 0; j < n; j++) {
    const int64_t from = order[size_t(j)];
    made.s.push_back(norms[size_t(from)]);
    for (int64_t i = 0; i < n; i++) made.vt(j, i) = std::conj(v(i, from));
    if (norms[size_t(from)] <= 1e-14 * norms[size_t(order[0])]) continue;
    for (int64_t i = 0; i < m; i++) made.u(i, j) = a(i, from) / norms[size_t(from)];
    filled = j + 1;
  }
  // The rest of the basis from unit vectors, made orthogonal twice.
  for (int64_t j = filled; j < m; axis++) {
    std::vector<Number> e(static_cast<size_t>(m));
    e[size_t(axis % m)] = 1;
    for (int twice = 0; twice < 2; twice++)
      for (int64_t k = 0; k < j; k++) {
        Number dot = 0;
        for (int64_t i = 0; i < m; i++) dot += std::conj(made.u(i, k)) * e[size_t(i)];
        for (int64_t i = 0; i < m; i++) e[size_t(i)] -= dot * made.u(i, k);
      }
    double norm = 0;
    for (const Number& x : e) norm += std::norm(x);
    if (norm < 1e-3 / double(m)) continue;
    for (int64_t i = 0; i < m; i++) made.u(i, j) = e[size_t(i)] / std::sqrt(norm);
    j++;
  }
  return made;
}

// Eigenvalues in ascending order, by Jacobi's rotations.
void eigen(Matrix& a, std::vector<double>& w) {
  const int64_t n = a.rows;
  Matrix v(n, n);
  for (int64_t i = 0; i < n; i++) v(i, i) = 1;
  for (int sweep = 0, moved = 1; moved && sweep < 60; sweep++) {
    moved = 0;
    for (int64_t p = 0; p < n; p++)
      for (int64_t q = p + 1; q < n; q++) {
        const double size = std::abs(a(p, q));
        if (size <= 1e-16 * std::sqrt(std::abs(a(p, p) * a(q, q))) + 1e-300) continue;
        moved = 1;
        const Number phase = a(p, q) / size;
        const double zeta = (a(q, q).real() - a(p, p).real()) / (2 * size);
        const double t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::hypot(1, zeta));
        const double cosine = 1 / std::hypot(1, t), sine = cosine * t;
        for (Matrix* each : {&a, &v})
          for (int64_t i = 0; i < n; i++) {
            const Number left = (*each)(i, p), right = (*each)(i, q);
            (*each)(i, p) = cosine * left - sine * std::conj(phase) * right;
            (*each)(i, q) = sine * phase * left + cosine * right;
          }
        for (int64_t j = 0; j < n; j++) {
          const Number up = a(p, j), down = a(q, j);
          a(p, j) = cosine * up - sine * phase * down;
          a(q, j) = sine * std::conj(phase) * up + cosine * down;
        }
        a(p, q) = a(q, p) = 0;
      }
  }
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t i, int64_t j) { return a(i, i).real() < a(j, j).real(); });
  Matrix sorted(n, n);
  for (int64_t j = 0; j < n; j++) {
    w.push_back(a(order[size_t(j)], order[size_t(j)]).real());
    for (int64_t i = 0; i < n; i++) sorted(i, j) = v(i, order[size_t(j)]);
  }
  a = sorted;
}

}  // namespace

LZ_EXPORT int cusolverDnCreate(void** handle) {
  if (lz::asked("library-memory")) return kAllocationFailed;
  *handle = new Handle;
  return 0;
}
LZ_EXPORT int cusolverDnDestroy(void* handle) {
  delete static_cast<Handle*>(handle);
  return 0;
}
LZ_EXPORT int cusolverDnSetStream(void* handle, void* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}
LZ_EXPORT int cusolverDnCreateParams(void** made) {
  static int token;
  *made = &token;
  return 0;
}
LZ_EXPORT int cusolverDnDestroyParams(void*) { return 0; }

LZ_EXPORT int cusolverDnXgetrf_bufferSize(void*, void*, int64_t m, int64_t n, int type, const void*,
                                          int64_t step, int, size_t* device, size_t* host) {
  return m < 1 || n < 1 || step < m || !is_type(type) ? int(kInvalidValue) : rooms(device, host);
}
LZ_EXPORT int cusolverDnXgetrf(void* handle, void*, int64_t m, int64_t n, int type, void* at, int64_t step,
                               int64_t* pivots, int, void* device, size_t device_size, void* host,
                               size_t host_size, int* info) {
  if (!has_rooms(device, device_size, host, host_size)) return kInvalidValue;
  return later(handle, [=] {
    Matrix a(at, type, m, n, step);
    *info = lu(a, pivots);
    a.store(at, type, step);
  });
}
LZ_EXPORT int cusolverDnXgetrs(void* handle, void*, int how, int64_t n, int64_t columns, int type,
                               const void* factors, int64_t step, const int64_t* pivots, int b_type, void* b,
                               int64_t b_step, int* info) {
  if (how < 0 || how > 1 || n < 1 || columns < 1 || step < n || b_step < n || type != b_type)
    return kInvalidValue;
  return later(handle, [=] {
    Matrix x(b, type, n, columns, b_step);
    solve(Matrix(factors, type, n, n, step), pivots, how == 1, x);
    x.store(b, type, b_step);
    *info = 0;
  });
}
LZ_EXPORT int cusolverDnXpotrf_bufferSize(void*, void*, int, int64_t n, int type, const void*, int64_t step,
                                          int, size_t* device, size_t* host) {
  return n < 1 || step < n || !is_type(type) ? int(kInvalidValue) : rooms(device, host);
}
LZ_EXPORT int cusolverDnXpotrf(void* handle, void*, int fill, int64_t n, int type, void* at, int64_t step,
                               int, void* device, size_t device_size, void* host, size_t host_size,
                               int* info) {
  if (!has_rooms(device, device_size, host, host_size)) return kInvalidValue;
  return later(handle, [=] {
    // Of an upper triangle the lower one of its adjoint is found.
    Matrix a(at, type, n, n, step);
    const auto element = [&](int64_t i, int64_t j) { return fill == 1 ? std::conj(a(j, i)) : a(i, j); };
    Matrix low(n, n);
    *info = 0;
    for (int64_t i = 0; i < n && *info == 0; i++)
      for (int64_t j = 0; j <= i; j++) {
        Number sum = element(i, j);
        for (int64_t k = 0; k < j; k++) sum -= low(i, k) * std::conj(low(j, k));
        if (i == j && !(sum.real() > 0)) {
          *info = int(i) + 1;
          break;
        }
        low(i, j) = i == j ? std::sqrt(sum.real()) : sum / low(j, j);
      }
    for (int64_t i = 0; i < n; i++)
      for (int64_t j = 0; j <= i; j++)
        (fill == 1 ? a(j, i) : a(i, j)) = fill == 1 ? std::conj(low(i, j)) : low(i, j);
    a.store(at, type, step);
  });
}
LZ_EXPORT int cusolverDnXgeqrf_bufferSize(void*, void*, int64_t m, int64_t n, int type, const void*,
                                          int64_t step, int, const void*, int, size_t* device, size_t* host) {
  return m < 1 || n < 1 || step < m || !is_type(type) ? int(kInvalidValue) : rooms(device, host);
}
LZ_EXPORT int cusolverDnXgeqrf(void* handle, void*, int64_t m, int64_t n, int type, void* at, int64_t step,
                               int, void* factors, int, void* device, size_t device_size, void* host,
                               size_t host_size, int* info) {
  if (!has_rooms(device, device_size, host, host_size)) return kInvalidValue;
  return later(handle, [=] {
    Matrix a(at, type, m, n, step);
    std::vector<Number> tau;
    qr(a, tau);
    a.store(at, type, step);
    for (size_t i = 0; i < tau.size(); i++) write(factors, type, int64_t(i), tau[i]);
    *info = 0;
  });
}
namespace {
int q_room(int m, int n, int k, int step, int* words) {
  if (n < 1 || m < n || n < k || step < m) return kInvalidValue;
  *words = 8;
  return 0;
}
int q_in_place(void* handle, int type, int m, int n, int k, void* at, int step, const void* factors,
               void* room, int words, int* info) {
  if (n < 1 || m < n || n != k || step < m || !room || words < 8) return kInvalidValue;
  return later(handle, [=] {
    std::vector<Number> tau;
    for (int i = 0; i < k; i++) tau.push_back(read(factors, type, i));
    q_of(Matrix(at, type, m, n, step), tau).store(at, type, step);
    *info = 0;
  });
}
}  // namespace
#define LZ_Q(letter, name, type)                                                                         \
  LZ_EXPORT int cusolverDn##letter##name##_bufferSize(void*, int m, int n, int k, const void*, int step, \
                                                      const void*, int* words) {                         \
    return q_room(m, n, k, step, words);                                                                 \
  }                                                                                                      \
  LZ_EXPORT int cusolverDn##letter##name(void* handle, int m, int n, int k, void* at, int step,          \
                                         const void* factors, void* room, int words, int* info) {        \
    return q_in_place(handle, type, m, n, k, at, step, factors, room, words, info);                      \
  }
LZ_Q(S, orgqr, kFloat32)
LZ_Q(D, orgqr, kFloat64)
LZ_Q(C, ungqr, kComplex64)

LZ_EXPORT int cusolverDnXsyevd_bufferSize(void*, void*, int, int, int64_t n, int type, const void*,
                                          int64_t step, int, const void*, int, size_t* device, size_t* host) {
  return n < 1 || step < n || !is_type(type) ? int(kInvalidValue) : rooms(device, host);
}
LZ_EXPORT int cusolverDnXsyevd(void* handle, void*, int vectors, int fill, int64_t n, int type, void* at,
                               int64_t step, int real, void* values, int, void* device, size_t device_size,
                               void* host, size_t host_size, int* info) {
  if (!has_rooms(device, device_size, host, host_size)) return kInvalidValue;
  const bool fails = lz::asked("no-convergence");
  return later(handle, [=] {
    Matrix a(at, type, n, n, step);
    for (int64_t i = 0; i < n; i++) {
      a(i, i) = a(i, i).real();
      for (int64_t j = 0; j < i; j++) {
        if (fill == 1)
          a(i, j) = std::conj(a(j, i));
        else
          a(j, i) = std::conj(a(i, j));
      }
    }
    std::vector<double> w;
    eigen(a, w);
    for (int64_t i = 0; i < n; i++) write(values, real, i, w[size_t(i)]);
    if (vectors == 1) a.store(at, type, step);
    *info = fails ? 1 : 0;
  });
}
LZ_EXPORT int cusolverDnXgesvd_bufferSize(void*, void*, signed char, signed char, int64_t m, int64_t n,
                                          int type, const void*, int64_t step, int, const void*, int,
                                          const void*, int64_t, int, const void*, int64_t, int,
                                          size_t* device, size_t* host) {
  // As the library, it wants as many rows as columns.
  return n < 1 || m < n || step < m || !is_type(type) ? int(kInvalidValue) : rooms(device, host);
}
LZ_EXPORT int cusolverDnXgesvd(void* handle, void*, signed char left, signed char right, int64_t m, int64_t n,
                               int type, void* at, int64_t step, int real, void* values, int, void* u,
                               int64_t u_step, int, void* vt, int64_t vt_step, int, void* device,
                               size_t device_size, void* host, size_t host_size, int* info) {
  if (m < n || left != right || !has_rooms(device, device_size, host, host_size)) return kInvalidValue;
  const bool fails = lz::asked("no-convergence");
  return later(handle, [=] {
    Svd made = svd(Matrix(at, type, m, n, step));
    for (int64_t i = 0; i < n; i++) write(values, real, i, made.s[size_t(i)]);
    if (left != 'N') {
      if (left == 'S') {
        made.u.values.resize(size_t(m * n));
        made.u.columns = n;
      }
      made.u.store(u, type, u_step);
      made.vt.store(vt, type, vt_step);
    }
    *info = fails ? 1 : 0;
  });
}
