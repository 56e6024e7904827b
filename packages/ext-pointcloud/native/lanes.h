// Eight elements side by side, and how they are read, written past the caches and fetched ahead.
#ifndef LAZULI_POINTCLOUD_LANES_H
#define LAZULI_POINTCLOUD_LANES_H

#include <cstdint>
#include <cstring>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pointcloud {

#define POINTCLOUD_INLINE inline __attribute__((always_inline))

constexpr int64_t kLanes = 8, kLine = 64;

// Eight elements, which the compiler keeps in as many registers as it needs.
template <class T>
struct Lanes {
  typedef T Type __attribute__((vector_size(kLanes * sizeof(T))));
};

template <class V, class T>
POINTCLOUD_INLINE void load(V& x, const T* from) {
  std::memcpy(&x, from, sizeof x);
}
template <class V, class T>
POINTCLOUD_INLINE void store(const V& x, T* to) {
  std::memcpy(to, &x, sizeof x);
}

// A row of a result that is written past the caches: computed in lines of the thread's own, then written line
// by line, since a line that is written in parts with other accesses in between costs several.
struct alignas(kLine) Line {
  char bytes[kLine];
};
template <class T>
T* own_row(int64_t count) {
  thread_local std::vector<Line> lines;
  lines.resize(size_t((count * int64_t(sizeof(T)) + kLine - 1) / kLine));
  return reinterpret_cast<T*>(lines.data());
}
// Whole lines to lines.
#if defined(__x86_64__)
__attribute__((target("avx512f"))) inline void stream_wide(const void* from, void* to, int64_t bytes) {
  const auto* halves = static_cast<const __m256i*>(from);
  auto* lines = static_cast<__m512i*>(to);
  // Read as it was written, which needs no wait for the memory.
  for (int64_t i = 0; i < bytes / kLine; i++)
    _mm512_stream_si512(lines + i,
                        _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_load_si256(halves + 2 * i)),
                                           _mm256_load_si256(halves + 2 * i + 1), 1));
}
inline void stream(const void* from, void* to, int64_t bytes) {
  static const bool wide = __builtin_cpu_supports("avx512f");
  if (wide) return stream_wide(from, to, bytes);
  for (int64_t i = 0; i < bytes / 16; i++)
    _mm_stream_si128(static_cast<__m128i*>(to) + i, _mm_load_si128(static_cast<const __m128i*>(from) + i));
}
// Before other threads read what was streamed.
inline void end_of_stream() { _mm_sfence(); }
#else
inline void stream(const void* from, void* to, int64_t bytes) { std::memcpy(to, from, size_t(bytes)); }
inline void end_of_stream() {}
#endif

// Results from this size on are in no cache when somebody reads them.
constexpr int64_t kStreamed = int64_t{8} << 20;
inline bool is_streamed(const void* data, int64_t bytes, int64_t row) {
  return bytes >= kStreamed && row % kLine == 0 && reinterpret_cast<uintptr_t>(data) % kLine == 0;
}

// Into the second level: more of its requests than of the first level's can be under way.
POINTCLOUD_INLINE void fetch(const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(static_cast<const char*>(from) + i, 0, 2);
}

}  // namespace pointcloud

#endif
