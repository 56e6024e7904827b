#include "simd/rope.h"

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace {

using V = hn::Vec<Floats>;

template <class T>
HWY_INLINE void rotate_one(const T* p, const T* q, float cos, float sin, T* a, T* b) {
  const float x = to_float(*p), y = to_float(*q);
  const float xc = x * cos, ys = y * sin, xs = x * sin, yc = y * cos;
  *a = from_float<T>(xc - ys);
  *b = from_float<T>(xs + yc);
}

template <class T>
void rotate(const void* from, int64_t half, bool neighbours, const float* cos, const float* sin, void* to) {
  const Floats d;
  const int64_t N = int64_t(hn::Lanes(d)), apart = neighbours ? 1 : half, step = neighbours ? 2 : 1;
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  int64_t i = 0;
  for (; !neighbours && i + N <= half; i += N) {
    const V p = load(d, x + i), q = load(d, x + half + i), c = hn::LoadU(d, cos + i),
            s = hn::LoadU(d, sin + i);
    store(d, hn::Sub(hn::Mul(p, c), hn::Mul(q, s)), y + i);
    store(d, hn::Add(hn::Mul(p, s), hn::Mul(q, c)), y + half + i);
  }
  for (; i < half; i++) {
    const int64_t at = i * step;
    rotate_one(x + at, x + at + apart, cos[i], sin[i], y + at, y + at + apart);
  }
}

}  // namespace

const RopeTable& rope_table() {
  static constexpr RopeTable table = [] {
    RopeTable it{};
    it.rotate[kFloat16] = rotate<float16>;
    it.rotate[kBfloat16] = rotate<bfloat16>;
    it.rotate[kFloat32] = rotate<float>;
    return it;
  }();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
