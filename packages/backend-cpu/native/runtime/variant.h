// Compiles a lowered program for one choice of single-element inputs: drops dead instructions, hoists what
// needs no block, writes outputs in place where that is safe, and assigns block registers, reused after their
// last use.
#ifndef LAZULI_RUNTIME_VARIANT_H
#define LAZULI_RUNTIME_VARIANT_H

#include <vector>

#include "runtime/program.h"

namespace lazuli {

// Micro-kernels that move bytes, by log2 of the element's size: a copy, and one element repeated.
Micro copy_micro(int log_size);
Micro fill_micro(int log_size);

class VariantBuilder {
 public:
  VariantBuilder(int n_in, int n_out) : n_in_(n_in), n_out_(n_out) {}

  // Values, numbered in the order they are given.
  void input(int index, int log_size, bool uniform);
  void constant(int index, int log_size);
  void computed(int log_size);
  void instruction(const MicroSet& forms, double cost, int out, const int* args, int n_args);

  Variant build(const std::vector<int>& results);

 private:
  enum class Kind { input, constant, computed };
  struct Value {
    Kind kind;
    int index, log_size;
    bool uniform = false;
    bool needed = false;
    int slot = -1;      // in the pointer table
    int splat = -1;     // the slot of a register full of it
    int last_use = -1;  // position among the block's steps
    int output = -1;    // written straight to this output
  };
  struct Instruction {
    MicroSet forms;
    double cost;
    int out, n_args, args[3];
  };
  // A step of the block, in values; `to_output` >= 0: from a value to an output.
  struct Planned {
    const Instruction* code;
    Micro move;
    int to_output, from;
  };

  int new_slot() { return next_slot_++; }
  int slot_of(int value, Variant& v);
  int splat_of(int value, Variant& v);
  int take_register(int log_size, Variant& v);
  void mark_needed(const std::vector<int>& results);
  std::vector<Planned> plan(const std::vector<int>& results, Variant& v);
  void emit(const std::vector<Planned>& planned, Variant& v);

  int n_in_, n_out_, next_slot_ = 0;
  std::vector<Value> values_;
  std::vector<Instruction> code_;
  std::vector<int> free_[4];  // slots of idle registers, by log2 of the element's size
};

}  // namespace lazuli

#endif
