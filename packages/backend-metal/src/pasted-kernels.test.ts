/**
 * Kernel bodies with the words, templates and attributes that published kernels for MLX use, each written anew for a task of its own,
 * against ordinary operations. It is long because each kernel is a text of its own.
 */
import { noise } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { onStream } from "@lazuli/core/engine"
import { expect, it, vi } from "vitest"
import { metalKernel } from "./index"

const TYPES = [
  [mx.float32, 1e-5],
  [mx.float16, 4e-3],
  [mx.bfloat16, 3e-2],
] as const

function agree(got: mx.Array, want: mx.Array, tolerance: number): void {
  const flat = (x: mx.Array): number[] => x.astype(mx.float32).flatten().tolist() as number[]
  const [a, b] = [flat(got), onStream("cpu", () => flat(want))]
  expect(got.shape).toEqual(want.shape)
  a.forEach((x, i) => {
    if (!(x === b[i] || Math.abs(x - b[i]) <= tolerance * (1 + Math.abs(b[i]))))
      expect.fail(`element ${i}: ${x} instead of ${b[i]}`)
  })
}
const wide = (x: mx.Array): mx.Array => x.astype(mx.float32)

const recurrence = metalKernel({
  name: "decaying_memory",
  inputNames: ["k", "v", "decay", "state_in", "T"],
  outputNames: ["y", "state_out"],
  source: `
    auto n = thread_position_in_grid.z;
    auto b_idx = n / H;
    auto h_idx = n % H;
    constexpr int n_per_t = Dk / 32;

    // k: [B, T, H, Dk], v and y: [B, T, H, Dv]
    auto k_ = k + b_idx * T * H * Dk + h_idx * Dk;
    auto v_ = v + b_idx * T * H * Dv + h_idx * Dv;
    y += b_idx * T * H * Dv + h_idx * Dv;

    auto dk_idx = thread_position_in_threadgroup.x;
    auto dv_idx = thread_position_in_grid.y;
    auto i_state = state_in + (n * Dv + dv_idx) * Dk;
    auto o_state = state_out + (n * Dv + dv_idx) * Dk;

    float state[n_per_t];
    for (int i = 0; i < n_per_t; ++i) {
      auto s_idx = n_per_t * dk_idx + i;
      state[i] = static_cast<float>(i_state[s_idx]);
    }
    auto A = -fast::exp(static_cast<float>(decay[h_idx]));
    for (int t = 0; t < T; ++t) {
      float seen = 0.0;
      for (int i = 0; i < n_per_t; ++i) {
        auto s_idx = n_per_t * dk_idx + i;
        state[i] = state[i] * fast::exp(A) + k_[s_idx] * v_[dv_idx];
        seen += state[i] * k_[s_idx];
      }
      seen = simd_sum(seen);
      if (thread_index_in_simdgroup == 0) {
        y[dv_idx] = static_cast<InT>(seen);
      }
      k_ += H * Dk;
      v_ += H * Dv;
      y += H * Dv;
    }
    for (int i = 0; i < n_per_t; ++i) {
      auto s_idx = n_per_t * dk_idx + i;
      o_state[s_idx] = static_cast<StT>(state[i]);
    }`,
})

it.each(TYPES)(
  "a recurrence with auto pointers, advanced outputs and a scalar input (%o)",
  (dtype, tolerance) => {
    const [B, T, H, Dk, Dv] = [2, 5, 2, 64, 6]
    const [k, v] = [noise([B, T, H, Dk], 1, dtype), noise([B, T, H, Dv], 2, dtype)]
    const [decay, state] = [noise([H], 3), noise([B, H, Dv, Dk], 4)]
    const [y, last] = recurrence({
      inputs: [k, v, decay, state, mx.array(T, mx.int32)],
      template: { InT: dtype, StT: mx.float32, Dk, Dv, H },
      grid: [32, Dv, B * H],
      threadgroup: [32, 2, 1],
      outputShapes: [v.shape, state.shape],
      outputDtypes: [dtype, mx.float32],
    })
    let s = state
    const rows: mx.Array[] = []
    const factor = mx.exp(mx.exp(decay).negative()).reshape([1, H, 1, 1])
    for (let t = 0; t < T; t++) {
      const [kt, vt] = [k, v].map((x) => wide(x).index(":", t))
      s = s.multiply(factor).add(vt.expandDims(-1).multiply(kt.expandDims(-2)))
      rows.push(s.multiply(kt.expandDims(-2)).sum(-1))
    }
    agree(y, mx.stack(rows, 1), tolerance)
    agree(last, s, tolerance)
  },
)

