#include "job/handshake.h"

#include <cstring>

namespace lazuli::dist {
namespace {

constexpr char kMagic[8] = {'L', 'A', 'Z', 'U', 'L', 'I', '/', '1'};

struct Answer {
  Challenge challenge;
  Digest proof;
};
std::string text_of(const void* data, size_t bytes) {
  return std::string(static_cast<const char*>(data), bytes);
}

Challenge make_challenge() {
  Challenge c;
  std::memcpy(c.magic, kMagic, sizeof kMagic);
  std::memcpy(c.nonce, nonce(sizeof c.nonce).data(), sizeof c.nonce);
  return c;
}

}  // namespace

void introduce(const Socket& socket, const std::string& secret, const Hello& hello, Instant deadline) {
  const Challenge mine = make_challenge();
  socket.write(&mine, sizeof mine, deadline);
  Answer answer;
  socket.read(&answer, sizeof answer, deadline);
  const std::string both = text_of(&mine, sizeof mine) + text_of(&answer.challenge, sizeof answer.challenge);
  if (std::memcmp(answer.challenge.magic, kMagic, sizeof kMagic) != 0 ||
      !same(answer.proof, hmac(secret, "server" + both)))
    throw SocketError{"it does not know this job's secret"};
  Introduction introduction{hello, hmac(secret, "client" + both + text_of(&hello, sizeof hello))};
  socket.write(&introduction, sizeof introduction, deadline);
}

bool answer_challenge(const Socket& socket, const std::string& secret, std::string& challenges,
                      Instant deadline) {
  try {
    Challenge theirs;
    socket.read(&theirs, sizeof theirs, deadline);
    if (std::memcmp(theirs.magic, kMagic, sizeof kMagic) != 0) return false;
    const Challenge mine = make_challenge();
    challenges = text_of(&theirs, sizeof theirs) + text_of(&mine, sizeof mine);
    const Answer answer{mine, hmac(secret, "server" + challenges)};
    socket.write(&answer, sizeof answer, deadline);
    return true;
  } catch (const SocketError&) {
    return false;
  }
}

bool hear_introduction(const Socket& socket, const std::string& secret, const std::string& challenges,
                       Hello& hello, Instant deadline) {
  try {
    Introduction introduction;
    socket.read(&introduction, sizeof introduction, deadline);
    hello = introduction.hello;
    return same(introduction.proof, hmac(secret, "client" + challenges + text_of(&hello, sizeof hello)));
  } catch (const SocketError&) {
    return false;
  }
}

}  // namespace lazuli::dist
