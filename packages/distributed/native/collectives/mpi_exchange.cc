// Messages by MPI. The first of an operation to a member says which operation that is, with the first piece
// in it if that is small. Nothing is waited for in MPI, which could not be given up.
#include <lazuli/kernel.h>
#include <sched.h>

#include <cstring>

#include "collectives/exchange.h"
#include "collectives/mpi.h"
#include "collectives/scratch.h"

namespace lazuli::dist {
namespace {

// A message costs the members a conversation, so that smaller pieces take longer.
constexpr size_t kPiece = 1024 * 1024;
// Pieces of a member on their way at a time.
constexpr size_t kAhead = 4;
// Fruitless looks between yields, and the time between looks at how the other members are.
constexpr unsigned kYield = 64;
// Where mpirun knows of more processes than processors, MPI yields in each of them as well.
constexpr unsigned kCrowdedYield = 4;
constexpr auto kCheck = std::chrono::milliseconds(1);

// Open MPI asks the receiver before it sends more than 4 KB in a host's memory, and more than 64 KB by TCP.
struct Sizes {
  size_t inside;   // data in a first message, behind the label, that is sent unasked
  size_t unasked;  // up to so many bytes, several such messages cost less than one that is asked for
};
constexpr size_t kNearest = 4096 - sizeof(Label) - 64;
constexpr Sizes kNear{kNearest, 3 * kNearest};
// Two members send each other whole arrays, and more of them parts, whose answers would be waited for twice.
constexpr Sizes kFar{60 * 1024, 64 * 1024}, kFarOfMany{60 * 1024, 256 * 1024};
static_assert(kNearest % 16 == 0);

class MpiExchange : public Exchange {
 public:
  MpiExchange(const Group& group, std::shared_ptr<MpiMeans> means, bool is_far)
      : sizes_(!is_far             ? kNear
               : group.size() == 2 ? kFar
                                   : kFarOfMany),
        mpi_(*mpi_library()),
        means_(std::move(means)),
        tag_(means_->uses % kTags),
        crowded_(group.is_crowded()),
        lanes_(size_t(group.size())) {}

  void run() override {
    World& world = group_->world();
    Instant moved_at = world.now(), checked_at = moved_at;
    bool moved = false;
    for (unsigned looks = 1; open_ > 0; looks++) {
      if (move()) {
        moved = true;
        continue;
      }
      // Others may run for a while before this one does again.
      if (looks % (crowded_ ? kCrowdedYield : kYield) != 0) continue;
      sched_yield();
      const Instant now = world.now();
      if (now - checked_at < kCheck && !world.has_failed()) continue;
      checked_at = now;
      if (moved) moved_at = now;
      moved = false;
      world.check(group_->world_rank(awaited()), moved_at);
    }
  }

 private:
  // A member, by rank of the group.
  struct Lane {
    Line<Out> out;
    Line<In> in;
    Line<MpiHandle> sending;
    bool introduced = false, met = false;
    MpiHandle meeting = nullptr;
    size_t posted = 0;  // of `in`, beginning with the first
    size_t taken = 0;   // pieces so far
    MpiHandle receiving[kAhead];
    Scratch scratch[kAhead];
    Scratch letter, theirs;  // each a label, and data behind it
  };

  size_t most_of(size_t bytes) const override { return bytes <= sizes_.unasked ? sizes_.inside : kPiece; }
  void clear() override {
    for (Lane& lane : lanes_) {
      lane.out.clear();
      lane.in.clear();
      lane.sending.clear();
      lane.introduced = lane.met = false;
      lane.meeting = nullptr;
      lane.posted = lane.taken = 0;
    }
  }
  void add(int to, const Out& piece) override { lanes_[size_t(to)].out.push(piece); }
  void add(int from, const In& piece) override { lanes_[size_t(from)].in.push(piece); }

  bool move() {
    bool moved = false;
    for (size_t r = 0; r < lanes_.size(); r++)
      if (!lanes_[r].out.empty()) moved |= push(lanes_[r], int(r));
    fruitless_ = false;
    for (size_t k = 0; k < lanes_.size() && !(crowded_ && fruitless_); k++) {
      // The next look begins behind the member that had nothing.
      if (++at_ >= lanes_.size()) at_ = 0;
      Lane& lane = lanes_[at_];
      if (!lane.in.empty()) moved |= pull(lane, int(at_));
      while (!lane.sending.empty() && done(lane.sending.front())) {
        open_--;
        lane.sending.pop();
        moved = true;
      }
    }
    return moved;
  }

