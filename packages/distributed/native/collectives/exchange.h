// Pieces of data that travel over the connections between ranks, each behind a header that says to which
// operation it belongs. Both ends know beforehand which pieces come in which order; anything else is a
// failure.
#ifndef LAZULI_DISTRIBUTED_EXCHANGE_H
#define LAZULI_DISTRIBUTED_EXCHANGE_H

#include <poll.h>

#include <deque>
#include <vector>

#include "collectives/group.h"
#include "collectives/patience.h"

namespace lazuli::dist {

struct Header {
  uint32_t check;  // of what follows
  uint32_t group;
  uint64_t sequence;
  int64_t count;
  uint32_t shape;
  uint8_t kind, reduction, dtype, reserved;
  int32_t root;
  uint32_t piece;  // its number on the connection, in this operation
  uint32_t bytes;
  uint32_t data_check;
};

class Exchange {
 public:
  Exchange(Group& group, const Work& work, uint64_t sequence, Patience& patience)
      : group_(group), work_(work), sequence_(sequence), patience_(patience) {}
  // Data go in pieces of at most this many bytes, over the connections to a rank in turn.
  static constexpr size_t kPiece = 256 * 1024;

  // Sends bytes to a rank of the group. A piece goes out once `after`, an incoming piece, is there (−1: at
  // once).
  void send(int to, const void* data, size_t bytes, int after = -1);
  // Receives them. With `with`, elements are reduced with those there: target = with ∘ received.
  // Returns the number of the incoming piece, the first of several.
  int receive(int from, void* target, size_t bytes, const void* with = nullptr);
  void run();

 private:
  struct Out {
    const char* data;
    uint32_t bytes;
    int after;
  };
  struct In {
    char* target;
    uint32_t bytes;
    const char* with;
    int number;
  };
  struct Lane {
    int rank, world_rank, fd;
    std::deque<Out> out;
    std::deque<In> in;
    uint32_t sent = 0, received = 0;  // pieces
    Header out_header, in_header;
    size_t out_done = 0, in_done = 0;  // bytes of the current pieces, headers included
    bool out_open = false;
    bool checked = false;
    int least = 1;  // bytes that wake a sleeper
    std::vector<char> scratch;
  };
  Lane& lane(int rank, bool outgoing);
  bool push(Lane& lane);
  bool pull(Lane& lane);
  // Sleeps until a connection can take or give something.
  void sleep(Instant since);
  void wake_by(Lane& lane, int bytes);
  void check_header(const Lane& lane, const Header& header) const;

  Group& group_;
  const Work& work_;
  const uint64_t sequence_;
  Patience& patience_;
  std::vector<Lane> lanes_;
  std::vector<std::pair<int, int>> next_;  // by rank: the connections that the next pieces take
  std::vector<char> arrived_;              // by number of the incoming piece
  size_t open_ = 0;                        // pieces on their way
  std::vector<pollfd> fds_;
};

}  // namespace lazuli::dist

#endif
