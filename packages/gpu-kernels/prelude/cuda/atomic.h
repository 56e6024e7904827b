/* Metal's atomics: <metal_atomic>, all of them relaxed, on the device's own where it has one and on an
 * exchange of the word otherwise. */
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
enum thread_scope {
  thread_scope_thread,
  thread_scope_simdgroup,
  thread_scope_threadgroup,
  thread_scope_device
};

template <class T>
struct atomic {
  T value;
};

}  // namespace metal

namespace lz {

typedef unsigned long long u64;

template <class T>
struct Same {
  typedef T type;
};
template <class T>
using Exactly = typename Same<T>::type;  // keeps an argument out of deduction

/* A value in the word that holds it: values of less than 32 bits lie in a part of one. */
template <class T>
struct Cell {
  typedef typename UnsignedOf<T>::type U;
  typedef typename Choice<sizeof(T) == 8, u64, uint>::type Word;
  Word* word;
  int shift;
  explicit Cell(const T* p) {
    const ulong address = reinterpret_cast<ulong>(p);
    const ulong inner = sizeof(T) < 4 ? address & 3 : 0;
    word = reinterpret_cast<Word*>(address - inner);
    shift = int(inner * 8);
  }
  Word load() const { return *static_cast<volatile Word*>(word); }
  T value(Word w) const { return metal::bits_as<T>(U(w >> shift)); }
  Word with(Word w, T v) const {
    const Word bits = Word(metal::bits_as<U>(v));
    if constexpr (sizeof(T) < 4) {
      const Word mask = Word(U(~U(0))) << shift;
      return (w & ~mask) | (bits << shift);
    } else
      return bits;
  }
};
/* Replaces the value by change(value); returns the one before. */
template <class T, class F>
inline T exchange(metal::atomic<T>* p, F change) {
  const Cell<T> cell(&p->value);
  auto before = cell.load();
  for (;;) {
    const T old = cell.value(before);
    const auto found = ::atomicCAS(cell.word, before, cell.with(before, T(change(old))));
    if (found == before) return old;
    before = found;
  }
}
template <class T>
constexpr bool is_word = (sizeof(T) == 4 || sizeof(T) == 8) && !is_floating<T>;
/* The type that the device's functions take for a word of integers. */
template <class T>
using WordOf =
    typename Choice<sizeof(T) == 8, typename Choice<is_unsigned<T>, u64, long long>::type, T>::type;
template <class T>
using UnsignedWordOf = typename Choice<sizeof(T) == 8, u64, uint>::type;

}  // namespace lz

namespace metal {

template <class T>
inline T atomic_load_explicit(const atomic<T>* p, memory_order) {
  typedef typename lz::UnsignedOf<T>::type U;
  const U bits = *reinterpret_cast<const volatile U*>(&p->value);
  return bits_as<T>(bits);
}
template <class T>
inline void atomic_store_explicit(atomic<T>* p, lz::Exactly<T> v, memory_order) {
  typedef typename lz::UnsignedOf<T>::type U;
  *reinterpret_cast<volatile U*>(&p->value) = bits_as<U>(v);
}
template <class T>
inline T atomic_exchange_explicit(atomic<T>* p, lz::Exactly<T> v, memory_order) {
  if constexpr (sizeof(T) >= 4) {
    typedef lz::UnsignedWordOf<T> U;
    return bits_as<T>(::atomicExch(reinterpret_cast<U*>(&p->value), bits_as<U>(v)));
  } else
    return lz::exchange(p, [&](T) { return v; });
}
template <class T>
inline bool atomic_compare_exchange_weak_explicit(atomic<T>* p, lz::Exactly<T>* expected, lz::Exactly<T> v,
                                                  memory_order, memory_order) {
  typedef typename lz::UnsignedOf<T>::type U;
  const lz::Cell<T> cell(&p->value);
  const T wanted = *expected;
  auto before = cell.load();
  T old = cell.value(before);
  if (bits_as<U>(old) == bits_as<U>(wanted)) {
    const auto found = ::atomicCAS(cell.word, before, cell.with(before, v));
    if (found == before) return true;
    old = cell.value(found);
  }
  *expected = old;
  return false;
}
#define LZ_ATOMIC(name, native, has, expression)                                          \
  template <class T>                                                                      \
  inline T atomic_fetch_##name##_explicit(atomic<T>* p, lz::Exactly<T> v, memory_order) { \
    if constexpr (has)                                                                    \
      return T(native(reinterpret_cast<lz::WordOf<T>*>(&p->value), lz::WordOf<T>(v)));    \
    else                                                                                  \
      return lz::exchange(p, [&](T old) { return expression; });                          \
  }
/* Sums wrap around, so that signed words add as unsigned ones. */
template <class T>
inline T atomic_fetch_add_explicit(atomic<T>* p, lz::Exactly<T> v, memory_order) {
  if constexpr (lz::is_word<T>) {
    typedef lz::UnsignedWordOf<T> U;
    return bits_as<T>(::atomicAdd(reinterpret_cast<U*>(&p->value), bits_as<U>(v)));
  } else if constexpr (lz::same<T, float>)
    return ::atomicAdd(&p->value, v);
  else
    return lz::exchange(p, [&](T old) { return T(old + v); });
}
template <class T>
inline T atomic_fetch_sub_explicit(atomic<T>* p, lz::Exactly<T> v, memory_order order) {
  return atomic_fetch_add_explicit(p, T(-v), order);
}
// clang-format off
LZ_ATOMIC(max, ::atomicMax, lz::is_word<T>, old < v ? v : old)
LZ_ATOMIC(min, ::atomicMin, lz::is_word<T>, v < old ? v : old)
// clang-format on
#undef LZ_ATOMIC
#define LZ_ATOMIC(name, native, op)                                                       \
  template <class T>                                                                      \
  inline T atomic_fetch_##name##_explicit(atomic<T>* p, lz::Exactly<T> v, memory_order) { \
    if constexpr (lz::is_word<T>) {                                                       \
      typedef lz::UnsignedWordOf<T> U;                                                    \
      return bits_as<T>(native(reinterpret_cast<U*>(&p->value), bits_as<U>(v)));          \
    } else                                                                                \
      return lz::exchange(p, [&](T old) { return T(old op v); });                         \
  }
// clang-format off
LZ_ATOMIC(and, ::atomicAnd, &)
LZ_ATOMIC(or, ::atomicOr, |)
LZ_ATOMIC(xor, ::atomicXor, ^)
// clang-format on
#undef LZ_ATOMIC
inline void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device) {
  ::__threadfence();
}

}  // namespace metal

typedef metal::atomic<int> atomic_int;
typedef metal::atomic<uint> atomic_uint;
typedef metal::atomic<float> atomic_float;
typedef metal::atomic<bool> atomic_bool;
typedef metal::atomic<ulong> atomic_ulong;
using metal::memory_order_relaxed;
