// Reading the records of PROTOCOL.md: the bounds-checked decoder that command buffers and plans share.
#ifndef LAZULI_RUNTIME_RECORD_H
#define LAZULI_RUNTIME_RECORD_H

#include <lazuli/kernel.h>

#include <cstdint>

#include "runtime/dtype.h"

namespace lazuli {

enum Opcode : uint32_t {
  kAlloc = 1,
  kFree = 2,
  kRun = 3,
  kMap = 4,
  kPlan = 5,
  kWait = 6,
  kEpilogue = 7,
  kPrologue = 8,
  kDense = 9,
  kData = 10
};

inline uint32_t low32(int64_t word) { return uint32_t(uint64_t(word)); }
inline uint32_t high32(int64_t word) { return uint32_t(uint64_t(word) >> 32); }

// The callee of a RUN, MAP, EPILOGUE or PROLOGUE, and how many operands follow.
struct CallHead {
  uint32_t id;
  int n_in, n_out;
};

// Moves `next` behind the head. False where the record cannot hold so many operands, which take two words at
// least.
inline bool decode_head(const int64_t*& next, const int64_t* end, CallHead& head) {
  if (end - next < 2) return false;
  const uint64_t n_in = high32(next[0]), n_out = uint64_t(next[1]), most = uint64_t(end - next - 2) / 2;
  if (n_in > most || n_out > most - n_in) return false;
  head = {low32(next[0]), int(n_in), int(n_out)};
  next += 2;
  return true;
}

// Where an operand's bytes lie in its buffer: [low, high), relative to the buffer's start.
struct Extent {
  uint32_t id;  // of the buffer, or its binding in a plan
  int64_t offset, low, high;
};

// Reads one operand and moves `next` behind it. `data` is set for immediates only. Strides of contiguous
// operands are written to `strides`, which is moved on. Returns null, or what is wrong.
inline const char* decode_operand(const int64_t*& next, const int64_t* end, lz_operand& x, Extent& extent,
                                  int64_t*& strides);

namespace record_detail {

inline constexpr uint8_t kLogSize[kDtypes] = {0, 0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 1, 3, 3};
// Beyond every address space, and small enough that sums of a few do not overflow.
inline constexpr int64_t kFar = int64_t(1) << 56;

// Everything but contiguous operands of one dimension, which is the operand of a small elementwise op.
const char* decode_rest(const int64_t*& next, const int64_t* end, lz_operand& x, Extent& extent,
                        int64_t*& strides);

}  // namespace record_detail

inline const char* decode_operand(const int64_t*& next, const int64_t* end, lz_operand& x, Extent& extent,
                                  int64_t*& strides) {
  using namespace record_detail;
  if (end - next < 2) return "an operand is cut short";
  const int64_t head = next[0];
  const uint32_t info = high32(head), dtype = info & 0xff, ndim = info >> 8 & 0xff, flags = info >> 16;
  extent.id = low32(head);
  if (dtype >= uint32_t(kDtypes)) return "an operand has an unknown dtype";
  // Filled in place and field by field: a copy of the struct would wait for these narrower stores.
  x.dtype = int32_t(dtype);
  x.ndim = int32_t(ndim);
  x.flags = flags;
  x.reserved = 0;
  if (flags != LZ_CONTIGUOUS || ndim != 1 || end - next < 4)
    return decode_rest(next, end, x, extent, strides);
  const int64_t offset = next[1], size = next[2];
  const int log_size = kLogSize[dtype];
  if (offset < 0 || offset >= kFar || (offset & ((1 << log_size) - 1)))
    return "an operand's offset is negative or not aligned";
  if (size < 0 || size >= kFar >> 3) return "an operand's size is out of range";
  if (next[3] != size) return "an operand's shape does not match its size";
  x.size = size;
  x.shape = next + 3;
  x.strides = strides;
  *strides++ = 1;
  extent.offset = extent.low = offset;
  extent.high = offset + (size << log_size);
  next += 4;
  return nullptr;
}

}  // namespace lazuli

#endif
