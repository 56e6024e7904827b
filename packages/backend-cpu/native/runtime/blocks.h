// Blocks of memory from the operating system.
#ifndef LAZULI_RUNTIME_BLOCKS_H
#define LAZULI_RUNTIME_BLOCKS_H

#include <cstddef>

namespace lazuli {

#if defined(__APPLE__)
inline constexpr size_t kPage = 16384;
#else
inline constexpr size_t kPage = 4096;
#endif
inline constexpr size_t kPagedFrom = 16384;  // blocks from here on start on a page
inline constexpr size_t kMappedFrom = size_t(1)
                                      << 20;  // and from here on are mapped, in huge pages where possible

// Null when the system refuses. `bytes` is the same for both calls.
void* allocate_block(size_t bytes);
void free_block(void* block, size_t bytes);

// The memory that this process may use: the machine's, or its container's limit.
size_t system_memory();

// Beyond this little of what is written will still be in a cache when it is read: the last level's size, of
// which more than 32 MB are others' as well.
size_t last_level_cache();

}  // namespace lazuli

#endif
