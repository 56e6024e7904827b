// The Metal kernels. Positions may be integers of any dtype: a first kernel makes those of other sizes 32
// bits, where negative ones are too large. Products with one out of bounds are left out. Results do not
// depend on the order in which threads run.
#include <metal_stdlib>
using namespace metal;

constant uint NOWHERE = 0xffffffffu;

template <typename T>
kernel void positions(const device T* from [[buffer(0)]], device uint* to [[buffer(1)]],
                      constant uint& size [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  T p = from[i];
  to[i] = p >= T(0) && ulong(p) < ulong(size) ? uint(p) : NOWHERE;
}
#define POSITIONS(name, type) \
  template [[host_name("positions_" name)]] [[kernel]] decltype(positions<type>) positions<type>;
POSITIONS("uint8", uchar)
POSITIONS("uint16", ushort)
POSITIONS("uint32", uint)
POSITIONS("uint64", ulong)
POSITIONS("int8", char)
POSITIONS("int16", short)
POSITIONS("int32", int)
POSITIONS("int64", long)

// Products by the row of the result: those of row r are pairs[starts[r]] … pairs[starts[r + 1] - 1], each the
// rows of both operands, in the products' own order.

struct Products {
  uint count;  // of products
  uint rows;
  uint groups;
  uint height;
  uint width;
  uint threads;  // of a row of vvor
  uint lefts;    // rows of the operands
  uint rights;
};

kernel void clear(device uint* counts [[buffer(0)]], uint i [[thread_position_in_grid]]) { counts[i] = 0; }

inline bool is_taken(uint t, const device uint* left, const device uint* right, const device uint* rows,
                     constant Products& sizes) {
  return left[t] < sizes.lefts && right[t] < sizes.rights && rows[t] < sizes.rows;
}

/* The products of each row, and for each product how many of its row came before it, in no fixed order. */
kernel void count(const device uint* left [[buffer(0)]], const device uint* right [[buffer(1)]],
                  const device uint* rows [[buffer(2)]], device atomic_uint* counts [[buffer(3)]],
                  device uint* arrivals [[buffer(4)]], constant Products& sizes [[buffer(5)]],
                  uint t [[thread_position_in_grid]]) {
  if (is_taken(t, left, right, rows, sizes))
    arrivals[t] = atomic_fetch_add_explicit(&counts[rows[t]], 1u, memory_order_relaxed);
}

/* Sums of the counts before each row: first those of blocks of rows, a threadgroup each. */
constant uint SCANNED = 8;  // rows of a thread
inline uint sum_of_group(uint x, threadgroup uint* sums, uint lane, uint simd, uint simds) {
  uint sum = simd_sum(x);
  if (lane == 0) sums[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = 0;
  for (uint i = 0; i < simds; i++) sum += sums[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return sum;
}
kernel void blocks(const device uint* counts [[buffer(0)]], device uint* sums [[buffer(1)]],
                   constant Products& sizes [[buffer(2)]], uint group [[threadgroup_position_in_grid]],
                   uint at [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint shared[32];
  uint sum = 0;
  for (uint i = 0; i < SCANNED; i++) {
    uint r = (group * SCANNED + i) * threads + at;
    if (r < sizes.rows) sum += counts[r];
  }
  sum = sum_of_group(sum, shared, lane, simd, threads / 32);
  if (at == 0) sums[group] = sum;
}
kernel void starts(const device uint* counts [[buffer(0)]], const device uint* sums [[buffer(1)]],
                   device uint* starts [[buffer(2)]], constant Products& sizes [[buffer(3)]],
                   uint group [[threadgroup_position_in_grid]], uint at [[thread_position_in_threadgroup]],
                   uint threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                   uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint shared[32];
  uint before = 0;
  for (uint i = at; i < group; i += threads) before += sums[i];
  before = sum_of_group(before, shared, lane, simd, threads / 32);
  uint from = (group * threads + at) * SCANNED, sum = 0;
  for (uint r = from; r < min(from + SCANNED, sizes.rows); r++) sum += counts[r];
  uint mine = simd_prefix_exclusive_sum(sum);
  if (lane == 31) shared[simd] = mine + sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0; i < simd; i++) before += shared[i];
  before += mine;
  for (uint r = from; r < min(from + SCANNED, sizes.rows); r++) {
    starts[r] = before;
    before += counts[r];
    if (r + 1 == sizes.rows) starts[r + 1] = before;
  }
}

kernel void fill(const device uint* left [[buffer(0)]], const device uint* right [[buffer(1)]],
                 const device uint* rows [[buffer(2)]], const device uint* starts [[buffer(3)]],
                 const device uint* arrivals [[buffer(4)]], device uint* list [[buffer(5)]],
                 constant Products& sizes [[buffer(6)]], uint t [[thread_position_in_grid]]) {
  if (is_taken(t, left, right, rows, sizes)) list[starts[rows[t]] + arrivals[t]] = t;
}

/* The products of a row in their own order, which atomic operations do not keep: those of a part of its list
   by counting what is less than each, then each part among the others. A thread has a place in the list, so
   that neighbours read the same. */
constant uint PART = 1024;
kernel void parts(const device uint* rows [[buffer(0)]], const device uint* starts [[buffer(1)]],
                  const device uint* list [[buffer(2)]], device uint* sorted [[buffer(3)]],
                  constant Products& sizes [[buffer(4)]], uint at [[thread_position_in_grid]]) {
  if (at >= starts[sizes.rows]) return;
  uint t = list[at], row = rows[t], first = starts[row];
  uint begin = first + (at - first) / PART * PART, end = min(begin + PART, starts[row + 1]), rank = 0;
  for (uint i = begin; i < end; i++) rank += list[i] < t ? 1 : 0;
  sorted[begin + rank] = t;
}
kernel void pairs(const device uint* rows [[buffer(0)]], const device uint* starts [[buffer(1)]],
                  const device uint* sorted [[buffer(2)]], const device uint* left [[buffer(3)]],
                  const device uint* right [[buffer(4)]], device uint2* pairs [[buffer(5)]],
                  constant Products& sizes [[buffer(6)]], uint at [[thread_position_in_grid]]) {
  if (at >= starts[sizes.rows]) return;
  uint t = sorted[at], row = rows[t], first = starts[row], last = starts[row + 1];
  uint own = first + (at - first) / PART * PART, rank = at - own;
  for (uint begin = first; begin < last; begin += PART) {
    if (begin == own) continue;
    uint low = begin, high = min(begin + PART, last);
    while (low < high) {
      uint middle = (low + high) / 2;
      if (sorted[middle] < t)
        low = middle + 1;
      else
        high = middle;
    }
    rank += low - begin;
  }
  pairs[first + rank] = uint2(left[t], right[t]);
}

/* Adds to a sum whose rounding errors are kept beside it, so that they do not grow with the length. */
inline void add(thread float& sum, thread float& error, float x) {
  float y = x - error, total = sum + y;
  float rest = (total - sum) - y;
  // Of what is not finite the errors are nothing.
  error = isfinite(total) ? rest : 0.0f;
  sum = total;
}

/* A simdgroup an element where the matrices are wide, a thread where they are narrow. */
constant bool WIDE [[function_constant(0)]];

/* out[row, g, m] = Σ a[i, g, m, :] · b[j, g, :] */
template <typename T>
kernel void mvmr(const device T* a [[buffer(0)]], const device T* b [[buffer(1)]],
                 const device uint* starts [[buffer(2)]], const device uint2* pairs [[buffer(3)]],
                 device T* out [[buffer(4)]], constant Products& sizes [[buffer(5)]],
                 uint at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  uint cell = WIDE ? at / 32 : at, width = sizes.width;
  uint cells = sizes.groups * sizes.height, row = cell / cells, g = cell % cells / sizes.height;
  uint first = starts[row], last = starts[row + 1];
  float sum = 0.0f, error = 0.0f;
  uint2 pair = first < last ? pairs[first] : uint2(0, 0);
  for (uint n = first; n < last; n++) {
    const device T* x = a + (ulong(pair.x) * cells + cell % cells) * width;
    const device T* y = b + (ulong(pair.y) * sizes.groups + g) * width;
    // Known before the products that it comes after.
    if (n + 1 < last) pair = pairs[n + 1];
    float product = 0.0f;
    for (uint c = WIDE ? lane : 0; c < width; c += WIDE ? 32 : 1) product += float(x[c]) * float(y[c]);
    add(sum, error, product);
  }
  if (WIDE) {
    sum = simd_sum(sum);
    if (lane == 0) out[cell] = T(sum);
  } else
    out[cell] = T(sum);
}
template [[host_name("mvmr_float32")]] [[kernel]] decltype(mvmr<float>) mvmr<float>;
template [[host_name("mvmr_float16")]] [[kernel]] decltype(mvmr<half>) mvmr<half>;
template [[host_name("mvmr_bfloat16")]] [[kernel]] decltype(mvmr<bfloat>) mvmr<bfloat>;

/* out[row, g, m, c] = Σ x[i, g, m] · b[j, g, c]; the threads of a row take turns at its elements. */
template <typename T>
kernel void vvor(const device T* x [[buffer(0)]], const device T* b [[buffer(1)]],
                 const device uint* starts [[buffer(2)]], const device uint2* pairs [[buffer(3)]],
                 device T* out [[buffer(4)]], constant Products& sizes [[buffer(5)]],
                 uint at [[thread_position_in_grid]]) {
  uint height = sizes.height, width = sizes.width, cells = sizes.groups * height, size = cells * width;
  uint row = at / sizes.threads, i = at % sizes.threads;
  uint c = i % width, m = i / width % height, g = i / width / height;
  // From one of a thread's elements to the next, without divisions.
  uint over_c = sizes.threads % width, over_m = sizes.threads / width % height;
  uint over_g = sizes.threads / width / height;
  uint first = starts[row], last = starts[row + 1];
  uint2 head = first < last ? pairs[first] : uint2(0, 0);
  for (; i < size; i += sizes.threads) {
    float sum = 0.0f, error = 0.0f;
    for (uint n = first; n < last; n++) {
      uint2 pair = n == first ? head : pairs[n];
      float scale = float(x[ulong(pair.x) * cells + g * height + m]);
      add(sum, error, scale * float(b[(ulong(pair.y) * sizes.groups + g) * width + c]));
    }
    out[ulong(row) * size + i] = T(sum);
    c += over_c, m += over_m, g += over_g;
    if (c >= width) c -= width, m++;
    if (m >= height) m -= height, g++;
  }
}
template [[host_name("vvor_float32")]] [[kernel]] decltype(vvor<float>) vvor<float>;
template [[host_name("vvor_float16")]] [[kernel]] decltype(vvor<half>) vvor<half>;
template [[host_name("vvor_bfloat16")]] [[kernel]] decltype(vvor<bfloat>) vvor<bfloat>;

// Squared distances as two floats, the second of which is what the first rounds away: some 48 bits, so that
// points are told apart almost as the double of other platforms does.

inline float2 square_of_difference(float p, float q) {
  float d = p - q, back = d - p;
  float rest = (p - (d - back)) - (q + back);
  float square = d * d;
  return float2(square, fma(d, d, -square) + 2.0f * d * rest);
}
inline float2 plus(float2 a, float2 b) {
  float sum = a.x + b.x, back = sum - a.x;
  float rest = (a.x - (sum - back)) + (b.x - back) + a.y + b.y;
  float total = sum + rest;
  if (!isfinite(total)) return float2(sum, 0.0f);
  return float2(total, rest - (total - sum));
}
inline bool is_less(float2 a, float2 b) { return a.x < b.x || (a.x == b.x && a.y < b.y); }

template <typename T>
inline float2 squared_distance(const device T* p, const device T* q, uint width) {
  float2 sum = float2(0.0f);
  for (uint axis = 0; axis < width; axis++)
    sum = plus(sum, square_of_difference(float(p[axis]), float(q[axis])));
  return sum;
}

struct Pairs {
  uint width;
  uint lefts;  // points of both operands
  uint rights;
};
/* In the order of the primitive's metrics: euclidean, squared, cosine. */
constant uint METRIC [[function_constant(2)]];

/* Distances of chosen pairs; NaN for a position out of bounds, since a kernel cannot refuse it. */
template <typename T>
kernel void distances(const device T* x [[buffer(0)]], const device T* y [[buffer(1)]],
                      const device uint* left [[buffer(2)]], const device uint* right [[buffer(3)]],
                      device T* out [[buffer(4)]], constant Pairs& sizes [[buffer(5)]],
                      uint t [[thread_position_in_grid]]) {
  if (left[t] >= sizes.lefts || right[t] >= sizes.rights) {
    out[t] = T(NAN);
    return;
  }
  const device T* p = x + ulong(left[t]) * sizes.width;
  const device T* q = y + ulong(right[t]) * sizes.width;
  float sum = 0.0f, pp = 0.0f, qq = 0.0f;
  for (uint axis = 0; axis < sizes.width; axis++) {
    float a = float(p[axis]), b = float(q[axis]);
    if (METRIC == 2) {
      sum += a * b;
      pp += a * a;
      qq += b * b;
    } else
      sum += (a - b) * (a - b);
  }
  // 1 where a point is at the origin.
  if (METRIC == 2) sum = pp == 0.0f || qq == 0.0f ? 1.0f : 1.0f - sum / precise::sqrt(pp) / precise::sqrt(qq);
  out[t] = T(METRIC == 0 ? precise::sqrt(sum) : sum);
}
template [[host_name("distances_float32")]] [[kernel]] decltype(distances<float>) distances<float>;
template [[host_name("distances_float16")]] [[kernel]] decltype(distances<half>) distances<half>;
template [[host_name("distances_bfloat16")]] [[kernel]] decltype(distances<bfloat>) distances<bfloat>;

/* The cloud of a row: the last that begins at it or before. Offsets that do not fit are cut to the rows,
   since a kernel cannot refuse them. */
inline uint cloud_of(uint row, const device uint* offsets, uint clouds) {
  uint low = 0, high = clouds;
  while (low + 1 < high) {
    uint middle = (low + high) / 2;
    if (offsets[middle] <= row)
      low = middle;
    else
      high = middle;
  }
  return low;
}

struct Search {
  uint points;
  uint queries;
  uint width;
  uint clouds;
  uint k;
  float radius;  // squared, with what it rounds away
  float rest;
};
/* The nearest points first; otherwise the first ones in the ball. */
constant bool NEAREST [[function_constant(1)]];

template <typename T>
kernel void neighbours(const device T* points [[buffer(0)]], const device T* queries [[buffer(1)]],
                       const device uint* offsets [[buffer(2)]], const device uint* of_queries [[buffer(3)]],
                       device float2* distances [[buffer(4)]], device int* out [[buffer(5)]],
                       constant Search& sizes [[buffer(6)]], uint query [[thread_position_in_grid]]) {
  uint cloud = cloud_of(query, of_queries, sizes.clouds), k = sizes.k, found = 0;
  uint first = min(offsets[cloud], sizes.points), last = min(offsets[cloud + 1], sizes.points);
  float2 most = float2(sizes.radius, sizes.rest);
  const device T* q = queries + ulong(query) * sizes.width;
  device float2* best = distances + ulong(query) * k;
  device int* positions = out + ulong(query) * k;
  for (uint p = first; p < last && (NEAREST || found < k); p++) {
    float2 d = squared_distance(points + ulong(p) * sizes.width, q, sizes.width);
    // A distance that is NaN is no distance.
    if (!(is_less(d, most) || (d.x == most.x && d.y == most.y))) continue;
    if (!NEAREST) {
      positions[found++] = int(p);
      continue;
    }
    if (found == k && !is_less(d, best[k - 1])) continue;
    uint rank = found < k ? found++ : k - 1;
    for (; rank > 0 && is_less(d, best[rank - 1]); rank--) {
      best[rank] = best[rank - 1];
      positions[rank] = positions[rank - 1];
    }
    best[rank] = d;
    positions[rank] = int(p);
  }
  for (uint i = found; i < k; i++) positions[i] = -1;
}
template [[host_name("neighbours_float32")]] [[kernel]] decltype(neighbours<float>) neighbours<float>;
template [[host_name("neighbours_float16")]] [[kernel]] decltype(neighbours<half>) neighbours<half>;
template [[host_name("neighbours_bfloat16")]] [[kernel]] decltype(neighbours<bfloat>) neighbours<bfloat>;

/* The nearest of up to 32 points: a simdgroup a query, whose lanes look at points side by side and hold one
   of the nearest each, in order. */
template <typename T>
kernel void nearest(const device T* points [[buffer(0)]], const device T* queries [[buffer(1)]],
                    const device uint* offsets [[buffer(2)]], const device uint* of_queries [[buffer(3)]],
                    device int* out [[buffer(4)]], constant Search& sizes [[buffer(5)]],
                    uint at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  uint query = at / 32, cloud = cloud_of(query, of_queries, sizes.clouds), k = sizes.k, found = 0;
  uint first = min(offsets[cloud], sizes.points), last = min(offsets[cloud + 1], sizes.points);
  const device T* q = queries + ulong(query) * sizes.width;
  float2 most = float2(sizes.radius, sizes.rest), best = float2(INFINITY, 0.0f);
  int position = -1;
  for (uint block = first; block < last; block += 32) {
    uint p = block + lane;
    float2 d = float2(NAN, 0.0f);
    if (p < last) d = squared_distance(points + ulong(p) * sizes.width, q, sizes.width);
    bool near = is_less(d, most) || (found < k && d.x == most.x && d.y == most.y);
    uint left = uint(ulong(simd_ballot(near)));
    // In the order of the points: of equally near ones the first stays in front.
    while (left != 0) {
      ushort from = ushort(ctz(left));
      left &= left - 1;
      float2 next = float2(simd_broadcast(d.x, from), simd_broadcast(d.y, from));
      if (found == k && !is_less(next, most)) continue;
      uint rank = popcount(uint(ulong(simd_ballot(lane < found && !is_less(next, best)))));
      float2 before = float2(simd_shuffle_up(best.x, 1), simd_shuffle_up(best.y, 1));
      int position_before = simd_shuffle_up(position, 1);
      if (lane > rank) best = before, position = position_before;
      if (lane == rank) best = next, position = int(block + from);
      if (found < k) found++;
      // Once there are k, the farthest of them is as far as a point may be.
      if (found == k)
        most = float2(simd_broadcast(best.x, ushort(k - 1)), simd_broadcast(best.y, ushort(k - 1)));
    }
  }
  if (lane < k) out[ulong(query) * k + lane] = lane < found ? position : -1;
}
template [[host_name("nearest_float32")]] [[kernel]] decltype(nearest<float>) nearest<float>;
template [[host_name("nearest_float16")]] [[kernel]] decltype(nearest<half>) nearest<half>;
template [[host_name("nearest_bfloat16")]] [[kernel]] decltype(nearest<bfloat>) nearest<bfloat>;

/* A threadgroup a cloud: each thread keeps the distances of its points to those that were chosen. */
template <typename T>
kernel void farthest(const device T* points [[buffer(0)]], const device uint* offsets [[buffer(1)]],
                     device float2* far [[buffer(2)]], device int* out [[buffer(3)]],
                     constant Search& sizes [[buffer(4)]], uint cloud [[threadgroup_position_in_grid]],
                     uint at [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]]) {
  threadgroup float2 distance[256];
  threadgroup uint candidate[256];
  uint first = min(offsets[cloud], sizes.points), last = min(offsets[cloud + 1], sizes.points);
  uint size = last > first ? last - first : 0, chosen = 0;
  for (uint p = at; p < size; p += threads) far[first + p] = float2(INFINITY, 0.0f);
  for (uint i = 0; i < sizes.k; i++) {
    if (at == 0) out[ulong(cloud) * sizes.k + i] = i < size ? int(first + chosen) : -1;
    float2 most = float2(-1.0f, 0.0f);
    uint mine = NOWHERE;
    const device T* from = points + ulong(first + chosen) * sizes.width;
    for (uint p = at; i < size && p < size; p += threads) {
      float2 d = p == chosen ? float2(-1.0f, 0.0f)
                             : squared_distance(points + ulong(first + p) * sizes.width, from, sizes.width);
      if (is_less(d, far[first + p])) far[first + p] = d;
      if (is_less(most, far[first + p])) most = far[first + p], mine = p;
    }
    distance[at] = most;
    candidate[at] = mine;
    for (uint half_of = threads / 2; half_of > 0; half_of /= 2) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      // Of equally far points the first.
      if (at < half_of) {
        uint other = at + half_of;
        bool equal = distance[at].x == distance[other].x && distance[at].y == distance[other].y;
        if (is_less(distance[at], distance[other]) || (equal && candidate[other] < candidate[at])) {
          distance[at] = distance[other];
          candidate[at] = candidate[other];
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (candidate[0] != NOWHERE) chosen = candidate[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
template [[host_name("farthest_float32")]] [[kernel]] decltype(farthest<float>) farthest<float>;
template [[host_name("farthest_float16")]] [[kernel]] decltype(farthest<half>) farthest<half>;
template [[host_name("farthest_bfloat16")]] [[kernel]] decltype(farthest<bfloat>) farthest<bfloat>;