const divergence = metalKernel({
  name: "divergence",
  inputNames: ["logits_q", "logits_p"],
  outputNames: ["out"],
  source: `
    constexpr int M = 4;
    constexpr int block = 128 * M;
    constexpr int full_blocks = V / block;
    constexpr int extra = V - full_blocks * block;
    threadgroup float shared[4 * 2];
    uint out_idx = threadgroup_position_in_grid.y;
    uint simd_lane_id = thread_index_in_simdgroup;
    uint simd_group_id = simdgroup_index_in_threadgroup;

    logits_q += out_idx * V;
    logits_p += out_idx * V;
    out += out_idx;

    float lse_q;
    float lse_p;
    {
      float top_q = -1e30, top_p = -1e30;
      float sum_q = 0, sum_p = 0;
      int offset = thread_index_in_threadgroup * M;
      for (int i = 0; i < full_blocks + (extra > 0 ? 1 : 0); i++) {
        float q[M], p[M];
        for (int j = 0; j < M; j++) {
          q[j] = (offset + j < V) ? logits_q[offset + j] : -1e30;
          p[j] = (offset + j < V) ? logits_p[offset + j] : -1e30;
        }
        float prev_q = top_q, prev_p = top_p;
        for (int j = 0; j < M; j++) {
          top_q = max(top_q, q[j]);
          top_p = max(top_p, p[j]);
        }
        sum_q *= metal::fast::exp(prev_q - top_q);
        sum_p *= metal::fast::exp(prev_p - top_p);
        for (int j = 0; j < M; j++) {
          sum_q += metal::fast::exp(q[j] - top_q);
          sum_p += metal::fast::exp(p[j] - top_p);
        }
        offset += block;
      }
      float prev_q = top_q, prev_p = top_p;
      top_q = simd_max(top_q);
      top_p = simd_max(top_p);
      if (simd_lane_id == 0) {
        shared[simd_group_id * 2 + 0] = top_q;
        shared[simd_group_id * 2 + 1] = top_p;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      top_q = simd_max(shared[(simd_lane_id % 4) * 2 + 0]);
      top_p = simd_max(shared[(simd_lane_id % 4) * 2 + 1]);
      sum_q = simd_sum(sum_q * metal::fast::exp(prev_q - top_q));
      sum_p = simd_sum(sum_p * metal::fast::exp(prev_p - top_p));
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (simd_lane_id == 0) {
        shared[simd_group_id * 2 + 0] = sum_q;
        shared[simd_group_id * 2 + 1] = sum_p;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      sum_q = simd_sum(simd_lane_id < 4 ? shared[simd_lane_id * 2 + 0] : 0.0f);
      sum_p = simd_sum(simd_lane_id < 4 ? shared[simd_lane_id * 2 + 1] : 0.0f);
      lse_q = top_q + metal::fast::log(sum_q);
      lse_p = top_p + metal::fast::log(sum_p);
    }
    threadgroup_barrier(mem_flags::mem_none);
    float kl = 0;
    for (int i = thread_index_in_threadgroup; i < V; i += 128) {
      float p = logits_p[i];
      kl += metal::fast::exp(p - lse_p) * (p - lse_p - logits_q[i] + lse_q);
    }
    kl = simd_sum(kl);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd_lane_id == 0) shared[simd_group_id] = kl;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_index_in_threadgroup == 0)
      out[0] = static_cast<T>(shared[0] + shared[1] + shared[2] + shared[3]);`,
})

