// Scalar programs: from registered words to steps over blocks of elements. How the steps meet operands is in
// map.h.
#ifndef LAZULI_RUNTIME_PROGRAM_H
#define LAZULI_RUNTIME_PROGRAM_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "machine/code.h"
#include "simd/micro.h"

namespace lazuli {

// Elements a block: small enough that a dozen registers stay in the first-level cache.
inline constexpr int64_t kBlock = 256;

// One micro-kernel call; the numbers name slots of the block's pointer table.
struct Step {
  Micro run;
  uint16_t out, a, b, c;
};

// A program compiled for one choice of which inputs are single elements. Slots: inputs, outputs, then the
// fixed ones.
struct Variant {
  uint64_t uniform = 0;     // bit i: input i is a single element
  std::vector<Step> once;   // on single elements, before all blocks
  std::vector<Step> block;  // per block
  struct Splat {
    Micro fill;
    uint16_t out, from;
  };
  std::vector<Splat> splats;  // registers that hold one value throughout
  struct Fixed {
    uint16_t slot;
    enum : uint8_t { cell, constant, block_register } kind;
    uint32_t offset;  // bytes into the cells, the constants or the registers
  };
  std::vector<Fixed> fixed;
  uint32_t n_slots = 0, cell_bytes = 0, register_bytes = 0;
  // A single step from inputs and constants to the output: it may run over any length at once.
  bool direct = false;
  // … and from inputs alone: its slots are operands.
  bool plain = false;
  double cost = 0;  // nanoseconds an element, roughly
  // Made and counted by the program's thread; pool threads only run what it gives them.
  mutable MachineChoice machine;
};

class Program {
 public:
  // Parses and checks the words of PROTOCOL.md. Throws std::invalid_argument.
  Program(const int64_t* words, size_t count);
  ~Program();

  const std::vector<int32_t>& inputs() const { return inputs_; }
  const std::vector<int32_t>& outputs() const { return outputs_; }
  // log2 of the element's size, of inputs and then outputs.
  const uint8_t* log_sizes() const { return log_sizes_.data(); }
  const int64_t* constants() const { return constants_.data(); }

  // Machine code for this choice of single elements, or null.
  std::unique_ptr<MachineCode> machine_code(uint64_t uniform) const {
    return MachineCode::make(inputs_, scalars_, result_registers_, log_sizes_.data(), uniform);
  }

  // Not thread-safe: a program belongs to one isolate. References stay valid.
  const Variant& variant(uint64_t uniform) {
    // The one without single elements is made first.
    return uniform == 0 ? *variants_[0] : find_variant(uniform);
  }

 private:
  class Lowering;
  const Variant& find_variant(uint64_t uniform);
  // An instruction over virtual registers, where half types have become float32 with explicit conversions.
  struct Instruction {
    MicroSet forms;
    double cost;
    int out, n_args, args[3];
  };
  struct Value {
    uint8_t log_size;
    enum : uint8_t { input, constant, computed } kind;
    int index;
  };

  std::vector<int32_t> inputs_, outputs_;
  std::vector<uint8_t> log_sizes_;
  std::vector<int64_t> constants_;
  std::vector<Value> values_;
  std::vector<Instruction> code_;
  std::vector<int> results_;              // a value for each output
  std::vector<machine::Scalar> scalars_;  // as registered
  std::vector<int> result_registers_;
  std::vector<std::unique_ptr<Variant>> variants_;
};

}  // namespace lazuli

#endif
