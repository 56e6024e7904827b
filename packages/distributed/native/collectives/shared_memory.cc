// Shared memory of one host: each member has a segment that the others read. Its file has no name and goes
// with the process that made it, however that ends.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstring>

#include "collectives/group.h"

#ifdef __linux__
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

namespace lazuli::dist {

#ifdef __linux__

namespace {

// Bytes of a slot: what a member shows in one round.
constexpr size_t kSlot = 1 << 20;
// A member may be one round ahead of the others, who still read its slot of the round before.
constexpr int kSlots = 2;

// The operation that a member is in, which the others compare with their own.
struct Label {
  uint64_t sequence;
  int64_t count;
  uint32_t kind, reduction, dtype, shape;
  int32_t root;
};

struct Segment {
  alignas(64) std::atomic<uint32_t> rounds;  // that this member has shown
  std::atomic<uint32_t> sleepers;            // members that wait for it
  alignas(64) Label labels[kSlots];
  alignas(4096) char slots[kSlots][kSlot];
};

long futex(std::atomic<uint32_t>* word, int operation, uint32_t value, const timespec* limit) {
  return syscall(SYS_futex, word, operation, value, limit, nullptr, 0);
}

class SharedMemory : public Transport {
 public:
  SharedMemory(std::unique_ptr<Transport> messages, std::vector<Segment*> segments)
      : messages_(std::move(messages)), segments_(std::move(segments)) {}
  ~SharedMemory() override {
    for (Segment* segment : segments_) munmap(segment, sizeof(Segment));
  }
  const char* name() const override { return "shm"; }

  void run(Group& group, const Work& work, uint64_t sequence) override {
    if (work.kind == Kind::send || work.kind == Kind::recv) return messages_->run(group, work, sequence);
    const size_t width = size_of(work.dtype), bytes = size_t(work.count) * width;
    const size_t n = size_t(group.size()), me = size_t(group.rank());
    const char* in = static_cast<const char*>(work.in);
    char* out = static_cast<char*>(work.out);
    const Label label{sequence,
                      work.count,
                      uint32_t(work.kind),
                      uint32_t(work.reduction),
                      uint32_t(work.dtype),
                      work.shape,
                      work.kind == Kind::broadcast ? work.peer : 0};
    switch (work.kind) {
      case Kind::allReduce:
        if (n == 2 || bytes <= kSlot / 64)
          reduce_all(group, work, label, bytes);
        else
          reduce_parts(group, work, label, bytes);
        return;
      case Kind::allGather:
        rounds(bytes, kSlot, [&](size_t at, size_t size) {
          char* mine = next_slot();
          copy(mine, in + at, size);
          show(group, label);
          for (size_t r = 0; r < n; r++) copy(out + r * bytes + at, await(group, label, r), size);
        });
        return;
      case Kind::sumScatter: {
        const size_t part = bytes / n, room = kSlot / n / 64 * 64;
        rounds(part, room, [&](size_t at, size_t size) {
          char* mine = next_slot();
          for (size_t r = 0; r < n; r++) copy(mine + r * room, in + r * part + at, size);
          show(group, label);
          const int64_t count = int64_t(size / std::max<size_t>(width, 1));
          const char* first = await(group, label, 0) + me * room;
          for (size_t r = 1; r < n; r++) {
            reduce(work.reduction, work.dtype, out + at, r == 1 ? first : out + at,
                   await(group, label, r) + me * room, count);
          }
        });
        return;
      }
      case Kind::allToAll: {
        const size_t part = bytes / n, room = kSlot / n / 64 * 64;
        rounds(part, room, [&](size_t at, size_t size) {
          char* mine = next_slot();
          for (size_t r = 0; r < n; r++) copy(mine + r * room, in + r * part + at, size);
          show(group, label);
          for (size_t r = 0; r < n; r++) copy(out + r * part + at, await(group, label, r) + me * room, size);
        });
        return;
      }
      case Kind::broadcast:
        rounds(bytes, kSlot, [&](size_t at, size_t size) {
          char* mine = next_slot();
          const bool root = me == size_t(work.peer);
          if (root) copy(mine, in + at, size);
          show(group, label);
          // Everybody waits for everybody: slots are free again two rounds later.
          for (size_t r = 0; r < n; r++) await(group, label, r);
          copy(out + at, root ? in + at : slot_of(size_t(work.peer)), size);
        });
        return;
      default:
        next_slot();
        show(group, label);
        for (size_t r = 0; r < n; r++) await(group, label, r);
    }
  }

