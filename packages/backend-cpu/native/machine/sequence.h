// One iteration of a machine-code loop over a vector of elements: a straight line of instructions over
// untyped 32-bit lanes and over masks. lower.cc and traced.h write it, emit.cc turns it into machine code.
#ifndef LAZULI_MACHINE_SEQUENCE_H
#define LAZULI_MACHINE_SEQUENCE_H

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lazuli::machine {

// clang-format off
enum class Do : uint8_t {
  // From memory: `operand` is the program's, `format` how an element is stored.
  load, literal, table,
  // lanes → lanes
  sqrt, round, to_int, to_float, shift_left, shift_right, shift_right_sign, through_half,
  add, sub, mul, div, min, max, scale, // scale: a·2^b
  and_, or_, xor_, and_not,
  int_add, int_sub, int_mul, int_min, int_max,
  shift_left_by, shift_right_by, shift_right_sign_by,
  mul_add, mul_sub, neg_mul_add,       // a·b + c, a·b - c, c - a·b
  copy_sign,                           // |a| with the sign of b; a is not negative, c has the sign bits
  lookup,                              // of a table's 16 lanes: lane a of b
  // lanes → mask, mask → mask, mask and lanes → lanes
  compare, int_greater, int_equal,
  mask_and, mask_or, mask_xor, mask_not,
  blend,                               // a ? b : c
  store,
};
// clang-format on

enum class Format : uint8_t { word, half, bfloat, boolean };

// The predicates of `compare`, in x86's encoding: ordered ones are false for NaN, not_equal and unordered
// true.
// clang-format off
enum Predicate : uint8_t { less = 17, less_equal = 18, equal = 0, not_equal = 4, greater = 30, greater_equal = 29, unordered = 3 };
// clang-format on

// `round`'s mode, in x86's encoding, without exceptions.
enum Rounding : uint8_t { nearest_even = 8, down = 9, up = 10, towards_zero = 11 };

struct Instruction {
  Do what;
  uint8_t detail = 0;  // a shift's count, a predicate, a rounding
  Format format = Format::word;
  bool mask = false;       // the result is a mask
  bool invariant = false;  // the same in every iteration
  int16_t operand = -1;
  int args[3] = {-1, -1, -1};
  uint32_t bits = 0;             // a literal's
  const float* table = nullptr;  // 16 numbers that outlive the sequence
};

class Sequence {
 public:
  // Most programs are far shorter. Beyond this, compiling would be felt.
  static constexpr size_t kLongest = 3000;

  int literal(uint32_t bits) {
    for (int known : literals_)
      if (code_[size_t(known)].bits == bits) return known;
    Instruction made{.what = Do::literal, .invariant = true};
    made.bits = bits;
    literals_.push_back(add(made));
    return literals_.back();
  }
  int literal(float value) { return literal(std::bit_cast<uint32_t>(value)); }

  int table(const float* numbers) {
    Instruction made{.what = Do::table, .invariant = true};
    made.table = numbers;
    return add(made);
  }

  int load(int operand, Format format, bool single) {
    Instruction made{
        .what = Do::load, .format = format, .mask = format == Format::boolean, .invariant = single};
    made.operand = int16_t(operand);
    return add(made);
  }

  int apply_with(int detail, Do what, int a, int b = -1, int c = -1) {
    Instruction made{.what = what, .detail = uint8_t(detail), .mask = gives_mask(what)};
    made.args[0] = a, made.args[1] = b, made.args[2] = c;
    made.invariant = true;
    for (int arg : made.args)
      if (arg >= 0 && !code_[size_t(arg)].invariant) made.invariant = false;
    return add(made);
  }
  int apply(Do what, int a, int b = -1, int c = -1) { return apply_with(0, what, a, b, c); }

  void store(int operand, Format format, int value) {
    Instruction made{.what = Do::store, .format = format};
    made.operand = int16_t(operand);
    made.args[0] = value;
    add(made);
  }

  const std::vector<Instruction>& code() const { return code_; }

 private:
  static bool gives_mask(Do what) { return what >= Do::compare && what <= Do::mask_not; }
  int add(const Instruction& made) {
    code_.push_back(made);
    return int(code_.size()) - 1;
  }

  std::vector<Instruction> code_;
  std::vector<int> literals_;
};

}  // namespace lazuli::machine

#endif
