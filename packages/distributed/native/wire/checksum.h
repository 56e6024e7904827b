// A checksum of what travels: TCP's own does not see what a broken relay or memory does.
#ifndef LAZULI_DISTRIBUTED_CHECKSUM_H
#define LAZULI_DISTRIBUTED_CHECKSUM_H

#include <cstddef>
#include <cstdint>

namespace lazuli::dist {

// CRC32C of three thirds, taken at once, and of their checksums; of large data, of what a faster one leaves.
uint32_t checksum(const void* data, size_t bytes);

}  // namespace lazuli::dist

#endif
