// The part of the world that is about devices: what processes tell each other of the operations that they
// have given them, and who waits for whom.
#include <algorithm>

#include "job/world.h"

namespace lazuli::dist {

uint64_t World::add_device_work(const Lane& lane, const std::vector<int>& members, uint32_t operation) {
  std::lock_guard lock(guard_);
  if (failure_) throw *failure_;
  return device_.add(lane, members, operation);
}

void World::ask_of_device(uint64_t place, uint64_t done) {
  std::lock_guard lock(guard_);
  device_.pass(done);
  device_place_ = place;
  for (int r = 0; r < size(); r++) {
    compare_device(r);
    if (failure_) break;
    if (device_.agrees(place, r)) {
      answer(r);
      continue;
    }
    // The other is told by this all that it asks for by this, if it is there.
    tell(r, Purport::ask, rank(), "");
    if (device_.can_answer(members_[r]->asked, r)) members_[r]->asks = false;
  }
  throw_failure();
}

bool World::agrees_on_device(uint64_t place, int milliseconds) {
  const Instant begin = Clock::now(), until = begin + std::chrono::milliseconds(milliseconds);
  for (;;) {
    bool all = true;
    {
      std::lock_guard lock(guard_);
      for (int r = 0; r < size(); r++) {
        Member& member = *members_[r];
        // All tell at once of what they have added: it takes the watching thread longer to wake up.
        if (member.control && !device_.agrees(place, r)) hear(member, r);
        compare_device(r);
        all = all && device_.agrees(place, r);
      }
      throw_failure();
    }
    const Instant now = Clock::now();
    if (all || now >= until) return all;
    if (now - begin < std::chrono::milliseconds(1))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void World::compare_device(int r) {
  Member& member = *members_[r];
  uint32_t number = device_.compare(member.device, r);
  if (number == 0 && member.left) number = device_.compare(member.last_messages, r);
  // Devices do not ask, and make something of operations that differ.
  if (number > 0)
    note(r, "rank " + std::to_string(r) + " and rank " + std::to_string(rank()) + " differ in operation " +
                std::to_string(number) +
                " of a group on their devices, or before it: all ranks must do the same with arrays of the "
                "same shape and dtype in the same order");
}

void World::answer(int r) {
  Member& member = *members_[r];
  if (!member.asks || !device_.can_answer(member.asked, r)) return;
  member.asks = false;
  if (!member.told.tells(member.asked, r)) tell(r, Purport::answer, rank(), "");
}

void World::await_device(const char* name, uint64_t place, const std::vector<int>& members) {
  begin(name, 0, place);
  Instant since;
  {
    std::lock_guard lock(guard_);
    status_.busy = Busy::device;
    device_place_ = place;
    status_.waiting_for = who_holds_up();
    if (!device_since_) device_since_ = now();
    since = *device_since_;
  }
  check_others(since, Busy::device,
               [&](int r) { return place > 0 ? part_in_device(r) : part_in(members, r); });
}

Part World::part_in_device(int r) const { return device_.part_of(members_[r]->device, device_place_, r); }

void World::end_device(bool is_waiting) {
  std::lock_guard lock(guard_);
  if (!is_waiting) status_.busy = Busy::no;
  device_since_.reset();
}

void World::begin_device_call(bool is_begin) {
  std::lock_guard lock(guard_);
  is_in_device_call_ = is_begin;
  // Those that ask wait for what the device has been given by now, and not before that.
  for (int r = 0; r < size() && !is_begin; r++) answer(r);
}

// The first rank whose device is not yet where this one's is, or that has not added what this one waits for;
// −1 where there is none.
int World::who_holds_up() const {
  for (int r = 0; r < size(); r++)
    if (device_.holds_up(members_[r]->device, r)) return r;
  for (int r = 0; r < size(); r++)
    if (r != rank() && part_in_device(r) == Part::behind) return r;
  return -1;
}

// True if a rank waits for this one, by way of others.
bool World::waits_for_me(int at) const {
  for (int steps = 0; at >= 0 && steps < size(); steps++) {
    if (at == rank()) return true;
    const Status& status = members_[at]->status;
    at = status.busy == Busy::device ? status.waiting_for : -1;
  }
  return false;
}

}  // namespace lazuli::dist
