// quantizedMatmul of few rows against sums in float64: every format, rows of weights that end where their
// memory does.
#include <cmath>
#include <string>
#include <vector>

#include "kernels/quantized.h"
#include "simd/quantized.h"
#include "tests/harness.h"

namespace lazuli::test {
namespace {

struct Format {
  int64_t group, bits, mode;
};
enum : int64_t { kAffine, kMxfp4, kMxfp8, kNvfp4 };

// An array that ends where its memory does.
Array cut(const Array& a) {
  Array b = a;
  const char* end = a.address(0) + a.size() * itemsize(a.dtype);
  b.storage = std::make_shared<std::vector<char>>(static_cast<const char*>(a.storage->data()), end);
  return b;
}

double float_of(int exponent_bits, int mantissa_bits, int bias, int64_t code) {
  const int64_t mantissa = code & ((1 << mantissa_bits) - 1);
  const int64_t exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1);
  const double size = exponent ? std::ldexp(double((1 << mantissa_bits) + mantissa), int(exponent))
                               : std::ldexp(double(mantissa), 1);
  const double value = std::ldexp(size, -bias - mantissa_bits);
  return code >> (exponent_bits + mantissa_bits) & 1 ? -value : value;
}
double scale_of(const Array& scales, const Format& f, int64_t i) {
  const double s = scales.get(i).real();
  return f.mode == kAffine  ? s
         : f.mode == kNvfp4 ? float_of(4, 3, 7, int64_t(s))
                            : std::ldexp(1, int(s) - 127);
}

struct Weights {
  Array w, scales, biases;
};
Weights random_weights(const Format& f, int32_t dtype, int64_t k, int64_t n) {
  const int64_t groups = k / f.group;
  const bool affine = f.mode == kAffine;
  const Array w = cut(zeros(LZ_UINT32, {n, k * f.bits / 32}));
  for (int64_t i = 0; i < w.size(); i++) w.data<uint32_t>()[i] = uint32_t(rng());
  Array scales = random_array(affine ? dtype : LZ_UINT8, {n, groups}, -2, 2);
  for (int64_t i = 0; !affine && i < scales.size(); i++)
    scales.data<uint8_t>()[i] = uint8_t(f.mode == kNvfp4 ? uniform(0, 255) : uniform(120, 130));
  return {w, cut(scales), cut(random_array(dtype, {n, groups}))};
}

Array multiply(const Format& f, const Array& x, const Weights& of, const std::string& what) {
  const Array y = zeros(x.dtype, {x.shape[0], of.w.shape[0]});
  std::vector<Array> in{x, of.w, of.scales};
  if (f.mode == kAffine) in.push_back(of.biases);
  check_ok(run("quantizedMatmul", in, {y}, {1, f.group, f.bits, f.mode, 0}), what);
  return y;
}
Array first_rows(const Array& all, int64_t rows) {
  Array x = all;
  x.shape[0] = rows;
  return cut(x);
}
// True if few rows are multiplied in the same way as one.
bool alike(const Format& f) {
  const Code code = f.mode == kAffine ? Code::integer : f.bits == 4 ? Code::e2m1 : Code::e4m3;
  const CodeFormat format{int(f.bits), code, f.group};
  return 32 % f.bits == 0 || quantized_table().takes_bytes(format) ||
         quantized_table().takes_bfloat16(format);
}
std::string name_of(const Format& f, const Array& x, int64_t n) {
  return "quantizedMatmul of " + std::to_string(f.bits) + " bits, mode " + std::to_string(f.mode) +
         ", groups of " + std::to_string(f.group) + ", " + describe(x) + " by " + std::to_string(n);
}

void products(const Format& f, int32_t dtype, int64_t k, int64_t n) {
  const Weights of = random_weights(f, dtype, k, n);
  const int64_t groups = k / f.group, words = k * f.bits / 32;
  const bool affine = f.mode == kAffine;
  std::vector<double> weights;
  for (int64_t c = 0; c < n; c++) {
    for (int64_t i = 0; i < k; i++) {
      const int64_t bit = i * f.bits, group = c * groups + i / f.group;
      const uint32_t* at = of.w.data<uint32_t>() + c * words + bit / 32;
      const uint64_t both = at[0] | (bit % 32 + f.bits > 32 ? uint64_t(at[1]) << 32 : 0);
      const auto code = int64_t(both >> (bit % 32) & ((1u << f.bits) - 1));
      const double value = affine        ? double(code)
                           : f.bits == 4 ? float_of(2, 1, 1, code)
                                         : float_of(4, 3, 7, code);
      weights.push_back(value * scale_of(of.scales, f, group) + (affine ? of.biases.get(group).real() : 0));
    }
  }
  const Array all = random_array(dtype, {kFewRows + 1, k});
  Array before;
  for (int64_t rows = 1; rows <= kFewRows + 1; rows++) {
    const Array x = first_rows(all, rows);
    const std::string what = name_of(f, x, n);
    const Array y = multiply(f, x, of, what);
    // A row does not depend on those beside it.
    for (int64_t i = 0; alike(f) && rows > 1 && rows <= kFewRows && i < before.size(); i++)
      check(y.get(i) == before.get(i), what + " beside fewer rows");
    before = y;
    const double each = dtype == LZ_FLOAT32 ? 0x1p-20 : 0x1p-8;
    for (int64_t r = 0; r < rows; r++) {
      std::vector<double> values;
      for (int64_t i = 0; i < k; i++) values.push_back(x.get({r, i}).real());
      for (int64_t c = 0; c < n; c++) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < k; i++) {
          const double term = weights[size_t(c * k + i)] * values[size_t(i)];
          sum += term;
          size += std::abs(term);
        }
        check(std::abs(y.get({r, c}).real() - sum) <= each * size,
              what + " at " + std::to_string(r) + ", " + std::to_string(c));
      }
    }
  }
}

