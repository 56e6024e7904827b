// Collectives by messages: small arrays go from everybody to everybody, or between ever more distant pairs,
// large ones around a ring in pieces.
#include <cstring>

#include "collectives/exchange.h"
#include "collectives/scratch.h"

namespace lazuli::dist {
namespace {

// Below this many bytes one exchange with everybody costs less than 2 (n − 1) steps.
constexpr size_t kSmall = 8 * 1024;
// Up to so many bytes, members of one host exchange their sums in pairs, if their number is a power of two: a
// message there costs its sender the receiver's part of the work as well, so that few messages are faster.
constexpr size_t kInPairs = 64 * 1024;
// Up to so many bytes, and members, two steps between all cost less than those around the ring.
constexpr size_t kMiddle = 1024 * 1024;
constexpr int kFew = 16;

struct Part {
  size_t begin, bytes;
};

class Ring : public Transport {
 public:
  Ring(const Group& group, const char* name, std::unique_ptr<Exchange> exchange)
      : name_(name), exchange_(std::move(exchange)) {
    const int n = group.size();
    goes_in_pairs_ = n > 2 && (n & (n - 1)) == 0 && group.members_here() == n;
  }
  const char* name() const override { return name_; }

  void run(Group& group, const Work& work, uint64_t sequence) override {
    Exchange& exchange = *exchange_;
    exchange.begin(group, work, sequence);
    const size_t width = size_of(work.dtype), bytes = size_t(work.count) * width;
    const int n = group.size(), me = group.rank();
    const char* in = static_cast<const char*>(work.in);
    char* out = static_cast<char*>(work.out);
    switch (work.kind) {
      case Kind::allReduce:
        if (goes_in_pairs_ && bytes <= kInPairs)
          reduce_in_pairs(exchange, work, bytes, n, me);
        else if (bytes <= kSmall)
          reduce_small(exchange, group, work, bytes);
        else if (n == 2 && bytes <= kMiddle && work.reduction == Reduction::sum)
          reduce_pair(exchange, work, bytes, 1 - me);
        else if (n <= kFew && bytes <= kMiddle)
          reduce_parts(exchange, group, work, width);
        else
          reduce_large(exchange, group, work, width);
        return;
      case Kind::allGather:
        for (int r = 0; r < n; r++) {
          if (r == me) continue;
          exchange.send(r, in, bytes);
          exchange.receive(r, out + size_t(r) * bytes, bytes);
        }
        if (bytes) std::memmove(out + size_t(me) * bytes, in, bytes);
        exchange.run();
        return;
      case Kind::sumScatter: {
        // Every member's part for this one, added up in the order of the ranks.
        const size_t part = bytes / size_t(n), room = rounded(part);
        char* parts = parts_.take(room * size_t(n));
        for (int r = 0; r < n; r++) {
          if (r == me) continue;
          exchange.send(r, in + size_t(r) * part, part);
          exchange.receive(r, parts + size_t(r) * room, part);
        }
        if (part) std::memcpy(parts + size_t(me) * room, in + size_t(me) * part, part);
        exchange.run();
        combine(work, out, parts, part, room, n);
        return;
      }
      case Kind::allToAll: {
        const size_t part = bytes / size_t(n);
        for (int r = 0; r < n; r++) {
          if (r == me) continue;
          exchange.send(r, in + size_t(r) * part, part);
          exchange.receive(r, out + size_t(r) * part, part);
        }
        if (part) std::memcpy(out + size_t(me) * part, in + size_t(me) * part, part);
        exchange.run();
        return;
      }
      case Kind::broadcast: {
        // A chain from the root on: whatever arrives is passed on at once. The last sends the root an empty
        // piece, so that all compare their operations with somebody's: they may know of different roots.
        const int distance = (me - work.peer + n) % n, next = (me + 1) % n, before = (me + n - 1) % n;
        const bool last = distance == n - 1;
        if (distance == 0) {
          if (bytes) std::memcpy(out, in, bytes);
          exchange.send(next, out, bytes);
          exchange.receive(before, nullptr, 0);
        } else {
          const int first = exchange.receive(before, out, bytes);
          exchange.send(next, out, last ? 0 : bytes, last ? -1 : first);
        }
        exchange.run();
        return;
      }
      case Kind::send:
        exchange.send(work.peer, in, bytes);
        exchange.run();
        if (bytes && out) std::memcpy(out, in, bytes);
        return;
      case Kind::recv:
        exchange.receive(work.peer, out, bytes);
        exchange.run();
        return;
      case Kind::barrier:
        exchange.meet();
        return;
    }
  }

 private:
  const char* const name_;
  const std::unique_ptr<Exchange> exchange_;
  bool goes_in_pairs_ = false;
  Scratch parts_;

