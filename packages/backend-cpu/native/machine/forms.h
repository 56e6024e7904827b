// The x86-64 instructions that do what a sequence says.
#ifndef LAZULI_MACHINE_FORMS_H
#define LAZULI_MACHINE_FORMS_H

#include <asmjit/x86.h>

#include "machine/sequence.h"

namespace lazuli::machine {

struct Form {
  asmjit::x86::Inst::Id id;
  bool commutes = false;
};

// The instruction that does it alone, from registers and, last, a register or memory; `wide` is AVX-512.
Form plain_form(Do what, bool wide);

// True if that instruction ends in an immediate.
bool has_immediate(Do what);

// A fused multiply-add by which of its operands it writes over.
struct FmaForms {
  asmjit::x86::Inst::Id by_132, by_213, by_231;
};
FmaForms fma_forms(Do what);

}  // namespace lazuli::machine

#endif