it.each(TYPES)(
  "a divergence of rows, with literals of no suffix and shared sums (%o)",
  (dtype, tolerance) => {
    for (const V of [1024, 1337]) {
      const [q, p] = [noise([3, V], 1, dtype).multiply(3), noise([3, V], 2, dtype).multiply(3)]
      const [kl] = divergence({
        inputs: [q, p],
        template: { T: mx.float32, V },
        grid: [128, 3, 1],
        threadgroup: [128, 1, 1],
        outputShapes: [[3]],
        outputDtypes: [mx.float32],
      })
      const logs = (x: mx.Array): mx.Array => wide(x).subtract(mx.logsumexp(wide(x), -1, true))
      const want = mx
        .exp(logs(p))
        .multiply(logs(p).subtract(logs(q)))
        .sum(-1)
      agree(kl, want, Math.min(tolerance, 1e-4))
    }
  },
)

const mixing = metalKernel({
  name: "mix_streams",
  inputNames: ["x_in", "weights"],
  outputNames: ["mixed", "shares"],
  ensureRowContiguous: true,
  source: `
    uint tid = thread_position_in_threadgroup.x;
    uint row = threadgroup_position_in_grid.x;
    uint lane = thread_index_in_simdgroup;
    constexpr float EPS = (float)EPS_INT * 1e-9f;
    threadgroup float share[4];

    if (simdgroup_index_in_threadgroup == 0) {
      const uint llane = metal::min(lane, (uint)3);
      const float active = lane < 4u ? 1.0f : 0.0f;
      float4 v = *(const device float4*)(weights + row * 16 + llane * 4) * active;
      float top = metal::max(metal::max(v.x, v.y), metal::max(v.z, v.w));
      float4 e = metal::fast::exp(v - top) * active;
      float4 r = e * (1.0f / (e.x + e.y + e.z + e.w + EPS)) + EPS * active;
      float4 col_inv = 1.0f / (float4(simd_sum(r.x), simd_sum(r.y), simd_sum(r.z), simd_sum(r.w)) + EPS);
      r *= col_inv;
      if (lane < 4u) {
        *(device float4*)(shares + row * 16 + lane * 4) = r;
        share[lane] = r.x;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    using T4 = vec<T, 4>;
    using U4 = vec<U, 4>;
    const device T* x_row = (const device T*)x_in + row * (4 * D);
    device U* out_row = (device U*)mixed + row * D;
    const device T4* x0 = (const device T4*)(x_row + 0 * D);
    const device T4* x1 = (const device T4*)(x_row + 1 * D);
    const device T4* x2 = (const device T4*)(x_row + 2 * D);
    const device T4* x3 = (const device T4*)(x_row + 3 * D);
    device U4* out4 = (device U4*)out_row;
    constexpr uint D4 = (uint)D / 4;
    if (D % 4 == 0)
      for (uint d4 = tid; d4 < D4; d4 += 64) {
        float4 result = fma(float4(share[0]), float4(x0[d4]),
                        fma(float4(share[1]), float4(x1[d4]),
                        fma(float4(share[2]), float4(x2[d4]), float4(share[3]) * float4(x3[d4]))));
        out4[d4] = U4(result);
      }
    // A template's values are no words of the preprocessor: there D is 0.
    #if (D % 4) != 0
    this is not compiled
    #endif`,
})

