// Attention and its gradient against the formulas in double.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/harness.h"

namespace lazuli::test {
namespace {

void one(int32_t dtype, int64_t B, int64_t H, int64_t Hk, int64_t L, int64_t S, int64_t D, int64_t E,
         bool causal, int mask_kind, bool has_sinks = false) {
  const double scale = 1 / std::sqrt(double(std::max<int64_t>(D, 1)));
  const Array q = random_layout(dtype, {B, H, L, D}, -2, 2), k = random_layout(dtype, {B, Hk, S, D}, -2, 2),
              v = random_layout(dtype, {B, Hk, S, E}, -2, 2);
  const Array g = random_layout(dtype, {B, H, L, E}, -1, 1);
  std::vector<Array> in{q, k, v};
  const int32_t mask_dtype = mask_kind == 1 ? LZ_BOOL : dtype;
  Array mask = mask_kind == 3 ? random_layout(mask_dtype, {L, S}) : random_layout(mask_dtype, {B, H, L, S});
  if (mask_kind) in.push_back(mask);
  const Array sinks = random_array(LZ_FLOAT32, {uniform(0, 1) ? B : 1, H});
  if (has_sinks) in.push_back(sinks);
  const std::vector<int64_t> params{bits(scale), causal, mask_kind != 0, has_sinks};
  Array o = zeros(dtype, {B, H, L, E}), lse = zeros(LZ_FLOAT32, {B, H, L});
  const std::string what = describe(q) + describe(k) + (causal ? " causal" : "") + " mask " +
                           std::to_string(mask_kind) + (has_sinks ? " sinks" : "");
  check_ok(run("scaledDotProductAttention", in, {o, lse}, params), what);

  Array p = zeros(LZ_FLOAT64, {B, H, L, S}), want = zeros(LZ_FLOAT64, {B, H, L, E}),
        want_lse = zeros(LZ_FLOAT64, {B, H, L});
  Array wq = zeros(LZ_FLOAT64, q.shape), wk = zeros(LZ_FLOAT64, k.shape), wv = zeros(LZ_FLOAT64, v.shape);
  Array wsinks = zeros(LZ_FLOAT64, sinks.shape);
  const auto at = [](const Array& a, int64_t i, int64_t j, int64_t l, int64_t m) -> double& {
    return a.data<double>()[a.at({i, j, l, m})];
  };
  for_each_index({B, H, L}, [&](const Shape& i) {
    const int64_t b = i[0], h = i[1], l = i[2], kv = h / (H / Hk);
    std::vector<double> s(size_t(S), 0.0);
    const Shape own{sinks.shape[0] == 1 ? 0 : b, h};
    const double sink = has_sinks ? sinks.get(own).real() : -INFINITY;
    double max = sink, sum = 0;
    for (int64_t j = 0; j < S; j++) {
      double dot = 0;
      for (int64_t d = 0; d < D; d++) dot += q.get({b, h, l, d}).real() * k.get({b, kv, j, d}).real();
      dot *= scale;
      if (mask_kind == 1 && mask.get({b, h, l, j}) == 0.0) dot = -INFINITY;
      if (mask_kind == 2) dot += mask.get({b, h, l, j}).real();
      if (mask_kind == 3) dot += mask.get({l, j}).real();
      if (causal && j > l + S - L) dot = -INFINITY;
      s[size_t(j)] = dot;
      max = std::max(max, dot);
    }
    for (double e : s) sum += max == -INFINITY ? 0 : std::exp(e - max);
    if (has_sinks) sum += std::exp(sink - max);
    want_lse.data<double>()[want_lse.at(i)] = max + std::log(sum);
    for (int64_t j = 0; j < S; j++) {
      at(p, b, h, l, j) = sum == 0 ? 0 : std::exp(s[size_t(j)] - max) / sum;
      for (int64_t e = 0; e < E; e++) at(want, b, h, l, e) += at(p, b, h, l, j) * v.get({b, kv, j, e}).real();
    }
    double delta = 0;
    for (int64_t e = 0; e < E; e++) delta += at(want, b, h, l, e) * g.get({b, h, l, e}).real();
    if (has_sinks) wsinks.data<double>()[wsinks.at(own)] -= std::exp(sink - max) / sum * delta;
    for (int64_t j = 0; j < S; j++) {
      double dp = 0;
      for (int64_t e = 0; e < E; e++) {
        dp += g.get({b, h, l, e}).real() * v.get({b, kv, j, e}).real();
        at(wv, b, kv, j, e) += at(p, b, h, l, j) * g.get({b, h, l, e}).real();
      }
      const double ds = at(p, b, h, l, j) * (dp - delta) * scale;
      for (int64_t d = 0; d < D; d++) {
        at(wq, b, h, l, d) += ds * k.get({b, kv, j, d}).real();
        at(wk, b, kv, j, d) += ds * q.get({b, h, l, d}).real();
      }
    }
  });
  const double eps = std::max(epsilon(dtype), 0x1p-24), many = std::sqrt(double(L * (H / Hk)) + 4);
  check_close(o, [&](const Shape& i) { return want.get(i); }, eps * 4, eps * 8 + 4e-6, "o of " + what);
  check_close(lse, [&](const Shape& i) { return want_lse.get(i); }, 2e-6, 4e-6, "lse of " + what);

  // Every layout of what came out of the forward pass, too.
  in.insert(in.end(), {o, lse, g});
  Array dq = zeros(dtype, q.shape), dk = zeros(dtype, k.shape), dv = zeros(dtype, v.shape);
  Array dsinks = zeros(LZ_FLOAT32, sinks.shape);
  std::vector<Array> outputs{dq, dk, dv};
  if (has_sinks) outputs.push_back(dsinks);
  check_ok(run("scaledDotProductAttentionVjp", in, outputs, params), what);
  const double tolerance = (epsilon(dtype) > 0x1p-20 ? 16 * eps : 1e-5) * many;
  check_close(dq, [&](const Shape& i) { return wq.get(i); }, eps * 8, tolerance, "dq of " + what);
  check_close(dk, [&](const Shape& i) { return wk.get(i); }, eps * 8, tolerance, "dk of " + what);
  check_close(dv, [&](const Shape& i) { return wv.get(i); }, eps * 8, tolerance, "dv of " + what);
  if (has_sinks)
    check_close(
        dsinks, [&](const Shape& i) { return wsinks.get(i); }, eps * 8, tolerance * std::sqrt(double(B)),
        "dsinks of " + what);
}

LZ_TEST(attention_layouts) {
  for (int32_t dtype : {LZ_FLOAT32, LZ_FLOAT16, LZ_BFLOAT16}) {
    for (int round = 0; round < 60; round++) {
      const int64_t Hk = uniform(1, 2), most = round % 6 == 0 ? 150 : 9;
      one(dtype, uniform(1, 2), Hk * uniform(1, 2), Hk, uniform(1, most),
          uniform(round % 9 == 0 ? 0 : 1, most), uniform(1, 12), uniform(1, 12), uniform(0, 1),
          int(uniform(0, 3)), round % 3 == 0);
    }
    one(dtype, 1, 1, 1, 200, 300, 16, 8, true, 0);
    one(dtype, 1, 2, 1, 1, 300, 16, 8, false, 1);
    one(dtype, 2, 4, 1, 1, 1100, 16, 8, false, 1, true);
    one(dtype, 0, 2, 1, 3, 3, 2, 2, false, 0);
    one(dtype, 8, 4, 4, 64, 64, 32, 32, true, 0);
  }
}

LZ_TEST(attention_hidden_rows) {
  const Array q = random_array(LZ_FLOAT32, {1, 1, 3, 4}), k = random_array(LZ_FLOAT32, {1, 1, 2, 4});
  Array o = random_array(LZ_FLOAT32, {1, 1, 3, 4}), lse = zeros(LZ_FLOAT32, {1, 1, 3});
  check_ok(run("scaledDotProductAttention", {q, k, k}, {o, lse}, {bits(1), 1, 0, 0}),
           "more rows than columns");
  check(lse.get(0) == Value(-INFINITY) && o.get(0) == 0.0 && o.get(3) == 0.0 &&
            std::isfinite(lse.get(1).real()),
        "a hidden row is 0");
  check_fails(run("scaledDotProductAttention", {q, k, random_array(LZ_FLOAT32, {1, 1, 3, 4})}, {o, lse},
                  {bits(1), 1, 0, 0}),
              "[scaledDotProductAttention] the shapes or dtypes of q, k and v do not fit");
}

LZ_TEST(bench_attention) {
  const auto bench = [](int64_t B, int64_t H, int64_t L, int64_t S, int64_t D, bool causal) {
    const Array q = random_array(LZ_FLOAT32, {B, H, L, D}), k = random_array(LZ_FLOAT32, {B, H, S, D});
    Array o = zeros(LZ_FLOAT32, q.shape), lse = zeros(LZ_FLOAT32, {B, H, L}), dk = zeros(LZ_FLOAT32, k.shape),
          dv = dk;
    dv = zeros(LZ_FLOAT32, k.shape);
    const std::vector<int64_t> params{bits(0.2), causal, 0};
    const double flops = 4.0 * double(B * H * L) * double(S * D);
    const double a = time_us("scaledDotProductAttention", {q, k, k}, {o, lse}, params, 1),
                 b = time_us("scaledDotProductAttention", {q, k, k}, {o, lse}, params, 2);
    const Array dq = zeros(LZ_FLOAT32, q.shape);
    const double c = time_us("scaledDotProductAttentionVjp", {q, k, k, o, lse, q}, {dq, dk, dv}, params, 1);
    const double d = time_us("scaledDotProductAttentionVjp", {q, k, k, o, lse, q}, {dq, dk, dv}, params, 2);
    std::printf(
        "B%ld H%ld L%ld S%ld D%ld%s: %9.1f us %6.1f GFLOP/s (dense count), 2 threads %9.1f us; vjp %9.1f us "
        "%6.1f GFLOP/s, 2 threads %9.1f us\n",
        long(B), long(H), long(L), long(S), long(D), causal ? " causal" : "", a, flops / a / 1e3, b, c,
        2.5 * flops / c / 1e3, d);
  };
  bench(16, 4, 64, 64, 32, true);
  bench(16, 4, 64, 64, 32, false);
  bench(1, 8, 1024, 1024, 64, false);
  bench(1, 8, 1024, 1024, 64, true);
  bench(1, 32, 1, 2048, 64, false);
}

}  // namespace
}  // namespace lazuli::test
