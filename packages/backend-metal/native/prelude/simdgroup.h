/* Work that threads do together: barriers, <metal_simdgroup>, <metal_simdgroup_matrix>, quads, threadgroup
 * variables. A thread hands its argument to the executor and waits; once every thread of its simdgroup has
 * come, one call computes all results. */
#pragma once

namespace lz {

/* Waits for the simdgroup; `compute` then reads and writes the arguments of all its threads. */
inline void together(Exchange compute, void* argument, int line) {
  Fiber* fiber = current();
  fiber->group->exchange(fiber, compute, argument, u32(line));
}
inline u32 lane_of_simdgroup() { return current()->lane % kSimdWidth; }

template <class T>
struct Pair {
  T in;
  T out;
};
template <class T>
inline Pair<T>* pair_of(void* const* arguments, u32 i) {
  return static_cast<Pair<T>*>(arguments[i]);
}

/* Combines the arguments of each run of `width` threads, in order; F is a stateless function object. */
template <int width, class T, class F>
inline T reduce(T x, F, int line) {
  Pair<T> pair{x, x};
  together(
      [](void* const* arguments) {
        for (u32 begin = 0; begin < kSimdWidth; begin += width) {
          Pair<T>* first = nullptr;
          T total{};
          for (u32 i = begin; i < begin + width; i++) {
            Pair<T>* p = pair_of<T>(arguments, i);
            if (!p) continue;
            total = first ? F::apply(total, p->in) : p->in;
            if (!first) first = p;
          }
          for (u32 i = begin; i < begin + width; i++)
            if (Pair<T>* p = pair_of<T>(arguments, i)) p->out = total;
        }
      },
      &pair, line);
  return pair.out;
}
template <bool inclusive, class T, class F>
inline T scan(T x, F, T identity, int line) {
  Pair<T> pair{x, identity};
  together(
      [](void* const* arguments) {
        Pair<T>* before = nullptr;
        for (u32 i = 0; i < kSimdWidth; i++) {
          Pair<T>* p = pair_of<T>(arguments, i);
          if (!p) continue;
          if (inclusive)
            p->out = before ? F::apply(before->out, p->in) : p->in;
          else if (before)
            p->out = F::apply(before->out, before->in);
          before = p;
        }
      },
      &pair, line);
  return pair.out;
}

template <class T>
struct Shuffled {
  T in;
  T out;
  u32 from;
};
/* The value of thread `from`; one's own where that thread takes no part. */
template <class T>
inline T shuffle(T x, u32 from, int line) {
  Shuffled<T> s{x, x, from};
  together(
      [](void* const* arguments) {
        for (u32 i = 0; i < kSimdWidth; i++) {
          Shuffled<T>* p = static_cast<Shuffled<T>*>(arguments[i]);
          if (!p || p->from >= kSimdWidth) continue;
          if (const Shuffled<T>* source = static_cast<Shuffled<T>*>(arguments[p->from])) p->out = source->in;
        }
      },
      &s, line);
  return s.out;
}

/* Threadgroup memory for one declaration, the same for all threads of the group. */
template <class T>
inline T& variable(const void* tag) {
  Fiber* fiber = current();
  return *static_cast<T*>(fiber->group->variable(fiber, tag, sizeof(T), alignof(T)));
}

}  // namespace lz

namespace metal {

inline void threadgroup_barrier(mem_flags, int line = __builtin_LINE()) {
  lz::Fiber* fiber = lz::current();
  __asm__ volatile("" ::: "memory");
  fiber->group->barrier(fiber, lz::u32(line));
  __asm__ volatile("" ::: "memory");
}
inline void simdgroup_barrier(mem_flags, int line = __builtin_LINE()) {
  char none;
  lz::together([](void* const*) {}, &none, line);
  __asm__ volatile("" ::: "memory");
}

#define LZ_REDUCE(name, F)                                 \
  template <class T>                                       \
  inline T simd_##name(T x, int line = __builtin_LINE()) { \
    return lz::reduce<lz::kSimdWidth>(x, lz::F(), line);   \
  }                                                        \
  template <class T>                                       \
  inline T quad_##name(T x, int line = __builtin_LINE()) { \
    return lz::reduce<4>(x, lz::F(), line);                \
  }
LZ_REDUCE(sum, Add)
LZ_REDUCE(product, Multiply)
LZ_REDUCE(max, Max)
LZ_REDUCE(min, Min)
LZ_REDUCE(and, And)
LZ_REDUCE(or, Or)
LZ_REDUCE(xor, Xor)
#undef LZ_REDUCE
template <class T>
inline T simd_prefix_inclusive_sum(T x, int line = __builtin_LINE()) {
  return lz::scan<true>(x, lz::Add(), T(0), line);
}
template <class T>
inline T simd_prefix_exclusive_sum(T x, int line = __builtin_LINE()) {
  return lz::scan<false>(x, lz::Add(), T(0), line);
}
template <class T>
inline T simd_prefix_inclusive_product(T x, int line = __builtin_LINE()) {
  return lz::scan<true>(x, lz::Multiply(), T(1), line);
}
template <class T>
inline T simd_prefix_exclusive_product(T x, int line = __builtin_LINE()) {
  return lz::scan<false>(x, lz::Multiply(), T(1), line);
}

