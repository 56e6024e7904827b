// The formats of packed weights, as parameters give them, and the numbers of eight bits that they use.
#ifndef LAZULI_KERNELS_PACKED_FORMAT_H
#define LAZULI_KERNELS_PACKED_FORMAT_H

#include <algorithm>
#include <bit>

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

// E4M3: see ops/fp8.ts in core, whose steps these are. Its bits are those of a float that is 2^120 times too
// small.
inline float decode_fp8(uint8_t code) {
  return std::bit_cast<float>(uint32_t(code & 0x80) << 24 | uint32_t(code & 0x7f) << 20) * 0x1p120f;
}
uint8_t encode_fp8(float x);
// E8M0: a power of two, of which the lowest is subnormal.
inline float decode_power(uint8_t code) {
  return std::bit_cast<float>(std::max(uint32_t(code) << 23, uint32_t(0x400000)));
}

// Scales of one byte as floats.
inline void decode_scales(int mode, const uint8_t* from, int64_t n, float* to) {
  if (mode == kNvfp4) {
    for (int64_t i = 0; i < n; i++) to[i] = decode_fp8(from[i]);
  } else {
    for (int64_t i = 0; i < n; i++) to[i] = decode_power(from[i]);
  }
}

}  // namespace lazuli

#endif
