#include "collectives/group.h"

#include <lazuli/kernel.h>

#include <algorithm>
#include <cstring>

#include "wire/checksum.h"

namespace lazuli::dist {

Group::Group(std::shared_ptr<World> world, std::vector<int> members, uint32_t id)
    : world_(std::move(world)),
      members_(std::move(members)),
      id_(id),
      sent_(members_.size()),
      received_(members_.size()) {
  for (size_t i = 0; i < members_.size(); i++)
    if (members_[i] == world_->rank()) rank_ = int(i);
  ring_ = make_ring(*this);
  transport_ = ring_.get();
}

bool Group::is_here(int member) const {
  return std::strcmp(world_->member(member).seat.host, world_->member(world_->rank()).seat.host) == 0;
}

int Group::members_here() const {
  return int(std::count_if(members_.begin(), members_.end(), [this](int member) { return is_here(member); }));
}

int Group::processors_here() const {
  Processors all{};
  for (const int member : members_)
    if (is_here(member)) all.add(world_->member(member).seat.processors);
  return all.count();
}

void Group::connect(const std::string& backend) {
  backend_ = backend;
  if (backend == "ring" || size() == 1) return;
  if (backend == "mpi") transport_holder_ = make_mpi(*this);
  if (backend == "shm" || backend == "any") transport_holder_ = make_shared_memory(*this);
  if (transport_holder_)
    transport_ = transport_holder_.get();
  else if (backend != "any")
    throw std::runtime_error(
        backend == "shm" ? "the members of the group are not processes of one host that can share memory"
                         : "MPI has fewer processes than the job; start them with mpirun");
}

void Group::run(const Work& work) {
  if (size() == 1) {
    if (work.out && work.in && work.out != work.in)
      std::memcpy(work.out, work.in, size_t(work.count) * size_of(work.dtype));
    return;
  }
  std::lock_guard turn(world_->turn);
  uint64_t sequence;
  if (work.kind == Kind::send)
    sequence = ++sent_[size_t(work.peer)];
  else if (work.kind == Kind::recv)
    sequence = ++received_[size_t(work.peer)];
  else
    sequence = ++sequence_;
  world_->begin(work.name, id_, sequence);
  try {
    // Messages between two members go by the connections of all backends but MPI.
    transport_->run(*this, work, sequence);
  } catch (const Failure&) {
    world_->end();
    throw;
  }
  world_->end();
}

std::string Group::gather(const std::string& mine) {
  std::string all(mine.size() * members_.size(), '\0');
  Work work{Kind::allGather};
  work.dtype = LZ_UINT8;
  work.in = mine.data();
  work.out = all.data();
  work.count = int64_t(mine.size());
  work.name = "init";
  Transport* const chosen = transport_;
  transport_ = ring_.get();
  try {
    run(work);
  } catch (...) {
    transport_ = chosen;
    throw;
  }
  transport_ = chosen;
  return all;
}

std::shared_ptr<Group> Group::split(int color, int key) {
  int32_t mine[2] = {color, key < 0 ? rank_ : key};
  const std::string all = gather(std::string(reinterpret_cast<char*>(mine), sizeof mine));
  struct Entry {
    int32_t key, rank;
  };
  std::vector<Entry> chosen;
  for (int r = 0; r < size(); r++) {
    int32_t theirs[2];
    std::memcpy(theirs, all.data() + sizeof theirs * size_t(r), sizeof theirs);
    if (theirs[0] == color) chosen.push_back({theirs[1], r});
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const Entry& a, const Entry& b) { return a.key < b.key; });
  std::vector<int> members;
  for (const Entry& entry : chosen) members.push_back(world_rank(entry.rank));
  const uint32_t about[3] = {id_, ++splits_, uint32_t(color)};
  auto group = std::make_shared<Group>(world_, std::move(members), checksum(about, sizeof about));
  group->connect(backend_);
  return group;
}

}  // namespace lazuli::dist
