// Buffers: page-aligned memory with inaccessible pages behind it, shared with JavaScript without copies.
#pragma once

#include <cstddef>

namespace lz {

struct Block {
  char* data = nullptr;
  size_t length = 0;
  size_t reach = 0;  // bytes from data to the guard; 0 without one
  char* start = nullptr;
  size_t mapped = 0;  // 0 for memory of others
  int refs = 1;
};

// Fresh zeroed memory; null when there is none. Checked blocks end at the guard, to 16 bytes, so that every
// overrun shows.
Block* allocate_block(size_t length, bool checked);
// Memory that somebody else owns.
Block* borrow_block(char* data, size_t length);
void drop_block(Block* block);

}  // namespace lz
