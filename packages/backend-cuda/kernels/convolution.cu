/* Convolutions of float32 images on tensor cores by three products of halves, whose error is that of float32 (see attention-tiles.cu): a
 * product of the images' patches and the kernels. A block has 128 locations and 64 outputs, 32 and 64 to each of its 4 warps, and goes
 * through taps and channels 32 at a time. Channels are a multiple of 32, and taps at most 32. */
#define LZ_KERNELS
#include "tensor-core.cuh"

constexpr int LOCATIONS = 128, OUTPUTS = 64, DEPTH = 32, THREADS = 128, STAGES = 3;
constexpr int CHUNKS = DEPTH / 4, EACH = THREADS / CHUNKS;
constexpr int STAGE = (LOCATIONS + OUTPUTS) * DEPTH;

/* Of images with channels last, kernels by outputs, rows, columns and channels; `flips` reads them backwards. */
struct Work {
  int images[3], kernel[2], results[2], padding[2], stride[2], dilation[2], outputs, flips;
};

/* Chunks of 16 bytes are permuted within the eight of a row. */
inline int location(int row, int chunk) { return row * DEPTH + ((chunk ^ (row & 7)) << 2); }

/* Splits floats where they are; `low` is what is left of them. */
inline void split(u32 (&high)[4], u32 (&low)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const Split s = split(float_from(high[i]));
    high[i] = s.high, low[i] = s.low;
  }
}

/* An element by itself, where halves of ∞ would have given no number. */
__attribute__((noinline)) float exact(const float* x, const float* w, const Work& s, int place, int output) {
  const int across = place % s.results[1], down = place / s.results[1] % s.results[0], image = place / (s.results[0] * s.results[1]);
  const int channels = s.images[2];
  float sum = 0.0f;
  for (int i = 0; i < s.kernel[0]; i++)
    for (int j = 0; j < s.kernel[1]; j++) {
      const int row = down * s.stride[0] - s.padding[0] + i * s.dilation[0];
      const int column = across * s.stride[1] - s.padding[1] + j * s.dilation[1];
      if (row < 0 || row >= s.images[0] || column < 0 || column >= s.images[1]) continue;
      const float* from = x + ((long long)(image * s.images[0] + row) * s.images[1] + column) * channels;
      const int taps = s.kernel[0] * s.kernel[1], tap = i * s.kernel[1] + j;
      const float* by = w + ((long long)output * taps + (s.flips ? taps - 1 - tap : tap)) * channels;
      for (int c = 0; c < channels; c++) sum += from[c] * by[c];
    }
  return sum;
}

