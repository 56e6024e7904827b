#include "collectives/exchange.h"

#include <algorithm>

namespace lazuli::dist {

void Exchange::begin(Group& group, const Work& work, uint64_t sequence) {
  group_ = &group;
  work_ = &work;
  label_ = label_of(work, group.id(), sequence);
  open_ = 0;
  arrived_.clear();
  clear();
}

void Exchange::send(int to, const void* data, size_t bytes, int after) {
  const size_t most = most_of(bytes);
  size_t at = 0;
  do {
    const size_t n = std::min(most, bytes - at);
    add(to, Out{static_cast<const char*>(data) + at, uint32_t(n), after});
    open_++;
    at += n;
    if (after >= 0) after++;
  } while (at < bytes);
}

int Exchange::receive(int from, void* target, size_t bytes, const void* with) {
  const int first = int(arrived_.size());
  const size_t most = most_of(bytes);
  size_t at = 0;
  do {
    const size_t n = std::min(most, bytes - at);
    add(from, In{static_cast<char*>(target) + at, uint32_t(n),
                 with ? static_cast<const char*>(with) + at : nullptr, int(arrived_.size())});
    arrived_.push_back(0);
    open_++;
    at += n;
  } while (at < bytes);
  return first;
}

void Exchange::meet() {
  for (int r = 0; r < group_->size(); r++) {
    if (r == group_->rank()) continue;
    send(r, nullptr, 0);
    receive(r, nullptr, 0);
  }
  run();
}

void Exchange::finish(const In& piece, const char* from) {
  if (piece.with)
    reduce(work_->reduction, work_->dtype, piece.target, piece.with, from,
           int64_t(piece.bytes / size_of(work_->dtype)));
  __atomic_store_n(&arrived_[size_t(piece.number)], 1, __ATOMIC_SEQ_CST);
  open_--;
}

void Exchange::compare(int world_rank, const Label& theirs) const {
  if (!(theirs == label_)) fail(world_rank, difference(theirs, label_, group_->world().rank()));
}

void Exchange::fail(int world_rank, const std::string& fact) const {
  group_->world().fail(Failure(world_rank, fact));
}

}  // namespace lazuli::dist
