// A group: members of the world in an order, the number of its next operation, and the way they exchange
// data.
#ifndef LAZULI_DISTRIBUTED_GROUP_H
#define LAZULI_DISTRIBUTED_GROUP_H

#include <memory>
#include <string>
#include <vector>

#include "collectives/elements.h"
#include "job/world.h"

namespace lazuli::dist {

enum class Kind : int32_t { allReduce, allGather, sumScatter, broadcast, allToAll, send, recv, barrier };

// One operation as a member sees it. `in` and `out` are row-major; `count` are the elements of `in` (of
// `out`, for recv).
struct Work {
  Kind kind;
  Reduction reduction = Reduction::sum;
  int dtype = 0;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t count = 0;
  int peer = 0;            // the root, the destination or the source: a rank of the group
  uint32_t shape = 0;      // equal for equal shapes
  uint32_t structure = 0;  // of the tree of gradients, of which these are a part; 0 for others
  uint8_t derivative = 0;  // the order of the derivative that it belongs to
  const char* name = "";
};

// The operation that a member is in, as it goes to the others, who compare it with their own.
struct Label {
  uint64_t sequence;
  int64_t count;
  uint32_t group, shape;
  uint32_t detail;  // the root of a broadcast, the structure of gradients
  uint8_t kind, reduction, dtype, derivative;

  bool operator==(const Label&) const = default;
};
Label label_of(const Work& work, uint32_t group, uint64_t sequence);
// The difference between another member's operation and that of this one, a rank of the job, in words that
// any rank may be told.
std::string difference(const Label& theirs, const Label& mine, int my_rank);

class Exchange;
class Group;

// The way in which members exchange data. One instance serves one group.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  virtual void run(Group& group, const Work& work, uint64_t sequence) = 0;
};

std::unique_ptr<Transport> make_ring(const Group& group);
// The same algorithms with messages of another kind.
std::unique_ptr<Transport> make_direct(const Group& group, const char* name,
                                       std::unique_ptr<Exchange> exchange);
// Null where the members cannot share memory.
std::unique_ptr<Transport> make_shared_memory(Group& group);
// Null where there is no MPI, or another number of processes in it.
std::unique_ptr<Transport> make_mpi(Group& group);
// True if its library can be loaded.
bool mpi_is_there();
// True while MPI runs that this process has begun.
bool runs_mpi();
// Ends it; without those that are gone it would wait for them.
void finish_mpi(bool are_all_there);

class Group {
 public:
  Group(std::shared_ptr<World> world, std::vector<int> members, uint32_t id);
  int rank() const { return rank_; }
  int size() const { return int(members_.size()); }
  const std::vector<int>& members() const { return members_; }  // ranks of the world
  int world_rank(int rank) const { return members_[size_t(rank)]; }
  int members_here() const;     // on this host
  int processors_here() const;  // that one of those or another may use
  // There are more of them than processors.
  bool is_crowded() const { return members_here() > processors_here(); }
  // Each has less than two.
  bool shares_processors() const { return 2 * members_here() > processors_here(); }
  uint32_t id() const { return id_; }
  World& world() const { return *world_; }
  std::shared_ptr<World> shared_world() const { return world_; }
  Transport& transport() { return *transport_; }

  // Chooses among "ring", "shm", "mpi" and "any". @throws Failure where one that is asked for cannot be had
  void connect(const std::string& backend);
  void run(const Work& work);
  // The part of those members that have the same colour, in the order of the keys.
  std::shared_ptr<Group> split(int color, int key);
  // Other members' bytes, in order: `bytes` of each.
  std::string gather(const std::string& mine);

 private:
  bool is_here(int member) const;

  std::shared_ptr<World> world_;
  std::vector<int> members_;
  uint32_t id_;
  int rank_ = 0;
  uint64_t sequence_ = 0;
  std::vector<uint64_t> sent_, received_;
  uint32_t splits_ = 0;
  std::string backend_;
  std::unique_ptr<Transport> ring_, transport_holder_;
  Transport* transport_;
};

}  // namespace lazuli::dist

#endif
