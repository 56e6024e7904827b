// Parses a scalar program and lowers it: float16 and bfloat16 registers hold float32 values that are rounded
// to the half type after every instruction, so that their arithmetic is float32's micro-kernels.
#include "runtime/program.h"

#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

#include "runtime/dtype.h"
#include "runtime/scalar_ops.h"
#include "runtime/variant.h"

namespace lazuli {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("[registerProgram] " + what);
}

bool is_half(int32_t dtype) { return dtype == LZ_FLOAT16 || dtype == LZ_BFLOAT16; }
int32_t computing(int32_t dtype) { return is_half(dtype) ? int32_t(LZ_FLOAT32) : dtype; }

int log_size(int32_t dtype) { return std::countr_zero(uint64_t(itemsize(dtype))); }

// The result of these on half values is a half value already.
bool rounds_to_itself(Op op) {
  switch (op) {
    case Op::negative:
    case Op::abs:
    case Op::sign:
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::maximum:
    case Op::minimum:
    case Op::select:
    case Op::conjugate:
    case Op::real:
    case Op::imag:
      return true;
    default:
      return false;
  }
}

class Reader {
 public:
  Reader(const int64_t* words, size_t count) : next_(words), end_(words + count) {}
  int64_t word() {
    if (next_ == end_) refuse("the program is shorter than its header says");
    return *next_++;
  }
  int64_t within(int64_t low, int64_t high, const char* what) {
    const int64_t value = word();
    if (value < low || value > high) {
      refuse(std::string(what) + " " + std::to_string(value) + " is out of range [" + std::to_string(low) +
             ", " + std::to_string(high) + "]");
    }
    return value;
  }
  bool done() const { return next_ == end_; }

 private:
  const int64_t *next_, *end_;
};

}  // namespace

// Builds code_ and values_. A register of a half type has two values: wide (float32) and, for inputs and
// outputs, stored.
class Program::Lowering {
 public:
  explicit Lowering(Program& program) : p_(program) {}

  int input(int index, int32_t dtype) {
    registers_.push_back({dtype, value(log_size(dtype), Value::input, index), -1});
    return int(registers_.size()) - 1;
  }

  void constant(int32_t dtype, int64_t bits) {
    if (is_half(dtype)) {
      const float wide =
          dtype == LZ_FLOAT16 ? half_to_float(uint16_t(bits)) : bfloat_to_float(uint16_t(bits));
      bits = int64_t(std::bit_cast<uint32_t>(wide));
    }
    if (dtype == LZ_BOOL) bits = (bits & 0xff) != 0;
    p_.constants_.push_back(bits);
    const int made = value(log_size(computing(dtype)), Value::constant, int(p_.constants_.size()) - 1);
    registers_.push_back({dtype, is_half(dtype) ? -1 : made, made});
  }

  void instruction(Op op, int32_t dtype, const int* args, int n_args) {
    int values[3] = {-1, -1, -1};
    for (int i = 0; i < n_args; i++) values[i] = wide(args[i]);
    if (op == Op::cast) return cast(args[0], dtype);
    if (op == Op::divide && computing(dtype) == LZ_FLOAT32 && p_.values_[values[1]].kind == Value::constant) {
      const int64_t divisor = p_.constants_[p_.values_[values[1]].index];
      if (const auto factor = exact_reciprocal(std::bit_cast<float>(uint32_t(divisor)))) {
        p_.constants_.push_back(int64_t(std::bit_cast<uint32_t>(*factor)));
        values[1] = value(2, Value::constant, int(p_.constants_.size()) - 1);
        op = Op::multiply;
      }
    }
    const int32_t argument = computing(registers_[args[n_args - 1]].dtype);
    const int result =
        emit(micro_table().sets[int(op)][argument], op_cost(op), log_size(computing(dtype)), values, n_args);
    add(dtype, rounds_to_itself(op) ? result : rounded(result, dtype));
  }

  // The value that leaves the program for a register.
  int stored(int reg) {
    Register& r = registers_[reg];
    if (r.stored < 0) r.stored = emit({micro_table().casts[LZ_FLOAT32][r.dtype]}, 0.2, 1, &r.wide, 1);
    return r.stored;
  }

  int32_t dtype(int reg) const { return registers_[reg].dtype; }
  int count() const { return int(registers_.size()); }

 private:
  struct Register {
    int32_t dtype;
    int stored;  // the value in its own dtype; -1 until a half register needs one
    int wide;    // the value to compute with; -1 until a half input needs one
  };

  int value(int log, decltype(Value::kind) kind, int index) {
    p_.values_.push_back({uint8_t(log), kind, index});
    return int(p_.values_.size()) - 1;
  }

  int emit(const MicroSet& forms, double cost, int log, const int* args, int n_args) {
    Instruction made{forms, cost, value(log, Value::computed, int(p_.code_.size())), n_args, {-1, -1, -1}};
    std::copy(args, args + n_args, made.args);
    p_.code_.push_back(made);
    return made.out;
  }

  void add(int32_t dtype, int result) { registers_.push_back({dtype, is_half(dtype) ? -1 : result, result}); }

