// The formats of packed weights, as parameters give them, and the numbers of eight bits that they use.
#ifndef LAZULI_KERNELS_PACKED_FORMAT_H
#define LAZULI_KERNELS_PACKED_FORMAT_H

#include "kernels/call.h"
#include "simd/quantized.h"

namespace lazuli {

enum Mode { kAffine, kMxfp4, kMxfp8, kNvfp4 };
// The largest value of a code times the largest scale: what a global scale is relative to.
constexpr float kNvfp4Range = 448 * 6;
struct Format : CodeFormat {
  int mode;
};

// Fails the call where there is no such format.
Format checked_format(const lz_call& call, const char* op, int64_t group, int64_t bits, int64_t mode);

// The format that the parameters of a primitive name.
template <class Params>
Format read_format(const lz_call& call, const char* op, const Params& params) {
  return checked_format(call, op, params.groupSize, params.bits, int64_t(params.mode));
}

// E4M3: see ops/fp8.ts in core, whose steps these are.
float decode_fp8(uint8_t code);
uint8_t encode_fp8(float x);

// Scales of one byte as floats.
const float* byte_scales(int mode);

}  // namespace lazuli

#endif
