/* From a Metal function to an entry of the kernel table: where each parameter comes from is a list of types,
 * what it is comes from the function's own type. */
#pragma once

namespace lz {

/* One thread's coordinates. */
struct Thread {
  Dim3 in_group;
  u32 index;
};

template <class A>
struct FromDim3 {
  static A get(Dim3 d) { return A(d.x); }
};
template <class T>
struct FromDim3<metal::vec<T, 2>> {
  static metal::vec<T, 2> get(Dim3 d) { return metal::vec<T, 2>(T(d.x), T(d.y)); }
};
template <class T>
struct FromDim3<metal::vec<T, 3>> {
  static metal::vec<T, 3> get(Dim3 d) { return metal::vec<T, 3>(T(d.x), T(d.y), T(d.z)); }
};

inline u32 divide_up(u32 a, u32 b) { return (a + b - 1) / b; }
inline u32 volume(Dim3 d) { return d.x * d.y * d.z; }

template <class P>
struct At;
template <class T>
struct At<T*> {
  static constexpr int bytes = 0;
  static T* get(void* p) { return static_cast<T*>(p); }
};
template <class T>
struct At<T&> {
  static constexpr int bytes = int(sizeof(T));
  static T& get(void* p) { return *static_cast<T*>(p); }
};

template <int I>
struct Buffer {
  static constexpr int index = I;
  template <class A>
  static constexpr int bytes() {
    return At<A>::bytes;
  }
  template <class A>
  static A get(const Launch* l, const Group*, const Thread&) {
    return At<A>::get(l->buffers[I]);
  }
};
template <int I>
struct Threadgroup {
  static constexpr int index = -1;
  template <class A>
  static constexpr int bytes() {
    return 0;
  }
  template <class A>
  static A get(const Launch* l, const Group* g, const Thread&) {
    return At<A>::get(g->arena + l->threadgroup_offset[I]);
  }
};

#define LZ_ATTRIBUTE(name, expression)                               \
  struct name {                                                      \
    static constexpr int index = -1;                                 \
    template <class A>                                               \
    static constexpr int bytes() {                                   \
      return 0;                                                      \
    }                                                                \
    template <class A>                                               \
    static A get(const Launch* l, const Group* g, const Thread& t) { \
      (void)l, (void)g, (void)t;                                     \
      return FromDim3<plain<A>>::get(expression);                    \
    }                                                                \
  };
namespace attribute {
inline Dim3 in_grid(const Launch* l, const Group* g, const Thread& t) {
  return Dim3{g->position.x * l->group_size.x + t.in_group.x, g->position.y * l->group_size.y + t.in_group.y,
              g->position.z * l->group_size.z + t.in_group.z};
}
inline Dim3 one(u32 x) { return Dim3{x, 1, 1}; }
LZ_ATTRIBUTE(thread_position_in_grid, in_grid(l, g, t))
LZ_ATTRIBUTE(thread_position_in_threadgroup, t.in_group)
LZ_ATTRIBUTE(thread_index_in_threadgroup, one(t.index))
LZ_ATTRIBUTE(threadgroup_position_in_grid, g->position)
LZ_ATTRIBUTE(threadgroups_per_grid, l->groups)
LZ_ATTRIBUTE(threads_per_grid, l->threads)
LZ_ATTRIBUTE(grid_size, l->threads)
LZ_ATTRIBUTE(grid_origin, (Dim3{0, 0, 0}))
LZ_ATTRIBUTE(threads_per_threadgroup, g->size)
LZ_ATTRIBUTE(dispatch_threads_per_threadgroup, l->group_size)
LZ_ATTRIBUTE(thread_index_in_simdgroup, one(t.index % kSimdWidth))
LZ_ATTRIBUTE(simdgroup_index_in_threadgroup, one(t.index / kSimdWidth))
LZ_ATTRIBUTE(simdgroups_per_threadgroup, one(divide_up(g->lanes, kSimdWidth)))
LZ_ATTRIBUTE(dispatch_simdgroups_per_threadgroup, one(divide_up(volume(l->group_size), kSimdWidth)))
LZ_ATTRIBUTE(threads_per_simdgroup, one(kSimdWidth))
LZ_ATTRIBUTE(thread_execution_width, one(kSimdWidth))
LZ_ATTRIBUTE(thread_index_in_quadgroup, one(t.index % 4))
LZ_ATTRIBUTE(quadgroup_index_in_threadgroup, one(t.index / 4))
LZ_ATTRIBUTE(quadgroups_per_threadgroup, one(divide_up(g->lanes, 4)))
LZ_ATTRIBUTE(dispatch_quadgroups_per_threadgroup, one(divide_up(volume(l->group_size), 4)))
}  // namespace attribute
#undef LZ_ATTRIBUTE

template <auto F, class Signature, class... S>
struct Entry;
template <auto F, class... A, class... S>
struct Entry<F, void (*)(A...), S...> {
  static_assert(sizeof...(A) == sizeof...(S), "every parameter of a kernel has one source");

  static void lane(const Launch* l, const Group* g, u32 index) {
    const Thread t{{index % g->size.x, index / g->size.x % g->size.y, index / (g->size.x * g->size.y)},
                   index};
    F(S::template get<A>(l, g, t)...);
  }
  __attribute__((flatten)) static void group(const Launch* launch, const Group* here) {
    // Copies, which the kernel's own writes cannot change: they stay in registers.
    const Launch local = *launch;
    const Group mine = *here;
    const Launch* l = &local;
    const Group* g = &mine;
    Thread t{{0, 0, 0}, 0};
    const Dim3 size = g->size;
    for (t.in_group.z = 0; t.in_group.z < size.z; t.in_group.z++)
      for (t.in_group.y = 0; t.in_group.y < size.y; t.in_group.y++)
        for (t.in_group.x = 0; t.in_group.x < size.x; t.in_group.x++, t.index++)
          F(S::template get<A>(l, g, t)...);
  }
  static constexpr Kernel describe(const char* name, bool waits, u32 max_threads) {
    Kernel k{name, waits ? &lane : nullptr, waits ? nullptr : &group, {}, max_threads};
    for (u32 i = 0; i < kBuffers; i++) k.bytes[i] = -1;
    ((S::index >= 0 ? (void)(k.bytes[S::index < 0 ? 0 : S::index] = S::template bytes<A>()) : (void)0), ...);
    return k;
  }
};

}  // namespace lz
