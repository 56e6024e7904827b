#include "job/device_work.h"

#include <algorithm>

namespace lazuli::dist {
namespace {

constexpr uint32_t kBegin = 2166136261u;

}  // namespace

size_t DeviceWork::Operations::index_of(int rank) const {
  return size_t(std::find(members.begin(), members.end(), rank) - members.begin());
}

uint32_t DeviceWork::Operations::up_to(uint64_t place) const {
  const auto after = std::upper_bound(last.begin(), last.end(), place,
                                      [](uint64_t at, const Entry& entry) { return at < entry.place; });
  return added - uint32_t(last.end() - after);
}

const DeviceWork::Entry* DeviceWork::Operations::at(uint32_t number) const {
  const uint32_t back = added - number;
  return number == 0 || number > added || back >= last.size() ? nullptr : &last[last.size() - 1 - back];
}

void DeviceWork::Operations::agree(int rank, uint32_t number) {
  uint32_t& known = agreed[index_of(rank)];
  known = std::max(known, number);
}

bool DeviceWork::Operations::agrees(int rank, uint32_t number, uint32_t sequence) {
  const Entry* mine = at(number);
  if (!mine) return true;
  if (mine->sequence != sequence) return false;
  agree(rank, number);
  return true;
}

uint64_t DeviceWork::add(const Lane& lane, const std::vector<int>& members, uint32_t operation) {
  const auto known =
      std::find_if(lanes_.begin(), lanes_.end(), [&](const Operations& each) { return each.lane == lane; });
  if (known == lanes_.end()) {
    lanes_.push_front({lane, members, std::vector<uint32_t>(members.size()), 0, {}});
    lanes_.front().agree(rank_, UINT32_MAX);
  } else if (known != lanes_.begin()) {
    lanes_.splice(lanes_.begin(), lanes_, known);
  }
  Operations& its = lanes_.front();
  const uint32_t before = its.last.empty() ? kBegin : its.last.back().sequence;
  its.last.push_back({++places_, (before ^ operation) * 16777619u + 1});
  its.added++;
  if (its.last.size() > kRemembered && its.last.front().place <= done_ &&
      *std::min_element(its.agreed.begin(), its.agreed.end()) > its.added - its.last.size())
    its.last.pop_front();
  return places_;
}

const DeviceWork::Operations* DeviceWork::known(const Lane& lane) const {
  for (const Operations& each : lanes_)
    if (each.lane == lane) return &each;
  return nullptr;
}

// The lane of the first operation that is not known to be done.
const DeviceWork::Operations* DeviceWork::first() const {
  const Operations* found = nullptr;
  uint64_t place = UINT64_MAX;
  for (const Operations& each : lanes_)
    if (const Entry* entry = each.at(each.up_to(done_) + 1); entry && entry->place < place) {
      found = &each;
      place = entry->place;
    }
  return found;
}

LaneProgress DeviceWork::progress(const Operations& each, uint64_t place, int rank) const {
  const uint32_t awaited = each.up_to(place);
  // Of a place long ago nothing is known.
  const Entry* entry = each.at(awaited);
  return {each.lane,        entry ? awaited : 0,       entry ? entry->sequence : 0,
          each.added,       each.last.back().sequence, each.agreed_with(rank),
          each.up_to(done_)};
}

DeviceProgress DeviceWork::progress(uint64_t place, int rank, const DeviceProgress& theirs) const {
  DeviceProgress told;
  told.is_all = 1;
  const auto tell = [&](const Operations& each) {
    if (!each.has(rank) || told.of(each.lane)) return;
    if (told.count < DeviceProgress::kMost)
      told.lanes[told.count++] = progress(each, place, rank);
    else
      told.is_all = 0;
  };
  // First of what the other may wait to hear, then of what this one does.
  for (size_t i = 0; i < std::min<size_t>(theirs.count, DeviceProgress::kMost); i++)
    if (const LaneProgress& its = theirs.lanes[i]; its.agreed < its.added)
      if (const Operations* each = known(its.lane)) tell(*each);
  for (const Operations& each : lanes_)
    if (each.has(rank) && each.agreed_with(rank) < each.added) tell(each);
  for (const Operations& each : lanes_) tell(each);
  if (const Operations* at = first()) {
    told.lane = at->lane;
    told.first = at->up_to(done_) + 1;
  }
  return told;
}

bool DeviceProgress::tells(const DeviceProgress& asked, int rank) const {
  for (size_t i = 0; i < std::min<size_t>(asked.count, kMost); i++) {
    const LaneProgress& its = asked.lanes[i];
    if (its.lane.from == rank || its.agreed >= its.awaited) continue;
    const LaneProgress* mine = of(its.lane);
    const bool is_told = mine && (mine->agreed >= its.awaited || mine->awaited == its.awaited ||
                                  (mine->added >= its.awaited && mine->added <= its.added));
    if (!is_told) return false;
  }
  return true;
}

LastMessages DeviceWork::last_messages(int rank) const {
  LastMessages told;
  for (const Operations& each : lanes_) {
    if (each.lane.from != rank_ || each.lane.to != rank) continue;
    told.lane = each.lane;
    told.count = uint32_t(std::min(each.last.size(), LastMessages::kMost));
    told.first = each.added + 1 - told.count;
    for (uint32_t i = 0; i < told.count; i++) told.sequences[i] = each.at(told.first + i)->sequence;
    break;
  }
  return told;
}

const LaneProgress* DeviceProgress::of(const Lane& lane) const {
  const LaneProgress* const end = lanes + std::min<size_t>(count, kMost);
  const LaneProgress* const found =
      std::find_if(lanes, end, [&](const LaneProgress& each) { return each.lane == lane; });
  return found == end ? nullptr : found;
}

uint32_t DeviceWork::compare(const DeviceProgress& theirs, int rank) {
  for (Operations& each : lanes_) {
    const LaneProgress* its = each.has(rank) ? theirs.of(each.lane) : nullptr;
    if (!its) continue;
    if (!each.agrees(rank, its->awaited, its->sequence)) return its->awaited;
    if (!each.agrees(rank, its->added, its->latest)) return its->added;
    each.agree(rank, std::min(its->agreed, each.added));
  }
  return 0;
}

uint32_t DeviceWork::compare(const LastMessages& theirs, int rank) {
  for (Operations& each : lanes_) {
    if (!(each.lane == theirs.lane) || !each.has(rank)) continue;
    for (uint32_t i = 0; i < std::min<size_t>(theirs.count, LastMessages::kMost); i++)
      if (!each.agrees(rank, theirs.first + i, theirs.sequences[i])) return theirs.first + i;
  }
  return 0;
}

bool DeviceWork::agrees(uint64_t place, int rank) const {
  for (const Operations& each : lanes_)
    if (each.has(rank) && each.lane.from != rank_ && each.agreed_with(rank) < each.up_to(place)) return false;
  return true;
}

bool DeviceWork::can_answer(const DeviceProgress& asked, int rank) const {
  for (size_t i = 0; i < std::min<size_t>(asked.count, DeviceProgress::kMost); i++) {
    const LaneProgress& its = asked.lanes[i];
    if (its.lane.from == rank || its.agreed >= its.awaited) continue;
    const Operations* mine = known(its.lane);
    if (!mine || mine->added < its.awaited) return false;
  }
  return true;
}

Part DeviceWork::part_of(const DeviceProgress& theirs, uint64_t place, int rank) const {
  Part part = Part::none;
  for (const Operations& each : lanes_) {
    const uint32_t mine = each.has(rank) ? each.up_to(place) : 0;
    if (mine == 0) continue;
    const LaneProgress* their = theirs.of(each.lane);
    if (!their && !theirs.is_all) {
      part = Part::unknown;
      continue;
    }
    part = std::max(part, Part::added);
    if (mine > (their ? their->added : 0)) return Part::behind;
  }
  return part;
}

bool DeviceWork::holds_up(const DeviceProgress& theirs, int rank) const {
  const Operations* mine = first();
  if (!mine || rank == rank_ || !mine->has(rank)) return false;
  const uint32_t number = mine->up_to(done_) + 1;
  const LaneProgress* its = theirs.of(mine->lane);
  if (!its || its->added < number) return theirs.is_all || its;
  const bool is_there = theirs.lane == mine->lane && theirs.first == number;
  return its->done < number && !is_there;
}

}  // namespace lazuli::dist
