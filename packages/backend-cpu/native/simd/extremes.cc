// Plain loops, which compilers turn into comparisons and choices of vectors.
#include "simd/extremes.h"

#include <hwy/cache_control.h>

#include "simd/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace lazuli::LZ_TARGET {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

LZ_FORCE_INLINE double value(double x) { return x; }
template <class T>
LZ_FORCE_INLINE float value(T x) {
  return to_float(x);
}

template <class T>
int64_t count(const void* x_data, int64_t n, const void* extreme_data) {
  const T* x = static_cast<const T*>(x_data);
  const auto extreme = value(*static_cast<const T*>(extreme_data));
  int64_t total = 0;
  while (n > 0) {
    const int32_t part = n < (1 << 20) ? int32_t(n) : 1 << 20;
    int32_t sum = 0;
    for (int32_t i = 0; i < part; i++) sum += value(x[i]) == extreme ? 1 : 0;
    total += sum, x += part, n -= part;
  }
  return total;
}

// The number of elements before the first vector of memory.
template <class D, class T>
LZ_FORCE_INLINE int64_t before_vectors(D d, const T* to, int64_t n) {
  const int64_t bytes = int64_t(hn::Lanes(d) * sizeof(T)),
                past = int64_t(reinterpret_cast<uintptr_t>(to)) % bytes;
  const int64_t before = past == 0 ? 0 : (bytes - past) / int64_t(sizeof(T));
  return before < n ? before : n;
}

template <bool kValue>
struct truth {
  constexpr bool operator()() const { return kValue; }
};

template <class T>
inline constexpr bool is_streamed = same_type<T, float> || same_type<T, double>;

// One element for every position of each_vector().
template <class T>
HWY_INLINE auto same(const void* from, int64_t at = 0) {
  return [value = static_cast<const T*>(from)[at]](auto d, int64_t)
             LZ_INLINE_LAMBDA { return hn::Set(d, value); };
}

// The loop of write() and write_columns(). `hit` and `note` are given the vector's tag, its position and its
// mask: `note` counts.
template <bool kStreaming, class T, class Hit, class Miss, class Extreme, class Note>
HWY_INLINE void each_vector(const T* x, int64_t n, T* to, Extreme&& extreme, Hit&& hit, Miss&& miss,
                            Note&& note) {
  const hn::CappedTag<T, 16> d;
  const int64_t N = int64_t(hn::Lanes(d)), begin = kStreaming ? before_vectors(d, to, n) : 0;
  const auto one = [&](int64_t i) LZ_INLINE_LAMBDA {
    const hn::CappedTag<T, 1> single;
    const auto is_hit = hn::Eq(hn::LoadU(single, x + i), extreme(single, i));
    note(single, i, is_hit);
    hn::StoreU(hn::IfThenElse(is_hit, hit(single, i), miss(single, i)), single, to + i);
  };
  int64_t i = 0;
  for (; i < begin; i++) one(i);
  for (; i + N <= n; i += N) {
    const auto is_hit = hn::Eq(hn::LoadU(d, x + i), extreme(d, i));
    note(d, i, is_hit);
    const auto chosen = hn::IfThenElse(is_hit, hit(d, i), miss(d, i));
    if constexpr (kStreaming)
      hn::Stream(chosen, d, to + i);
    else
      hn::StoreU(chosen, d, to + i);
  }
  for (; i < n; i++) one(i);
  if constexpr (kStreaming) hwy::FlushStream();
}

template <class T, class Hit, class Miss, class Extreme>
HWY_INLINE void stream(const T* x, int64_t n, T* to, Extreme&& extreme, Hit&& hit, Miss&& miss) {
  const auto nothing = [](auto, int64_t, auto) LZ_INLINE_LAMBDA {};
  each_vector<true>(x, n, to, extreme, hit, miss, nothing);
}

template <class T>
void write(const void* x_data, int64_t n, const void* extreme_data, const void* choice, void* to_data,
           bool streaming) {
  if constexpr (is_streamed<T>) {
    if (streaming)
      return stream(static_cast<const T*>(x_data), n, static_cast<T*>(to_data), same<T>(extreme_data),
                    same<T>(choice), same<T>(choice, 1));
  }
  const T* x = static_cast<const T*>(x_data);
  const auto extreme = value(*static_cast<const T*>(extreme_data));
  const T hit = static_cast<const T*>(choice)[0], miss = static_cast<const T*>(choice)[1];
  T* to = static_cast<T*>(to_data);
  LZ_INDEPENDENT
  for (int64_t i = 0; i < n; i++) to[i] = value(x[i]) == extreme ? hit : miss;
}

