// The CUDA kernels: alpha · x + beta · y, one thread an element. Types and conversions are those that Lazuli gives to every kernel.

template <typename T, typename S>
__device__ void axpby(const T* x, const T* y, T* out, S alpha, S beta, int64_t size) {
  int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  T ax = T(alpha) * x[i];
  T by = T(beta) * y[i];
  out[i] = ax + by;
}

extern "C" __global__ void axpby_float32(const float* x, const float* y, float* out, float alpha, float beta,
                                         int64_t size) {
  axpby(x, y, out, alpha, beta, size);
}
extern "C" __global__ void axpby_float64(const double* x, const double* y, double* out, double alpha,
                                         double beta, int64_t size) {
  axpby(x, y, out, alpha, beta, size);
}
extern "C" __global__ void axpby_float16(const __half* x, const __half* y, __half* out, float alpha,
                                         float beta, int64_t size) {
  axpby(x, y, out, alpha, beta, size);
}
extern "C" __global__ void axpby_bfloat16(const __nv_bfloat16* x, const __nv_bfloat16* y, __nv_bfloat16* out,
                                          float alpha, float beta, int64_t size) {
  axpby(x, y, out, alpha, beta, size);
}
