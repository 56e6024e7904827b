// SHA-256 and HMAC: who joins a job proves that it knows the job's secret.
#ifndef LAZULI_DISTRIBUTED_DIGEST_H
#define LAZULI_DISTRIBUTED_DIGEST_H

#include <array>
#include <cstdint>
#include <string>

namespace lazuli::dist {

using Digest = std::array<uint8_t, 32>;

Digest sha256(const std::string& text);
Digest hmac(const std::string& key, const std::string& text);
// Takes the same time wherever they differ.
bool same(const Digest& a, const Digest& b);
// Bytes that nobody can guess.
std::string nonce(size_t bytes);

}  // namespace lazuli::dist

#endif
