#include "job/device_work.h"

#include <algorithm>

namespace lazuli::dist {

bool DeviceWork::Operations::has(int rank) const {
  return std::find(members.begin(), members.end(), rank) != members.end();
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

void DeviceWork::Operations::add(uint64_t place, uint32_t operation) {
  const uint32_t before = last.empty() ? 2166136261u : last.back().sequence;
  last.push_back({place, (before ^ operation) * 16777619u + 1});
  if (last.size() > kRemembered) last.pop_front();
  added++;
}

LaneProgress DeviceWork::Operations::progress(uint64_t place) const {
  const uint32_t awaited = up_to(place);
  // Of a place long ago nothing is known.
  const Entry* entry = at(awaited);
  return {lane, entry ? awaited : 0, entry ? entry->sequence : 0, added, last.back().sequence};
}

uint32_t DeviceWork::Operations::difference(const LaneProgress& theirs) const {
  const Entry *awaited = at(theirs.awaited), *latest = at(theirs.added);
  if (awaited && awaited->sequence != theirs.sequence) return theirs.awaited;
  return latest && latest->sequence != theirs.latest ? theirs.added : 0;
}

uint64_t DeviceWork::add(const Lane& lane, const std::vector<int>& members, uint32_t operation) {
  const auto known =
      std::find_if(lanes_.begin(), lanes_.end(), [&](const Operations& each) { return each.lane == lane; });
  if (known == lanes_.end())
    lanes_.push_front({lane, members, 0, {}});
  else if (known != lanes_.begin())
    lanes_.splice(lanes_.begin(), lanes_, known);
  lanes_.front().add(++places_, operation);
  // A message may be on its way before it is received.
  if (lane.from < 0)
    for (const int rank : members) together_[rank].add(places_, lane.group);
  return places_;
}

DeviceProgress DeviceWork::progress(uint64_t place, int rank) const {
  DeviceProgress told;
  told.is_all = 1;
  if (const auto found = together_.find(rank); found != together_.end())
    told.together = found->second.progress(place);
  for (const Operations& each : lanes_) {
    if (!each.has(rank)) continue;
    if (told.count == DeviceProgress::kMost) {
      told.is_all = 0;
      break;
    }
    told.lanes[told.count++] = each.progress(place);
  }
  return told;
}

const LaneProgress* DeviceProgress::of(const Lane& lane) const {
  const LaneProgress* const end = lanes + std::min<size_t>(count, kMost);
  const LaneProgress* const found =
      std::find_if(lanes, end, [&](const LaneProgress& each) { return each.lane == lane; });
  return found == end ? nullptr : found;
}

uint32_t DeviceWork::difference(const DeviceProgress& theirs, int rank) const {
  for (const Operations& each : lanes_) {
    const LaneProgress* their = each.has(rank) ? theirs.of(each.lane) : nullptr;
    const uint32_t number = their ? each.difference(*their) : 0;
    if (number > 0) return number;
  }
  return 0;
}

bool DeviceWork::is_turned(const DeviceProgress& theirs, int rank) const {
  const auto found = together_.find(rank);
  return found != together_.end() && found->second.difference(theirs.together) > 0;
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

}  // namespace lazuli::dist