  bool push(Lane& lane, int rank) {
    bool moved = false;
    while (!lane.out.empty() && lane.sending.size() < kAhead && may_go(lane.out.front())) {
      const Out piece = lane.out.front();
      const bool first = !lane.introduced, inside = first && piece.bytes <= sizes_.inside;
      MpiHandle sending = nullptr;
      if (first) {
        lane.introduced = true;
        char* letter = lane.letter.take(sizeof(Label) + sizes_.inside);
        std::memcpy(letter, &label_, sizeof(Label));
        if (inside && piece.bytes) std::memcpy(letter + sizeof(Label), piece.data, piece.bytes);
        send(letter, sizeof(Label) + (inside ? piece.bytes : 0), rank, &sending);
        if (!inside) open_++;
      } else {
        send(piece.data, piece.bytes, rank, &sending);
      }
      lane.sending.push(sending);
      if (inside || !first) lane.out.pop();
      moved = true;
    }
    return moved;
  }

  bool pull(Lane& lane, int rank) {
    if (!lane.met) {
      const size_t most = sizeof(Label) + sizes_.inside;
      char* letter = lane.theirs.take(most);
      if (!lane.meeting) receive(letter, most, rank, &lane.meeting);
      if (!done(lane.meeting)) return false;
      Label label;
      std::memcpy(&label, letter, sizeof label);
      compare(group_->world_rank(rank), label);
      lane.met = true;
      const In& piece = lane.in.front();
      if (piece.bytes <= sizes_.inside) {
        const char* data = letter + sizeof(Label);
        if (!piece.with && piece.bytes) std::memcpy(piece.target, data, piece.bytes);
        finish(piece, data);
        lane.in.pop();
      }
    }
    bool moved = false;
    for (;;) {
      while (lane.posted < kAhead && lane.posted < lane.in.size()) {
        const In& piece = lane.in[lane.posted];
        const size_t slot = (lane.taken + lane.posted) % kAhead;
        receive(target_of(lane, piece, slot), piece.bytes, rank, &lane.receiving[slot]);
        lane.posted++;
      }
      const size_t slot = lane.taken % kAhead;
      if (lane.posted == 0 || !done(lane.receiving[slot])) return moved;
      const In& piece = lane.in.front();
      finish(piece, target_of(lane, piece, slot));
      lane.in.pop();
      lane.posted--;
      lane.taken++;
      moved = true;
    }
  }

  static char* target_of(Lane& lane, const In& piece, size_t slot) {
    return piece.with ? lane.scratch[slot].take(piece.bytes) : piece.target;
  }

  // One that this one waits for.
  int awaited() const {
    int any = 0;
    for (int r = 0; r < int(lanes_.size()); r++) {
      if (!lanes_[size_t(r)].in.empty()) return r;
      if (!lanes_[size_t(r)].out.empty() || !lanes_[size_t(r)].sending.empty()) any = r;
    }
    return any;
  }

  // Groups of other members differ by their communicators. UCX has no more tags.
  static constexpr int kTags = 1 << 15;
  void send(const void* data, size_t bytes, int rank, MpiHandle* request) const {
    mpi_.check(mpi_.isend(data, int(bytes), mpi_.byte, rank, tag_, means_->comm, request));
  }
  void receive(void* data, size_t bytes, int rank, MpiHandle* request) const {
    mpi_.check(mpi_.irecv(data, int(bytes), mpi_.byte, rank, tag_, means_->comm, request));
  }
  bool done(MpiHandle& request) {
    int flag = 0;
    MpiStatus status;
    mpi_.check(mpi_.test(&request, &flag, &status));
    fruitless_ |= flag == 0;
    return flag != 0;
  }

  const Sizes& sizes_;
  const MpiLibrary& mpi_;
  const std::shared_ptr<MpiMeans> means_;
  const int tag_;  // keeps what nobody received from a later group of the same members
  const bool crowded_;
  // A question to which the answer is no lets MPI look at everything, and give the processor away: one is
  // enough where there are fewer of these than members.
  bool fruitless_ = false;
  size_t at_ = 0;  // the member looked at last
  std::vector<Lane> lanes_;
};

}  // namespace

std::unique_ptr<Exchange> make_mpi_exchange(const Group& group, std::shared_ptr<MpiMeans> means,
                                            bool is_far) {
  return std::make_unique<MpiExchange>(group, std::move(means), is_far);
}

}  // namespace lazuli::dist
