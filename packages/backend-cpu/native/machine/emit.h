// From a sequence to x86-64 machine code: registers and the loop.
#ifndef LAZULI_MACHINE_EMIT_H
#define LAZULI_MACHINE_EMIT_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "machine/memory.h"
#include "machine/sequence.h"

namespace lazuli::machine {

// Runs the sequence over elements 0 … n-1 of some rows; n is a positive multiple of the lanes, `scratch` is
// scratch memory on a 64-byte boundary. The table, which is written to, has the addresses of the operands'
// first elements, then the bytes from row to row of each, then the number of rows.
using Entry = void (*)(void** table, int64_t n, char* scratch);
inline size_t table_size(int operands) { return 2 * size_t(operands) + 1; }

// The instruction set to write: 16 lanes of AVX-512 (F, BW, DQ, VL) or 8 of AVX2 with FMA and F16C.
enum class Target { avx2, avx512 };
inline int lanes_of(Target target) { return target == Target::avx512 ? 16 : 8; }

struct Emitted {
  Pages code;
  std::unique_ptr<uint32_t[], void (*)(uint32_t*)> literals{nullptr, nullptr};  // the code reads them
  size_t spilled = 0;                                                           // bytes of scratch memory
  Entry entry() const { return reinterpret_cast<Entry>(code.address()); }
};

// `operands`: how many there are. `streaming`: word stores go around the caches; their addresses must be
// multiples of the vector's size. Returns code without an address where the system gives no executable
// memory.
Emitted emit(const Sequence& sequence, Target target, int operands, bool streaming);

}  // namespace lazuli::machine

#endif
