#include "machine/lower.h"

#include "machine/functions.h"
#include "runtime/dtype.h"
#include "runtime/scalar_ops.h"

namespace lazuli::machine {
namespace {

bool is_half(int32_t dtype) { return dtype == LZ_FLOAT16 || dtype == LZ_BFLOAT16; }
bool is_float(int32_t dtype) { return dtype == LZ_FLOAT32 || is_half(dtype); }
bool covered(int32_t dtype) { return is_float(dtype) || dtype == LZ_BOOL || dtype == LZ_INT32; }

Format format_of(int32_t dtype) {
  if (dtype == LZ_BOOL) return Format::boolean;
  if (dtype == LZ_FLOAT16) return Format::half;
  if (dtype == LZ_BFLOAT16) return Format::bfloat;
  return Format::word;
}

// Every method gives the value that has the result, or kNone where there is no machine code.
class Lowering {
 public:
  Lowering(Sequence& sequence, int lanes) : s_(sequence), lanes_(lanes) {}
  static constexpr int kNone = -1;

  int constant(int32_t dtype, int64_t bits) {
    if (dtype == LZ_BOOL) return apply(Do::int_equal, word(1), word(uint32_t((bits & 0xff) != 0)));
    if (dtype == LZ_FLOAT16) return s_.literal(half_to_float(uint16_t(bits)));
    if (dtype == LZ_BFLOAT16) return s_.literal(bfloat_to_float(uint16_t(bits)));
    return s_.literal(uint32_t(bits));
  }

  int cast(int x, int32_t from, int32_t to) {
    if (from == to) return x;
    if (to == LZ_BOOL)
      return from == LZ_INT32 ? apply(Do::mask_not, apply(Do::int_equal, x, word(0))) : not_zero(x);
    if (from == LZ_BOOL) return apply(Do::blend, x, to == LZ_INT32 ? word(1) : number(1), word(0));
    if (from == LZ_INT32) return rounded(apply(Do::to_float, is_half(to) ? odd(x) : x), to);
    if (to == LZ_INT32) return to_int(x);
    return is_half(to) ? rounded(x, to) : x;
  }

  int one(Op op, int32_t dtype, int x) {
    if (dtype == LZ_BOOL) return one_bool(op, x);
    if (dtype == LZ_INT32) return one_int(op, x);
    switch (op) {
      case Op::negative:
        return apply(Do::xor_, x, word(kSign));
      case Op::abs:
        return apply(Do::and_, x, word(~kSign));
      case Op::sign:
        return apply(Do::blend, compare(greater, x, number(0)), number(1),
                     apply(Do::blend, compare(less, x, number(0)), number(-1), number(0)));
      case Op::floor:
        return s_.apply_with(down, Do::round, x);
      case Op::ceil:
        return s_.apply_with(up, Do::round, x);
      case Op::round:
        return s_.apply_with(nearest_even, Do::round, x);
      case Op::logicalNot:
        return compare(equal, x, number(0));
      case Op::conjugate:
      case Op::real:
        return x;
      case Op::imag:
        return number(0);
      case Op::sqrt:
        return rounded(apply(Do::sqrt, x), dtype);
      case Op::rsqrt:
        return rounded(apply(Do::div, number(1), apply(Do::sqrt, x)), dtype);
      case Op::square:
        return rounded(apply(Do::mul, x, x), dtype);
      case Op::reciprocal:
        return rounded(apply(Do::div, number(1), x), dtype);
      default: {
        const int made = append_function(s_, op, x, lanes_);
        return made == kNone ? kNone : rounded(made, dtype);
      }
    }
  }

  int two(Op op, int32_t dtype, int x, int y) {
    if (dtype == LZ_BOOL) return two_bool(op, x, y);
    if (dtype == LZ_INT32) return two_int(op, x, y);
    switch (op) {
      case Op::add:
        return rounded(apply(Do::add, x, y), dtype);
      case Op::subtract:
        return rounded(apply(Do::sub, x, y), dtype);
      case Op::multiply:
        return rounded(apply(Do::mul, x, y), dtype);
      case Op::divide: {
        const Instruction& by = s_.code()[size_t(y)];
        const auto factor =
            by.what == Do::literal ? exact_reciprocal(std::bit_cast<float>(by.bits)) : std::nullopt;
        return rounded(factor ? apply(Do::mul, x, number(*factor)) : apply(Do::div, x, y), dtype);
      }
      case Op::floorDivide:
        return rounded(s_.apply_with(down, Do::round, apply(Do::div, x, y)), dtype);
      // The processor's give y when either is NaN; x's NaN must win as well.
      case Op::maximum:
        return apply(Do::blend, compare(unordered, x, x), x, apply(Do::max, x, y));
      case Op::minimum:
        return apply(Do::blend, compare(unordered, x, x), x, apply(Do::min, x, y));
      case Op::logicalAnd:
        return apply(Do::mask_and, not_zero(x), not_zero(y));
      case Op::logicalOr:
        return apply(Do::mask_or, not_zero(x), not_zero(y));
      case Op::equal:
        return compare(equal, x, y);
      case Op::notEqual:
        return compare(not_equal, x, y);
      case Op::less:
        return compare(less, x, y);
      case Op::lessEqual:
        return compare(less_equal, x, y);
      case Op::greater:
        return compare(greater, x, y);
      case Op::greaterEqual:
        return compare(greater_equal, x, y);
      default:
        return kNone;
    }
  }