std::vector<Format> all_formats() {
  std::vector<Format> formats{{32, 4, kMxfp4}, {32, 8, kMxfp8}, {16, 4, kNvfp4}};
  for (const int64_t bits : {2, 3, 4, 5, 6, 8})
    for (const int64_t group : {16, 32, 64, 128})
      if (group * bits % 32 == 0) formats.push_back({group, bits, kAffine});
  return formats;
}

LZ_TEST(quantized_few_rows) {
  const std::vector<Format> formats = all_formats();
  for (const Format& f : formats)
    for (const int32_t dtype : {LZ_FLOAT32, LZ_BFLOAT16})
      for (const int64_t k : {f.group, 3 * f.group, int64_t(640), int64_t(1152)})
        products(f, dtype, k, k < 1000 ? 5 : 21);
  // Several vectors meet a part of so many columns after another.
  for (const Format& f : formats) products(f, LZ_BFLOAT16, 4736, 5);
}

// One row of so many columns, too, is multiplied part by part.
LZ_TEST(quantized_wide_rows) {
  constexpr int64_t k = (1 << 14) + 4224, n = 5;
  for (const Format& f : all_formats()) {
    for (const int32_t dtype : {LZ_FLOAT32, LZ_BFLOAT16, LZ_FLOAT16}) {
      if (!alike(f)) continue;
      const Weights of = random_weights(f, dtype, k, n);
      const Array all = random_array(dtype, {8, k});
      const Array together = multiply(f, all, of, name_of(f, all, n));
      for (int64_t r = 0; r < 8; r++) {
        Array row = all;
        row.offset = all.offset + r * k;
        row.shape[0] = 1;
        const std::string what = name_of(f, row, n) + " alone";
        const Array y = multiply(f, row, of, what);
        for (int64_t c = 0; c < n; c++) check(y.get({0, c}) == together.get({r, c}), what);
      }
    }
  }
}

}  // namespace
}  // namespace lazuli::test
