// Shared memory of one host: each member has a segment that the others read. Its file has no name and goes
// with the process that made it, however that ends.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstring>

#include "collectives/patience.h"
#include "collectives/shared_memory.h"

#ifdef __linux__
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

namespace lazuli::dist {

#ifdef __linux__

namespace {

// Bytes of a slot: what a member shows in one round.
constexpr size_t kSlot = 256 * 1024;
constexpr uint32_t kSlots = 8;
// Rounds that a member may show before it takes the others' of the first of them: while they sleep it need
// not. Of members that keep to it none waits for a slot in the round that it takes next.
constexpr uint32_t kAhead = kSlots / 2;
// Rounds between the parts of an array and their sums.
constexpr size_t kBetween = 4;

struct Segment {
  alignas(64) std::atomic<uint32_t> rounds;  // that this member has shown
  std::atomic<uint32_t> sleepers;            // members that wait for it
  alignas(64) std::atomic<uint32_t> taken;   // rounds of which this member needs nothing more
  alignas(64) Label labels[kSlots];
  alignas(4096) char slots[kSlots][kSlot];
};

long futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* limit) {
  return syscall(SYS_futex, word, operation, value, limit, nullptr, 0);
}

class SharedMemory : public Transport {
 public:
  SharedMemory(const Group& group, const char* name, std::unique_ptr<Transport> messages, Memories memories)
      : own_(group.rank()),
        name_(name),
        messages_(std::move(messages)),
        memories_(std::move(memories)),
        patience_(group.is_crowded(), group.shares_processors()) {
    for (const auto& each : memories_) segments_.push_back(static_cast<Segment*>(each.get()));
  }
  const char* name() const override { return name_; }

  void run(Group& group, const Work& work, uint64_t sequence) override {
    if (work.kind == Kind::send || work.kind == Kind::recv) return messages_->run(group, work, sequence);
    const size_t width = size_of(work.dtype), bytes = size_t(work.count) * width;
    const size_t n = size_t(group.size()), me = size_t(group.rank());
    const char* in = static_cast<const char*>(work.in);
    char* out = static_cast<char*>(work.out);
    const Label label = label_of(work, group.id(), sequence);
    const size_t part = bytes / n, room = kSlot / n / 64 * 64;
    // Every member's part lies in a slot, with the same room for each.
    const auto put_parts = [&](char* mine, size_t at, size_t size) {
      for (size_t r = 0; r < n; r++) copy(mine + r * room, in + r * part + at, size);
    };
    switch (work.kind) {
      case Kind::allReduce:
        if (n == 2 || bytes <= kSlot / 8)
          reduce_all(group, work, label, bytes);
        else
          reduce_parts(group, work, label, bytes);
        return;
      case Kind::allGather:
        return pieces(
            group, label, bytes, kSlot,
            [&](char* mine, size_t at, size_t size) { copy(mine, in + at, size); },
            [&](size_t at, size_t size) {
              for (size_t r = 0; r < n; r++) copy(out + r * bytes + at, slot_of(r), size);
            });
      case Kind::sumScatter:
        return pieces(group, label, part, room, put_parts, [&](size_t at, size_t size) {
          add_up(work, out + at, size, [&](size_t r) { return slot_of(r) + me * room; });
        });
      case Kind::allToAll:
        return pieces(group, label, part, room, put_parts, [&](size_t at, size_t size) {
          for (size_t r = 0; r < n; r++) copy(out + r * part + at, slot_of(r) + me * room, size);
        });
      case Kind::broadcast: {
        const bool root = me == size_t(work.peer);
        return pieces(
            group, label, bytes, kSlot,
            [&](char* mine, size_t at, size_t size) {
              if (root) copy(mine, in + at, size);
            },
            [&](size_t at, size_t size) {
              copy(out + at, root ? in + at : slot_of(size_t(work.peer)), size);
            });
      }
      default:
        return pieces(group, label, 0, kSlot, [](char*, size_t, size_t) {}, [](size_t, size_t) {});
    }
  }

