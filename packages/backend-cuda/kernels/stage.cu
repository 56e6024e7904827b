/* Copies of a few bytes each, a block for each: small arrays lie elsewhere at each run of a graph of the driver, which knows one
 * location of each. native/cuda/plan.cc has the same structures. */
#define LZ_KERNELS
#include "ahead.h"

constexpr unsigned THREADS = 64, COPIES = 64;

struct Copy {
  const unsigned char* from;
  unsigned char* to;
  unsigned long long bytes;
};
struct Copies {
  Copy each[COPIES];
};

extern "C" __global__ void __launch_bounds__(64) stage(const __grid_constant__ Copies copies) {
  await_earlier();
  const Copy copy = copies.each[blockIdx.x];
  const unsigned bytes = unsigned(copy.bytes);
  const unsigned bits = unsigned((unsigned long long)copy.from) | unsigned((unsigned long long)copy.to) | bytes;
  if (bits % 4 == 0)
    for (unsigned i = threadIdx.x; i < bytes / 4; i += THREADS) ((unsigned*)copy.to)[i] = ((const unsigned*)copy.from)[i];
  else
    for (unsigned i = threadIdx.x; i < bytes; i += THREADS) copy.to[i] = copy.from[i];
}
