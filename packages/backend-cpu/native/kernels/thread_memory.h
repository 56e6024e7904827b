// Memory in which a thread prepares operands, kept from call to call.
#ifndef LAZULI_KERNELS_THREAD_MEMORY_H
#define LAZULI_KERNELS_THREAD_MEMORY_H

#include <cstdint>

namespace lazuli {

// At least `count` floats of the calling thread, at a cache line's start; what they were before is lost. Null
// when there is no memory.
float* thread_memory(int64_t count);

}  // namespace lazuli

#endif
