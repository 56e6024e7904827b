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

uint64_t DeviceWork::add(const Lane& lane, const std::vector<int>& members, uint32_t operation) {
  const auto known =
      std::find_if(lanes_.begin(), lanes_.end(), [&](const Operations& each) { return each.lane == lane; });
  if (known == lanes_.end())
    lanes_.push_front({lane, members, 0, {}});
  else if (known != lanes_.begin())
    lanes_.splice(lanes_.begin(), lanes_, known);
  Operations& operations = lanes_.front();
  const uint32_t before = operations.last.empty() ? 2166136261u : operations.last.back().sequence;
  operations.last.push_back({++places_, (before ^ operation) * 16777619u + 1});
  if (operations.last.size() > kRemembered) operations.last.pop_front();
  operations.added++;
  return places_;
}

DeviceProgress DeviceWork::progress(uint64_t place, int rank) const {
  DeviceProgress told;
  told.is_all = 1;
  for (const Operations& each : lanes_) {
    if (!each.has(rank)) continue;
    if (told.count == DeviceProgress::kMost) {
      told.is_all = 0;
      break;
    }
    const uint32_t awaited = each.up_to(place);
    const Entry* last = each.at(awaited);
    told.lanes[told.count++] = {each.lane, awaited, last ? last->sequence : 0, each.added,
                                each.last.back().sequence};
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
    if (!their) continue;
    const Entry *awaited = each.at(their->awaited), *latest = each.at(their->added);
    if (awaited && awaited->sequence != their->sequence) return their->awaited;
    if (latest && latest->sequence != their->latest) return their->added;
  }
  return 0;
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
