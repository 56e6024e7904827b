/* From a Metal function to a CUDA kernel: the types of its arguments, and where a thread stands. */
#pragma once

namespace lz {

/* The host's description of a launch: threads and groups of the grid; with `flat` the blocks are numbered
 * through instead of laid out. */
struct Grid {
  uint threads[3];
  uint groups[3];
  uint flat;
};

/* One thread's coordinates. */
struct Thread {
  uint group[3];
  uint size[3];  // of its group, which is smaller at the edges of the grid
  uint at[3];    // in its group
  uint index;    // in its group
};

/* The type of a function's parameter. */
template <int I, class F>
struct ParameterOf;
template <int I, class R, class A, class... Rest>
struct ParameterOf<I, R (*)(A, Rest...)> : ParameterOf<I - 1, R (*)(Rest...)> {};
template <class R, class A, class... Rest>
struct ParameterOf<0, R (*)(A, Rest...)> {
  typedef A type;
};
template <int I, class F>
using Parameter = typename ParameterOf<I, F>::type;

/* The type that a pointer or a reference refers to. */
template <class P>
struct TargetOf;
template <class T>
struct TargetOf<T*> {
  typedef T type;
};
template <class T>
struct TargetOf<T&> {
  typedef T type;
};
template <class P>
using Target = typename TargetOf<P>::type;

/* Bytes that come with the launch. */
template <int N>
struct alignas(16) Bytes {
  char data[N];
};

/* A kernel's argument from a pointer: itself, or what it points to. */
template <class P>
struct Argument;
template <class T>
struct Argument<T*> {
  static T* at(T* p) { return p; }
};
template <class T>
struct Argument<T&> {
  static T& at(T* p) { return *p; }
};

template <class A>
struct FromThree {
  static A get(const uint* d) { return A(d[0]); }
};
template <class T>
struct FromThree<metal::vec<T, 2>> {
  static metal::vec<T, 2> get(const uint* d) { return metal::vec<T, 2>(T(d[0]), T(d[1])); }
};
template <class T>
struct FromThree<metal::vec<T, 3>> {
  static metal::vec<T, 3> get(const uint* d) { return metal::vec<T, 3>(T(d[0]), T(d[1]), T(d[2])); }
};
/* A thread's or a grid's coordinates as a kernel's parameter wants them. */
template <class A>
inline plain<A> three(const uint* d) {
  return FromThree<plain<A>>::get(d);
}
template <class A>
inline plain<A> three(uint x, uint y, uint z) {
  const uint d[3] = {x, y, z};
  return FromThree<plain<A>>::get(d);
}
template <class A>
inline plain<A> one(uint x) {
  return three<A>(x, 1, 1);
}
inline uint volume(const uint* d) { return d[0] * d[1] * d[2]; }
inline uint divide_up(uint a, uint b) { return (a + b - 1) / b; }

#include "ahead.h"
/* Finds the thread's coordinates; false where it lies outside of the grid. With `packed` the threads of a
 * smaller group at an edge are its first ones, as Metal has it, so that its simdgroups are full but for the
 * last. */
template <bool packed>
inline bool enter(const Grid& grid, Thread& t) {
  t.group[0] = ::blockIdx.x, t.group[1] = ::blockIdx.y, t.group[2] = ::blockIdx.z;
  if (grid.flat) {
    const ulong n = ::blockIdx.x + ulong(::gridDim.x) * ::blockIdx.y;
    const ulong rows = n / grid.groups[0];
    if (rows >= ulong(grid.groups[1]) * grid.groups[2]) return false;
    t.group[0] = uint(n % grid.groups[0]);
    t.group[1] = uint(rows % grid.groups[1]), t.group[2] = uint(rows / grid.groups[1]);
  }
  t.size[0] = ::blockDim.x, t.size[1] = ::blockDim.y, t.size[2] = ::blockDim.z;
  t.at[0] = ::threadIdx.x, t.at[1] = ::threadIdx.y, t.at[2] = ::threadIdx.z;
  t.index = t.at[0] + t.size[0] * (t.at[1] + t.size[1] * t.at[2]);
#ifdef LZ_LANES
  t.index = (t.index & ~(kSimdWidth - 1)) | lane_of_hardware(t.index % kSimdWidth);
  t.at[0] = t.index % t.size[0];
  t.at[1] = t.index / t.size[0] % t.size[1];
  t.at[2] = t.index / (t.size[0] * t.size[1]);
#endif
#ifndef LZ_WHOLE
  bool smaller = false;
  for (int i = 0; i < 3; i++) {
    const uint rest = grid.threads[i] - t.group[i] * t.size[i];
    if (rest < t.size[i]) t.size[i] = rest, smaller = true;
  }
  if (smaller && packed) {
    if (t.index >= volume(t.size)) return false;
    t.at[0] = t.index % t.size[0];
    t.at[1] = t.index / t.size[0] % t.size[1];
    t.at[2] = t.index / (t.size[0] * t.size[1]);
  } else if (smaller) {
    if (t.at[0] >= t.size[0] || t.at[1] >= t.size[1] || t.at[2] >= t.size[2]) return false;
  }
#endif
  return true;
}

}  // namespace lz