it.each(TYPES)(
  "streams mixed by vectors of four, with pointer casts and directives (%o)",
  (dtype, tolerance) => {
    const [x, w] = [noise([3, 4, 40], 1, dtype), noise([3, 4, 4], 2)]
    const [mixed, shares] = mixing({
      inputs: [x, w],
      template: { T: dtype, U: dtype, D: 40, EPS_INT: 1000 },
      grid: [3 * 64, 1, 1],
      threadgroup: [64, 1, 1],
      outputShapes: [[3, 40], w.shape],
      outputDtypes: [dtype, mx.float32],
    })
    const rows = mx.softmax(w, -1).add(1e-6)
    const want = rows.divide(rows.sum(-2, true).add(1e-6))
    agree(shares, want, 1e-5)
    agree(
      mixed,
      wide(x)
        .multiply(want.index(":", ":", 0).expandDims(-1))
        .sum(1),
      tolerance,
    )
  },
)

const signs = metalKernel({
  name: "sign_matmul",
  inputNames: ["x", "weight", "scales"],
  outputNames: ["out"],
  header: `
#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
using namespace metal;
`,
  source: `
    constexpr short BM = 16;
    constexpr short BK = 32;
    constexpr short TILE_STRIDE = BK + 16 / sizeof(T);
    const int M = x_shape[0];
    const int K = x_shape[1];
    const int N = weight_shape[0];
    const uint lane = thread_index_in_simdgroup;
    const uint thread_index = thread_index_in_threadgroup;
    const int tile_row = threadgroup_position_in_grid.y * BM;
    const int tile_column = threadgroup_position_in_grid.x * BM;
    const int load_row = thread_index / 2;
    const int load_column = (thread_index % 2) * 16;
    const short quad = lane / 4;
    const short fragment_row = (quad & 4) + ((lane / 2) % 4);
    const short fragment_column = (quad & 2) * 2 + (lane % 2) * 2;

    threadgroup T x_tile[BM * TILE_STRIDE];
    threadgroup T weight_tile[BM * TILE_STRIDE];
    metal::simdgroup_matrix<float, 8, 8> accumulators[2][2];
    #pragma clang loop unroll(full)
    for (short row = 0; row < 2; ++row) {
      for (short column = 0; column < 2; ++column) {
        accumulators[row][column].thread_elements()[0] = 0.0f;
        accumulators[row][column].thread_elements()[1] = 0.0f;
      }
    }
    for (int k_start = 0; k_start < K; k_start += BK) {
      int input_row = tile_row + load_row;
      int weight_row = tile_column + load_row;
      uint packed = weight_row < N ? weight[weight_row * weight_shape[1] + k_start / 32] : 0;
      T scale = weight_row < N ? scales[weight_row * scales_shape[1] + k_start / GROUP_SIZE] : T(0);
      #pragma clang loop unroll(full)
      for (short e = 0; e < 16; e += 8) {
        uchar packed_byte = uchar(packed >> (load_column + e));
        for (short element = 0; element < 8; ++element) {
          int column = load_column + e + element;
          x_tile[load_row * TILE_STRIDE + column] = input_row < M ? x[input_row * K + k_start + column] : T(0);
          weight_tile[load_row * TILE_STRIDE + column] = (packed_byte & (uchar(1) << element)) ? scale : -scale;
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (short k = 0; k < BK; k += 8) {
        metal::simdgroup_matrix<float, 8, 8> a[2];
        metal::simdgroup_matrix<float, 8, 8> b[2];
        for (short tile = 0; tile < 2; ++tile)
          for (short element = 0; element < 2; ++element) {
            a[tile].thread_elements()[element] =
                static_cast<float>(x_tile[(tile * 8 + fragment_row) * TILE_STRIDE + k + fragment_column + element]);
            b[tile].thread_elements()[element] =
                static_cast<float>(weight_tile[(tile * 8 + fragment_column + element) * TILE_STRIDE + k + fragment_row]);
          }
        for (short row = 0; row < 2; ++row)
          for (short column = 0; column < 2; ++column) {
            metal::simdgroup_matrix<float, 8, 8> result;
            simdgroup_multiply_accumulate(result, a[row], b[column], accumulators[row][column]);
            accumulators[row][column] = result;
          }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (short row = 0; row < 2; ++row)
      for (short column = 0; column < 2; ++column)
        for (short element = 0; element < 2; ++element) {
          int output_row = tile_row + row * 8 + fragment_row;
          int output_column = tile_column + column * 8 + fragment_column + element;
          if (output_row < M && output_column < N)
            out[output_row * N + output_column] =
                static_cast<T>(accumulators[row][column].thread_elements()[element]);
        }`.replaceAll("GROUP_SIZE", "64"),
})