  static size_t rounded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
  // The first byte of a member's part of an array.
  static size_t begin_of(const Work& work, size_t width, int part, int n) {
    const size_t begin = size_t(work.count * part / n) * width;
    return part == n ? begin : begin / kAlignment * kAlignment;
  }

  // Parts of every member, each with so much room.
  static void combine(const Work& work, char* out, const char* parts, size_t part, size_t room, int n) {
    const int64_t count = int64_t(part / size_of(work.dtype));
    if (count == 0) return;
    reduce(work.reduction, work.dtype, out, parts, parts + room, count);
    for (int r = 2; r < n; r++) reduce(work.reduction, work.dtype, out, out, parts + size_t(r) * room, count);
  }

  // In the order of the ranks, so that all have the same bits.
  void reduce_small(Exchange& exchange, Group& group, const Work& work, size_t bytes) {
    const int n = group.size(), me = group.rank();
    const size_t room = rounded(bytes);
    char* all = parts_.take(room * size_t(n));
    for (int r = 0; r < n; r++) {
      if (r == me) continue;
      exchange.send(r, work.in, bytes);
      exchange.receive(r, all + size_t(r) * room, bytes);
    }
    if (bytes) std::memcpy(all + size_t(me) * room, work.in, bytes);
    exchange.run();
    combine(work, static_cast<char*>(work.out), all, bytes, room, n);
  }

  // Members at a distance that doubles from step to step exchange what they have. Both reduce it with the
  // lower rank's first, so that all have the same bits.
  void reduce_in_pairs(Exchange& exchange, const Work& work, size_t bytes, int n, int me) {
    char* received = parts_.take(rounded(bytes));
    const void* mine = work.in;
    for (int distance = 1; distance < n; distance *= 2) {
      const int other = me ^ distance;
      exchange.send(other, mine, bytes);
      exchange.receive(other, received, bytes);
      exchange.run();
      reduce(work.reduction, work.dtype, work.out, me < other ? mine : received, me < other ? received : mine,
             work.count);
      mine = work.out;
    }
  }

  // A sum of two is the same either way around.
  static void reduce_pair(Exchange& exchange, const Work& work, size_t bytes, int other) {
    exchange.send(other, work.in, bytes);
    exchange.receive(other, work.out, bytes, work.in);
    exchange.run();
  }

  // Every member adds up a part, in the order of the ranks, and sends it to all.
  void reduce_parts(Exchange& exchange, Group& group, const Work& work, size_t width) {
    const int n = group.size(), me = group.rank();
    const auto at = [&](int r) { return begin_of(work, width, r, n); };
    const auto* in = static_cast<const char*>(work.in);
    auto* out = static_cast<char*>(work.out);
    const size_t mine = at(me + 1) - at(me), room = rounded(mine);
    char* parts = parts_.take(room * size_t(n));
    for (int k = 1; k < n; k++) {
      const int r = (me + k) % n, from = (me + n - k) % n;
      exchange.send(r, in + at(r), at(r + 1) - at(r));
      exchange.receive(from, parts + size_t(from) * room, mine);
    }
    std::memcpy(parts + size_t(me) * room, in + at(me), mine);
    exchange.run();
    combine(work, out + at(me), parts, mine, room, n);
    for (int k = 1; k < n; k++) {
      const int r = (me + k) % n, from = (me + n - k) % n;
      exchange.send(r, out + at(me), mine);
      exchange.receive(from, out + at(from), at(from + 1) - at(from));
    }
    exchange.run();
  }

  // Each part goes around once and is added up on the way, and then once more, done.
  static void reduce_large(Exchange& exchange, Group& group, const Work& work, size_t width) {
    const int n = group.size(), me = group.rank();
    const int next = (me + 1) % n, before = (me + n - 1) % n;
    const auto part = [&](int index) -> Part {
      const int i = (index % n + n) % n;
      const size_t begin = begin_of(work, width, i, n), end = begin_of(work, width, i + 1, n);
      return {begin, end - begin};
    };
    const char* in = static_cast<const char*>(work.in);
    char* out = static_cast<char*>(work.out);
    int arrived = -1;
    for (int step = 0; step < 2 * (n - 1); step++) {
      const bool adding = step < n - 1;
      const Part outgoing = part(me - step), incoming = part(me - step - 1);
      exchange.send(next, (step == 0 ? in : out) + outgoing.begin, outgoing.bytes, arrived);
      arrived = exchange.receive(before, out + incoming.begin, incoming.bytes,
                                 adding ? in + incoming.begin : nullptr);
    }
    exchange.run();
  }
};

}  // namespace

std::unique_ptr<Transport> make_ring(const Group& group) {
  return make_direct(group, "ring", make_socket_exchange(group));
}

std::unique_ptr<Transport> make_direct(const Group& group, const char* name,
                                       std::unique_ptr<Exchange> exchange) {
  return std::make_unique<Ring>(group, name, std::move(exchange));
}

}  // namespace lazuli::dist
