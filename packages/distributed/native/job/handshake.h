// The first words on a connection: both ends prove that they know the job's secret, and the one that connects
// says who it is. All sizes are fixed, and whoever does not prove it is dropped.
#ifndef LAZULI_DISTRIBUTED_HANDSHAKE_H
#define LAZULI_DISTRIBUTED_HANDSHAKE_H

#include <cstdint>
#include <string>

#include "wire/sockets.h"

namespace lazuli::dist {

constexpr uint32_t kProtocol = 5;

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

// Bytes that whoever connects says first.
constexpr int kFirstWords = 40;
// @throws SocketError where the other end does not know the secret
void introduce(const Socket& socket, const std::string& secret, const Hello& hello, Instant deadline);
// False where the other end does not know the secret, or says nothing in time.
bool meet(const Socket& socket, const std::string& secret, Hello& hello, Instant deadline);

}  // namespace lazuli::dist

#endif
