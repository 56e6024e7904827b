#include "wire/checksum.h"

#include <array>
#include <cstring>
#if defined(__aarch64__)
#include <arm_acle.h>
#endif

namespace lazuli::dist {
namespace {

std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
    table[i] = c;
  }
  return table;
}

uint32_t portable(uint32_t crc, const uint8_t* p, size_t n) {
  static const std::array<uint32_t, 256> table = make_table();
  for (size_t i = 0; i < n; i++) crc = crc >> 8 ^ table[(crc ^ p[i]) & 255];
  return crc;
}

struct Three {
  uint32_t a, b, c;
};

// The instruction for eight bytes, and the attribute of functions that use it.
#if defined(__x86_64__)
#define LAZULI_CRC __attribute__((target("sse4.2")))
LAZULI_CRC inline uint64_t step(uint64_t crc, uint64_t word) { return __builtin_ia32_crc32di(crc, word); }
const bool kHardware = __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__)
#if defined(__clang__)
#define LAZULI_CRC __attribute__((target("crc")))
#else
#define LAZULI_CRC __attribute__((target("+crc")))
#endif
LAZULI_CRC inline uint64_t step(uint64_t crc, uint64_t word) {
  return __builtin_aarch64_crc32cx(uint32_t(crc), word);
}
const bool kHardware = true;
#else
#define LAZULI_CRC
inline uint64_t step(uint64_t crc, uint64_t) { return crc; }
const bool kHardware = false;
#endif

LAZULI_CRC Three hardware(const uint8_t* p, size_t third) {
  uint64_t a = ~0u, b = ~0u, c = ~0u;
  for (size_t i = 0; i < third; i += 8) {
    uint64_t x, y, z;
    std::memcpy(&x, p + i, 8);
    std::memcpy(&y, p + third + i, 8);
    std::memcpy(&z, p + 2 * third + i, 8);
    a = step(a, x);
    b = step(b, y);
    c = step(c, z);
  }
  return {uint32_t(a), uint32_t(b), uint32_t(c)};
}

// Of large data: lanes of 32 bits, side by side, so that the loop takes vectors of whatever size the
// processor has. Each step is a bijection of the lane and of the word: a change within one word is always
// noticed.
constexpr size_t kBlock = 256, kLarge = 16 * kBlock;
typedef uint32_t Lanes __attribute__((vector_size(32)));

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define LAZULI_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define LAZULI_CLONES
#endif

LAZULI_CLONES void blocks(const uint8_t* p, size_t count, uint8_t* out) {
  constexpr size_t kMany = kBlock / sizeof(Lanes);
  Lanes all[kMany];
  for (size_t i = 0; i < kMany; i++)
    for (size_t j = 0; j < 8; j++) all[i][j] = uint32_t(0x9e3779b1u * (8 * i + j + 1));
  for (; count > 0; count--, p += kBlock) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kMany; i++) {
      Lanes words;
      std::memcpy(&words, p + i * sizeof words, sizeof words);
      words += all[i];
      all[i] = (words << 13 | words >> 19) * 0x85ebca77u;
    }
  }
  std::memcpy(out, all, sizeof all);
}

}  // namespace

uint32_t checksum(const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  if (bytes >= kLarge) {
    uint8_t parts[2 * kBlock];
    const size_t count = bytes / kBlock, rest = bytes % kBlock;
    blocks(p, count, parts);
    std::memcpy(parts + kBlock, p + count * kBlock, rest);
    return checksum(parts, kBlock + rest);
  }
  const size_t third = bytes / 24 * 8;
  const Three parts = kHardware ? hardware(p, third)
                                : Three{portable(~0u, p, third), portable(~0u, p + third, third),
                                        portable(~0u, p + 2 * third, third)};
  uint32_t crc = portable(~0u, reinterpret_cast<const uint8_t*>(&parts), sizeof parts);
  crc = portable(crc, p + 3 * third, bytes - 3 * third);
  return ~crc;
}

}  // namespace lazuli::dist
