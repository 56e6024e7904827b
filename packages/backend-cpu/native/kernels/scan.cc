// Running sums, products, extremes and log-sum-exps along one axis. Floating types accumulate in double, so
// long scans do not drift. Sums of bool are int32.
// Along the last axis rows are scanned one by one; along another, all that lies behind it is scanned side by
// side. A long row is cut into pieces by its length alone: a thread adds up the next one, waits for what
// precedes it, and scans it while it is in its cache.
#include "simd/scan.h"

#include <atomic>
#include <cmath>
#include <thread>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "runtime/blocks.h"
#include "simd/reduce.h"

namespace lazuli {
namespace {

enum class Scan { sum, prod, max, min, logsumexp };

template <Scan Op, class T>
using wide_of = std::conditional_t<
    is_floating<T>, double,
    std::conditional_t<is_complex<T>, complex64, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>>;

template <Scan Op, class T>
wide_of<Op, T> identity() {
  using W = wide_of<Op, T>;
  if constexpr (Op == Scan::logsumexp)
    return -HUGE_VAL;
  else if constexpr (Op == Scan::sum)
    return W(0);
  else if constexpr (Op == Scan::prod)
    return W(1);
  else if constexpr (is_complex<T>)
    return Op == Scan::min ? W(HUGE_VALF, HUGE_VALF) : W(-HUGE_VALF, -HUGE_VALF);
  else if constexpr (is_floating<T>)
    return Op == Scan::min ? HUGE_VAL : -HUGE_VAL;
  else
    return W(Op == Scan::min ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min());
}

template <Scan Op, class W>
W combine(W a, W b) {
  if constexpr (Op == Scan::sum) {
    // Through uint64, where wrapping is defined.
    if constexpr (std::is_integral_v<W>)
      return W(uint64_t(a) + uint64_t(b));
    else
      return a + b;
  } else if constexpr (Op == Scan::prod) {
    if constexpr (std::is_integral_v<W>)
      return W(uint64_t(a) * uint64_t(b));
    else if constexpr (is_complex<W>)
      return W(a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real());
    else
      return a * b;
  } else if constexpr (Op == Scan::logsumexp) {
    const W high = a > b ? a : b, low = a > b ? b : a;
    if (a != a || b != b) return a + b;
    return std::isinf(high) ? high : high + std::log1p(std::exp(low - high));
  } else {
    if (is_nan(a)) return a;
    if (is_nan(b)) return b;
    return (Op == Scan::max ? less(a, b) : less(b, a)) ? b : a;
  }
}

// Scans `lanes` neighbours (at most kLanes) through n steps.
constexpr int64_t kLanes = 64;

template <Scan Op, class T, class R>
void scan_lanes(const T* x, R* y, int64_t lanes, int64_t n, int64_t stride, bool inclusive) {
  using W = wide_of<Op, T>;
  W total[kLanes];
  std::fill_n(total, lanes, identity<Op, T>());
  for (int64_t i = 0; i < n; i++, x += stride, y += stride) {
    for (int64_t j = 0; j < lanes; j++) {
      const W next = combine<Op>(total[j], convert<W>(x[j]));
      y[j] = convert<R>(inclusive ? next : total[j]);
      total[j] = next;
    }
  }
}

// True if simd/scan.cc scans rows of a type.
template <class T>
constexpr bool has_rows =
    std::is_same_v<T, float> || std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;
template <class T>
constexpr int32_t dtype_of = std::is_same_v<T, float>     ? LZ_FLOAT32
                             : std::is_same_v<T, float16> ? LZ_FLOAT16
                                                          : LZ_BFLOAT16;

// True if numbers may be added in any order: what is accumulated wraps, or has room for any sum.
template <Scan Op, class T>
constexpr bool kFree = Op == Scan::sum && !is_complex<T> && !std::is_same_v<T, double>;

// From `total` on; gives the total behind the last.
template <Scan Op, class T, class R>
wide_of<Op, T> scan_row(const T* x, R* y, int64_t n, int64_t stride, bool inclusive, wide_of<Op, T> total,
                        bool streaming = false) {
  using W = wide_of<Op, T>;
  int64_t i = 0;
  if constexpr (Op == Scan::sum && has_rows<T>) {
    if (stride == 1) return scan_table().sums[dtype_of<T>](x, y, n, inclusive, streaming, total);
  }
  // One addition waits for the one before: eight numbers are summed up beside each other, and wait once.
  if constexpr (kFree<Op, T> && std::is_same_v<W, double>) {
    constexpr int64_t kFew = 8;
    for (; i + kFew <= n; i += kFew, x += kFew * stride, y += kFew * stride) {
      W sums[kFew + 1];
      sums[0] = 0;
      for (int64_t j = 0; j < kFew; j++) sums[j + 1] = sums[j] + convert<W>(x[j * stride]);
      for (int64_t j = 0; j < kFew; j++) y[j * stride] = convert<R>(total + sums[j + inclusive]);
      total += sums[kFew];
    }
  }
  for (; i < n; i++, x += stride, y += stride) {
    const W next = combine<Op>(total, convert<W>(*x));
    *y = convert<R>(inclusive ? next : total);
    total = next;
  }
  return total;
}

// Of neighbours; `stride` is 1 or -1.
template <class T>
wide_of<Scan::sum, T> sum_piece(int32_t dtype, const T* x, int64_t n, int64_t stride) {
  using W = wide_of<Scan::sum, T>;
  if constexpr (std::is_integral_v<T>) {
    W sum = 0;
    reduce_table().rows[kSum][dtype](stride < 0 ? x - (n - 1) : x, 1, 0, n, &sum);
    return sum;
  } else {
    if constexpr (has_rows<T>) {
      if (stride == 1) return scan_table().sum[dtype](x, n);
    }
    constexpr int64_t kFew = 8;
    W sums[kFew] = {};
    int64_t i = 0;
    for (; i + kFew <= n; i += kFew) {
      for (int64_t j = 0; j < kFew; j++) sums[j] += convert<W>(x[(i + j) * stride]);
    }
    for (; i < n; i++) sums[0] += convert<W>(x[i * stride]);
    for (int64_t j = 1; j < kFew; j++) sums[0] += sums[j];
    return sums[0];
  }
}

constexpr int64_t kPiece = 32768;

template <Scan Op, class T, class R>
void scan_pieces(const lz_call& call, const T* x, R* y, int64_t n, int64_t stride, bool inclusive) {
  using W = wide_of<Op, T>;
  const int64_t pieces = (n + kPiece - 1) / kPiece, threads = std::max(1, call.ctx->threads);
  const bool streaming =
      x != static_cast<const void*>(y) && size_t(n) * (sizeof(T) + sizeof(R)) > last_level_cache();
  // `total` is what precedes piece `done`: it belongs to the thread that scans that piece.
  std::atomic<int64_t> next{0}, done{0};
  W total = identity<Op, T>();
  parallel(call, threads, 1.0 * double(pieces * kPiece) / double(threads), [&](int64_t, int64_t) {
    for (;;) {
      const int64_t p = next.fetch_add(1, std::memory_order_relaxed);
      if (p >= pieces) return;
      const int64_t at = p * kPiece, length = std::min(kPiece, n - at);
      const W sum = sum_piece(call.in[0].dtype, x + at * stride, length, stride);
      for (int spins = 0; done.load(std::memory_order_acquire) < p; spins++)
        if (spins > 1000) std::this_thread::yield();
      const W before = total;
      total = combine<Op>(before, sum);
      done.store(p + 1, std::memory_order_release);
      scan_row<Op>(x + at * stride, y + at * stride, length, stride, inclusive, before, streaming);
    }
  });
}

static_assert(std::is_same_v<params::Cumprod, params::Cumsum>);
static_assert(std::is_same_v<params::Cummax, params::Cumsum>);
static_assert(std::is_same_v<params::Cummin, params::Cumsum>);
static_assert(std::is_same_v<params::Logcumsumexp, params::Cumsum>);

template <Scan Op>
void scan(const lz_call& call) {
  constexpr const char* names[] = {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"};
  constexpr const char* op = names[int(Op)];
  require_counts(call, op, 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  const bool counts = Op == Scan::sum && x.dtype == LZ_BOOL;
  bool fits = y.ndim == x.ndim && y.dtype == (counts ? int32_t(LZ_INT32) : x.dtype);
  for (int d = 0; d < x.ndim && fits; d++) fits = y.shape[d] == x.shape[d];
  require(call, fits, "[%s] the output's shape or dtype does not fit the input's", op);
  const params::Cumsum params(call);
  const int axis = int(normalize_axis(call, op, params.axis, x.ndim));
  const bool reverse = params.reverse, inclusive = params.inclusive;
  using Types = std::conditional_t<Op == Scan::logsumexp, floating_types, every>;
  dispatch_or_fail<Types>(call, op, x.dtype, [&]<class T>() {
    if (y.size == 0) return;
    const T* from = contiguous<T>(call, x);
    using R = std::conditional_t<Op == Scan::sum && std::is_same_v<T, bool>, int32_t, T>;
    R* to = data<R>(y);
    int64_t inner = 1;
    for (int d = axis + 1; d < x.ndim; d++) inner *= x.shape[d];
    const int64_t n = x.shape[axis], outer = x.size / (n * inner);
    const int64_t stride = reverse ? -inner : inner, first = reverse ? (n - 1) * inner : 0;
    const double each = Op == Scan::logsumexp ? 25 : 1.5;
    const int64_t groups = (inner + kLanes - 1) / kLanes;
    if constexpr (kFree<Op, T>) {
      if (inner == 1 && outer <= 8 && n >= 4 * kPiece) {
        for (int64_t row = 0; row < outer; row++)
          scan_pieces<Op>(call, from + row * n + first, to + row * n + first, n, stride, inclusive);
        return;
      }
    }
    parallel(call, outer * groups, each * double(n) * double(std::min(inner, kLanes)),
             [&](int64_t begin, int64_t end) {
               for (int64_t item = begin; item < end; item++) {
                 const int64_t lane = item % groups * kLanes, at = item / groups * n * inner + first + lane;
                 if (inner == 1)
                   scan_row<Op>(from + at, to + at, n, stride, inclusive, identity<Op, T>());
                 else
                   scan_lanes<Op>(from + at, to + at, std::min(kLanes, inner - lane), n, stride, inclusive);
               }
             });
  });
}

}  // namespace

void register_scan(Registry& registry) {
  registry.add("cumsum", entry<scan<Scan::sum>>);
  registry.add("cumprod", entry<scan<Scan::prod>>);
  registry.add("cummax", entry<scan<Scan::max>>);
  registry.add("cummin", entry<scan<Scan::min>>);
  registry.add("logcumsumexp", entry<scan<Scan::logsumexp>>, kFloatingDtypes);
}

}  // namespace lazuli