it.each(TYPES)("a product by packed signs, with simdgroup matrices by element (%o)", (dtype, tolerance) => {
  const [M, K, N] = [21, 128, 37]
  const bits = noise([N, K / 32, 32], 1).greater(0)
  const weight = bits.astype(mx.uint32).leftShift(mx.arange(32).astype(mx.uint32)).sum(-1).astype(mx.uint32)
  const [x, scales] = [noise([M, K], 2, dtype), noise([N, 2], 3, dtype)]
  const [out] = signs({
    inputs: [x, weight, scales],
    template: { T: dtype },
    grid: [Math.ceil(N / 16) * 32, Math.ceil(M / 16), 1],
    threadgroup: [32, 1, 1],
    outputShapes: [[M, N]],
    outputDtypes: [dtype],
  })
  const full = mx
    .where(bits.reshape([N, 2, 64]), 1, -1)
    .multiply(wide(scales).expandDims(-1))
    .reshape([N, K])
  agree(out, wide(x).matmul(full.T), tolerance)
})

const rows = metalKernel({
  name: "verify_rows",
  inputNames: ["x", "weight", "picks"],
  outputNames: ["out"],
  header: "#include <metal_simdgroup>\nusing namespace metal;\n",
  source: `
    uint lane = thread_position_in_grid.x;
    uint out_block = thread_position_in_grid.y;
    uint row = thread_position_in_grid.z;
    constexpr int TM = 4;
    constexpr int TN = 4;
    constexpr int SN = 32;
    constexpr int blockN = SN * TN;
    if (row >= R) {
      return;
    }
    uint expert = picks[row];
    const device T* in_vec = x + (SHARED ? row / S : row) * K;
    const device T* mat = weight + expert * O * K + out_block * TM * K;
    float result[TM] = {0.0f, 0.0f, 0.0f, 0.0f};
    int col = int(lane * TN);
    for (int iter = 0; iter < (K + blockN - 1) / blockN; ++iter) {
      float v[TN];
      for (int tn = 0; tn < TN; ++tn) {
        v[tn] = (col + tn < K) ? static_cast<float>(in_vec[col + tn]) : 0.0f;
      }
      for (int tm = 0; tm < TM; ++tm) {
        for (int tn = 0; tn < TN; ++tn) {
          T m = (col + tn < K) ? mat[tm * K + col + tn] : T(0);
          result[tm] += static_cast<float>(m) * v[tn];
        }
      }
      col += blockN;
    }
    for (int tm = 0; tm < TM; ++tm) {
      for (ushort sn = (SN / 2); sn >= 1; sn >>= 1) {
        result[tm] += simd_shuffle_down(result[tm], sn);
      }
    }
    if (lane == 0) {
      for (int tm = 0; tm < TM; ++tm) {
        out[row * O + out_block * TM + tm] = static_cast<T>(result[tm]);
      }
    }`,
})

it.each(TYPES)("rows by chosen matrices, with shuffles and early returns (%o)", (dtype, tolerance) => {
  const [R, S, K, O] = [6, 2, 150, 8]
  const [x, w] = [noise([R / S, K], 1, dtype), noise([3, O, K], 2, dtype)]
  const picks = mx.array([2, 0, 1, 1, 2, 0], mx.uint32)
  const [out] = rows({
    inputs: [x, w, picks],
    template: { T: dtype, K, O, R, S, SHARED: true },
    // Rows beyond R leave at once.
    grid: [32, O / 4, 8],
    threadgroup: [32, 1, 8],
    outputShapes: [[R, O]],
    outputDtypes: [dtype],
  })
  const each = mx.repeat(wide(x), S, 0).expandDims(-1)
  agree(out, mx.take(wide(w), picks, 0).matmul(each).squeeze(-1), tolerance)
})

