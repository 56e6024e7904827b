// Reading the records of PROTOCOL.md: the bounds-checked decoder that tapes and plans share.
#ifndef LAZULI_RUNTIME_RECORD_H
#define LAZULI_RUNTIME_RECORD_H

#include <lazuli/kernel.h>

#include <cstdint>

#include "runtime/dtype.h"

namespace lazuli {

enum Opcode : uint32_t { kAlloc = 1, kFree = 2, kRun = 3, kMap = 4, kPlan = 5 };

inline uint32_t low32(int64_t word) { return uint32_t(uint64_t(word)); }
inline uint32_t high32(int64_t word) { return uint32_t(uint64_t(word) >> 32); }

// An operand and where its bytes lie in its slot: [low, high), relative to the slot's start.
struct DecodedOperand {
  lz_operand operand;  // data is set for immediates only
  uint32_t slot;
  int64_t offset, low, high;
};

// Reads one operand and moves `next` behind it. Strides of contiguous operands are written to `strides`, which is moved on.
// Returns null, or what is wrong.
const char* decode_operand(const int64_t*& next, const int64_t* end, DecodedOperand& out, int64_t*& strides);

}  // namespace lazuli

#endif
