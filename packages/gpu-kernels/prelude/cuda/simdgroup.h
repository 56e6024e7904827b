/* Work that threads do together: barriers, <metal_simdgroup>, <metal_simdgroup_matrix>, quads. A simdgroup is
 * a warp. With LZ_WHOLE every thread of a warp takes part in every exchange; without it those that are there
 * do, as in Metal. */
#pragma once

namespace lz {

constexpr uint kSimdWidth = 32;
constexpr uint kEveryLane = 0xffffffffu;

#ifdef LZ_LANES
inline uint lane_of_hardware(uint h) { return (h & 0x11u) | (h & 0x2u) << 2 | (h & 0xcu) >> 1; }
inline uint hardware_of_lane(uint l) { return (l & 0x11u) | (l & 0x8u) >> 2 | (l & 0x6u) << 1; }
#else
inline uint lane_of_hardware(uint h) { return h; }
inline uint hardware_of_lane(uint l) { return l; }
#endif

/* Warps are made of neighbours in the block. */
inline uint lane_of_simdgroup() {
  const uint index = ::threadIdx.x + ::blockDim.x * (::threadIdx.y + ::blockDim.y * ::threadIdx.z);
  return lane_of_hardware(index % kSimdWidth);
}
/* The lanes that take part in the exchange at hand, as the hardware has them. */
inline uint lanes() {
#ifdef LZ_WHOLE
  return kEveryLane;
#else
  return ::__activemask();
#endif
}
inline bool has(uint mask, uint lane) { return (mask >> hardware_of_lane(lane) & 1u) != 0; }
/* A mask of the hardware as bits of lanes. */
inline uint by_lane(uint mask) {
#ifdef LZ_LANES
  uint bits = 0;
  for (uint i = 0; i < kSimdWidth; i++) bits |= uint(has(mask, i)) << i;
  return bits;
#else
  return mask;
#endif
}

/* A value as words that the hardware exchanges. */
template <class T>
struct Words {
  static constexpr int count = (sizeof(T) + 3) / 4;
  uint word[count];
  explicit Words(const T& x) {
    if constexpr (sizeof(T) % 4 != 0) word[count - 1] = 0;
    LZ_COPY(word, &x, sizeof(T));
  }
  T value() const {
    T x;
    LZ_COPY(static_cast<void*>(&x), word, sizeof(T));
    return x;
  }
};
/* The value of a lane of `mask`. */
template <class T>
inline T from_lane(uint mask, const T& x, uint from) {
  Words<T> w(x);
  for (int i = 0; i < Words<T>::count; i++)
    w.word[i] = ::__shfl_sync(mask, w.word[i], int(hardware_of_lane(from)));
  return w.value();
}
/* The value of lane `from`; one's own where there is no such lane or it takes no part. */
template <class T>
inline T shuffle(const T& x, uint from) {
  const uint mask = lanes();
  const bool there = from < kSimdWidth && has(mask, from % kSimdWidth);
  return from_lane(mask, x, there ? from : lane_of_simdgroup());
}

/* Combines the values of each run of `width` lanes; every one of them gets the same result. */
template <uint width, class F, class T>
inline T reduce(T x) {
  const uint mask = lanes();
  if (mask == kEveryLane) {
    for (uint by = width / 2; by > 0; by /= 2) x = F::apply(x, from_lane(mask, x, lane_of_simdgroup() ^ by));
    return x;
  }
  const uint begin = lane_of_simdgroup() / width * width;
  T total = x;
  bool first = true;
  // Every lane goes through all of the loop, because all of `mask` must reach each exchange.
  for (uint i = 0; i < width; i++) {
    const bool there = has(mask, begin + i);
    const T other = from_lane(mask, x, there ? begin + i : lane_of_simdgroup());
    if (!there) continue;
    total = first ? other : F::apply(total, other);
    first = false;
  }
  return total;
}
template <bool inclusive, class F, class T>
inline T scan(const T& x, T identity) {
  const uint mask = lanes(), lane = lane_of_simdgroup();
  T total = x;
  if (mask == kEveryLane) {
    for (uint by = 1; by < kSimdWidth; by *= 2) {
      const T other = from_lane(mask, total, lane >= by ? lane - by : lane);
      if (lane >= by) total = F::apply(other, total);
    }
    if (inclusive) return total;
    const T before = from_lane(mask, total, lane > 0 ? lane - 1 : lane);
    return lane > 0 ? before : identity;
  }
  total = identity;
  bool first = true;
  for (uint i = 0; i < kSimdWidth; i++) {
    if (!has(mask, i)) continue;
    const T other = from_lane(mask, x, i);
    if (i > lane || (!inclusive && i == lane)) continue;
    total = first ? other : F::apply(total, other);
    first = false;
  }
  return total;
}

}  // namespace lz

