// alpha · x + beta · y for the CPU backend: BLAS's in-place sum where the result takes the memory of an
// operand, a plain loop over other contiguous float32, and a path for any strides and every floating and
// complex type. Results equal those of the primitive's decomposition to the bit: each product is rounded,
// then the sum.
#include "params.h"

#include <cstring>
#include <type_traits>

namespace {

// --- Element types: how they are read as what arithmetic is done in, and how a result is rounded

struct Float32 {
  using Stored = float;
  using Value = float;
  static float load(float x) { return x; }
  static float store(float x) { return x; }
};

struct Float64 {
  using Stored = double;
  using Value = double;
  static double load(double x) { return x; }
  static double store(double x) { return x; }
};

uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
float float_of(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

struct BFloat16 {
  using Stored = uint16_t;
  using Value = float;
  static float load(uint16_t x) { return float_of(uint32_t(x) << 16); }
  static uint16_t store(float x) {
    const uint32_t bits = bits_of(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);  // NaN stays NaN
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);                 // to nearest, ties to even
  }
};

struct Float16 {
  using Stored = uint16_t;
  using Value = float;
  static float load(uint16_t x) {
    const uint32_t sign = uint32_t(x & 0x8000) << 16, rest = x & 0x7fff;
    if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);  // infinite or NaN
    // Scaling by a power of two gives subnormals their exponent.
    return float_of(sign | bits_of(float_of(rest << 13) * 0x1p112f));
  }
  static uint16_t store(float x) {
    const uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    if (rest > 0x7f800000) return uint16_t(sign | 0x7e00);
    if (rest >= 0x477ff000) return uint16_t(sign | 0x7c00);  // 65520 and more round to infinity
    // Below the smallest normal number an addition lines the bits up and rounds them.
    if (rest < 0x38800000) return uint16_t(sign | (bits_of(float_of(rest) + 0.5f) - 0x3f000000));
    return uint16_t(sign | (rest + 0xfff + (rest >> 13 & 1) - 0x38000000) >> 13);
  }
};

struct Complex {
  float re, im;
};
Complex operator*(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }

struct Complex64 {
  using Stored = Complex;
  using Value = Complex;
  static Complex load(Complex x) { return x; }
  static Complex store(Complex x) { return x; }
};

// A factor in the element type.
template <class E>
typename E::Value factor(double value) {
  if constexpr (std::is_same_v<E, Complex64>)
    return {float(value), 0};
  else
    return E::load(E::store(typename E::Value(value)));
}

template <class E>
typename E::Stored combine(typename E::Stored x, typename E::Stored y, typename E::Value alpha,
                           typename E::Value beta) {
  const auto ax = E::load(E::store(E::load(x) * alpha));
  const auto by = E::load(E::store(E::load(y) * beta));
  return E::store(ax + by);
}

// --- Threads

template <class Body>
void parallel(const lz_call* call, int64_t n, int64_t grain, Body body) {
  call->ctx->parallel_for(
      call->ctx, n, grain, [](void* arg, int64_t from, int64_t to) { (*static_cast<Body*>(arg))(from, to); },
      &body);
}

constexpr int64_t kGrain = 1 << 15;  // elements a thread takes at least

// --- Contiguous, and the result takes the memory of y or of x: what BLAS calls axpby, by the host

bool is_in_place(const lz_call* call) {
  const lz_operand &x = call->in[0], &y = call->in[1], &out = call->out[0];
  return (out.data == y.data || out.data == x.data) && (x.flags & y.flags & LZ_CONTIGUOUS);
}

lz_status in_place(const lz_call* call, double alpha, double beta) {
  const lz_operand &x = call->in[0], &y = call->in[1], &out = call->out[0];
  const auto dtype = lz_dtype(out.dtype);
  if (out.data == y.data) return call->ctx->axpby(call->ctx, dtype, out.size, alpha, x.data, beta, out.data);
  return call->ctx->axpby(call->ctx, dtype, out.size, beta, y.data, alpha, out.data);
}

// --- Contiguous float32. The compiler vectorizes it, once for each instruction set where the C library can
// choose at load time.

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void contiguous(const float* x, const float* y, float* out, int64_t n, float alpha, float beta) {
  for (int64_t i = 0; i < n; i++) out[i] = x[i] * alpha + y[i] * beta;
}

// --- Any strides: rows along the last axis; the others are counted off by division, once a row

template <class E>
void strided(const lz_call* call, double alpha, double beta) {
  using Stored = typename E::Stored;
  const lz_operand &x = call->in[0], &y = call->in[1], &out = call->out[0];
  const int last = out.ndim - 1;
  const int64_t columns = out.ndim ? out.shape[last] : 1;
  const int64_t dx = out.ndim ? x.strides[last] : 0, dy = out.ndim ? y.strides[last] : 0;
  const auto a = factor<E>(alpha), b = factor<E>(beta);
  if (out.size == 0) return;
  parallel(call, out.size / columns, kGrain / columns + 1, [&](int64_t from, int64_t to) {
    for (int64_t row = from; row < to; row++) {
      int64_t rest = row, at_x = 0, at_y = 0;
      for (int axis = last - 1; axis >= 0; axis--) {
        const int64_t i = rest % out.shape[axis];
        rest /= out.shape[axis];
        at_x += i * x.strides[axis];
        at_y += i * y.strides[axis];
      }
      const auto* px = static_cast<const Stored*>(x.data) + at_x;
      const auto* py = static_cast<const Stored*>(y.data) + at_y;
      auto* to_out = static_cast<Stored*>(out.data) + row * columns;
      for (int64_t i = 0; i < columns; i++) to_out[i] = combine<E>(px[i * dx], py[i * dy], a, b);
    }
  });
}

lz_status axpby(const lz_call* call) try {
  const lz_operand &x = call->in[0], &y = call->in[1], &out = call->out[0];
  const lazuli::params::Axpby params(*call);
  const double alpha = params.alpha, beta = params.beta;
  const bool is_real = out.dtype == LZ_FLOAT32 || out.dtype == LZ_FLOAT64;
  if (is_real && is_in_place(call)) return in_place(call, alpha, beta);
  switch (out.dtype) {
    case LZ_FLOAT32:
      if (x.flags & y.flags & LZ_CONTIGUOUS) {
        parallel(call, out.size, kGrain, [&](int64_t from, int64_t to) {
          contiguous(static_cast<const float*>(x.data) + from, static_cast<const float*>(y.data) + from,
                     static_cast<float*>(out.data) + from, to - from, float(alpha), float(beta));
        });
      } else {
        strided<Float32>(call, alpha, beta);
      }
      return LZ_OK;
    case LZ_FLOAT16:
      strided<Float16>(call, alpha, beta);
      return LZ_OK;
    case LZ_BFLOAT16:
      strided<BFloat16>(call, alpha, beta);
      return LZ_OK;
    case LZ_FLOAT64:
      strided<Float64>(call, alpha, beta);
      return LZ_OK;
    case LZ_COMPLEX64:
      strided<Complex64>(call, alpha, beta);
      return LZ_OK;
    default:
      call->ctx->fail(call->ctx, "[axpby] there is no kernel for dtype %d", int(out.dtype));
      return LZ_FAILED;
  }
} catch (const lazuli::Failed&) {
  return LZ_FAILED;
}

const lz_kernel_entry entries[] = {{"@lazuli/ext-axpby/axpby", axpby}, {nullptr, nullptr}};

}  // namespace

const lz_kernel_table lazuli_kernels = {LZ_KERNEL_ABI, entries};
