/* What cuFFT leaves to do: a factor, and half spectra of real arrays. */
#define LZ_KERNELS
#include "tensor-core.cuh"

typedef long long i64;
struct alignas(8) Complex {
  float x, y;
};

inline i64 thread() { return i64(blockIdx.x) * blockDim.x + threadIdx.x; }

extern "C" __global__ void __launch_bounds__(256) scale(float* x, const float factor, const i64 elements) {
  const i64 i = thread();
  if (i < elements) x[i] *= factor;
}

/* Numbers of a half spectrum that are their own conjugates are real: the first of each line, and the last where lines have an even length. */
extern "C" __global__ void __launch_bounds__(256) make_real(Complex* x, const int half, const int is_even,
                                                            const i64 lines) {
  const i64 i = thread();
  if (i >= lines) return;
  x[i * half].y = 0.0f;
  if (is_even) x[i * half + half - 1].y = 0.0f;
}