namespace metal {

inline void threadgroup_barrier(mem_flags) { ::__syncthreads(); }
inline void threadgroup_barrier(mem_flags, thread_scope) { ::__syncthreads(); }
inline void simdgroup_barrier(mem_flags) { ::__syncwarp(lz::lanes()); }

#define LZ_REDUCE(name, F)                   \
  template <class T>                         \
  inline T simd_##name(T x) {                \
    return lz::reduce<lz::kSimdWidth, F>(x); \
  }                                          \
  template <class T>                         \
  inline T quad_##name(T x) {                \
    return lz::reduce<4, F>(x);              \
  }
// clang-format off
LZ_REDUCE(sum, lz::Add)
LZ_REDUCE(product, lz::Multiply)
LZ_REDUCE(max, lz::Max)
LZ_REDUCE(min, lz::Min)
LZ_REDUCE(and, lz::And)
LZ_REDUCE(or, lz::Or)
LZ_REDUCE(xor, lz::Xor)
// clang-format on
#undef LZ_REDUCE
template <class T>
inline T simd_prefix_inclusive_sum(T x) {
  return lz::scan<true, lz::Add>(x, T(0));
}
template <class T>
inline T simd_prefix_exclusive_sum(T x) {
  return lz::scan<false, lz::Add>(x, T(0));
}
template <class T>
inline T simd_prefix_inclusive_product(T x) {
  return lz::scan<true, lz::Multiply>(x, T(1));
}
template <class T>
inline T simd_prefix_exclusive_product(T x) {
  return lz::scan<false, lz::Multiply>(x, T(1));
}

template <class T>
inline T simd_shuffle(T x, ushort from) {
  return lz::shuffle(x, from);
}
template <class T>
inline T simd_broadcast(T x, ushort from) {
  return lz::shuffle(x, from);
}
template <class T>
inline T simd_shuffle_down(T x, ushort by) {
  return lz::shuffle(x, lz::lane_of_simdgroup() + by);
}
template <class T>
inline T simd_shuffle_up(T x, ushort by) {
  return lz::shuffle(x, lz::lane_of_simdgroup() - by);
}
template <class T>
inline T simd_shuffle_xor(T x, ushort mask) {
  return lz::shuffle(x, lz::lane_of_simdgroup() ^ mask);
}
template <class T>
inline T simd_shuffle_rotate_down(T x, ushort by) {
  return lz::shuffle(x, (lz::lane_of_simdgroup() + by) % lz::kSimdWidth);
}
template <class T>
inline T simd_shuffle_rotate_up(T x, ushort by) {
  return lz::shuffle(x, (lz::lane_of_simdgroup() - by) % lz::kSimdWidth);
}
template <class T>
inline T simd_shuffle_and_fill_down(T x, T fill, ushort by) {
  const uint source = lz::lane_of_simdgroup() + by;
  const T moved = lz::shuffle(x, source);
  const T filled = lz::shuffle(fill, source % lz::kSimdWidth);
  return source < lz::kSimdWidth ? moved : filled;
}
template <class T>
inline T simd_shuffle_and_fill_up(T x, T fill, ushort by) {
  const uint lane = lz::lane_of_simdgroup();
  const T moved = lz::shuffle(x, lane - by);
  const T filled = lz::shuffle(fill, (lane - by) % lz::kSimdWidth);
  return lane >= by ? moved : filled;
}
template <class T>
inline T quad_broadcast(T x, ushort from) {
  return lz::shuffle(x, (lz::lane_of_simdgroup() & ~3u) + from);
}
template <class T>
inline T quad_shuffle(T x, ushort from) {
  return lz::shuffle(x, (lz::lane_of_simdgroup() & ~3u) + from);
}
template <class T>
inline T quad_shuffle_xor(T x, ushort mask) {
  return lz::shuffle(x, lz::lane_of_simdgroup() ^ (mask & 3u));
}
template <class T>
inline T quad_shuffle_down(T x, ushort by) {
  const uint lane = lz::lane_of_simdgroup();
  return lz::shuffle(x, (lane & 3u) + by < 4 ? lane + by : lane);
}
template <class T>
inline T quad_shuffle_up(T x, ushort by) {
  const uint lane = lz::lane_of_simdgroup();
  return lz::shuffle(x, (lane & 3u) >= by ? lane - by : lane);
}

