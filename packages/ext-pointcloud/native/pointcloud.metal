// The Metal kernels. Positions may be integers of any dtype: a first kernel makes them 32 bits, and those out
// of bounds NOWHERE, whose products are left out. Results do not depend on the order in which threads run.
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

// Products by the row of the result: those of row r are order[starts[r]] … order[starts[r + 1] - 1].

struct Products {
  uint count;  // of products
  uint rows;
  uint groups;
  uint height;
  uint width;
};

kernel void clear(device uint* counts [[buffer(0)]], uint i [[thread_position_in_grid]]) { counts[i] = 0; }

inline bool is_taken(uint t, const device uint* left, const device uint* right, const device uint* rows) {
  return left[t] != NOWHERE && right[t] != NOWHERE && rows[t] != NOWHERE;
}

kernel void count(const device uint* left [[buffer(0)]], const device uint* right [[buffer(1)]],
                  const device uint* rows [[buffer(2)]], device atomic_uint* counts [[buffer(3)]],
                  uint t [[thread_position_in_grid]]) {
  if (is_taken(t, left, right, rows)) atomic_fetch_add_explicit(&counts[rows[t]], 1u, memory_order_relaxed);
}

/* Sums of the counts before each row, by one threadgroup: each thread takes a run of rows. */
kernel void starts(const device uint* counts [[buffer(0)]], device uint* starts [[buffer(1)]],
                   device uint* next [[buffer(2)]], constant Products& sizes [[buffer(3)]],
                   uint at [[thread_position_in_threadgroup]], uint threads [[threads_per_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {
  threadgroup uint sums[32];
  uint each = (sizes.rows + threads - 1) / threads;
  uint from = min(at * each, sizes.rows), to = min(from + each, sizes.rows);
  uint sum = 0;
  for (uint r = from; r < to; r++) sum += counts[r];
  uint before = simd_prefix_exclusive_sum(sum);
  if (lane == 31) sums[simd] = before + sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0; i < simd; i++) before += sums[i];
  for (uint r = from; r < to; r++) {
    starts[r] = before;
    next[r] = before;
    before += counts[r];
  }
  if (at == threads - 1) starts[sizes.rows] = before;
}

kernel void fill(const device uint* left [[buffer(0)]], const device uint* right [[buffer(1)]],
                 const device uint* rows [[buffer(2)]], device atomic_uint* next [[buffer(3)]],
                 device uint* order [[buffer(4)]], uint t [[thread_position_in_grid]]) {
  if (is_taken(t, left, right, rows))
    order[atomic_fetch_add_explicit(&next[rows[t]], 1u, memory_order_relaxed)] = t;
}

/* The products of a row in their own order, which atomic operations do not keep: a heap sort, one thread a
 * row. */
inline void sift(device uint* list, uint root, uint size) {
  for (uint child = 2 * root + 1; child < size; child = 2 * root + 1) {
    if (child + 1 < size && list[child] < list[child + 1]) child++;
    if (list[root] >= list[child]) return;
    uint held = list[root];
    list[root] = list[child];
    list[child] = held;
    root = child;
  }
}
/* A simdgroup a row: short lists by counting what is less than each, long ones by a heap in their place. */
constant uint COUNTED = 2048;
kernel void sort(const device uint* starts [[buffer(0)]], device uint* unsorted [[buffer(1)]],
                 device uint* order [[buffer(2)]], uint at [[thread_position_in_grid]],
                 uint lane [[thread_index_in_simdgroup]]) {
  uint r = at / 32, first = starts[r], size = starts[r + 1] - first;
  device uint* list = unsorted + first;
  if (size > COUNTED && lane == 0) {
    for (uint root = size / 2; root > 0; root--) sift(list, root - 1, size);
    for (uint last = size - 1; last > 0; last--) {
      uint held = list[0];
      list[0] = list[last];
      list[last] = held;
      sift(list, 0, last);
    }
    for (uint i = 0; i < size; i++) order[first + i] = list[i];
  }
  if (size > COUNTED) return;
  for (uint i = lane; i < size; i += 32) {
    uint t = list[i], rank = 0;
    for (uint j = 0; j < size; j++) rank += list[j] < t ? 1 : 0;
    order[first + rank] = t;
  }
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
                 const device uint* left [[buffer(2)]], const device uint* right [[buffer(3)]],
                 const device uint* starts [[buffer(4)]], const device uint* order [[buffer(5)]],
                 device T* out [[buffer(6)]], constant Products& sizes [[buffer(7)]],
                 uint at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  uint cell = WIDE ? at / 32 : at, width = sizes.width;
  uint cells = sizes.groups * sizes.height, row = cell / cells, g = cell % cells / sizes.height;
  float sum = 0.0f, error = 0.0f;
  for (uint n = starts[row]; n < starts[row + 1]; n++) {
    uint t = order[n];
    const device T* x = a + (ulong(left[t]) * cells + cell % cells) * width;
    const device T* y = b + (ulong(right[t]) * sizes.groups + g) * width;
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

/* out[row, g, m, c] = Σ x[i, g, m] · b[j, g, c] */
template <typename T>
kernel void vvor(const device T* x [[buffer(0)]], const device T* b [[buffer(1)]],
                 const device uint* left [[buffer(2)]], const device uint* right [[buffer(3)]],
                 const device uint* starts [[buffer(4)]], const device uint* order [[buffer(5)]],
                 device T* out [[buffer(6)]], constant Products& sizes [[buffer(7)]],
                 uint at [[thread_position_in_grid]]) {
  uint c = at % sizes.width, cell = at / sizes.width;
  uint cells = sizes.groups * sizes.height, row = cell / cells, g = cell % cells / sizes.height;
  float sum = 0.0f, error = 0.0f;
  for (uint n = starts[row]; n < starts[row + 1]; n++) {
    uint t = order[n];
    float scale = float(x[ulong(left[t]) * cells + cell % cells]);
    add(sum, error, scale * float(b[(ulong(right[t]) * sizes.groups + g) * sizes.width + c]));
  }
  out[at] = T(sum);
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
