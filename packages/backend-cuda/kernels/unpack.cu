/* Packed weights (mode affine) in the dtype of a product: a thread has four times 8 codes. Before this text stand LZ_BITS (4 or 8), LZ_GROUP (codes
 * of a group) and, for bfloat16, LZ_BRAIN, or for float32, LZ_WIDE. */
#define LZ_KERNELS
#include "tensor-core.cuh"

constexpr int EACH = 4, CODES = 8, WORDS = CODES * LZ_BITS / 32, PER_WORD = 32 / LZ_BITS;
constexpr u32 MASK = (1u << LZ_BITS) - 1;

#ifdef LZ_WIDE
typedef float Element;
inline float value_of(float x) { return x; }
inline float element_of(float x) { return x; }
#else
typedef u16 Element;
inline float value_of(u16 x) { return float_of(x); }
inline u16 element_of(float x) { return u16(pack(x, 0.0f)); }
#endif

struct alignas(4 * WORDS) Packed {
  u32 word[WORDS];
};
struct alignas(16) Unpacked {
  Element value[CODES];
};

extern "C" __global__ void __launch_bounds__(256) unpack(const u32* weights, const Element* scales,
                                                         const Element* biases, Element* y, const int chunks) {
  const int first = int(blockIdx.x * (256 * EACH) + threadIdx.x);
  Packed packed[EACH];
  float scale[EACH], bias[EACH];
#pragma unroll
  for (int u = 0; u < EACH; u++) {
    const int chunk = first + u * 256 < chunks ? first + u * 256 : chunks - 1;
    packed[u] = ((const Packed*)weights)[chunk];
    scale[u] = value_of(scales[chunk / (LZ_GROUP / CODES)]);
    bias[u] = value_of(biases[chunk / (LZ_GROUP / CODES)]);
  }
#pragma unroll
  for (int u = 0; u < EACH; u++) {
    Unpacked made;
#pragma unroll
    for (int i = 0; i < CODES; i++) {
      const u32 code = packed[u].word[i / PER_WORD] >> (i % PER_WORD * LZ_BITS) & MASK;
      made.value[i] = element_of(scale[u] * float(int(code)) + bias[u]);
    }
    if (first + u * 256 < chunks) ((Unpacked*)y)[first + u * 256] = made;
  }
}