/* A set of threads, by bits. */
class simd_vote {
 public:
  typedef ulong vote_t;
  explicit constexpr simd_vote(vote_t bits = 0, vote_t active = ~0ul) : bits_(bits), active_(active) {}
  explicit constexpr operator vote_t() const { return bits_; }
  constexpr bool any() const { return bits_ != 0; }
  constexpr bool all() const { return bits_ == active_; }

 private:
  vote_t bits_, active_;
};
inline simd_vote simd_ballot(bool x) {
  const uint mask = lz::lanes();
  return simd_vote(lz::by_lane(::__ballot_sync(mask, x)), lz::by_lane(mask));
}
inline bool simd_all(bool x) { return simd_ballot(x).all(); }
inline bool simd_any(bool x) { return simd_ballot(x).any(); }
inline simd_vote simd_active_threads_mask() { return simd_ballot(true); }
inline bool simd_is_first() {
  return uint(::__ffs(int(lz::by_lane(lz::lanes()))) - 1) == lz::lane_of_simdgroup();
}
template <class T>
inline T simd_broadcast_first(T x) {
  return lz::shuffle(x, uint(::__ffs(int(lz::by_lane(lz::lanes()))) - 1));
}

}  // namespace metal

#if defined(LZ_LANES) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
namespace lz {

/* Adds the product of two 8 by 8 matrices of 16 bits an element: the tensor core's first 8 of 16 rows; the
 * right one goes in by columns. */
template <class T>
inline void tensor_product(float* sum, uint left, uint right) {
  uint columns;
  float none0, none1;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(columns) : "r"(right));
  if constexpr (same<T, half>)
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%7,%7};"
        : "+f"(sum[0]), "+f"(sum[1]), "=f"(none0), "=f"(none1)
        : "r"(left), "r"(0), "r"(columns), "f"(0.0f));
  else
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%7,%7};"
        : "+f"(sum[0]), "+f"(sum[1]), "=f"(none0), "=f"(none1)
        : "r"(left), "r"(0), "r"(columns), "f"(0.0f));
}

}  // namespace lz
#endif

