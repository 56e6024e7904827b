// The micro-kernels of scalar programs: one instruction over n contiguous elements. Eager and fused
// elementwise work run the same ones, which is why their results agree bit for bit. Included by simd/ and by
// runtime/.
#ifndef LAZULI_SIMD_MICRO_H
#define LAZULI_SIMD_MICRO_H

#include <lazuli/kernel.h>
#include <stdint.h>

#include "simd/targets.h"

namespace lazuli {

// The instructions; their positions are the codes of a registered program. Names are in
// runtime/scalar_ops.cc.
// clang-format off
enum class Op : int16_t {
  negative, abs, sign, floor, ceil, round, sqrt, rsqrt, square, reciprocal,
  exp, expm1, log, log2, log10, log1p, sin, cos, tan, arcsin, arccos, arctan,
  sinh, cosh, tanh, arcsinh, arccosh, arctanh, erf, erfinv, sigmoid, bitwiseInvert,
  logicalNot, conjugate, real, imag,
  add, subtract, multiply, divide, floorDivide, remainder, power, maximum, minimum, arctan2, logaddexp,
  bitwiseAnd, bitwiseOr, bitwiseXor, leftShift, rightShift, logicalAnd, logicalOr,
  equal, notEqual, less, lessEqual, greater, greaterEqual, complex,
  select, cast, constant,
  count
};
// clang-format on
inline constexpr int kOps = int(Op::count);
inline constexpr int kMicroDtypes = 14;

// Writes out[0 … n-1]. `out` may be exactly a, b or c, and otherwise overlaps none.
using Micro = void (*)(void* out, const void* a, const void* b, const void* c, int64_t n);

// Forms of one instruction. `left` reads one element through a, `right` one through b (for select: through b
// and c); a null form is served by the dense one and a block of equal elements.
struct MicroSet {
  Micro dense = nullptr, left = nullptr, right = nullptr, both = nullptr;
};

// By instruction and the dtype of the arguments (for select: of the branches). float16 and bfloat16 have no
// entries but casts: their arithmetic is float32's and a rounding.
struct MicroTable {
  MicroSet sets[kOps][kMicroDtypes];
  Micro casts[kMicroDtypes][kMicroDtypes];  // from, to
  // From float64 and integers to float32 by rounding to odd: the step before a half type. Other types, none.
  Micro odd[kMicroDtypes];
  // float32 values rounded to what float16 and bfloat16 can hold, still as float32.
  Micro round_float16, round_bfloat16;
};

struct MicroFamily {
  void (*fill)(MicroTable& table);
};

LZ_SIMD_TABLE(MicroFamily, micro_float32)
LZ_SIMD_TABLE(MicroFamily, micro_float32_functions)
LZ_SIMD_TABLE(MicroFamily, micro_float64)
LZ_SIMD_TABLE(MicroFamily, micro_integer)
LZ_SIMD_TABLE(MicroFamily, micro_cast)

}  // namespace lazuli

#endif
