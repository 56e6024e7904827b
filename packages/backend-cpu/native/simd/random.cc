// threefry2x32 with 20 rounds: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011.
#include "simd/random.h"

namespace lazuli::LZ_TARGET {
namespace {

inline __attribute__((always_inline)) void rounds(uint32_t& a, uint32_t& b, int r0, int r1, int r2, int r3) {
  a += b, b = (b << r0 | b >> (32 - r0)) ^ a;
  a += b, b = (b << r1 | b >> (32 - r1)) ^ a;
  a += b, b = (b << r2 | b >> (32 - r2)) ^ a;
  a += b, b = (b << r3 | b >> (32 - r3)) ^ a;
}

void threefry(uint32_t key0, uint32_t key1, uint32_t counter0, uint32_t counter1, int64_t n,
              uint32_t* __restrict first, uint32_t* __restrict second) {
  const uint32_t key2 = key0 ^ key1 ^ 0x1bd11bdau;
  for (int64_t i = 0; i < n; i++) {
    uint32_t a = counter0 + uint32_t(i) + key0, b = counter1 + uint32_t(i) + key1;
    rounds(a, b, 13, 15, 26, 6);
    a += key1, b += key2 + 1;
    rounds(a, b, 17, 29, 16, 24);
    a += key2, b += key0 + 2;
    rounds(a, b, 13, 15, 26, 6);
    a += key0, b += key1 + 3;
    rounds(a, b, 17, 29, 16, 24);
    a += key1, b += key2 + 4;
    rounds(a, b, 13, 15, 26, 6);
    a += key2, b += key0 + 5;
    first[i] = a;
    second[i] = b;
  }
}

}  // namespace

const RandomTable& random_table() {
  static constexpr RandomTable table = {threefry};
  return table;
}

}  // namespace lazuli::LZ_TARGET