namespace metal {

/* An 8 by 8 matrix of a simdgroup: every thread holds two neighbours of one row. */
template <class T, int C = 8, int R = 8>
struct simdgroup_matrix {
  static_assert(C == 8 && R == 8, "simdgroup matrices are 8 by 8");
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    const uint lane = lz::lane_of_simdgroup(), x = column(lane), y = row(lane);
    elements[0] = x == y ? diagonal : T(0);
    elements[1] = x + 1 == y ? diagonal : T(0);
  }
  vec<T, 2>& thread_elements() { return elements; }
  const vec<T, 2>& thread_elements() const { return elements; }
  /* Where a thread's first element is, as on Apple's hardware. */
  static uint column(uint lane) { return (lane / 4 & 2) * 2 + (lane & 1) * 2; }
  static uint row(uint lane) { return (lane / 4 & 4) + (lane / 2 & 3); }
  /* The lane that holds an element; the column's lowest bit says which of its two. */
  static uint holder(uint row, uint column) {
    return (column >> 1 & 1) | (row & 3) << 1 | (column >> 2 & 1) << 3 | (row >> 2 & 1) << 4;
  }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int C, int R>
inline simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, C, R> m;
  m.elements = vec<T, 2>(value);
  return m;
}
template <class T, int C, int R, class S>
inline void simdgroup_load(simdgroup_matrix<T, C, R>& m, const S* from, ulong stride = 8,
                           ulong2 origin = ulong2(0ul), bool transposed = false) {
  const uint lane = lz::lane_of_simdgroup();
  for (int i = 0; i < 2; i++) {
    const ulong column = m.column(lane) + i, row = m.row(lane);
    m.elements[i] = T(transposed ? from[(column + origin.y) * stride + row + origin.x]
                                 : from[(row + origin.y) * stride + column + origin.x]);
  }
}
template <class T, int C, int R, class S>
inline void simdgroup_store(const simdgroup_matrix<T, C, R>& m, S* to, ulong stride = 8,
                            ulong2 origin = ulong2(0ul), bool transposed = false) {
  const uint lane = lz::lane_of_simdgroup();
  for (int i = 0; i < 2; i++) {
    const ulong column = m.column(lane) + i, row = m.row(lane);
    S& target = transposed ? to[(column + origin.y) * stride + row + origin.x]
                           : to[(row + origin.y) * stride + column + origin.x];
    target = S(m.elements[i]);
  }
}
/* d = a · b + c, with sums in float */
template <class T, class A, class B, class U, int N>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<T, N, N>& d, const simdgroup_matrix<A, N, N>& a,
                                          const simdgroup_matrix<B, N, N>& b,
                                          const simdgroup_matrix<U, N, N>& c) {
  float sum[2] = {float(c.elements[0]), float(c.elements[1])};
#if defined(LZ_LANES) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (lz::same<A, B> && (lz::same<A, half> || lz::same<A, bfloat>)) {
    lz::tensor_product<A>(sum, bits_as<uint>(a.elements), bits_as<uint>(b.elements));
    d.elements = vec<T, 2>(T(sum[0]), T(sum[1]));
    return;
  }
#endif
  const uint lane = lz::lane_of_simdgroup(), column = d.column(lane), row = d.row(lane);
  LZ_UNROLL for (uint k = 0; k < 8; k += 2) {
    const vec<A, 2> left = lz::from_lane(lz::kEveryLane, a.elements, a.holder(row, k));
    LZ_UNROLL for (uint i = 0; i < 2; i++) {
      const vec<B, 2> right = lz::from_lane(lz::kEveryLane, b.elements, b.holder(k + i, column));
      for (int e = 0; e < 2; e++) sum[e] += float(left.data[i]) * float(right.data[e]);
    }
  }
  d.elements = vec<T, 2>(T(sum[0]), T(sum[1]));
}
template <class T, class A, class B, int N>
inline void simdgroup_multiply(simdgroup_matrix<T, N, N>& d, const simdgroup_matrix<A, N, N>& a,
                               const simdgroup_matrix<B, N, N>& b) {
  const simdgroup_matrix<T, N, N> zero = make_filled_simdgroup_matrix<T, N, N>(T(0));
  simdgroup_multiply_accumulate(d, a, b, zero);
}

}  // namespace metal

using metal::simdgroup_bfloat8x8;
using metal::simdgroup_float8x8;
using metal::simdgroup_half8x8;
