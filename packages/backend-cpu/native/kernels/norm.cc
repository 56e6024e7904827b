// layerNorm, rmsNorm and their gradients over the last axis. Rows of float32 and the half types go to
// simd/norm.cc, where the formulas stand; float64 is computed here. Gradients of weight and bias are sums
// over rows: rows are cut into pieces by their number alone, each with sums of its own, which are then added
// in order.
#include "simd/norm.h"

#include <cmath>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "runtime/blocks.h"
#include "simd/halves.h"

namespace lazuli {
namespace {

// The same four functions for float64, in the types of this file.
template <bool Layer>
void norm_f64(const double* x, int64_t rows, int64_t n, double eps, const double* weight, const double* bias,
              double* y) {
  for (int64_t row = 0; row < rows; row++, x += n, y += n) {
    double mean = 0, square = 0;
    for (int64_t i = 0; Layer && i < n; i++) mean += x[i];
    mean /= double(n);
    for (int64_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
    const double scale = 1 / std::sqrt(square / double(n) + eps);
    for (int64_t i = 0; i < n; i++)
      y[i] = (x[i] - mean) * scale * (weight ? weight[i] : 1) + (bias ? bias[i] : 0);
  }
}

template <bool Layer>
void norm_vjp_f64(const double* x, const double* g, int64_t rows, int64_t n, double eps, const double* weight,
                  double* dx, double* dweight, double* dbias) {
  for (int64_t row = 0; row < rows; row++, x += n, g += n, dx += n) {
    double mean = 0, square = 0, shift = 0, slope = 0;
    for (int64_t i = 0; Layer && i < n; i++) mean += x[i];
    mean /= double(n);
    for (int64_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean);
    const double scale = 1 / std::sqrt(square / double(n) + eps);
    for (int64_t i = 0; i < n; i++) {
      const double hat = (x[i] - mean) * scale, gw = g[i] * (weight ? weight[i] : 1);
      shift += gw;
      slope += gw * hat;
      if (dweight) dweight[i] += g[i] * hat;
      if (dbias) dbias[i] += g[i];
    }
    shift = Layer ? shift / double(n) : 0;
    slope /= double(n);
    for (int64_t i = 0; i < n; i++)
      dx[i] = scale * (g[i] * (weight ? weight[i] : 1) - shift - (x[i] - mean) * scale * slope);
  }
}

// A weight or bias in the type of computation: float for the half types, else its own.
template <class S>
const S* parameter(const lz_call& call, const char* op, const lz_operand& w, const lz_operand& x) {
  require(call, w.ndim == 1 && w.shape[0] == x.shape[x.ndim - 1] && w.dtype == x.dtype,
          "[%s] weight and bias must be [%lld] of the input's dtype", op, (long long)x.shape[x.ndim - 1]);
  const void* packed = contiguous<char>(call, w);
  const auto widen = half_table().widen[w.dtype];
  if (widen == nullptr) return static_cast<const S*>(packed);
  float* wide = scratch<float>(call, w.size);
  widen(packed, wide, w.size);
  return reinterpret_cast<const S*>(wide);
}

void require_norm(const lz_call& call, const char* op, const lz_operand& x, const lz_operand& y) {
  require(call, x.ndim >= 1, "[%s] the input must have at least 1 dimension", op);
  require_same(call, op, x, y);
  if (x.dtype != LZ_FLOAT64 && norm_table().rms[x.dtype] == nullptr) fail_dtype(call, op, x.dtype);
}

template <bool Layer>
void norm(const lz_call& call) {
  constexpr const char* op = Layer ? "layerNorm" : "rmsNorm";
  const std::conditional_t<Layer, params::LayerNorm, params::RmsNorm> params(call);
  const double eps = params.eps;
  const bool has_weight = params.hasWeight;
  bool has_bias = false;
  if constexpr (Layer) has_bias = params.hasBias;
  require_counts(call, op, 1 + has_weight + has_bias, 1);
  const lz_operand &x = call.in[0], &y = call.out[0];
  require_norm(call, op, x, y);
  if (y.size == 0) return;
  const int64_t n = x.shape[x.ndim - 1], rows = x.size / n, bytes = itemsize(x.dtype);
  const char* from = contiguous<char>(call, x);
  const bool streaming = from != y.data && size_t(x.size) * 2 * size_t(bytes) >= last_level_cache();
  const auto compute = [&]<class S>(auto&& kernel) {
    const S* weight = has_weight ? parameter<S>(call, op, call.in[1], x) : nullptr;
    const S* bias = has_bias ? parameter<S>(call, op, call.in[1 + has_weight], x) : nullptr;
    parallel(call, rows, 20 + (std::is_same_v<S, double> ? 3 : 0.5) * double(n),
             [&](int64_t begin, int64_t end) {
               kernel(from + begin * n * bytes, end - begin, weight, bias, data<char>(y) + begin * n * bytes);
             });
  };
  if (x.dtype == LZ_FLOAT64) {
    return compute.template operator()<double>([&](const void* in, int64_t count, const double* weight,
                                                   const double* bias, void* out) {
      norm_f64<Layer>(static_cast<const double*>(in), count, n, eps, weight, bias, static_cast<double*>(out));
    });
  }
  compute.template operator()<float>(
      [&](const void* in, int64_t count, const float* weight, const float* bias, void* out) {
        if constexpr (Layer)
          norm_table().layer[x.dtype](in, count, n, float(eps), weight, bias, out, streaming);
        else
          norm_table().rms[x.dtype](in, count, n, float(eps), weight, out, streaming);
      });
}

// dx by pieces of rows, and the sums over rows that `dweight` and `dbias` (null when absent) ask for.
template <class S, class F>
void vjp_pieces(const lz_call& call, int64_t rows, int64_t n, const lz_operand* dweight,
                const lz_operand* dbias, F&& kernel) {
  const int64_t sums = (dweight != nullptr) + (dbias != nullptr);
  const int64_t piece = std::max<int64_t>(16, (rows + 63) / 64), pieces = (rows + piece - 1) / piece;
  S* partial = scratch<S>(call, pieces * sums * n);
  parallel(call, pieces, double(piece) * (30 + (std::is_same_v<S, double> ? 6 : 1.2) * double(n)),
           [&](int64_t begin, int64_t end) {
             for (int64_t p = begin; p < end; p++) {
               S* at = partial + p * sums * n;
               std::fill_n(at, sums * n, S(0));
               kernel(p * piece, std::min(piece, rows - p * piece), dweight ? at : nullptr,
                      dbias ? at + (sums - 1) * n : nullptr);
             }
           });
  for (int64_t s = 0; s < sums; s++) {
    const lz_operand& to = s == 0 && dweight ? *dweight : *dbias;
    S* total = partial + s * n;
    for (int64_t p = 1; p < pieces; p++) {
      for (int64_t i = 0; i < n; i++) total[i] += partial[(p * sums + s) * n + i];
    }
    dispatch_among<floating_types>(to.dtype, [&]<class T>() {
      for (int64_t i = 0; i < n; i++) data<T>(to)[i] = rows > 0 ? convert<T>(total[i]) : T(0);
    });
  }
}

template <bool Layer>
void norm_vjp(const lz_call& call) {
  constexpr const char* op = Layer ? "layerNormVjp" : "rmsNormVjp";
  const std::conditional_t<Layer, params::LayerNormVjp, params::RmsNormVjp> params(call);
  const double eps = params.eps;
  const bool has_weight = params.hasWeight;
  require_counts(call, op, 2 + has_weight, 1 + has_weight + Layer);
  const lz_operand &x = call.in[0], &g = call.in[1 + has_weight], &dx = call.out[0];
  require_norm(call, op, x, dx);
  require_same(call, op, x, g);
  const lz_operand* dweight = has_weight ? &call.out[1] : nullptr;
  const lz_operand* dbias = Layer ? &call.out[1 + has_weight] : nullptr;
  const int64_t n = x.shape[x.ndim - 1];
  for (const lz_operand* sum : {dweight, dbias}) {
    require(call, sum == nullptr || (sum->size == n && sum->dtype == x.dtype),
            "[%s] gradients of weight and bias must be [%lld]", op, (long long)n);
  }
  if (n == 0) return;
  const int64_t rows = x.size / n, bytes = itemsize(x.dtype);
  const char *x_data = contiguous<char>(call, x), *g_data = contiguous<char>(call, g);
  char* dx_data = data<char>(dx);
  if (x.dtype == LZ_FLOAT64) {
    const double* weight = has_weight ? parameter<double>(call, op, call.in[1], x) : nullptr;
    return vjp_pieces<double>(
        call, rows, n, dweight, dbias, [&](int64_t first, int64_t count, double* dw, double* db) {
          const int64_t at = first * n * bytes;
          norm_vjp_f64<Layer>(reinterpret_cast<const double*>(x_data + at),
                              reinterpret_cast<const double*>(g_data + at), count, n, eps, weight,
                              reinterpret_cast<double*>(dx_data + at), dw, db);
        });
  }
  const float* weight = has_weight ? parameter<float>(call, op, call.in[1], x) : nullptr;
  vjp_pieces<float>(call, rows, n, dweight, dbias, [&](int64_t first, int64_t count, float* dw, float* db) {
    const int64_t at = first * n * bytes;
    const NormTable& table = norm_table();
    if constexpr (Layer)
      table.layer_vjp[x.dtype](x_data + at, g_data + at, count, n, float(eps), weight, dx_data + at, dw, db);
    else
      table.rms_vjp[x.dtype](x_data + at, g_data + at, count, n, float(eps), weight, dx_data + at, dw);
  });
}

}  // namespace

void register_norm(Registry& registry) {
  registry.add("layerNorm", entry<norm<true>>, kFloatingDtypes);
  registry.add("layerNormVjp", entry<norm_vjp<true>>, kFloatingDtypes);
  registry.add("rmsNorm", entry<norm<false>>, kFloatingDtypes);
  registry.add("rmsNormVjp", entry<norm_vjp<false>>, kFloatingDtypes);
}

}  // namespace lazuli