template <class T>
inline T simd_shuffle(T x, ushort from, int line = __builtin_LINE()) {
  return lz::shuffle(x, from, line);
}
template <class T>
inline T simd_broadcast(T x, ushort from, int line = __builtin_LINE()) {
  return lz::shuffle(x, from, line);
}
template <class T>
inline T simd_shuffle_down(T x, ushort by, int line = __builtin_LINE()) {
  return lz::shuffle(x, lz::lane_of_simdgroup() + by, line);
}
template <class T>
inline T simd_shuffle_up(T x, ushort by, int line = __builtin_LINE()) {
  return lz::shuffle(x, lz::lane_of_simdgroup() - by, line);
}
template <class T>
inline T simd_shuffle_xor(T x, ushort mask, int line = __builtin_LINE()) {
  return lz::shuffle(x, lz::lane_of_simdgroup() ^ mask, line);
}
template <class T>
inline T simd_shuffle_rotate_down(T x, ushort by, int line = __builtin_LINE()) {
  return lz::shuffle(x, (lz::lane_of_simdgroup() + by) % lz::kSimdWidth, line);
}
template <class T>
inline T simd_shuffle_rotate_up(T x, ushort by, int line = __builtin_LINE()) {
  return lz::shuffle(x, (lz::lane_of_simdgroup() - by) % lz::kSimdWidth, line);
}
template <class T>
inline T simd_shuffle_and_fill_down(T x, T fill, ushort by, int line = __builtin_LINE()) {
  const T moved = lz::shuffle(x, lz::lane_of_simdgroup() + by, line);
  const lz::u32 source = lz::lane_of_simdgroup() + by;
  const T filled = lz::shuffle(fill, source % lz::kSimdWidth, line);
  return source < lz::kSimdWidth ? moved : filled;
}
template <class T>
inline T simd_shuffle_and_fill_up(T x, T fill, ushort by, int line = __builtin_LINE()) {
  const lz::u32 lane = lz::lane_of_simdgroup();
  const T moved = lz::shuffle(x, lane - by, line);
  const T filled = lz::shuffle(fill, (lane - by) % lz::kSimdWidth, line);
  return lane >= by ? moved : filled;
}
template <class T>
inline T quad_broadcast(T x, ushort from, int line = __builtin_LINE()) {
  return lz::shuffle(x, (lz::lane_of_simdgroup() & ~3u) + from, line);
}
template <class T>
inline T quad_shuffle(T x, ushort from, int line = __builtin_LINE()) {
  return lz::shuffle(x, (lz::lane_of_simdgroup() & ~3u) + from, line);
}
template <class T>
inline T quad_shuffle_xor(T x, ushort mask, int line = __builtin_LINE()) {
  return lz::shuffle(x, lz::lane_of_simdgroup() ^ (mask & 3u), line);
}
template <class T>
inline T quad_shuffle_down(T x, ushort by, int line = __builtin_LINE()) {
  const lz::u32 lane = lz::lane_of_simdgroup();
  return lz::shuffle(x, (lane & 3u) + by < 4 ? lane + by : lane, line);
}
template <class T>
inline T quad_shuffle_up(T x, ushort by, int line = __builtin_LINE()) {
  const lz::u32 lane = lz::lane_of_simdgroup();
  return lz::shuffle(x, (lane & 3u) >= by ? lane - by : lane, line);
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
struct LzVote {
  bool in;
  ulong bits, active;
};
inline simd_vote simd_ballot(bool x, int line = __builtin_LINE()) {
  LzVote vote{x, 0, 0};
  lz::together(
      [](void* const* arguments) {
        ulong bits = 0, active = 0;
        for (lz::u32 i = 0; i < lz::kSimdWidth; i++) {
          if (!arguments[i]) continue;
          active |= 1ul << i;
          if (static_cast<LzVote*>(arguments[i])->in) bits |= 1ul << i;
        }
        for (lz::u32 i = 0; i < lz::kSimdWidth; i++) {
          if (!arguments[i]) continue;
          static_cast<LzVote*>(arguments[i])->bits = bits;
          static_cast<LzVote*>(arguments[i])->active = active;
        }
      },
      &vote, line);
  return simd_vote(vote.bits, vote.active);
}
inline bool simd_all(bool x, int line = __builtin_LINE()) { return simd_ballot(x, line).all(); }
inline bool simd_any(bool x, int line = __builtin_LINE()) { return simd_ballot(x, line).any(); }
inline simd_vote simd_active_threads_mask(int line = __builtin_LINE()) { return simd_ballot(true, line); }
inline bool simd_is_first(int line = __builtin_LINE()) {
  const ulong active = ulong(simd_ballot(true, line));
  return lz::u32(__builtin_ctzl(active)) == lz::lane_of_simdgroup();
}
template <class T>
inline T simd_broadcast_first(T x, int line = __builtin_LINE()) {
  const ulong active = ulong(simd_ballot(true, line));
  return lz::shuffle(x, lz::u32(__builtin_ctzl(active)), line);
}

/* An 8 by 8 matrix of a simdgroup: every thread holds two neighbours of one row. */
template <class T, int C = 8, int R = 8>
struct simdgroup_matrix {
  static_assert(C == 8 && R == 8, "simdgroup matrices are 8 by 8");
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    const ushort2 at = position(lz::lane_of_simdgroup());
    elements[0] = at.x == at.y ? diagonal : T(0);
    elements[1] = at.x + 1 == at.y ? diagonal : T(0);
  }
  vec<T, 2>& thread_elements() { return elements; }
  const vec<T, 2>& thread_elements() const { return elements; }
  /* Column and row of a thread's first element. */
  static ushort2 position(lz::u32 lane) {
    const lz::u32 quad = lane / 4;
    return ushort2(ushort((quad & 2) * 2 + (lane % 2) * 2), ushort((quad & 4) + (lane / 2) % 4));
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
  const ushort2 at = simdgroup_matrix<T, C, R>::position(lz::lane_of_simdgroup());
  for (int i = 0; i < 2; i++) {
    const ulong column = at.x + i, row = at.y;
    m.elements[i] = T(transposed ? from[(column + origin.y) * stride + row + origin.x]
                                 : from[(row + origin.y) * stride + column + origin.x]);
  }
}
template <class T, int C, int R, class S>
inline void simdgroup_store(const simdgroup_matrix<T, C, R>& m, S* to, ulong stride = 8,
                            ulong2 origin = ulong2(0ul), bool transposed = false) {
  const ushort2 at = simdgroup_matrix<T, C, R>::position(lz::lane_of_simdgroup());
  for (int i = 0; i < 2; i++) {
    const ulong column = at.x + i, row = at.y;
    S& target = transposed ? to[(column + origin.y) * stride + row + origin.x]
                           : to[(row + origin.y) * stride + column + origin.x];
    target = S(m.elements[i]);
  }
}
template <class T, class A, class B, class U>
struct LzProduct {
  vec<A, 2> a;
  vec<B, 2> b;
  vec<U, 2> c;
  vec<T, 2> d;
};
/* d = a · b + c */
template <class T, class A, class B, class U, int N>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<T, N, N>& d, const simdgroup_matrix<A, N, N>& a,
                                          const simdgroup_matrix<B, N, N>& b,
                                          const simdgroup_matrix<U, N, N>& c, int line = __builtin_LINE()) {
  typedef LzProduct<T, A, B, U> Product;
  Product p;
  p.a = a.elements;
  p.b = b.elements;
  p.c = c.elements;
  lz::together(
      [](void* const* arguments) {
        // Rows are vectors, and sums are in the order of k.
        typedef float Row __attribute__((vector_size(32), may_alias));
        alignas(32) float left[8][8] = {}, right[8][8] = {}, sums[8][8] = {};
        for (lz::u32 i = 0; i < lz::kSimdWidth; i++) {
          const Product* q = static_cast<Product*>(arguments[i]);
          if (!q) continue;
          const lz::u32 x = (i & 8) / 2 + (i & 1) * 2, y = (i & 16) / 4 + (i & 6) / 2;
          left[y][x] = float(q->a[0]);
          left[y][x + 1] = float(q->a[1]);
          right[y][x] = float(q->b[0]);
          right[y][x + 1] = float(q->b[1]);
          sums[y][x] = float(q->c[0]);
          sums[y][x + 1] = float(q->c[1]);
        }
        const Row* rows = reinterpret_cast<const Row*>(right);
        for (int y = 0; y < 8; y++) {
          Row& sum = reinterpret_cast<Row&>(sums[y]);
          Row total = sum;
          for (int k = 0; k < 8; k++) total += left[y][k] * rows[k];
          sum = total;
        }
        for (lz::u32 i = 0; i < lz::kSimdWidth; i++) {
          Product* q = static_cast<Product*>(arguments[i]);
          if (!q) continue;
          const lz::u32 x = (i & 8) / 2 + (i & 1) * 2, y = (i & 16) / 4 + (i & 6) / 2;
          q->d[0] = T(sums[y][x]);
          q->d[1] = T(sums[y][x + 1]);
        }
      },
      &p, line);
  d.elements = p.d;
}
template <class T, class A, class B, int N>
inline void simdgroup_multiply(simdgroup_matrix<T, N, N>& d, const simdgroup_matrix<A, N, N>& a,
                               const simdgroup_matrix<B, N, N>& b, int line = __builtin_LINE()) {
  const simdgroup_matrix<T, N, N> zero = make_filled_simdgroup_matrix<T, N, N>(T(0));
  simdgroup_multiply_accumulate(d, a, b, zero, line);
}

}  // namespace metal

using metal::simdgroup_bfloat8x8;
using metal::simdgroup_float8x8;
using metal::simdgroup_half8x8;