extern "C" __global__ void __launch_bounds__(128) convolve(const float* x, const float* w, float* y,
                                                           const __grid_constant__ Work s,
                                                           const __grid_constant__ int places) {
  extern __shared__ float arena[];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32, g = lane / 4, t = lane % 4;
  const int first = int(blockIdx.x) * LOCATIONS, first_output = int(blockIdx.y) * OUTPUTS;
  const int taps = s.kernel[0] * s.kernel[1], channels = s.images[2];
  const int row = int(threadIdx.x) / CHUNKS, chunk = int(threadIdx.x) % CHUNKS;

  /* Of the thread's rows: where the patch begins, and which taps are within the image. */
  const float* from[LOCATIONS / EACH];
  u32 within[LOCATIONS / EACH];
#pragma unroll
  for (int j = 0; j < LOCATIONS / EACH; j++) {
    const int place = first + row + j * EACH;
    const int across = place % s.results[1], down = place / s.results[1] % s.results[0], image = place / (s.results[0] * s.results[1]);
    const int top = down * s.stride[0] - s.padding[0], left = across * s.stride[1] - s.padding[1];
    from[j] = x + ((long long)(image * s.images[0] + top) * s.images[1] + left) * channels + chunk * 4;
    within[j] = 0;
    for (int tap = 0; tap < taps; tap++) {
      const int i = top + tap / s.kernel[1] * s.dilation[0], k = left + tap % s.kernel[1] * s.dilation[1];
      if (place < places && i >= 0 && i < s.images[0] && k >= 0 && k < s.images[1]) within[j] |= 1u << tap;
    }
  }
  const float* by = w + (long long)(first_output + row) * taps * channels + chunk * 4;
  const long long next_output = (long long)EACH * taps * channels;
  const Shared to = shared_address(arena + location(row, chunk));

  /* The next to be brought. */
  int tap = 0, channel = 0;
  auto bring = [&](int stage) {
    if (tap < taps) {
      const long long step =
          ((long long)(tap / s.kernel[1] * s.dilation[0]) * s.images[1] + tap % s.kernel[1] * s.dilation[1]) * channels + channel;
      const Shared at = to + stage * STAGE * 4;
      const int side = (s.flips ? taps - 1 - tap : tap) * channels + channel;
#pragma unroll
      for (int j = 0; j < LOCATIONS / EACH; j++) {
        const bool there = within[j] >> tap & 1;
        copy_ahead(at + j * EACH * DEPTH * 4, there ? from[j] + step : x, there);
      }
#pragma unroll
      for (int j = 0; j < OUTPUTS / EACH; j++) {
        const bool there = first_output + row + j * EACH < s.outputs;
        copy_ahead(at + (LOCATIONS + j * EACH) * DEPTH * 4, there ? by + j * next_output + side : w, there);
      }
      channel += DEPTH;
      if (channel == channels) channel = 0, tap++;
    }
    commit_copies();
  };

  float c[2][OUTPUTS / 8][4] = {};
  const int blocks = taps * channels / DEPTH;
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; stage++) bring(stage);
  const int mi = lane / 8, r8 = lane % 8;
  for (int block = 0, stage = 0; block < blocks; block++, stage = stage + 1 == STAGES ? 0 : stage + 1) {
    wait_for_copies<STAGES - 2>();
    __syncthreads();
    bring(stage == 0 ? STAGES - 1 : stage - 1);
    const float *a = arena + stage * STAGE, *b = a + LOCATIONS * DEPTH;
/* Tensor cores round towards zero, so that long sums are added outside. */
    float sum[2][OUTPUTS / 8][4];
#pragma unroll
    for (int k = 0; k < DEPTH / 8; k++) {
      u32 high[2][4], low[2][4];
#pragma unroll
      for (int m = 0; m < 2; m++) {
        load_matrices(high[m], shared_address(a + location(warp * 32 + m * 16 + (mi & 1) * 8 + r8, 2 * k + mi / 2)));
        split(high[m], low[m]);
      }
#pragma unroll
      for (int n = 0; n < OUTPUTS / 16; n++) {
        u32 right[4], rest[4];
        load_matrices(right, shared_address(b + location(n * 16 + mi / 2 * 8 + r8, 2 * k + (mi & 1))));
        split(right, rest);
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
          for (int i = 0; i < 2; i++) {
            float(&each)[4] = sum[m][2 * n + i];
            if (k == 0) multiply_first(each, low[m], right[2 * i], right[2 * i + 1]);
            else multiply_short(each, low[m], right[2 * i], right[2 * i + 1]);
            multiply_short(each, high[m], rest[2 * i], rest[2 * i + 1]);
            multiply_short(each, high[m], right[2 * i], right[2 * i + 1]);
          }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
      for (int n = 0; n < OUTPUTS / 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) c[m][n][e] += sum[m][n][e];
  }

#pragma unroll
  for (int m = 0; m < 2; m++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int place = first + warp * 32 + m * 16 + r * 8 + g;
      if (place >= places) continue;
      float* line = y + (long long)place * s.outputs + first_output + 2 * t;
#pragma unroll
      for (int n = 0; n < OUTPUTS / 8; n++) {
        struct alignas(8) Pair {
          float x[2];
        } pair;
        const int output = first_output + n * 8 + 2 * t;
        if (output >= s.outputs) continue;
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float& sum = pair.x[i];
          sum = c[m][n][2 * r + i];
          if (!(sum - sum == 0.0f)) sum = exact(x, w, s, place, output + i);
        }
        *(Pair*)(line + n * 8) = pair;
      }
    }
}
