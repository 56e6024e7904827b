// Reductions of elements, by dtype.
#ifndef LAZULI_DISTRIBUTED_ELEMENTS_H
#define LAZULI_DISTRIBUTED_ELEMENTS_H

#include <cstddef>
#include <cstdint>

namespace lazuli::dist {

enum class Reduction : int32_t { sum, max, min };

// Bytes of an element of an lz_dtype; 0 for none.
size_t size_of(int dtype);
// out[i] = a[i] ∘ b[i]; out may be a or b.
void reduce(Reduction reduction, int dtype, void* out, const void* a, const void* b, int64_t count);

}  // namespace lazuli::dist

#endif
