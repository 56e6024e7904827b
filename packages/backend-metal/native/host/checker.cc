#include "host/checker.h"

#include <algorithm>
#include <cstring>

namespace lz {
namespace {

// Cells of a page take some hundred kilobytes: beyond so many pages races go unseen.
constexpr size_t kMaxPages = 2048;
constexpr u32 kFlagDevice = 1, kFlagThreadgroup = 2;

std::string bytes_at(uintptr_t offset, u32 size) {
  return size == 1 ? "byte " + std::to_string(offset)
                   : "bytes " + std::to_string(offset) + " to " + std::to_string(offset + size - 1);
}

}  // namespace

void Checker::begin(const Dispatch& d) {
  regions_.clear();
  pages_.clear();
  last_ = nullptr;
  last_page_ = 0;
  for (u32 i = 0; i < kBuffers; i++) {
    const Binding& b = d.bindings[i];
    if (!b.data || d.kernel->bytes[i] < 0) continue;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(b.data);
    const uintptr_t reach = b.inline_bytes ? 4096 : b.reach > b.length ? b.reach : b.length;
    regions_.push_back({begin, begin + b.length, begin + reach, int(i), b.inline_bytes});
  }
  if (!arena_cells_) arena_cells_.reset(new Cell[kThreadgroupBytes]);
}

void Checker::begin_group(uint64_t number, u32 lanes, const char* arena) {
  group_ = u32(number);
  threadgroup_epochs_.assign(lanes, 0);
  device_epochs_.assign(lanes, 0);
  fences_.assign(lanes, 0);
  loads_.clear();
  rounds_.clear();
  const uintptr_t begin = reinterpret_cast<uintptr_t>(arena);
  arena_ = {begin, begin + kThreadgroupBytes, begin + kThreadgroupBytes, -1, false};
  std::memset(static_cast<void*>(arena_cells_.get()), 0, sizeof(Cell) * kThreadgroupBytes);
}

Checker::Cell* Checker::cell(uintptr_t address, bool in_arena) {
  if (in_arena) return &arena_cells_[address - arena_.begin];
  const uintptr_t page = address / 4096;
  if (!last_ || page != last_page_) {
    auto found = pages_.find(page);
    if (found == pages_.end()) {
      if (pages_.size() >= kMaxPages) return nullptr;
      found = pages_.emplace(page, std::make_unique<Page>()).first;
      std::memset(static_cast<void*>(found->second.get()), 0, sizeof(Page));
    }
    last_ = found->second.get();
    last_page_ = page;
  }
  return &last_->cells[address % 4096];
}

// True if an access has happened before another one in every order in which a GPU may run the threads.
bool Checker::ordered(const Access& before, const Access& now, bool in_arena) const {
  if (before.group != now.group) return in_arena;
  return before.lane == now.lane || before.epoch < now.epoch ||
         (before.lane / kSimdWidth == now.lane / kSimdWidth && before.fence < now.fence);
}

// The same for those that read before the last one: at the same barriers as it, or at earlier ones.
bool Checker::ordered_others(const Cell& cell, const Access& now, bool in_arena) const {
  const Access& last = cell.read;
  if (cell.others == Others::kNone || (in_arena && last.group != now.group)) return true;
  if (cell.others == Others::kGroups || last.group != now.group) return false;
  return last.epoch < now.epoch ||
         (cell.others == Others::kSimdgroup && last.lane / kSimdWidth == now.lane / kSimdWidth &&
          last.fence < now.fence);
}

std::string Checker::race(const Access& before, bool wrote, const Access& now, bool writes,
                          const Region& region, uintptr_t address) const {
  const bool in_arena = region.buffer < 0;
  const std::string location =
      in_arena
          ? "byte " + std::to_string(address - region.begin) + " of threadgroup memory"
          : "byte " + std::to_string(address - region.begin) + " of buffer " + std::to_string(region.buffer);
  const std::string verb = writes ? "writes" : "reads", other = wrote ? "writes" : "reads";
  if (before.group != now.group)
    return "a race: thread " + std::to_string(now.lane) + " of threadgroup " + std::to_string(now.group) +
           " " + verb + " " + location + ", which thread " + std::to_string(before.lane) +
           " of threadgroup " + std::to_string(before.group) + " " + other +
           " in the same dispatch: use atomic operations, or two dispatches";
  return "a race: thread " + std::to_string(now.lane) + " " + verb + " " + location + ", which thread " +
         std::to_string(before.lane) + " " + other + ", without a threadgroup_barrier of " +
         (in_arena ? "mem_threadgroup" : "mem_device") + " between them";
}

Traffic Checker::take_traffic() {
  counting_ = true;
  const Traffic taken = traffic_;
  traffic_ = {};
  return taken;
}

void Checker::count(u32 lane, uintptr_t address, u32 size, bool writes, uintptr_t where) {
  if (writes)
    traffic_.stores += size;
  else if (loads_.insert({lane / kSimdWidth, rounds_[{lane, 0, where, 0}]++, where, address}).second)
    traffic_.loads += size;
}

std::string Checker::access(u32 lane, uintptr_t address, u32 size, AccessKind kind, uintptr_t where) {
  if (kind == AccessKind::kFence) {
    fences_[lane]++;
    return {};
  }
  if (kind == AccessKind::kBarrier) {
    if (size & kFlagThreadgroup) threadgroup_epochs_[lane]++;
    if (size & kFlagDevice) device_epochs_[lane]++;
    return {};
  }
  const bool writes = kind == AccessKind::kWrite || kind == AccessKind::kAtomicWrite;
  const bool atomic = kind == AccessKind::kAtomicRead || kind == AccessKind::kAtomicWrite;
  const Region* region = nullptr;
  const bool in_arena = address >= arena_.begin && address < arena_.end;
  if (in_arena)
    region = &arena_;
  else {
    const Region* behind = nullptr;
    for (const Region& r : regions_) {
      if (address >= r.begin && address + size <= r.end) {
        region = &r;
        break;
      }
      if (address >= r.begin && address < r.reach) behind = &r;
    }
    if (!region && behind)
      return std::string(writes ? "writes" : "reads") + " beyond the end of buffer " +
             std::to_string(behind->buffer) + ": " + bytes_at(address - behind->begin, size) + " of " +
             std::to_string(behind->end - behind->begin);
    if (!region) return {};
  }
  if (region->bytes)
    return writes ? "writes to buffer " + std::to_string(region->buffer) + ", which is constant"
                  : std::string();
  if (!in_arena && counting_) count(lane, address, size, writes, where);
  const Access now{group_,        (in_arena ? threadgroup_epochs_ : device_epochs_)[lane],
                   fences_[lane], uint16_t(lane),
                   true,          atomic};
  for (uintptr_t at = address; at < address + size; at++) {
    Cell* c = cell(at, in_arena);
    if (!c) continue;
    if (in_arena && !writes && !c->write.set)
      return "thread " + std::to_string(lane) + " reads byte " + std::to_string(at - region->begin) +
             " of threadgroup memory, which no thread of the threadgroup has written before: is a barrier "
             "missing?";
    const bool clash = c->write.set && !(c->write.atomic && atomic) && !ordered(c->write, now, in_arena);
    if (clash) return race(c->write, true, now, writes, *region, at);
    if (!writes) {
      if (!in_arena && !c->loaded) traffic_.distinct_loads++;
      c->loaded = true;
      const Access& last = c->read;
      if (!last.set || (ordered(last, now, in_arena) && ordered_others(*c, now, in_arena)))
        c->others = Others::kNone;
      else if (last.group != now.group)
        c->others = Others::kGroups;
      else if (last.lane != now.lane)
        c->others = std::max(
            c->others, last.lane / kSimdWidth == now.lane / kSimdWidth ? Others::kSimdgroup : Others::kGroup);
      c->read = now;
      continue;
    }
    if (!in_arena && !c->stored) traffic_.distinct_stores++;
    c->stored = true;
    if (c->read.set && !(c->read.atomic && atomic) &&
        !(ordered(c->read, now, in_arena) && ordered_others(*c, now, in_arena))) {
      Access reader = c->read;
      // The last reader is this thread: another one read before it.
      if (ordered(reader, now, in_arena))
        return "a race: thread " + std::to_string(lane) + " writes byte " +
               std::to_string(at - region->begin) +
               (in_arena ? " of threadgroup memory" : " of buffer " + std::to_string(region->buffer)) +
               ", which other threads read without a barrier between them";
      return race(reader, false, now, true, *region, at);
    }
    c->write = now;
    c->read.set = false;
    c->others = Others::kNone;
  }
  return {};
}

}  // namespace lz