  int select(int32_t dtype, int condition, int yes, int no) {
    if (dtype != LZ_BOOL) return apply(Do::blend, condition, yes, no);
    return apply(Do::mask_or, apply(Do::mask_and, condition, yes),
                 apply(Do::mask_and, negated(condition), no));
  }

 private:
  static constexpr uint32_t kSign = 0x80000000u;

  int word(uint32_t bits) { return s_.literal(bits); }
  int number(float value) { return s_.literal(value); }
  int apply(Do what, int a, int b = -1, int c = -1) { return s_.apply(what, a, b, c); }
  int compare(Predicate predicate, int a, int b) { return s_.apply_with(predicate, Do::compare, a, b); }
  int not_zero(int x) { return compare(not_equal, x, number(0)); }
  int negated(int mask) { return apply(Do::mask_not, mask); }

  int rounded(int x, int32_t dtype) {
    if (dtype == LZ_FLOAT16) return apply(Do::through_half, x);
    if (dtype != LZ_BFLOAT16) return x;
    // To nearest even at bit 16; NaN keeps its upper bits and becomes quiet.
    const int odd = apply(Do::and_, s_.apply_with(16, Do::shift_right, x), word(1));
    const int sum = apply(Do::int_add, apply(Do::int_add, x, word(0x7fff)), odd);
    const int finite = apply(Do::and_, sum, word(0xffff0000u));
    return apply(Do::blend, compare(unordered, x, x), apply(Do::or_, x, word(0x400000)), finite);
  }

  // An int32 with at most 24 bits, the last one set when any was dropped: rounding it to a half type then
  // rounds the number itself.
  int odd(int x) {
    const int lost = apply(Do::int_equal, apply(Do::and_, x, word(0xff)), word(0));
    const int bit = apply(Do::blend, lost, word(0), word(0x100));
    const int kept = apply(Do::or_, apply(Do::and_, x, word(~0xffu)), bit);
    const int small = apply(Do::mask_and, apply(Do::int_greater, word(1 << 24), x),
                            apply(Do::int_greater, x, word(uint32_t(-(1 << 24)))));
    return apply(Do::blend, small, x, kept);
  }

  // Towards zero; beyond int32 modulo 2^32, which is what is left of the mantissa shifted by the exponent;
  // NaN and infinities, whose exponent is the largest, give 0.
  int to_int(int x) {
    const int size = apply(Do::and_, x, word(~kSign));
    const int mantissa = apply(Do::or_, apply(Do::and_, x, word(0x7fffff)), word(0x800000));
    const int shift = apply(Do::int_sub, s_.apply_with(23, Do::shift_right, size), word(150));
    const int modulo = apply(Do::shift_left_by, mantissa, shift);
    const int sign = s_.apply_with(31, Do::shift_right_sign, x);
    const int wrapped = apply(Do::int_sub, apply(Do::xor_, modulo, sign), sign);
    return apply(Do::blend, compare(less, size, number(0x1p31f)), apply(Do::to_int, x), wrapped);
  }

  int one_bool(Op op, int x) {
    switch (op) {
      case Op::abs:
      case Op::sign:
      case Op::floor:
      case Op::ceil:
      case Op::round:
      case Op::square:
      case Op::conjugate:
      case Op::real:
        return x;
      case Op::bitwiseInvert:
      case Op::logicalNot:
        return negated(x);
      default:
        return kNone;
    }
  }

  int two_bool(Op op, int x, int y) {
    switch (op) {
      case Op::add:
      case Op::maximum:
      case Op::bitwiseOr:
      case Op::logicalOr:
        return apply(Do::mask_or, x, y);
      case Op::multiply:
      case Op::minimum:
      case Op::bitwiseAnd:
      case Op::logicalAnd:
        return apply(Do::mask_and, x, y);
      case Op::bitwiseXor:
      case Op::notEqual:
        return apply(Do::mask_xor, x, y);
      case Op::equal:
        return negated(apply(Do::mask_xor, x, y));
      case Op::less:
        return apply(Do::mask_and, negated(x), y);
      case Op::lessEqual:
        return apply(Do::mask_or, negated(x), y);
      case Op::greater:
        return apply(Do::mask_and, x, negated(y));
      case Op::greaterEqual:
        return apply(Do::mask_or, x, negated(y));
      default:
        return kNone;
    }
  }

