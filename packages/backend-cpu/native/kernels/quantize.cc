// quantize and dequantize, to the same bits as the reference in core: the rules are those of
// ops/quantize.ts, step by step. Groups are independent, and divided among threads.
#include <cmath>
#include <limits>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "kernels/packed_format.h"
#include "simd/quantized.h"

namespace lazuli {
namespace {

// Codes as one stream of bits, least significant first.
class Packer {
 public:
  explicit Packer(uint32_t* to) : to_(to) {}
  void put(uint32_t code, int bits) {
    held_ |= uint64_t(code) << have_;
    if ((have_ += bits) < 32) return;
    *to_++ = uint32_t(held_);
    held_ >>= 32;
    have_ -= 32;
  }

 private:
  uint32_t* to_;
  uint64_t held_ = 0;
  int have_ = 0;
};

// The rules are those of quantizeAffine in core, step by step, with C the type they are computed in.
template <class T>
void quantize_affine(const T* w, const Format& f, T* scale_to, T* bias_to, uint32_t* to) {
  using C = compute_t<T>;
  const C most = C((1 << f.bits) - 1);
  C low = load(w[0]), high = low;
  bool nan = false;
  for (int64_t i = 0; i < f.group; i++) {
    const C v = load(w[i]);
    low = v < low ? v : low;
    high = v > high ? v : high;
    nan |= v != v;
  }
  if (nan) low = high = std::numeric_limits<C>::quiet_NaN();
  const bool low_edge = std::abs(low) > std::abs(high);
  const C edge = low_edge ? low : high, ideal = (high - low) / most, least = C(1e-7);
  const C step = ideal < least ? least : ideal, signed_step = low_edge ? step : -step;
  const C steps = std::nearbyint(edge / signed_step);
  const C scale = steps == 0 ? signed_step : edge / steps, bias = steps == 0 ? C(0) : edge;
  *scale_to = T(scale);
  *bias_to = T(bias);
  Packer packer(to);
  for (int64_t i = 0; i < f.group; i++) {
    const C code = std::nearbyint((load(w[i]) - bias) / scale);
    packer.put(code > 0 ? uint32_t(std::min(code, most)) : 0, f.bits);
  }
}

// Those of quantizeFloats; what core rounds to w's dtype is rounded to T here. `encode` is 0 without a global
// scale.
template <class T>
void quantize_floats(const T* w, const Format& f, float encode, uint8_t* scale_to, uint32_t* to) {
  using C = compute_t<T>;
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  C most = 0;
  for (int64_t i = 0; i < f.group; i++) {
    const C size = std::abs(load(w[i]));
    most = size > most || size != size ? size : most;
    if (most != most) break;
  }
  const C ideal = load(T(most / C(f.bits == 4 ? 6 : 448)));
  C divisor;
  if (f.mode == kNvfp4) {
    *scale_to = encode_fp8(encode != 0 ? float(Wide(ideal) * Wide(encode)) : float(ideal));
    divisor = C(decode_fp8(*scale_to));
  } else {
    const C exponent = ideal == 0 ? C(0) : std::nearbyint(load(T(C(std::log2(double(ideal))))));
    *scale_to = exponent != exponent ? 0 : uint8_t(std::clamp(exponent, C(-127), C(127)) + 127);
    divisor = C(decode_power(*scale_to));
  }
  static constexpr float middles[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
  Packer packer(to);
  for (int64_t i = 0; i < f.group; i++) {
    C y = load(w[i]) / divisor;
    if (f.mode == kNvfp4) y = load(T(y));
    if (encode != 0) y = C(Wide(y) * Wide(encode));
    if (f.bits == 8) {
      packer.put(encode_fp8(float(y)), 8);
      continue;
    }
    uint32_t code = 0;
    for (const float middle : middles) code += std::abs(y) > C(middle);
    packer.put(y < 0 && code > 0 ? code + 8 : code, 4);
  }
}

void quantize(const lz_call& call) {
  constexpr const char* op = "quantize";
  const Format f = read_format(call, op, params::Quantize(call));
  const bool affine = f.mode == kAffine, global = call.n_in == 2 && f.mode == kNvfp4;
  require_counts(call, op, 1 + global, 2 + affine);
  const lz_operand &w = call.in[0], &packed = call.out[0], &scales = call.out[1];
  const int64_t n = w.ndim > 0 ? w.shape[w.ndim - 1] : 0, groups = w.size / f.group,
                words = f.group * f.bits / 32;
  bool fits = n % f.group == 0 && packed.dtype == LZ_UINT32 && packed.size == groups * words &&
              scales.size == groups && scales.dtype == (affine ? w.dtype : int32_t(LZ_UINT8));
  fits = fits && (!affine || (call.out[2].size == groups && call.out[2].dtype == w.dtype)) &&
         (!global || (call.in[1].size == 1 && call.in[1].dtype == LZ_FLOAT32));
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  const float encode = global ? 1 / scalar<float>(call.in[1]) * kNvfp4Range : 0;
  dispatch_or_fail<floating_types>(call, op, w.dtype, [&]<class T>() {
    const T* from = contiguous<T>(call, w);
    parallel(call, groups, 4.0 * double(f.group), [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; g++) {
        uint32_t* to = data<uint32_t>(packed) + g * words;
        if (affine)
          quantize_affine<T>(from + g * f.group, f, data<T>(scales) + g, data<T>(call.out[2]) + g, to);
        else
          quantize_floats<T>(from + g * f.group, f, encode, data<uint8_t>(scales) + g, to);
      }
    });
  });
}

// Groups [begin, end) of mode affine with scales of type T, rounded to T after each of the two steps.
template <class T, class To>
void dequantize_affine(const float* codes, const T* scales, const T* biases, int64_t begin, int64_t end,
                       int64_t group, To* to) {
  for (int64_t g = begin; g < end; g++, codes += group, to += group) {
    const auto scale = load(scales[g]), bias = load(biases[g]);
    for (int64_t i = 0; i < group; i++) to[i] = convert<To>(T(load(T(codes[i] * scale)) + bias));
  }
}

void dequantize(const lz_call& call) {
  constexpr const char* op = "dequantize";
  const Format f = read_format(call, op, params::Dequantize(call));
  const bool affine = f.mode == kAffine, global = call.n_in == 3 && f.mode == kNvfp4;
  require_counts(call, op, 2 + affine + global, 1);
  const lz_operand &w = call.in[0], &s = call.in[1], &y = call.out[0];
  const int64_t groups = y.size / f.group, words = f.group * f.bits / 32;
  bool fits = w.dtype == LZ_UINT32 && y.size % f.group == 0 && w.size == groups * words && s.size == groups &&
              (affine || s.dtype == LZ_UINT8);
  fits = fits && (!affine || (call.in[2].size == groups && call.in[2].dtype == s.dtype)) &&
         (!global || (call.in[2].size == 1 && call.in[2].dtype == LZ_FLOAT32));
  require(call, fits, "[%s] the shapes or dtypes of the operands do not fit", op);
  const uint32_t* from = contiguous<uint32_t>(call, w);
  // A few groups at a time, so that codes stay in a cache.
  constexpr int64_t kGroups = 8;
  const auto each = [&]<class To>(auto&& convert_groups) {
    parallel(call, (groups + kGroups - 1) / kGroups, 0.6 * double(kGroups * f.group),
             [&](int64_t begin, int64_t end) {
               alignas(64) float codes[kGroups * 128];
               for (int64_t g = begin * kGroups; g < std::min(groups, end * kGroups); g += kGroups) {
                 const int64_t last = std::min(groups, g + kGroups);
                 quantized_table().decode(from + g * words, (last - g) * f.group, f, codes);
                 convert_groups(codes, g, last, data<To>(y) + g * f.group);
               }
             });
  };
  dispatch_or_fail<floating_types>(call, op, y.dtype, [&]<class To>() {
    if (!affine) {
      const uint8_t* scales = contiguous<uint8_t>(call, s);
      const float factor = global ? scalar<float>(call.in[2]) / kNvfp4Range : 1;
      return each.template operator()<To>([&](const float* codes, int64_t begin, int64_t end, To* to) {
        for (int64_t g = begin; g < end; g++, codes += f.group, to += f.group) {
          float scale;
          decode_scales(f.mode, scales + g, 1, &scale);
          scale *= factor;
          for (int64_t i = 0; i < f.group; i++) to[i] = convert<To>(codes[i] * scale);
        }
      });
    }
    dispatch_or_fail<floating_types>(call, op, s.dtype, [&]<class T>() {
      const T *scales = contiguous<T>(call, s), *biases = contiguous<T>(call, call.in[2]);
      each.template operator()<To>([&](const float* codes, int64_t begin, int64_t end, To* to) {
        dequantize_affine<T, To>(codes, scales, biases, begin, end, f.group, to);
      });
    });
  });
}

}  // namespace

void register_quantize(Registry& registry) {
  registry.add("quantize", entry<quantize>, kFloatingDtypes);
  registry.add("dequantize", entry<dequantize>);
}

}  // namespace lazuli
