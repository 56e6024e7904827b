#include "host/memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace lz {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGuard = 16 * kPage;
// The kernel limits the mappings of a process, and a guarded block takes two.
constexpr int kMaxGuarded = 8192;
std::atomic<int> guarded{0};

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

Block* allocate_block(size_t length, bool checked) {
  Block* block = new Block;
  block->length = length;
  const size_t room = round_up(length ? length : 1, kPage);
  if (guarded.fetch_add(1) < kMaxGuarded) {
    void* start = mmap(nullptr, room + kGuard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start != MAP_FAILED && mprotect(start, room, PROT_READ | PROT_WRITE) == 0) {
      block->start = static_cast<char*>(start);
      block->mapped = room + kGuard;
      block->data = block->start + (checked ? room - round_up(length, 16) : 0);
      block->reach = static_cast<size_t>(block->start + room - block->data);
      return block;
    }
    if (start != MAP_FAILED) munmap(start, room + kGuard);
  }
  guarded--;
  block->start = block->data = static_cast<char*>(std::aligned_alloc(room >= 4 * kPage ? kPage : 64, room));
  if (!block->data) {
    delete block;
    return nullptr;
  }
  std::memset(block->data, 0, room);
  return block;
}

Block* borrow_block(char* data, size_t length) {
  Block* block = new Block;
  block->data = data;
  block->length = length;
  return block;
}

void drop_block(Block* block) {
  if (--block->refs > 0) return;
  if (block->mapped) {
    munmap(block->start, block->mapped);
    guarded--;
  } else
    std::free(block->start);
  delete block;
}

}  // namespace lz
