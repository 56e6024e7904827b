// The Metal kernels: alpha · x + beta · y, one thread an element. Both products are rounded to the dtype,
// then their sum, as the decomposition does.
#include <metal_stdlib>
using namespace metal;

/* The offset of the i-th element, in row-major order, of an array whose elements lie anywhere. */
inline long offset_of(uint i, int ndim, constant int* shape, constant long* strides) {
  long offset = 0;
  for (int axis = ndim - 1; axis >= 0; axis--) {
    offset += long(i % uint(shape[axis])) * strides[axis];
    i /= uint(shape[axis]);
  }
  return offset;
}

/* Two floats, as elements of complex64 lie in memory. */
struct complex64 {
  float re;
  float im;
};
inline complex64 operator*(complex64 a, complex64 b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
inline complex64 operator+(complex64 a, complex64 b) { return {a.re + b.re, a.im + b.im}; }

/* A factor in the element type. */
template <typename T>
inline T factor(float value) {
  return T(value);
}
template <>
inline complex64 factor<complex64>(float value) {
  return {value, 0.0f};
}

/* Inputs may be transposed or broadcast: they are read by their strides, without a copy. */
template <typename T>
kernel void axpby(const device T* x [[buffer(0)]], const device T* y [[buffer(1)]],
                  device T* out [[buffer(2)]], constant float& alpha [[buffer(3)]],
                  constant float& beta [[buffer(4)]], constant int& ndim [[buffer(5)]],
                  constant int* shape [[buffer(6)]], constant long* x_strides [[buffer(7)]],
                  constant long* y_strides [[buffer(8)]], uint i [[thread_position_in_grid]]) {
  T ax = factor<T>(alpha) * x[offset_of(i, ndim, shape, x_strides)];
  T by = factor<T>(beta) * y[offset_of(i, ndim, shape, y_strides)];
  out[i] = ax + by;
}

template [[host_name("axpby_float32")]] [[kernel]] decltype(axpby<float>) axpby<float>;
template [[host_name("axpby_float16")]] [[kernel]] decltype(axpby<half>) axpby<half>;
template [[host_name("axpby_bfloat16")]] [[kernel]] decltype(axpby<bfloat>) axpby<bfloat>;
template [[host_name("axpby_complex64")]] [[kernel]] decltype(axpby<complex64>) axpby<complex64>;
