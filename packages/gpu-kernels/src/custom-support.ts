/**
 * Names that bodies of kernels may use besides Metal's library, as MLX has them: of element types, complex numbers with their arithmetic,
 * limits, and locations of elements of strided arrays.
 */

const COMPLEX = `struct complex64_t {
  float real, imag;
  complex64_t() = default;
  constexpr complex64_t(float re, float im) : real(re), imag(im) {}
  constexpr complex64_t(float re) : real(re), imag(0.0f) {}
  constexpr complex64_t(int re) : real(float(re)), imag(0.0f) {}
  constexpr complex64_t(uint re) : real(float(re)), imag(0.0f) {}
  constexpr complex64_t(half re) : real(float(re)), imag(0.0f) {}
};
inline complex64_t operator-(complex64_t x) { return complex64_t(-x.real, -x.imag); }
inline complex64_t operator+(complex64_t x, complex64_t y) { return complex64_t(x.real + y.real, x.imag + y.imag); }
inline complex64_t operator-(complex64_t x, complex64_t y) { return complex64_t(x.real - y.real, x.imag - y.imag); }
inline complex64_t operator*(complex64_t x, complex64_t y) {
  return complex64_t(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real);
}
inline complex64_t operator/(complex64_t x, complex64_t y) {
  float size = y.real * y.real + y.imag * y.imag;
  return complex64_t((x.real * y.real + x.imag * y.imag) / size, (x.imag * y.real - x.real * y.imag) / size);
}
inline bool operator==(complex64_t x, complex64_t y) { return x.real == y.real && x.imag == y.imag; }
inline bool operator!=(complex64_t x, complex64_t y) { return !(x == y); }
inline bool operator<(complex64_t x, complex64_t y) { return x.real < y.real || (x.real == y.real && x.imag < y.imag); }
inline bool operator>(complex64_t x, complex64_t y) { return y < x; }
inline bool operator<=(complex64_t x, complex64_t y) { return x < y || x == y; }
inline bool operator>=(complex64_t x, complex64_t y) { return y < x || x == y; }
`

const LIMITS = `template <typename T>
struct Limits {
  static constexpr constant T max = numeric_limits<T>::max();
  static constexpr constant T min = numeric_limits<T>::lowest();
  static constexpr constant T finite_max = numeric_limits<T>::max();
  static constexpr constant T finite_min = numeric_limits<T>::lowest();
};
`
/** Of floats the limits are infinite; those of bfloat are written as floats. */
const floatLimits = (type: string, most: string): string => `template <>
struct Limits<${type}> {
  static constexpr constant float max = INFINITY;
  static constexpr constant float min = -INFINITY;
  static constexpr constant float finite_max = ${most};
  static constexpr constant float finite_min = -${most};
};
`

const LOCATIONS = `template <typename Index = int64_t>
inline long elem_to_loc(Index elem, constant const int* shape, constant const int64_t* strides, int ndim) {
  long loc = 0;
  for (int axis = ndim - 1; axis >= 0 && elem > 0; axis--) {
    loc += long(elem % Index(shape[axis])) * strides[axis];
    elem /= Index(shape[axis]);
  }
  return loc;
}
template <typename Index = int64_t>
inline Index elem_to_loc(uint3 elem, constant const int* shape, constant const int64_t* strides, int ndim) {
  Index loc = Index(elem.x) * Index(strides[ndim - 1]) + Index(elem.y) * Index(strides[ndim - 2]);
  uint rest = elem.z;
  for (int axis = ndim - 3; axis >= 0; axis--) {
    loc += Index(rest % uint(shape[axis])) * Index(strides[axis]);
    rest /= uint(shape[axis]);
  }
  return loc;
}
template <typename Index = int64_t>
inline Index elem_to_loc_1(uint elem, constant const int64_t& stride) { return Index(elem) * Index(stride); }
template <typename Index = int64_t>
inline Index elem_to_loc_2(uint2 elem, constant const int64_t* strides) {
  return Index(elem.x) * Index(strides[1]) + Index(elem.y) * Index(strides[0]);
}
template <typename Index = int64_t>
inline Index elem_to_loc_3(uint3 elem, constant const int64_t* strides) {
  return Index(elem.x) * Index(strides[2]) + Index(elem.y) * Index(strides[1]) + Index(elem.z) * Index(strides[0]);
}
/* The locations of elements in row-major order, one after the other. */
template <int DIM, typename OffsetT = int64_t, bool General = true>
struct LoopedElemToLoc {
  int dim;
  int64_t index;
  OffsetT offset;
  LoopedElemToLoc(int n) : dim(n), index(0), offset(0) {}
  void next(constant const int* shape, constant const int64_t* strides) {
    if (dim == 0) return;
    index++;
    if (index % shape[dim - 1] != 0) offset += OffsetT(strides[dim - 1]);
    else offset = OffsetT(elem_to_loc<int64_t>(index, shape, strides, dim));
  }
  void next(int n, constant const int* shape, constant const int64_t* strides) {
    index += n;
    if (dim > 0) offset = OffsetT(elem_to_loc<int64_t>(index, shape, strides, dim));
  }
  OffsetT location() { return offset; }
};
`

const LOG1P = `inline float log1p(float x) {
  float y = 1.0f + x;
  return y == 1.0f || y == INFINITY ? x : x * (metal::log(y) / (y - 1.0f));
}
inline bfloat log1p(bfloat x) { return bfloat(log1p(float(x))); }
inline half log1p(half x) { return half(log1p(float(x))); }
`
const CEILDIV = `template <typename T, typename U>
inline T ceildiv(T n, U m) { return (n + m - 1) / m; }
`

/** By the words that ask for it. */
const PARTS: readonly (readonly [RegExp, string])[] = [
  [/\bcomplex64_t\b/, COMPLEX],
  [
    /\bLimits\b/,
    `${LIMITS}${floatLimits("half", "65504.0f")}${floatLimits("bfloat", "3.38953139e38f")}${floatLimits("float", "3.40282347e38f")}`,
  ],
  [/\bceildiv\b/, CEILDIV],
  [/\blog1p\b/, LOG1P],
  [/\b(elem_to_loc(_[123])?|LoopedElemToLoc)\b/, LOCATIONS],
]

/** The definitions before a body, for the words in its text and signature. */
export const customSupport = (text: string): string =>
  `typedef half float16_t;
typedef bfloat bfloat16_t;
${PARTS.filter(([words]) => words.test(text))
  .map(([, part]) => part)
  .join("")}`
