// The operations that processes' devices run together, as the processes compare them: each counts those of a
// group, and those from one of its members to another.
#ifndef LAZULI_DISTRIBUTED_DEVICE_WORK_H
#define LAZULI_DISTRIBUTED_DEVICE_WORK_H

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
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
};
struct DeviceProgress {
  static constexpr size_t kMost = 8;
  uint32_t count = 0;
  uint32_t is_all = 0;  // there are no other lanes
  LaneProgress lanes[kMost] = {};
  // Those of all groups that both ranks are in, as of one lane.
  LaneProgress together = {};

  const LaneProgress* of(const Lane& lane) const;
};

// In what this rank waits for, another has none, has added all, or has not yet; unknown where it has told of
// other lanes only.
enum class Part { none, added, unknown, behind };

class DeviceWork {
 public:
  // Adds an operation of the members of a lane. Returns its place among all.
  uint64_t add(const Lane& lane, const std::vector<int>& members, uint32_t operation);
  // Message to `rank` from this one, which waits for what it added up to a place.
  DeviceProgress progress(uint64_t place, int rank) const;
  // The number in its lane of an operation that another rank has added, where it or one before it is not this
  // one's; 0 where all are the same as far as both have come.
  uint32_t difference(const DeviceProgress& theirs, int rank) const;
  // True if another rank has added operations of several groups in another order than this one, as far as
  // both have come.
  bool is_turned(const DeviceProgress& theirs, int rank) const;
  // The part of another rank in what this one waits for, which it added up to a place.
  Part part_of(const DeviceProgress& theirs, uint64_t place, int rank) const;

 private:
  // Operations of which a lane remembers what came before: a rank may be so far ahead of another.
  static constexpr size_t kRemembered = 4096;
  struct Entry {
    uint64_t place;
    uint32_t sequence;
  };
  struct Operations {
    Lane lane;
    std::vector<int> members;
    uint32_t added = 0;
    std::deque<Entry> last;

    bool has(int rank) const;
    uint32_t up_to(uint64_t place) const;
    // Null where it is not remembered.
    const Entry* at(uint32_t number) const;
    void add(uint64_t place, uint32_t operation);
    LaneProgress progress(uint64_t place) const;
    // The number of an operation that another rank has added, where it or one before it is not this one's.
    uint32_t difference(const LaneProgress& theirs) const;
  };
  // The lane used last is the first.
  std::list<Operations> lanes_;
  // By ranks, those of all groups that both are in.
  std::map<int, Operations> together_;
  uint64_t places_ = 0;
};

}  // namespace lazuli::dist

#endif
