#include "runtime/blocks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace lazuli {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;

#if defined(__linux__)
constexpr bool kMaps = true;
#else
constexpr bool kMaps = false;
#endif

size_t rounded(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Mapped memory ends where one of the machine's pages does, which on arm64 may be 16 KB or 64 KB: a part
// that ends elsewhere cannot be given back.
size_t mapped(size_t bytes) {
  static const size_t page = std::max(kPage, size_t(sysconf(_SC_PAGESIZE)));
  return rounded(bytes, page);
}

// Large blocks begin on a huge page: a fault then brings in 2 MB instead of 4 KB.
void* map_block(size_t bytes) {
  if (bytes < kHugePage) {
    void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? nullptr : block;
  }
  const size_t reserved = bytes + kHugePage;
  void* raw = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const auto block = rounded(start, kHugePage);
  if (block > start) munmap(raw, block - start);
  const auto end = block + bytes, reserved_end = start + reserved;
  if (reserved_end > end) munmap(reinterpret_cast<void*>(end), reserved_end - end);
#if defined(MADV_HUGEPAGE)
  madvise(reinterpret_cast<void*>(block), bytes, MADV_HUGEPAGE);
#endif
  return reinterpret_cast<void*>(block);
}

// A number in a file of one line, or the fallback ("max", no such file).
size_t number_in(const char* path, size_t fallback) {
  FILE* file = std::fopen(path, "r");
  if (!file) return fallback;
  unsigned long long value = 0;
  const bool found = std::fscanf(file, "%llu", &value) == 1;
  std::fclose(file);
  return found && value > 0 ? size_t(value) : fallback;
}

}  // namespace

void* allocate_block(size_t bytes) {
  if (kMaps && bytes >= kMappedFrom) return map_block(mapped(bytes));
  void* block = nullptr;
  const size_t alignment = bytes >= kPagedFrom ? kPage : 64;
  return posix_memalign(&block, alignment, rounded(bytes, 64)) == 0 ? block : nullptr;
}

void free_block(void* block, size_t bytes) {
  if (kMaps && bytes >= kMappedFrom) {
    munmap(block, mapped(bytes));
  } else {
    std::free(block);
  }
}

size_t system_memory() {
  const size_t machine = size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE));
  const size_t v2 = number_in("/sys/fs/cgroup/memory.max", machine);
  const size_t v1 = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", machine);
  return std::min({machine, v1, v2});
}

size_t last_level_cache() {
  static const size_t bytes = [] {
    size_t most = size_t(32) << 20;
#if defined(_SC_LEVEL3_CACHE_SIZE)
    const long found = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (found > 0) most = std::min(most, size_t(found));
#endif
    return most;
  }();
  return bytes;
}

}  // namespace lazuli