const routing = metalKernel({
  name: "route",
  inputNames: ["logits", "bias", "tokens"],
  outputNames: ["picks", "shares"],
  header: `
template <typename T>
T sigmoid(T x) {
  auto y = 1 / (1 + metal::exp(-metal::abs(x)));
  return (x < 0) ? 1 - y : y;
}
template <typename U, int count>
inline void begin(thread U* values, const U value) {
  for (int i = 0; i < count; ++i) values[i] = value;
}
`,
  source: `
    typedef float U;
    uint lane = thread_position_in_grid.x;
    uint n = thread_position_in_grid.y;
    if (n >= (uint)tokens) return;
    constexpr int per = (R + 31) / 32;
    const device T* lg = logits + (size_t)n * R;
    thread U score[per];
    begin<U, per>(score, -INFINITY);
    for (int j = 0; j < per; ++j) {
      uint at = lane + (uint)j * 32u;
      if (at < (uint)R) score[j] = sigmoid(static_cast<U>(lg[at])) + bias[at];
    }
    U total = 0;
    U mine = 0;
    for (int k = 0; k < TOP; ++k) {
      U best = -INFINITY;
      int own = -1;
      for (int j = 0; j < per; ++j) {
        if (score[j] > best) {
          best = score[j];
          own = j;
        }
      }
      U top = simd_max(best);
      ushort from = (ushort)simd_min(best == top && own >= 0 ? lane : 32u);
      uint at = simd_shuffle(own >= 0 ? lane + (uint)own * 32u : 0u, from);
      if (lane == from) score[own] = -INFINITY;
      if (lane == (uint)k) {
        picks[n * TOP + k] = at;
        mine = top - bias[at];
      }
      total += top - bias[at];
    }
    if (lane < (uint)TOP) shares[n * TOP + lane] = mine / total;`,
})

it.each(TYPES)("the best of many, with helpers of templates, typedefs and votes (%o)", (dtype, tolerance) => {
  const [N, R, TOP] = [5, 70, 4]
  const [logits, bias] = [noise([N, R], 1, dtype), noise([R], 2).multiply(0.1)]
  const [picks, shares] = routing({
    inputs: [logits, bias, N],
    template: { T: dtype, R, TOP },
    grid: [32, 8, 1],
    threadgroup: [32, 4, 1],
    outputShapes: [
      [N, TOP],
      [N, TOP],
    ],
    outputDtypes: [mx.uint32, mx.float32],
  })
  const plain = mx.sigmoid(wide(logits))
  const best = mx.argsort(plain.add(bias).negative(), -1).index(":", `:${TOP}`)
  agree(picks, best, 0)
  const chosen = mx.takeAlongAxis(plain, best, -1)
  agree(shares, chosen.divide(chosen.sum(-1, true)), tolerance)
})

const masking = metalKernel({
  name: "allowed_words",
  inputNames: ["logits", "mask"],
  outputNames: ["out"],
  ensureRowContiguous: false,
  source: `
    uint3 tid = thread_position_in_grid;
    uint word = tid.x >> 5;
    uint bit = tid.x & 31;
    bool allowed = word < (uint)mask_shape[1] &&
        ((as_type<uint>(mask[tid.y * mask_strides[0] + word * mask_strides[1]]) >> bit) & 1u);
    out[tid.y * logits_shape[1] + tid.x] = allowed
        ? logits[tid.y * logits_strides[0] + tid.x * logits_strides[1]]
        : -metal::numeric_limits<T>::infinity();`,
})

