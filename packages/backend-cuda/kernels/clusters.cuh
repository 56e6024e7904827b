/* Blocks of a cluster (Hopper), which LZ_SPLITS neighbours of the grid form: each leaves numbers in the shared memory of others, whose barrier
 * counts their bytes. The test double runs one block after another: there what is left for each has a place of its own, and the last block
 * does what is left to do for all. */
#pragma once
#include "bulk-copies.cuh"

constexpr int SPLITS = LZ_SPLITS;

#ifdef __CUDA_ARCH__

/* The place of what is left for a block of the cluster. */
template <class T>
inline T& place_of(T& own, int) {
  return own;
}
inline int rank_of_block() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
}
/* Says that this block has begun and expects so many bytes; `await_blocks` waits until all have. */
inline void begin_block(u64* barrier, int bytes) {
  if (threadIdx.x == 0) {
    begin_barrier(shared_address(barrier), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  /* One lane does both; racecheck takes the first for another's, since a warp's instruction does it. */
  __syncwarp();
  if (threadIdx.x == 0) expect_bytes(shared_address(barrier), bytes);
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
inline void await_blocks() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
inline Shared shared_of(int rank, const void* at) {
  Shared there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(at)), "r"(rank));
  return there;
}
/* Leaves numbers for a block at its own `at`. */
template <int N>
inline void leave_for(int rank, float* at, const float (&x)[N], u64* barrier) {
  static_assert(N % 2 == 0, "two or four are written at once");
  const Shared there = shared_of(rank, at), is_there = shared_of(rank, barrier);
#pragma unroll
  for (int i = 0; i < N; i += N % 4 == 0 ? 4 : 2)
    if (N % 4 == 0)
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there + 4 * i), "f"(x[i]),
                   "f"(x[i + 1]), "f"(x[(i + 2) % N]), "f"(x[(i + 3) % N]), "r"(is_there)
                   : "memory");
    else
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(there + 4 * i), "f"(x[i]), "f"(x[i + 1]),
                   "r"(is_there)
                   : "memory");
}
/* Waits until all is there that is left for this block; then `then` is for each rank that is this block's to do. */
template <class Then>
inline void after_all(u64* barrier, Then then) {
  await_full(shared_address(barrier), 0);
  then(rank_of_block());
}

#else

template <class T>
inline T& place_of(T&, int rank) {
  static T places[SPLITS];
  return places[rank];
}
inline int rank_of_block() { return int(blockIdx.x) % SPLITS; }
inline void begin_block(u64*, int) {}
inline void await_blocks() {}
template <int N>
inline void leave_for(int, float* at, const float (&x)[N], u64*) {
  memcpy(at, x, sizeof x);
}
template <class Then>
inline void after_all(u64*, Then then) {
  static int left = 0;
  __syncthreads();
  if (threadIdx.x == 0) left++;
  __syncthreads();
  if (left % SPLITS != 0) return;
  for (int rank = 0; rank < SPLITS; rank++) then(rank);
}

#endif