 private:
  static void copy(char* to, const char* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  // At least one round, so that empty arrays are compared too.
  template <class Body>
  static void rounds(size_t bytes, size_t room, Body body) {
    for (size_t at = 0;; at += room) {
      body(at, std::min(room, bytes - at));
      if (bytes - at <= room) return;
    }
  }

  // Every member adds up everything: one round.
  void reduce_all(Group& group, const Work& work, const Label& label, size_t bytes) {
    const size_t n = size_t(group.size()), me = size_t(group.rank()), width = size_of(work.dtype);
    const char* in = static_cast<const char*>(work.in);
    char* out = static_cast<char*>(work.out);
    rounds(bytes, kSlot, [&](size_t at, size_t size) {
      copy(next_slot(), in + at, size);
      show(group, label);
      const int64_t count = int64_t(size / width);
      const auto part = [&](size_t r) { return r == me ? in + at : await(group, label, r); };
      const char* first = part(0);
      for (size_t r = 1; r < n; r++)
        reduce(work.reduction, work.dtype, out + at, r == 1 ? first : out + at, part(r), count);
    });
  }

  // Every member adds up a part, and takes the others' parts: two rounds, of half a slot each.
  void reduce_parts(Group& group, const Work& work, const Label& label, size_t bytes) {
    const size_t n = size_t(group.size()), me = size_t(group.rank()), width = size_of(work.dtype);
    const char* in = static_cast<const char*>(work.in);
    char* out = static_cast<char*>(work.out);
    rounds(bytes, kSlot, [&](size_t at, size_t size) {
      copy(next_slot(), in + at, size);
      show(group, label);
      const size_t count = size / width;
      const auto begin = [&](size_t r) { return count * r / n * width; };
      const size_t from = begin(me), length = begin(me + 1) - from;
      char* mine = out + at + from;
      const char* first = await(group, label, 0) + from;
      for (size_t r = 1; r < n; r++)
        reduce(work.reduction, work.dtype, mine, r == 1 ? first : mine, await(group, label, r) + from,
               int64_t(length / width));
      copy(next_slot(), mine, length);
      show(group, label);
      for (size_t i = 1; i < n; i++) {
        const size_t r = (me + i) % n;
        copy(out + at + begin(r), await(group, label, r), begin(r + 1) - begin(r));
      }
    });
  }

  char* slot_of(size_t rank) { return segments_[rank]->slots[round_ % kSlots]; }
  // All others have shown the round before, and so have read the one before that, which was here.
  char* next_slot() {
    round_++;
    return segments_[size_t(own_)]->slots[round_ % kSlots];
  }
  void show(Group& group, const Label& label) {
    Segment& mine = *segments_[size_t(own_)];
    mine.labels[round_ % kSlots] = label;
    mine.rounds.store(round_, std::memory_order_seq_cst);
    if (mine.sleepers.load(std::memory_order_seq_cst) > 0) futex(&mine.rounds, FUTEX_WAKE, INT_MAX, nullptr);
  }
  // A member's slot of this round, once it is shown.
  const char* await(Group& group, const Label& label, size_t rank) {
    Segment& theirs = *segments_[rank];
    if (int(rank) == own_) return theirs.slots[round_ % kSlots];
    const auto there = [&] { return int32_t(theirs.rounds.load(std::memory_order_acquire) - round_) >= 0; };
    if (!there()) sleep(group, theirs, rank, there);
    compare(group, label, rank, theirs.labels[round_ % kSlots]);
    return theirs.slots[round_ % kSlots];
  }

  template <class There>
  void sleep(Group& group, Segment& theirs, size_t rank, There there) {
    for (int spin = 0; spin < 2000; spin++) {
      if (there()) return;
      if (spin % 8 == 7) sched_yield();
    }
    const Instant since = Clock::now();
    const timespec slice{0, std::clamp<long>(long(group.world().limit() * 1e8), 1000000, 20000000)};
    theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
    try {
      while (!there()) {
        group.world().check(group.world_rank(int(rank)), since);
        const uint32_t seen = theirs.rounds.load(std::memory_order_seq_cst);
        if (!there()) futex(&theirs.rounds, FUTEX_WAIT, seen, &slice);
      }
    } catch (...) {
      theirs.sleepers.fetch_sub(1, std::memory_order_seq_cst);
      throw;
    }
    theirs.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }

  void compare(Group& group, const Label& mine, size_t rank, const Label& theirs) const;

 public:
  int own_ = 0;

 private:
  std::unique_ptr<Transport> messages_;
  std::vector<Segment*> segments_;
  uint32_t round_ = 0;
};

void SharedMemory::compare(Group& group, const Label& mine, size_t rank, const Label& theirs) const {
  if (std::memcmp(&mine, &theirs, offsetof(Label, root) + sizeof mine.root) == 0) return;
  const auto as_work = [](const Label& label) {
    Work work{Kind(label.kind)};
    work.reduction = Reduction(label.reduction);
    work.dtype = int(label.dtype);
    work.count = label.count;
    work.shape = label.shape;
    work.peer = label.root;
    return work;
  };
  const Work own = as_work(mine), other = as_work(theirs);
  group.world().fail(
      Failure(group.world_rank(int(rank)), difference(other, theirs.sequence, true, own, mine.sequence)));
}

struct Address {
  int64_t pid;
  int32_t fd;
  int32_t good;
};

Segment* map(int fd) {
  void* memory = mmap(nullptr, sizeof(Segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Segment*>(memory);
}

}  // namespace

std::unique_ptr<Transport> make_shared_memory(Group& group) {
  // All members come here, and agree in the end.
  World& world = group.world();
  bool good = true;
  for (int r = 0; r < group.size(); r++)
    good = good && std::strcmp(world.member(group.world_rank(r)).seat.host,
                               world.member(group.world_rank(0)).seat.host) == 0;
  if (!good) return nullptr;
  const int fd = memfd_create("lazuli", MFD_CLOEXEC);
  good = fd >= 0 && ftruncate(fd, sizeof(Segment)) == 0;
  std::vector<Segment*> segments(size_t(group.size()), nullptr);
  if (good) segments[size_t(group.rank())] = map(fd);
  const Address mine{getpid(), fd, good && segments[size_t(group.rank())]};
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
    segments[size_t(r)] = opened >= 0 ? map(opened) : nullptr;
    if (opened >= 0) close(opened);
    good = segments[size_t(r)] != nullptr;
  }
  for (const Address& each : tell({0, 0, good})) good = good && each.good;
  if (fd >= 0) close(fd);
  if (!good) {
    for (Segment* segment : segments)
      if (segment) munmap(segment, sizeof(Segment));
    return nullptr;
  }
  auto transport = std::make_unique<SharedMemory>(make_ring(), std::move(segments));
  transport->own_ = group.rank();
  return transport;
}

#else

std::unique_ptr<Transport> make_shared_memory(Group&) { return nullptr; }

#endif

}  // namespace lazuli::dist
