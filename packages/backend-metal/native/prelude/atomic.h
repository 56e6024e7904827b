/* Metal's atomics: <metal_atomic>. Threads of one group run on one CPU thread, but groups run on several. */
#pragma once

namespace metal {

enum memory_order { memory_order_relaxed };
enum class mem_flags {
  mem_none = 0,
  mem_device = 1,
  mem_threadgroup = 2,
  mem_texture = 4,
  mem_threadgroup_imageblock = 8
};
inline constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

template <class T>
struct atomic {
  T value;
};

}  // namespace metal

namespace lz {

/* Replaces the value by change(value); returns the one before. */
template <class T, class F>
inline T exchange(metal::atomic<T>* p, F change) {
  typedef typename UnsignedOf<T>::type U;
  U* word = reinterpret_cast<U*>(&p->value);
  U before = __atomic_load_n(word, __ATOMIC_RELAXED);
  for (;;) {
    const U after = metal::bits_as<U>(T(change(metal::bits_as<T>(before))));
    if (__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
      return metal::bits_as<T>(before);
  }
}
template <class T>
struct Same {
  typedef T type;
};
template <class T>
using Exactly = typename Same<T>::type;  // keeps an argument out of deduction

}  // namespace lz

namespace metal {

template <class T>
inline T atomic_load_explicit(const atomic<T>* p, memory_order) {
  typedef typename lz::UnsignedOf<T>::type U;
  return bits_as<T>(__atomic_load_n(reinterpret_cast<const U*>(&p->value), __ATOMIC_RELAXED));
}
template <class T>
inline void atomic_store_explicit(atomic<T>* p, lz::Exactly<T> v, memory_order) {
  typedef typename lz::UnsignedOf<T>::type U;
  __atomic_store_n(reinterpret_cast<U*>(&p->value), bits_as<U>(v), __ATOMIC_RELAXED);
}
template <class T>
inline T atomic_exchange_explicit(atomic<T>* p, lz::Exactly<T> v, memory_order) {
  return lz::exchange(p, [&](T) { return v; });
}
template <class T>
inline bool atomic_compare_exchange_weak_explicit(atomic<T>* p, lz::Exactly<T>* expected, lz::Exactly<T> v,
                                                  memory_order, memory_order) {
  typedef typename lz::UnsignedOf<T>::type U;
  U before = bits_as<U>(*expected);
  const bool done = __atomic_compare_exchange_n(reinterpret_cast<U*>(&p->value), &before, bits_as<U>(v),
                                                false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  *expected = bits_as<T>(before);
  return done;
}
#define LZ_ATOMIC(name, expression)                                                       \
  template <class T>                                                                      \
  inline T atomic_fetch_##name##_explicit(atomic<T>* p, lz::Exactly<T> v, memory_order) { \
    return lz::exchange(p, [&](T old) { return expression; });                            \
  }
LZ_ATOMIC(add, T(old + v))
LZ_ATOMIC(sub, T(old - v))
LZ_ATOMIC(and, T(old& v))
LZ_ATOMIC(or, T(old | v))
LZ_ATOMIC(xor, T(old ^ v)) LZ_ATOMIC(max, old < v ? v : old) LZ_ATOMIC(min, v < old ? v : old)
#undef LZ_ATOMIC
    inline void atomic_thread_fence(mem_flags, memory_order) {
}

}  // namespace metal

typedef metal::atomic<int> atomic_int;
typedef metal::atomic<uint> atomic_uint;
typedef metal::atomic<float> atomic_float;
typedef metal::atomic<bool> atomic_bool;
typedef metal::atomic<ulong> atomic_ulong;
using metal::memory_order_relaxed;
