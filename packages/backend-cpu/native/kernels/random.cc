// randomBits: for every key, a stream of 32-bit words from counters. With W words a key and half = W div 2,
// block i < half gives words i and i + half (+ 1 when W is odd); the middle word of an odd count is the first
// half of block (half, 0). The last word is cut when the bytes do not fill it. This is MLX's layout, so equal
// keys give equal bits.
#include <cstring>

#include "kernels/families.h"
#include "kernels/layout.h"
#include "simd/random.h"

namespace lazuli {
namespace {

constexpr int64_t kBlock = 1024;

// Blocks [begin, end) of one key's stream.
void blocks(const uint32_t* key, int64_t begin, int64_t end, int64_t half, bool odd, int64_t bytes,
            char* out) {
  const auto threefry = random_table().threefry;
  uint32_t first[kBlock], second[kBlock];
  const int64_t partner = half + odd;
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t n = std::min(kBlock, end - i);
    threefry(key[0], key[1], uint32_t(i), uint32_t(i + partner), n, first, second);
    std::memcpy(out + 4 * i, first, size_t(4 * n));
    const int64_t at = 4 * (i + partner);
    std::memcpy(out + at, second, size_t(std::min(4 * n, bytes - at)));
  }
}

void middle(const uint32_t* key, int64_t half, int64_t bytes, char* out) {
  uint32_t first, second;
  random_table().threefry(key[0], key[1], uint32_t(half), 0, 1, &first, &second);
  std::memcpy(out + 4 * half, &first, size_t(std::min<int64_t>(4, bytes - 4 * half)));
}

void random_bits(const lz_call& call) {
  require_counts(call, "randomBits", 1, 1);
  const lz_operand &keys = call.in[0], &y = call.out[0];
  const int64_t width = params::RandomBits(call).width;
  const int32_t dtype = width == 1 ? LZ_UINT8 : width == 2 ? LZ_UINT16 : LZ_UINT32;
  bool fits = (width == 1 || width == 2 || width == 4) && y.dtype == dtype && keys.dtype == LZ_UINT32 &&
              keys.ndim >= 1 && keys.shape[keys.ndim - 1] == 2 && y.ndim >= keys.ndim - 1;
  for (int d = 0; d < keys.ndim - 1 && fits; d++) fits = y.shape[d] == keys.shape[d];
  require(call, fits, "[randomBits] the keys or the output have the wrong shape or dtype");
  if (y.size == 0) return;
  const uint32_t* key = contiguous<uint32_t>(call, keys);
  const int64_t n = keys.size / 2, bytes = y.size / n * width, words = (bytes + 3) / 4, half = words / 2;
  const bool odd = words % 2 != 0;
  char* out = data<char>(y);
  if (n == 1) {
    parallel(call, half, 2,
             [&](int64_t begin, int64_t end) { blocks(key, begin, end, half, odd, bytes, out); });
    if (odd) middle(key, half, bytes, out);
    return;
  }
  parallel(call, n, 20 + 2.0 * double(half), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      blocks(key + 2 * i, 0, half, half, odd, bytes, out + i * bytes);
      if (odd) middle(key + 2 * i, half, bytes, out + i * bytes);
    }
  });
}

}  // namespace

void register_random(Registry& registry) { registry.add("randomBits", entry<random_bits>); }

}  // namespace lazuli