 private:
  static void copy(char* to, const char* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  // Rounds of an operation: `put` fills this member's slot of a round, and `take` reads the others'. A round
  // may `need` that another one has been taken.
  template <class Put, class Take, class Needs>
  void rounds(Group& group, const Label& label, size_t count, Put put, Take take, Needs needs) {
    size_t shown = 0, taken = 0;
    while (taken < count) {
      const bool may_put = shown < count && shown - taken < kAhead && needs(shown) <= taken;
      // A round that is there is taken first: it may lie in a cache yet.
      if (shown > taken && is_round_there(group, label, taken)) {
        current_ = round_ + uint32_t(taken);
        take(taken);
        own().taken.store(round_ + uint32_t(++taken), std::memory_order_release);
      } else if (may_put && is_slot_free(shown)) {
        const uint32_t slot = (round_ + uint32_t(shown)) % kSlots;
        put(own().slots[slot], shown);
        own().labels[slot] = label;
        show(round_ + uint32_t(++shown));
      } else {
        sleep(group, taken);
      }
    }
    round_ += uint32_t(count);
  }

  // Pieces of an array, a round for each; at least one, so that empty arrays are compared too.
  template <class Put, class Take>
  void pieces(Group& group, const Label& label, size_t bytes, size_t most, Put put, Take take) {
    const auto size = [&](size_t i) { return std::min(most, bytes - i * most); };
    rounds(
        group, label, std::max<size_t>(1, (bytes + most - 1) / most),
        [&](char* mine, size_t i) { put(mine, i * most, size(i)); },
        [&](size_t i) { take(i * most, size(i)); }, [](size_t) { return size_t(0); });
  }

  template <class Part>
  void add_up(const Work& work, char* out, size_t bytes, Part part) {
    const int64_t count = int64_t(bytes / size_of(work.dtype));
    for (size_t r = 1; r < segments_.size(); r++)
      reduce(work.reduction, work.dtype, out, r == 1 ? part(0) : out, part(r), count);
  }

  // Every member adds up everything.
  void reduce_all(Group& group, const Work& work, const Label& label, size_t bytes) {
    const char* in = static_cast<const char*>(work.in);
    char* out = static_cast<char*>(work.out);
    pieces(
        group, label, bytes, kSlot, [&](char* mine, size_t at, size_t size) { copy(mine, in + at, size); },
        [&](size_t at, size_t size) {
          add_up(work, out + at, size, [&](size_t r) { return r == size_t(own_) ? in + at : slot_of(r); });
        });
  }

  // Every member adds up a part of each piece, and takes the others' sums in a later round.
  void reduce_parts(Group& group, const Work& work, const Label& label, size_t bytes) {
    const size_t n = size_t(group.size()), me = size_t(group.rank()), width = size_of(work.dtype);
    const char* in = static_cast<const char*>(work.in);
    char* out = static_cast<char*>(work.out);
    const size_t count = (bytes + kSlot - 1) / kSlot, between = std::min(kBetween, count);
    const auto size = [&](size_t i) { return std::min(kSlot, bytes - i * kSlot); };
    const auto begin = [&](size_t i, size_t r) { return size(i) / width * r / n * width; };
    // Rounds: `between` pieces, then sums and pieces by turns, then the sums that are left.
    struct Round {
      bool sums;
      size_t piece;
    };
    const auto round = [&](size_t i) -> Round {
      if (i < between) return {false, i};
      const size_t j = i - between;
      if (j >= 2 * (count - between)) return {true, j - (count - between)};
      return {j % 2 == 0, j % 2 == 0 ? j / 2 : between + j / 2};
    };
    const auto round_of_piece = [&](size_t piece) {
      return piece < between ? piece : between + 2 * (piece - between) + 1;
    };
    rounds(
        group, label, 2 * count,
        [&](char* mine, size_t i) {
          const auto [sums, piece] = round(i);
          const size_t from = begin(piece, me), to = begin(piece, me + 1);
          if (sums)
            copy(mine, out + piece * kSlot + from, to - from);
          else
            copy(mine, in + piece * kSlot, size(piece));
        },
        [&](size_t i) {
          const auto [sums, piece] = round(i);
          char* target = out + piece * kSlot;
          if (!sums) {
            const size_t from = begin(piece, me);
            return add_up(work, target + from, begin(piece, me + 1) - from,
                          [&](size_t r) { return r == me ? in + piece * kSlot + from : slot_of(r) + from; });
          }
          for (size_t k = 1; k < n; k++) {
            const size_t r = (me + k) % n;
            copy(target + begin(piece, r), slot_of(r), begin(piece, r + 1) - begin(piece, r));
          }
        },
        [&](size_t i) {
          const auto [sums, piece] = round(i);
          return sums ? round_of_piece(piece) + 1 : 0;
        });
  }

  Segment& own() { return *segments_[size_t(own_)]; }
  // A member's slot of the round that is being taken.
  const char* slot_of(size_t rank) const { return segments_[rank]->slots[current_ % kSlots]; }

  bool is_shown(size_t rank, size_t round) const {
    const uint32_t shown = segments_[rank]->rounds.load(std::memory_order_acquire);
    return int32_t(shown - (round_ + uint32_t(round))) > 0;
  }
  // All members have shown a round, and are in the same operation.
  bool is_round_there(Group& group, const Label& label, size_t round) {
    for (size_t r = 0; r < segments_.size(); r++)
      if (int(r) != own_ && !is_shown(r, round)) return false;
    for (size_t r = 0; r < segments_.size(); r++)
      if (int(r) != own_) compare(group, label, r, segments_[r]->labels[(round_ + uint32_t(round)) % kSlots]);
    return true;
  }
  // All others have taken this member's round that lay there.
  bool is_slot_free(size_t round) const {
    for (const Segment* each : segments_) {
      const uint32_t taken = each->taken.load(std::memory_order_acquire);
      if (int32_t(round_ + uint32_t(round) - taken) >= int32_t(kSlots)) return false;
    }
    return true;
  }
  void show(uint32_t rounds) {
    Segment& mine = own();
    mine.rounds.store(rounds, std::memory_order_seq_cst);
    if (mine.sleepers.load(std::memory_order_seq_cst) > 0) futex(&mine.rounds, FUTEX_WAKE, INT_MAX, nullptr);
  }

  // Until another member that has not shown a round has.
  void sleep(Group& group, size_t round) {
    size_t rank = 0;
    while (rank < segments_.size() && (int(rank) == own_ || is_shown(rank, round))) rank++;
    if (rank == segments_.size()) return;
    Segment& theirs = *segments_[rank];
    const auto there = [&] { return is_shown(rank, round); };
    if (patience_.wait(there)) return;
    const Instant since = group.world().now();
    const timespec slice{0, std::clamp<long>(long(group.world().limit() * 1e8), 1000000, 20000000)};
    theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
    try {
      while (!there()) {
        group.world().check(group.world_rank(int(rank)), since, true);
        const uint32_t seen = theirs.rounds.load(std::memory_order_seq_cst);
        if (!there()) futex(&theirs.rounds, FUTEX_WAIT, seen, &slice);
      }
    } catch (...) {
      theirs.sleepers.fetch_sub(1, std::memory_order_seq_cst);
      throw;
    }
    theirs.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }

  static void compare(Group& group, const Label& mine, size_t rank, const Label& theirs) {
    if (!(theirs == mine))
      group.world().fail(
          Failure(group.world_rank(int(rank)), difference(theirs, mine, group.world().rank())));
  }

  const int own_;
  const char* const name_;
  const std::unique_ptr<Transport> messages_;
  const Memories memories_;
  std::vector<Segment*> segments_;  // in them
  uint32_t round_ = 0;              // before this operation
  uint32_t current_ = 0;            // that is being taken
  Patience patience_;
};

struct Address {
  int64_t pid;
  int32_t fd;
  int32_t good;
};

// Null where that fails.
std::shared_ptr<void> map(int fd) {
  void* memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {memory, [](void* it) { munmap(it, sizeof(Segment)); }};
}

}  // namespace

size_t shared_memory_size() { return sizeof(Segment); }

std::unique_ptr<Transport> make_shared_memory(const Group& group, const char* name,
                                              std::unique_ptr<Transport> messages, Memories memories) {
  return std::make_unique<SharedMemory>(group, name, std::move(messages), std::move(memories));
}

std::unique_ptr<Transport> make_shared_memory(Group& group) {
  // All members come here, and agree in the end.
  bool good = group.members_here() == group.size();
  if (!good) return nullptr;
  const int fd = memfd_create("lazuli", MFD_CLOEXEC);
  good = fd >= 0 && ftruncate(fd, sizeof(Segment)) == 0;
  Memories memories(size_t(group.size()));
  if (good) memories[size_t(group.rank())] = map(fd);
  const Address mine{getpid(), fd, good && memories[size_t(group.rank())]};
  const auto tell = [&](const Address& address) {
    const std::string all =
        group.gather(std::string(reinterpret_cast<const char*>(&address), sizeof address));
    std::vector<Address> list(size_t(group.size()));
    std::memcpy(list.data(), all.data(), all.size());
    return list;
  };
  const std::vector<Address> addresses = tell(mine);
  for (int r = 0; r < group.size() && good; r++) {
    if (r == group.rank()) continue;
    const Address& theirs = addresses[size_t(r)];
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)theirs.pid, theirs.fd);
    const int opened = theirs.good ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (opened >= 0) memories[size_t(r)] = map(opened);
    if (opened >= 0) close(opened);
    good = memories[size_t(r)] != nullptr;
  }
  for (const Address& each : tell({0, 0, good})) good = good && each.good;
  if (fd >= 0) close(fd);
  if (!good) return nullptr;
  return make_shared_memory(group, "shm", make_ring(group), std::move(memories));
}

#else

size_t shared_memory_size() { return 0; }

std::unique_ptr<Transport> make_shared_memory(const Group&, const char*, std::unique_ptr<Transport>,
                                              Memories) {
  return nullptr;
}
std::unique_ptr<Transport> make_shared_memory(Group&) { return nullptr; }

#endif

}  // namespace lazuli::dist
