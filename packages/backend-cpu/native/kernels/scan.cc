// Running sums, products, extremes and log-sum-exps along one axis. Floating types accumulate in double, so
// long scans do not drift. Along the last axis rows are scanned one by one; along another, all that lies
// behind it is scanned side by side.
#include <cmath>

#include "kernels/families.h"
#include "kernels/layout.h"

namespace lazuli {
namespace {

enum class Scan { sum, prod, max, min, logsumexp };

template <class T>
using wide_of = std::conditional_t<
    is_floating<T>, double,
    std::conditional_t<is_complex<T>, complex64, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>>;

template <Scan Op, class T>
wide_of<T> identity() {
  using W = wide_of<T>;
  if constexpr (Op == Scan::sum)
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

template <Scan Op, class T>
void scan_lanes(const T* x, T* y, int64_t lanes, int64_t n, int64_t step, bool inclusive) {
  using W = wide_of<T>;
  W total[kLanes];
  std::fill_n(total, lanes, identity<Op, T>());
  for (int64_t i = 0; i < n; i++, x += step, y += step) {
    for (int64_t j = 0; j < lanes; j++) {
      const W next = combine<Op>(total[j], convert<W>(x[j]));
      y[j] = convert<T>(inclusive ? next : total[j]);
      total[j] = next;
    }
  }
}

template <Scan Op, class T>
void scan_row(const T* x, T* y, int64_t n, int64_t step, bool inclusive) {
  auto total = identity<Op, T>();
  for (int64_t i = 0; i < n; i++, x += step, y += step) {
    const auto next = combine<Op>(total, convert<wide_of<T>>(*x));
    *y = convert<T>(inclusive ? next : total);
    total = next;
  }
}

template <Scan Op>
void scan(const lz_call& call) {
  constexpr const char* names[] = {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"};
  constexpr const char* op = names[int(Op)];
  require_counts(call, op, 1, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  require_same(call, op, x, y);
  Params params(call);
  const int axis = int(normalize_axis(call, op, params.integer(), x.ndim));
  const bool reverse = params.boolean(), inclusive = params.boolean();
  using Types = std::conditional_t<Op == Scan::logsumexp, floating_types, every>;
  dispatch_or_fail<Types>(call, op, x.dtype, [&]<class T>() {
    if (y.size == 0) return;
    const T* from = contiguous<T>(call, x);
    T* to = data<T>(y);
    int64_t inner = 1;
    for (int d = axis + 1; d < x.ndim; d++) inner *= x.shape[d];
    const int64_t n = x.shape[axis], outer = x.size / (n * inner);
    const int64_t step = reverse ? -inner : inner, first = reverse ? (n - 1) * inner : 0;
    const double each = Op == Scan::logsumexp ? 25 : 1.5;
    const int64_t groups = (inner + kLanes - 1) / kLanes;
    parallel(call, outer * groups, each * double(n) * double(std::min(inner, kLanes)),
             [&](int64_t begin, int64_t end) {
               for (int64_t item = begin; item < end; item++) {
                 const int64_t lane = item % groups * kLanes, at = item / groups * n * inner + first + lane;
                 if (inner == 1)
                   scan_row<Op>(from + at, to + at, n, step, inclusive);
                 else
                   scan_lanes<Op>(from + at, to + at, std::min(kLanes, inner - lane), n, step, inclusive);
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
  registry.add("logcumsumexp", entry<scan<Scan::logsumexp>>);
}

}  // namespace lazuli
