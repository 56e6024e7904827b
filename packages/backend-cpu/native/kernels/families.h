// Every kernel family of this package. A family is a file kernels/<family>.cc that defines its register
// function; it is named here and called in families.cc, so nothing depends on the order of static
// initialisation.
#ifndef LAZULI_KERNELS_FAMILIES_H
#define LAZULI_KERNELS_FAMILIES_H

#include "runtime/registry.h"

namespace lazuli {

void register_copy(Registry& registry);
void register_reduce(Registry& registry);
void register_variance(Registry& registry);
void register_softmax(Registry& registry);
void register_extremes(Registry& registry);
void register_linalg(Registry& registry);
void register_eigen(Registry& registry);
void register_matmul(Registry& registry);
void register_conv(Registry& registry);
void register_index(Registry& registry);
void register_segment(Registry& registry);
void register_sparse(Registry& registry);
void register_shape(Registry& registry);
void register_random(Registry& registry);
void register_norm(Registry& registry);
void register_attention(Registry& registry);
void register_argreduce(Registry& registry);
void register_scan(Registry& registry);
void register_sort(Registry& registry);
void register_fft(Registry& registry);
void register_quantize(Registry& registry);
void register_quantized(Registry& registry);
void register_gather_mm(Registry& registry);
void register_block_mm(Registry& registry);
void register_hadamard(Registry& registry);
void register_distances(Registry& registry);
void register_rope(Registry& registry);

void register_families(Registry& registry);

}  // namespace lazuli

#endif