// Single precision in one pass; the rest in two, of which the second finds x in the first cache.
template <class T>
int64_t count_and_write(const void* x, int64_t n, const void* extreme, const void* choice, void* to,
                        bool streaming) {
  if constexpr (same_type<T, float>) {
    int64_t total = 0;
    const auto note = [&](auto d, int64_t, auto is_hit)
                          LZ_INLINE_LAMBDA { total += int64_t(hn::CountTrue(d, is_hit)); };
    const auto run = [&](auto is_streaming) LZ_INLINE_LAMBDA {
      each_vector<is_streaming()>(static_cast<const T*>(x), n, static_cast<T*>(to), same<T>(extreme),
                                  same<T>(choice), same<T>(choice, 1), note);
    };
    streaming ? run(truth<true>()) : run(truth<false>());
    return total;
  }
  constexpr int64_t kPart = 2048;
  int64_t total = 0;
  const T* from = static_cast<const T*>(x);
  T* into = static_cast<T*>(to);
  for (int64_t i = 0; i < n; i += kPart) {
    const int64_t part = n - i < kPart ? n - i : kPart;
    total += count<T>(from + i, part, extreme);
    write<T>(from + i, part, extreme, choice, into + i, streaming);
  }
  return total;
}

template <class T>
void count_columns(const void* x_data, int64_t n, const void* extremes_data, int32_t* counts) {
  const T *x = static_cast<const T*>(x_data), *extremes = static_cast<const T*>(extremes_data);
  LZ_INDEPENDENT
  for (int64_t i = 0; i < n; i++) counts[i] += value(x[i]) == value(extremes[i]) ? 1 : 0;
}

template <class T>
void write_columns(const void* x_data, int64_t n, const void* extremes_data, const void* hits_data,
                   const void* misses_data, void* to_data, bool streaming) {
  const T *x = static_cast<const T*>(x_data), *extremes = static_cast<const T*>(extremes_data);
  const T *hits = static_cast<const T*>(hits_data), *misses = static_cast<const T*>(misses_data);
  T* to = static_cast<T*>(to_data);
  if constexpr (is_streamed<T>) {
    const auto each = [](const T* from) LZ_INLINE_LAMBDA {
      return [from](auto d, int64_t i) LZ_INLINE_LAMBDA { return hn::LoadU(d, from + i); };
    };
    if (streaming) return stream(x, n, to, each(extremes), each(hits), each(misses));
  }
  LZ_INDEPENDENT
  for (int64_t i = 0; i < n; i++) {
    const T hit = hits[i], miss = misses[i];
    to[i] = value(x[i]) == value(extremes[i]) ? hit : miss;
  }
}

template <class T>
void count_and_write_columns(const void* x, int64_t n, const void* extremes, int32_t* counts,
                             const void* hits, const void* misses, void* to, bool streaming) {
  if constexpr (same_type<T, float>) {
    const auto each = [](const void* from) LZ_INLINE_LAMBDA {
      return [from = static_cast<const T*>(from)](auto d, int64_t i)
                 LZ_INLINE_LAMBDA { return hn::LoadU(d, from + i); };
    };
    const auto note = [=](auto d, int64_t i, auto is_hit) LZ_INLINE_LAMBDA {
      const hn::RebindToSigned<decltype(d)> di;
      const auto ones = hn::VecFromMask(di, hn::RebindMask(di, is_hit));
      hn::StoreU(hn::Sub(hn::LoadU(di, counts + i), ones), di, counts + i);
    };
    const auto run = [&](auto is_streaming) LZ_INLINE_LAMBDA {
      each_vector<is_streaming()>(static_cast<const T*>(x), n, static_cast<T*>(to), each(extremes),
                                  each(hits), each(misses), note);
    };
    return streaming ? run(truth<true>()) : run(truth<false>());
  }
  count_columns<T>(x, n, extremes, counts);
  write_columns<T>(x, n, extremes, hits, misses, to, streaming);
}

template <class T>
constexpr void fill(ExtremesTable& table, int dtype) {
  table.count[dtype] = count<T>;
  table.write[dtype] = write<T>;
  table.count_columns[dtype] = count_columns<T>;
  table.write_columns[dtype] = write_columns<T>;
  table.count_and_write[dtype] = count_and_write<T>;
  table.count_and_write_columns[dtype] = count_and_write_columns<T>;
}

constexpr ExtremesTable make_table() {
  ExtremesTable table{};
  fill<float16>(table, kFloat16);
  fill<bfloat16>(table, kBfloat16);
  fill<float>(table, kFloat32);
  fill<double>(table, kFloat64);
  return table;
}

}  // namespace

const ExtremesTable& extremes_table() {
  static constexpr ExtremesTable table = make_table();
  return table;
}

}  // namespace lazuli::LZ_TARGET
HWY_AFTER_NAMESPACE();
