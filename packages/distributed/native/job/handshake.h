// The first words on a connection: both ends prove that they know the job's secret, and the one that connects
// says who it is. All sizes are fixed, and whoever does not prove it is dropped.
#ifndef LAZULI_DISTRIBUTED_HANDSHAKE_H
#define LAZULI_DISTRIBUTED_HANDSHAKE_H

#include <cstdint>
#include <string>

#include "wire/digest.h"
#include "wire/sockets.h"

namespace lazuli::dist {

constexpr uint32_t kProtocol = 7;

enum class Purpose : int32_t { rendezvous, control, data };

struct Hello {
  uint32_t protocol = kProtocol;
  int32_t rank = 0;
  int32_t size = 0;
  Purpose purpose = Purpose::rendezvous;
  int32_t index = 0;  // of a data connection
  int32_t port = 0;   // where it listens itself
  int64_t pid = 0;
  char host[64] = {};  // equal for processes that can share memory
};

// Words of whoever connects: a challenge, and behind the answer who it is, with its proof.
struct Challenge {
  char magic[8];
  char nonce[32];
};
struct Introduction {
  Hello hello;
  Digest proof;
};
// @throws SocketError where the other end does not know the secret
void introduce(const Socket& socket, const std::string& secret, const Hello& hello, Instant deadline);
// The other end's part, in two steps, before each of which the bytes are there. Both are false for strangers.
bool answer_challenge(const Socket& socket, const std::string& secret, std::string& challenges,
                      Instant deadline);
bool hear_introduction(const Socket& socket, const std::string& secret, const std::string& challenges,
                       Hello& hello, Instant deadline);

}  // namespace lazuli::dist

#endif
