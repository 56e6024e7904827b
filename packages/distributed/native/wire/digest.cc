#include "wire/digest.h"

#include <fcntl.h>
#include <unistd.h>

#include <stdexcept>

namespace lazuli::dist {
namespace {

const uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t turned(uint32_t x, int by) { return x >> by | x << (32 - by); }

void block(uint32_t* state, const uint8_t* bytes) {
  uint32_t w[64];
  for (int i = 0; i < 16; i++)
    w[i] = uint32_t(bytes[4 * i]) << 24 | uint32_t(bytes[4 * i + 1]) << 16 | uint32_t(bytes[4 * i + 2]) << 8 |
           bytes[4 * i + 3];
  for (int i = 16; i < 64; i++) {
    const uint32_t a = turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t b = turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + a + w[i - 7] + b;
  }
  uint32_t s[8];
  for (int i = 0; i < 8; i++) s[i] = state[i];
  for (int i = 0; i < 64; i++) {
    const uint32_t high = turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25);
    const uint32_t t1 = s[7] + high + ((s[4] & s[5]) ^ (~s[4] & s[6])) + kRound[i] + w[i];
    const uint32_t low = turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22);
    const uint32_t t2 = low + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
    for (int k = 7; k > 0; k--) s[k] = s[k - 1];
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (int i = 0; i < 8; i++) state[i] += s[i];
}

}  // namespace

Digest sha256(const std::string& text) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string padded = text + '\x80';
  while (padded.size() % 64 != 56) padded += '\0';
  const uint64_t bits = uint64_t(text.size()) * 8;
  for (int i = 7; i >= 0; i--) padded += char(bits >> (8 * i));
  for (size_t i = 0; i < padded.size(); i += 64)
    block(state, reinterpret_cast<const uint8_t*>(padded.data() + i));
  Digest out;
  for (int i = 0; i < 32; i++) out[i] = uint8_t(state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

Digest hmac(const std::string& key, const std::string& text) {
  std::string k = key;
  if (k.size() > 64) {
    const Digest d = sha256(k);
    k.assign(d.begin(), d.end());
  }
  k.resize(64, '\0');
  std::string inner = k, outer = k;
  for (char& c : inner) c ^= 0x36;
  for (char& c : outer) c ^= 0x5c;
  const Digest first = sha256(inner + text);
  return sha256(outer + std::string(first.begin(), first.end()));
}

bool same(const Digest& a, const Digest& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); i++) difference |= a[i] ^ b[i];
  return difference == 0;
}

std::string nonce(size_t bytes) {
  std::string out(bytes, '\0');
  const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  const bool ok = fd >= 0 && read(fd, out.data(), bytes) == ssize_t(bytes);
  if (fd >= 0) close(fd);
  if (!ok) throw std::runtime_error("cannot read /dev/urandom");
  return out;
}

}  // namespace lazuli::dist
