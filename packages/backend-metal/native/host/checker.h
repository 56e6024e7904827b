// Follows every access of a checked kernel to memory: what lies outside a buffer, what two threads do to one
// byte with nothing between them, threadgroup memory that is read before it is written; and how many bytes of
// buffers move. Checked dispatches run on one CPU thread, a threadgroup after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "host/executor.h"

namespace lz {

// As checked.h numbers them.
enum class AccessKind : u32 { kRead, kWrite, kAtomicRead, kAtomicWrite, kFence, kBarrier };

// Bytes of buffers: moved in all, and how many different ones. Lanes of a simdgroup that read the same bytes
// at once move them once, as on a GPU; what they read in different rounds of a loop they move again.
struct Traffic {
  uint64_t loads = 0, stores = 0, distinct_loads = 0, distinct_stores = 0;
};

class Checker {
 public:
  void begin(const Dispatch& dispatch);
  void begin_group(uint64_t number, u32 lanes, const char* arena);
  // The fault of a thread's access; empty where there is none.
  std::string access(u32 lane, uintptr_t address, u32 size, AccessKind kind, uintptr_t where);
  // The traffic since the last call; the first one begins the count, which takes its time.
  Traffic take_traffic();

 private:
  struct Access {
    u32 group, epoch, fence;
    uint16_t lane;
    bool set, atomic;
  };
  enum class Others : uint8_t { kNone, kSimdgroup, kGroup, kGroups };
  struct Cell {
    Access write, read;
    Others others;  // who read before `read`, without waiting for each other
    bool loaded, stored;
  };
  struct Page {
    Cell cells[4096];
  };
  struct Region {
    uintptr_t begin, end, reach;
    int buffer;  // -1 for threadgroup memory
    bool bytes;  // of the command stream, which kernels only read
  };

  // A simdgroup's load: which, of which round, from where.
  struct Load {
    u32 simdgroup, round;
    uintptr_t where, address;
    bool operator==(const Load&) const = default;
  };
  struct Hash {
    size_t operator()(const Load& l) const {
      size_t h = l.where * 0x9e3779b97f4a7c15u ^ l.address;
      h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u ^ (size_t(l.simdgroup) << 32 | l.round);
      return h * 0x94d049bb133111ebu >> 7;
    }
  };

  void count(u32 lane, uintptr_t address, u32 size, bool writes, uintptr_t where);
  Cell* cell(uintptr_t address, bool in_arena);
  bool ordered_others(const Cell& cell, const Access& now, bool in_arena) const;
  bool ordered(const Access& before, const Access& now, bool in_arena) const;
  std::string race(const Access& before, bool wrote, const Access& now, bool writes, const Region& region,
                   uintptr_t address) const;

  Traffic traffic_;
  bool counting_ = false;
  std::unordered_set<Load, Hash> loads_;
  // The rounds of each lane at each instruction: loads without an address.
  std::unordered_map<Load, u32, Hash> rounds_;
  std::vector<Region> regions_;
  Region arena_{};
  u32 group_ = 0;
  std::vector<u32> threadgroup_epochs_, device_epochs_, fences_;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  std::unique_ptr<Cell[]> arena_cells_;
  uintptr_t last_page_ = 0;
  Page* last_ = nullptr;
};

}  // namespace lz
