#include "runtime/scalar_ops.h"

#include <cmath>
#include <iterator>

namespace lazuli {
namespace {

// In the order of Op.
// clang-format off
constexpr const char* kNames[] = {
    "negative", "abs", "sign", "floor", "ceil", "round", "sqrt", "rsqrt", "square", "reciprocal",
    "exp", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan",
    "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "erf", "erfinv", "sigmoid", "bitwiseInvert",
    "logicalNot", "conjugate", "real", "imag",
    "add", "subtract", "multiply", "divide", "floorDivide", "remainder", "power", "maximum", "minimum", "arctan2", "logaddexp",
    "bitwiseAnd", "bitwiseOr", "bitwiseXor", "leftShift", "rightShift", "logicalAnd", "logicalOr",
    "equal", "notEqual", "less", "lessEqual", "greater", "greaterEqual", "complex",
    "select", "cast", "constant"};
// clang-format on
static_assert(std::size(kNames) == size_t(kOps));

bool between(Op op, Op first, Op last) { return op >= first && op <= last; }

}  // namespace

const char* op_name(Op op) { return kNames[int(op)]; }

Op op_named(std::string_view name) {
  for (int i = 0; i < kOps; i++)
    if (name == kNames[i]) return Op(i);
  return Op::count;
}

int op_arity(Op op) {
  if (op == Op::constant) return 0;
  if (op == Op::select) return 3;
  return between(op, Op::add, Op::complex) ? 2 : 1;
}

double op_cost(Op op) {
  if (between(op, Op::exp, Op::sigmoid)) return 1.0;
  if (op == Op::power || op == Op::arctan2 || op == Op::logaddexp || op == Op::remainder) return 4.0;
  return 0.1;
}

int32_t op_result(Op op, int32_t argument) {
  if (between(op, Op::logicalAnd, Op::greaterEqual) || op == Op::logicalNot) return LZ_BOOL;
  if (op == Op::complex) return LZ_COMPLEX64;
  if (argument == LZ_COMPLEX64 && (op == Op::abs || op == Op::real || op == Op::imag)) return LZ_FLOAT32;
  return argument;
}

bool op_supported(Op op, int32_t argument) {
  if (op == Op::count || argument < 0 || argument >= kMicroDtypes) return false;
  if (op == Op::cast || op == Op::constant) return true;
  const bool half = argument == LZ_FLOAT16 || argument == LZ_BFLOAT16;
  return micro_table().sets[int(op)][half ? int(LZ_FLOAT32) : argument].dense != nullptr;
}

std::optional<float> exact_reciprocal(float x) {
  int exponent;
  if (!std::isfinite(x) || std::fabs(std::frexp(x, &exponent)) != 0.5f) return std::nullopt;
  const float y = 1 / x;
  return std::isnormal(y) ? std::optional(y) : std::nullopt;
}

const MicroTable& micro_table() {
  static const MicroTable* table = [] {
    auto* made = new MicroTable{};
    fill_scalar_functions(*made);
    micro_float32().fill(*made);
    micro_float32_functions().fill(*made);
    micro_float64().fill(*made);
    micro_integer().fill(*made);
    micro_cast().fill(*made);
    return made;
  }();
  return *table;
}

}  // namespace lazuli