  int one_int(Op op, int x) {
    switch (op) {
      case Op::floor:
      case Op::ceil:
      case Op::round:
      case Op::conjugate:
      case Op::real:
        return x;
      case Op::imag:
        return word(0);
      case Op::negative:
        return apply(Do::int_sub, word(0), x);
      case Op::abs:
        return apply(Do::int_max, x, apply(Do::int_sub, word(0), x));
      case Op::sign:
        return apply(Do::int_max, apply(Do::int_min, x, word(1)), word(uint32_t(-1)));
      case Op::square:
        return apply(Do::int_mul, x, x);
      case Op::bitwiseInvert:
        return apply(Do::xor_, x, word(~0u));
      case Op::logicalNot:
        return apply(Do::int_equal, x, word(0));
      default:
        return kNone;
    }
  }

  int two_int(Op op, int x, int y) {
    const auto is_zero = [this](int each) { return apply(Do::int_equal, each, word(0)); };
    switch (op) {
      case Op::add:
        return apply(Do::int_add, x, y);
      case Op::subtract:
        return apply(Do::int_sub, x, y);
      case Op::multiply:
        return apply(Do::int_mul, x, y);
      case Op::maximum:
        return apply(Do::int_max, x, y);
      case Op::minimum:
        return apply(Do::int_min, x, y);
      case Op::bitwiseAnd:
        return apply(Do::and_, x, y);
      case Op::bitwiseOr:
        return apply(Do::or_, x, y);
      case Op::bitwiseXor:
        return apply(Do::xor_, x, y);
      // The processor's counts are unsigned, and from 32 on nothing of the number is left but its sign.
      case Op::leftShift:
        return apply(Do::shift_left_by, x, y);
      case Op::rightShift:
        return apply(Do::shift_right_sign_by, x, y);
      case Op::logicalAnd:
        return negated(apply(Do::mask_or, is_zero(x), is_zero(y)));
      case Op::logicalOr:
        return negated(apply(Do::mask_and, is_zero(x), is_zero(y)));
      case Op::equal:
        return apply(Do::int_equal, x, y);
      case Op::notEqual:
        return negated(apply(Do::int_equal, x, y));
      case Op::less:
        return apply(Do::int_greater, y, x);
      case Op::lessEqual:
        return negated(apply(Do::int_greater, x, y));
      case Op::greater:
        return apply(Do::int_greater, x, y);
      case Op::greaterEqual:
        return negated(apply(Do::int_greater, y, x));
      default:
        return kNone;
    }
  }

  Sequence& s_;
  const int lanes_;
};

}  // namespace

std::optional<Sequence> lower(const std::vector<int32_t>& inputs, const std::vector<Scalar>& code,
                              const std::vector<int>& results, uint64_t single, int lanes) {
  const size_t n_in = inputs.size(), count = n_in + code.size();
  std::vector<bool> needed(count);
  for (int each : results) needed[size_t(each)] = true;
  for (size_t i = code.size(); i-- > 0;) {
    if (!needed[n_in + i]) continue;
    for (int k = 0; k < op_arity(code[i].op); k++) needed[size_t(code[i].args[k])] = true;
  }

  Sequence sequence;
  Lowering lowering(sequence, lanes);
  std::vector<int> values(count, Lowering::kNone);
  const auto dtype_of = [&](int reg) {
    return size_t(reg) < n_in ? inputs[size_t(reg)] : code[size_t(reg) - n_in].dtype;
  };
  // Inputs are loaded when they are first read.
  const auto read = [&](int reg) {
    int& made = values[size_t(reg)];
    if (made == Lowering::kNone)
      made = sequence.load(reg, format_of(dtype_of(reg)), reg < 64 && (single >> reg & 1));
    return made;
  };
  for (size_t i = 0; i < count; i++)
    if (needed[i] && !covered(dtype_of(int(i)))) return std::nullopt;

  for (size_t i = 0; i < code.size(); i++) {
    if (!needed[n_in + i]) continue;
    const Scalar& it = code[i];
    int& made = values[n_in + i];
    if (it.op == Op::constant) {
      made = lowering.constant(it.dtype, it.bits);
    } else if (it.op == Op::cast) {
      made = lowering.cast(read(it.args[0]), dtype_of(it.args[0]), it.dtype);
    } else if (it.op == Op::select) {
      const int yes = read(it.args[1]), no = read(it.args[2]);
      made = lowering.select(it.dtype, read(it.args[0]), yes, no);
    } else if (it.op < Op::add) {
      made = lowering.one(it.op, dtype_of(it.args[0]), read(it.args[0]));
    } else {
      const int x = read(it.args[0]), y = read(it.args[1]);
      made = lowering.two(it.op, dtype_of(it.args[0]), x, y);
    }
    if (made == Lowering::kNone || sequence.code().size() > Sequence::kLongest) return std::nullopt;
  }
  for (size_t o = 0; o < results.size(); o++)
    sequence.store(int(n_in + o), format_of(dtype_of(results[o])), read(results[o]));
  return sequence;
}

}  // namespace lazuli::machine