it.each(TYPES)("masks of bits, with strides, limits and as_type (%o)", (dtype) => {
  const [B, V] = [3, 70]
  const logits = noise([V, B], 1, dtype).T
  const bits = noise([B, 2, 32], 2).greater(0)
  const words = bits.astype(mx.uint32).leftShift(mx.arange(32).astype(mx.uint32)).sum(-1)
  const [out] = masking({
    inputs: [logits, words.astype(mx.uint32).view(mx.int32)],
    template: { T: dtype },
    grid: [V, B, 1],
    threadgroup: [256, 1, 1],
    outputShapes: [[B, V]],
    outputDtypes: [dtype],
  })
  const allowed = mx.concatenate([bits.reshape([B, 64]), mx.zeros([B, V - 64], mx.bool_)], 1)
  agree(out, mx.where(allowed, wide(logits), Number.NEGATIVE_INFINITY), 0)
})

const packing = metalKernel({
  name: "pack_codes",
  inputNames: ["vectors", "boundaries", "scale"],
  outputNames: ["packed_out"],
  source: `
    auto d = thread_position_in_grid.x;
    auto n = thread_position_in_grid.y;
    uint word = 0u;
    #pragma clang loop unroll(full)
    for (int i = 0; i < PER; i++) {
      uint dim = d * PER + i;
      float value = dim < (uint)vectors_shape[1] ? static_cast<float>(vectors[n * vectors_shape[1] + dim]) * scale[0] : 0.0f;
      uint code = 0;
      for (int b = 0; b < (1 << Bits) - 1; b++) {
        if (value > boundaries[b]) code++;
      }
      word |= (code & ((1u << Bits) - 1u)) << (i * Bits);
    }
    switch (FORM) {
      case 0: packed_out[n * Words + d] = word; break;
      default: packed_out[n * Words + d] = ~word;
    }`,
})

it.each([0, 1])("codes packed into words, with switch and unrolled loops (form %i)", (FORM) => {
  const x = noise([3, 20], 1)
  const boundaries = mx.array([-0.5, 0, 0.5])
  const [got] = packing({
    inputs: [x, boundaries, mx.array([2])],
    template: { PER: 16, Bits: 2, Words: 2, FORM },
    grid: [2, 3, 1],
    threadgroup: [2, 3, 1],
    outputShapes: [[3, 2]],
    outputDtypes: [mx.uint32],
  })
  const codes = mx
    .pad(x.multiply(2), [
      [0, 0],
      [0, 12],
    ])
    .expandDims(-1)
    .greater(boundaries)
    .astype(mx.uint32)
    .sum(-1)
  const words = codes
    .astype(mx.uint32)
    .reshape([3, 2, 16])
    .leftShift(mx.arange(16).multiply(2).astype(mx.uint32))
    .sum(-1)
    .astype(mx.uint32)
  expect(got.tolist()).toEqual((FORM === 0 ? words : mx.bitwiseInvert(words)).tolist())
})

it("a bfloat is made of a float by a conversion alone, and beside one it is a float", () => {
  const kernel = (body: string): mx.Array =>
    metalKernel({ name: "rounded", inputNames: ["x", "b"], outputNames: ["out"], source: body })({
      inputs: [mx.array([0.5, 0.25]), mx.array([3, 4], mx.bfloat16)],
      grid: [2, 1, 1],
      threadgroup: [2, 1, 1],
      outputShapes: [[2]],
      outputDtypes: [mx.float32],
    })[0]
  const body = "uint i = thread_position_in_grid.x; out[i] = i == 0 ? b[i] : 1e-3;"
  expect(kernel(body).tolist()).toEqual([3, Math.fround(1e-3)])
  // Without clang too.
  for (const strict of ["1", "0"]) {
    vi.stubEnv("LAZULI_METAL_STRICT", strict)
    const wrong = `bfloat r = x[thread_position_in_grid.x]; out[0] = r; // ${strict}`
    expect(() => mx.eval(kernel(wrong))).toThrow(/line 1 of the source: .*float'.*bfloat'/)
    vi.unstubAllEnvs()
  }
})
