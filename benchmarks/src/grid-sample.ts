/**
 * Bilinear sampling of images [B, H, W, C] at points in [-1, 1]², zero outside, and its gradient: the kernels of MLX's page on custom
 * kernels, written anew.
 */
import * as mx from "@lazuli/core"

// Corner k of a point: its position, its weight, and the weight's derivatives.
const header = `
struct Corner {
  bool inside;
  uint at;
  float weight, du, dv;
};
inline Corner corner(float u, float v, int k, int H, int W) {
  float left = floor(u), top = floor(v);
  int dx = k & 1, dy = k >> 1;
  float fu = u - left, fv = v - top;
  float wu = dx ? fu : 1.0f - fu, wv = dy ? fv : 1.0f - fv;
  int column = int(left) + dx, row = int(top) + dy;
  Corner c;
  c.inside = column >= 0 && column < W && row >= 0 && row < H;
  c.at = c.inside ? uint(row * W + column) : 0;
  c.weight = wu * wv;
  c.du = (dx ? wv : -wv) * float(W) * 0.5f;
  c.dv = (dy ? wu : -wu) * float(H) * 0.5f;
  return c;
}`

const forward = mx.fast.metalKernel({
  name: "grid_sample",
  inputNames: ["x", "grid"],
  outputNames: ["out"],
  header,
  source: `
    uint elem = thread_position_in_grid.x;
    int H = x_shape[1], W = x_shape[2], C = x_shape[3];
    uint point = elem / C, channel = elem % C;
    uint image = point / (grid_shape[1] * grid_shape[2]);
    float u = ((grid[2 * point] + 1) * W - 1) / 2;
    float v = ((grid[2 * point + 1] + 1) * H - 1) / 2;
    float sum = 0;
    for (int k = 0; k < 4; k++) {
      Corner c = corner(u, v, k, H, W);
      if (c.inside) sum += c.weight * x[(image * H * W + c.at) * C + channel];
    }
    out[elem] = sum;`,
})

// A simdgroup works on one point: its channels share the point's gradient, which is summed before it is added.
const backward = mx.fast.metalKernel({
  name: "grid_sample_grad",
  inputNames: ["x", "grid", "cotangent"],
  outputNames: ["x_grad", "grid_grad"],
  header,
  atomicOutputs: true,
  source: `
    int H = x_shape[1], W = x_shape[2], C = x_shape[3];
    uint point = thread_position_in_grid.y, channel = thread_position_in_grid.x;
    uint image = point / (grid_shape[1] * grid_shape[2]);
    float u = ((grid[2 * point] + 1) * W - 1) / 2;
    float v = ((grid[2 * point + 1] + 1) * H - 1) / 2;
    float du = 0, dv = 0;
    float g = cotangent[point * C + channel];
    for (int k = 0; k < 4; k++) {
      Corner c = corner(u, v, k, H, W);
      if (!c.inside) continue;
      uint at = (image * H * W + c.at) * C + channel;
      atomic_fetch_add_explicit(&x_grad[at], c.weight * g, memory_order_relaxed);
      du += c.du * g * x[at];
      dv += c.dv * g * x[at];
    }
    du = simd_sum(du);
    dv = simd_sum(dv);
    if (thread_index_in_simdgroup == 0) {
      atomic_fetch_add_explicit(&grid_grad[2 * point], du, memory_order_relaxed);
      atomic_fetch_add_explicit(&grid_grad[2 * point + 1], dv, memory_order_relaxed);
    }`,
})

/** The images at the points of a grid [B, N, M, 2]. */
export function gridSample(x: mx.Array, grid: mx.Array): mx.Array {
  const [B, N, M] = grid.shape
  const C = x.shape[3]
  return forward({
    inputs: [x, grid],
    grid: [B * N * M * C, 1, 1],
    threadgroup: [256, 1, 1],
    outputShapes: [[B, N, M, C]],
    outputDtypes: [mx.float32],
  })[0]
}

/** The gradients of both, for channels in whole simdgroups. */
export function gridSampleGradient(x: mx.Array, grid: mx.Array, g: mx.Array): mx.Array[] {
  const [B, N, M] = grid.shape
  return backward({
    inputs: [x, grid, g],
    grid: [x.shape[3], B * N * M, 1],
    threadgroup: [32, 8, 1],
    outputShapes: [x.shape, grid.shape],
    outputDtypes: [mx.float32, mx.float32],
    initValue: 0,
  })
}
