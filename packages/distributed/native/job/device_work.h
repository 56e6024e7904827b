// The operations that processes' devices run together, as the processes compare them: each counts those of a
// group, and those from one of its members to another.
#ifndef LAZULI_DISTRIBUTED_DEVICE_WORK_H
#define LAZULI_DISTRIBUTED_DEVICE_WORK_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <vector>

namespace lazuli::dist {

// Those of a group, or from one rank to another; ranks of the job, −1 for a group's.
struct Lane {
  uint32_t group = 0;
  int32_t from = -1, to = -1;

  bool operator==(const Lane&) const = default;
};

// Message of a rank to another about a lane that both are in.
struct LaneProgress {
  Lane lane;
  uint32_t awaited;   // operations that it waits for
  uint32_t sequence;  // a number that is equal for equal sequences of those
  uint32_t added;     // operations that it has added, which may be more
  uint32_t latest;    // the same number of those
  uint32_t agreed;    // operations that it knows to be the same on both
  uint32_t done;      // operations that it knows to be done
};
struct DeviceProgress {
  static constexpr size_t kMost = 8;
  uint32_t count = 0;
  uint32_t is_all = 0;  // there are no other lanes
  LaneProgress lanes[kMost] = {};
  // Its first operation that is not known to be done, 0 for none, and the lane of that.
  Lane lane = {};
  uint32_t first = 0;

  const LaneProgress* of(const Lane& lane) const;
  // True if this tells `rank` what it has asked.
  bool tells(const DeviceProgress& asked, int rank) const;
};

// The last words of a rank: the numbers of the last operations from it to another.
struct LastMessages {
  static constexpr size_t kMost = 90;
  Lane lane;
  uint32_t first = 0, count = 0;
  uint32_t sequences[kMost] = {};
};

// In what this rank waits for, another has none, has added all, or has not yet; unknown where it has told of
// other lanes only.
enum class Part { none, added, unknown, behind };

class DeviceWork {
 public:
  explicit DeviceWork(int rank) : rank_(rank) {}
  // Adds an operation of the members of a lane. Returns its place among all.
  uint64_t add(const Lane& lane, const std::vector<int>& members, uint32_t operation);
  // Notes that what was added up to a place is done.
  void pass(uint64_t place) { done_ = place > done_ ? place : done_; }
  // Message to `rank` from this one, which waits for what it added up to a place, in answer to what that one
  // has told.
  DeviceProgress progress(uint64_t place, int rank, const DeviceProgress& theirs) const;
  LastMessages last_messages(int rank) const;

  // The number in its lane of an operation that another rank has added, where it or one before it is not this
  // one's; 0 where all are the same as far as both have come, which is noted.
  uint32_t compare(const DeviceProgress& theirs, int rank);
  uint32_t compare(const LastMessages& theirs, int rank);
  // True if the operations up to a place are known to be another rank's too, but for messages to it, which
  // it has yet to receive.
  bool agrees(uint64_t place, int rank) const;
  // True once this rank can tell another all that it waits for: has added what that one has.
  bool can_answer(const DeviceProgress& asked, int rank) const;

  // The part of another rank in what this one waits for, which it added up to a place.
  Part part_of(const DeviceProgress& theirs, uint64_t place, int rank) const;
  // True if another rank's device is at an operation before this one's first, in which it takes part.
  bool holds_up(const DeviceProgress& theirs, int rank) const;

 private:
  // Operations of which a lane remembers what came before, beyond those that are not the same on all members
  // as far as is known, or not done.
  static constexpr size_t kRemembered = 64;
  struct Entry {
    uint64_t place;
    uint32_t sequence;
  };
  struct Operations {
    Lane lane;
    std::vector<int> members;
    std::vector<uint32_t> agreed;  // by member
    uint32_t added = 0;
    std::deque<Entry> last;

    size_t index_of(int rank) const;
    bool has(int rank) const { return index_of(rank) < members.size(); }
    uint32_t up_to(uint64_t place) const;
    // Null where it is not remembered.
    const Entry* at(uint32_t number) const;
    uint32_t agreed_with(int rank) const { return agreed[index_of(rank)]; }
    void agree(int rank, uint32_t number);
    // False where another's sequence differs; noted where it does not.
    bool agrees(int rank, uint32_t number, uint32_t sequence);
  };
  const Operations* known(const Lane& lane) const;
  const Operations* first() const;
  LaneProgress progress(const Operations& each, uint64_t place, int rank) const;

  int rank_;
  // The lane used last is the first.
  std::list<Operations> lanes_;
  uint64_t places_ = 0, done_ = 0;
};

}  // namespace lazuli::dist

#endif