  int rounded(int result, int32_t dtype) {
    if (!is_half(dtype)) return result;
    const MicroTable& table = micro_table();
    return emit({dtype == LZ_FLOAT16 ? table.round_float16 : table.round_bfloat16}, 0.2, 2, &result, 1);
  }

  int wide(int reg) {
    Register& r = registers_[reg];
    if (!is_half(r.dtype)) return r.stored;
    if (r.wide < 0) r.wide = emit({micro_table().casts[r.dtype][LZ_FLOAT32]}, 0.2, 2, &r.stored, 1);
    return r.wide;
  }

  void cast(int reg, int32_t dtype) {
    const int32_t from = registers_[reg].dtype;
    if (from == dtype) {
      const Register same = registers_[reg];
      registers_.push_back(same);
      return;
    }
    const int source = wide(reg);
    int result = source;
    if (computing(from) != computing(dtype)) {
      const MicroTable& table = micro_table();
      // An integer that is no float32 is an infinity of float16.
      const bool odd =
          table.odd[from] != nullptr && (dtype == LZ_BFLOAT16 || (dtype == LZ_FLOAT16 && from == LZ_FLOAT64));
      result = emit({odd ? table.odd[from] : table.casts[computing(from)][computing(dtype)]}, 0.3,
                    log_size(computing(dtype)), &source, 1);
    }
    add(dtype, rounded(result, dtype));
  }

  Program& p_;
  std::vector<Register> registers_;
};

Program::Program(const int64_t* words, size_t count) {
  Reader reader(words, count);
  const int n_in = int(reader.within(0, 255, "the number of inputs"));
  const int n_code = int(reader.within(0, 10000, "the number of instructions"));
  const int n_out = int(reader.within(1, 255, "the number of outputs"));
  Lowering lowering(*this);
  for (int i = 0; i < n_in; i++) {
    inputs_.push_back(int32_t(reader.within(0, kDtypes - 1, "dtype")));
    lowering.input(i, inputs_.back());
  }
  for (int i = 0; i < n_code; i++) {
    const Op op = Op(reader.within(0, kOps - 1, "op code"));
    const auto dtype = int32_t(reader.within(0, kDtypes - 1, "dtype"));
    const std::string where = std::string("instruction ") + std::to_string(i) + " (" + op_name(op) + ")";
    int args[3], arity = op_arity(op);
    for (int k = 0; k < 3; k++) args[k] = int(reader.within(-1, lowering.count() - 1, "register"));
    const int64_t bits = reader.word();
    for (int k = 0; k < arity; k++)
      if (args[k] < 0) refuse(where + " lacks argument " + std::to_string(k));
    scalars_.push_back({op, dtype, {args[0], args[1], args[2]}, bits});
    if (op == Op::constant) {
      lowering.constant(dtype, bits);
      continue;
    }
    const int32_t argument = lowering.dtype(args[arity - 1]);
    const int first = op == Op::select ? 1 : 0;
    for (int k = first; k < arity; k++) {
      if (lowering.dtype(args[k]) != argument) {
        refuse(where + ": arguments must have the same dtype, received " +
               dtype_name(lowering.dtype(args[k])) + " and " + dtype_name(argument));
      }
    }
    if (op == Op::select && lowering.dtype(args[0]) != LZ_BOOL) {
      refuse(where + ": the condition must be bool, received " + dtype_name(lowering.dtype(args[0])));
    }
    if (!op_supported(op, argument)) refuse(where + " is not supported for " + dtype_name(argument));
    if (op != Op::cast && op_result(op, argument) != dtype) {
      refuse(where + ": expected a result of dtype " + dtype_name(op_result(op, argument)) + ", received " +
             dtype_name(dtype));
    }
    lowering.instruction(op, dtype, args, arity);
  }
  for (int i = 0; i < n_out; i++) {
    const int reg = int(reader.within(0, lowering.count() - 1, "output register"));
    outputs_.push_back(lowering.dtype(reg));
    results_.push_back(lowering.stored(reg));
    result_registers_.push_back(reg);
  }
  for (int32_t dtype : inputs_) log_sizes_.push_back(uint8_t(log_size(dtype)));
  for (int32_t dtype : outputs_) log_sizes_.push_back(uint8_t(log_size(dtype)));
  if (!reader.done()) refuse("the program is longer than its header says");
  find_variant(0);
}

Program::~Program() = default;

const Variant& Program::find_variant(uint64_t uniform) {
  for (const auto& each : variants_)
    if (each->uniform == uniform) return *each;

  VariantBuilder builder(int(inputs_.size()), int(outputs_.size()));
  for (const Value& v : values_) {
    switch (v.kind) {
      case Value::input:
        builder.input(v.index, v.log_size, v.index < 64 && (uniform >> v.index & 1));
        break;
      case Value::constant:
        builder.constant(v.index, v.log_size);
        break;
      case Value::computed:
        builder.computed(v.log_size);
        break;
    }
  }
  for (const Instruction& each : code_)
    builder.instruction(each.forms, each.cost, each.out, each.args, each.n_args);
  auto made = std::make_unique<Variant>(builder.build(results_));
  made->uniform = uniform;
  variants_.push_back(std::move(made));
  return *variants_.back();
}

}  // namespace lazuli
