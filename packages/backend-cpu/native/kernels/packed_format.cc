#include "kernels/packed_format.h"

#include <cmath>

namespace lazuli {

Format checked_format(const lz_call& call, const char* op, int64_t group, int64_t bits, int64_t mode) {
  Format f{};
  f.group = group;
  f.bits = int(bits);
  f.mode = int(mode);
  const bool integers = f.mode == kAffine;
  f.code = integers ? Code::integer : f.mode == kMxfp8 ? Code::e4m3 : Code::e2m1;
  const bool fits = integers ? (f.group == 16 || f.group == 32 || f.group == 64 || f.group == 128) &&
                                   (f.bits >= 2 && f.bits <= 8 && f.bits != 7) && f.group * f.bits % 32 == 0
                             : f.mode > 0 && f.mode <= kNvfp4 && f.group == (f.mode == kNvfp4 ? 16 : 32) &&
                                   f.bits == (f.mode == kMxfp8 ? 8 : 4);
  require(call, fits, "[%s] there is no format of %d bits in groups of %lld in mode %d", op, f.bits,
          (long long)f.group, f.mode);
  return f;
}

uint8_t encode_fp8(float x) {
  const float size = std::abs(x);
  float units = (size <= 448 ? size : 448) * 512;
  int code = 0;
  for (int shift = 8; shift > 0; shift /= 2) {
    if (units >= (shift == 1 ? 16.0f : std::ldexp(8.0f, shift))) {
      units = std::ldexp(units, -shift);
      code += 8 * shift;
    }
  }
  return uint8_t(code + int(std::nearbyint(units)) + (std::signbit(x) && !std::isnan(x) ? 128 : 0));
}

}  // namespace lazuli
