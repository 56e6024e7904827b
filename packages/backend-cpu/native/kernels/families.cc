#include "kernels/families.h"

namespace lazuli {

void register_families(Registry& registry) {
  register_copy(registry);
  register_reduce(registry);
  register_variance(registry);
  register_softmax(registry);
  register_extremes(registry);
  register_linalg(registry);
  register_eigen(registry);
  register_matmul(registry);
  register_conv(registry);
  register_index(registry);
  register_segment(registry);
  register_sparse(registry);
  register_shape(registry);
  register_random(registry);
  register_norm(registry);
  register_attention(registry);
  register_argreduce(registry);
  register_scan(registry);
  register_sort(registry);
  register_fft(registry);
  register_quantize(registry);
  register_quantized(registry);
  register_gather_mm(registry);
  register_block_mm(registry);
  register_hadamard(registry);
  register_distances(registry);
  register_rope(registry);
}

}  // namespace lazuli
