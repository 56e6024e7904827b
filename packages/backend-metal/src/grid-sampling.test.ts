/** Bilinear sampling of images with a gradient, by kernels as a user would write them, against plain loops and ordinary operations. */
import * as mx from "@lazuli/core"
import { customFunction, grad } from "@lazuli/transforms"
import { describe, it } from "vitest"
import { close, wave } from "../test/numbers"
import { metalKernel } from "./index"

/**
 * Bilinear sampling of x [B, H, W, C] at points in [-1, 1]², grid [B, N, M, 2], zero outside: the point (u, v) lies at
 * ((u + 1) W − 1) / 2 from the left, and takes from its four neighbours by the areas opposite to them.
 */
function sampleLoops(x: number[], grid: number[], [B, H, W, C]: number[], [N, M]: number[]) {
  const out = new Float64Array(B * N * M * C)
  const visit = (
    each: (p: number, c: number, at: number, weight: number, du: number, dv: number) => void,
  ): void => {
    for (let p = 0; p < B * N * M; p++) {
      const b = Math.floor(p / (N * M))
      const u = ((grid[2 * p] + 1) * W - 1) / 2
      const v = ((grid[2 * p + 1] + 1) * H - 1) / 2
      for (const [dx, dy] of [
        [0, 0],
        [1, 0],
        [0, 1],
        [1, 1],
      ]) {
        const [col, row] = [Math.floor(u) + dx, Math.floor(v) + dy]
        if (col < 0 || col >= W || row < 0 || row >= H) continue
        const [wu, wv] = [1 - Math.abs(u - col), 1 - Math.abs(v - row)]
        const [du, dv] = [((dx ? 1 : -1) * wv * W) / 2, ((dy ? 1 : -1) * wu * H) / 2]
        for (let c = 0; c < C; c++) each(p, c, ((b * H + row) * W + col) * C + c, wu * wv, du, dv)
      }
    }
  }
  visit((p, c, at, weight) => {
    out[p * C + c] += weight * x[at]
  })
  const gradients = (g: ArrayLike<number>) => {
    const dx = new Float64Array(x.length)
    const dgrid = new Float64Array(grid.length)
    visit((p, c, at, weight, du, dv) => {
      dx[at] += weight * g[p * C + c]
      dgrid[2 * p] += du * x[at] * g[p * C + c]
      dgrid[2 * p + 1] += dv * x[at] * g[p * C + c]
    })
    return { dx, dgrid }
  }
  return { out, gradients }
}

describe("grid sampling", () => {
  const [B, H, W, C, N, M] = [2, 7, 9, 40, 5, 6]
  const xs = wave(B * H * W * C, 0.37)
  const grids = wave(B * N * M * 2, 0.91).map((v) => 1.2 * v)
  const x = (): mx.Array => mx.array(xs).reshape([B, H, W, C])
  const grid = (): mx.Array => mx.array(grids).reshape([B, N, M, 2])
  const loops = sampleLoops(xs, grids, [B, H, W, C], [N, M])

  // Corner k of a point: its location, its weight, and the weight's derivatives; zero weights outside the image.
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
  const forward = metalKernel({
    name: "grid_sample",
    inputNames: ["x", "grid"],
    outputNames: ["out"],
    header,
    source: `
      uint elem = thread_position_in_grid.x;
      int H = x_shape[1], W = x_shape[2], C = x_shape[3];
      uint point = elem / C, channel = elem % C;
      uint image = point / (grid_shape[1] * grid_shape[2]);
      float u = ((float(grid[2 * point]) + 1) * W - 1) / 2;
      float v = ((float(grid[2 * point + 1]) + 1) * H - 1) / 2;
      float sum = 0;
      for (int k = 0; k < 4; k++) {
        Corner c = corner(u, v, k, H, W);
        if (c.inside) sum += c.weight * float(x[(image * H * W + c.at) * C + channel]);
      }
      out[elem] = T(sum);`,
  })
  // A simdgroup works on one point: its channels share the point's gradient, which is summed before it is added.
  const backward = metalKernel({
    name: "grid_sample_grad",
    inputNames: ["x", "grid", "cotangent"],
    outputNames: ["x_grad", "grid_grad"],
    header,
    atomicOutputs: true,
    source: `
      int H = x_shape[1], W = x_shape[2], C = x_shape[3];
      uint point = thread_position_in_grid.y, channel = thread_position_in_grid.x;
      uint image = point / (grid_shape[1] * grid_shape[2]);
      float u = ((float(grid[2 * point]) + 1) * W - 1) / 2;
      float v = ((float(grid[2 * point + 1]) + 1) * H - 1) / 2;
      float du = 0, dv = 0;
      if (int(channel) < C) {
        float g = cotangent[point * C + channel];
        for (int k = 0; k < 4; k++) {
          Corner c = corner(u, v, k, H, W);
          if (!c.inside) continue;
          uint at = (image * H * W + c.at) * C + channel;
          atomic_fetch_add_explicit(&x_grad[at], c.weight * g, memory_order_relaxed);
          du += c.du * g * x[at];
          dv += c.dv * g * x[at];
        }
      }
      du = simd_sum(du);
      dv = simd_sum(dv);
      if (thread_index_in_simdgroup == 0) {
        atomic_fetch_add_explicit(&grid_grad[2 * point], du, memory_order_relaxed);
        atomic_fetch_add_explicit(&grid_grad[2 * point + 1], dv, memory_order_relaxed);
      }`,
  })
  const sample = (a: mx.Array, b: mx.Array): mx.Array =>
    forward({
      inputs: [a, b],
      template: { T: a.dtype },
      grid: [B * N * M * C, 1, 1],
      threadgroup: [256, 1, 1],
      outputShapes: [[B, N, M, C]],
      outputDtypes: [a.dtype],
    })[0]
  const gradients = (a: mx.Array, b: mx.Array, g: mx.Array): mx.Array[] =>
    backward({
      inputs: [a, b, g],
      grid: [Math.ceil(C / 32) * 32, B * N * M, 1],
      threadgroup: [32, 8, 1],
      outputShapes: [a.shape, b.shape],
      outputDtypes: [mx.float32, mx.float32],
      initValue: 0,
    })

  it("agrees with loops", () => {
    close(sample(x(), grid()), loops.out)
  })
  it("has a gradient by atomics and simdgroup sums that agrees with loops", () => {
    const g = wave(B * N * M * C, 0.11)
    const [dx, dgrid] = gradients(x(), grid(), mx.array(g).reshape([B, N, M, C]))
    const want = loops.gradients(g)
    close(dx, want.dx)
    close(dgrid, want.dgrid)
  })
  const sampled = customFunction(sample)
  sampled.vjp(([a, b], g) => {
    const [dx, dgrid] = gradients(a, b, g)
    return [dx, dgrid]
  })

  /** The same of ordinary operations. */
  const composed = (a: mx.Array, b: mx.Array): mx.Array => {
    const u = b.index("...", 0).add(1).multiply(W).subtract(1).divide(2)
    const v = b.index("...", 1).add(1).multiply(H).subtract(1).divide(2)
    const [left, top] = [mx.floor(u), mx.floor(v)]
    const image = mx.arange(B).reshape([B, 1, 1])
    const corners = [
      [0, 0],
      [1, 0],
      [0, 1],
      [1, 1],
    ].map(([dx, dy]) => {
      const [column, row] = [left.add(dx), top.add(dy)]
      const inside = column
        .greaterEqual(0)
        .logicalAnd(column.less(W))
        .logicalAnd(row.greaterEqual(0))
        .logicalAnd(row.less(H))
      const weight = mx.multiply(
        mx.subtract(1, mx.abs(u.subtract(column))),
        mx.subtract(1, mx.abs(v.subtract(row))),
      )
      const at = image
        .multiply(H)
        .add(mx.clip(row, 0, H - 1).astype(mx.int32))
        .multiply(W)
        .add(mx.clip(column, 0, W - 1).astype(mx.int32))
      const values = a.reshape([B * H * W, C]).take(at, 0)
      return mx.where(inside, weight, 0).expandDims(-1).multiply(values)
    })
    return corners.reduce((sum, corner) => sum.add(corner))
  }
  it("agrees with the composition of ordinary operations, forward and backward", () => {
    close(sampled(x(), grid()), composed(x(), grid()).toTypedArray() as Float32Array)
    const loss = (f: typeof composed) => (a: mx.Array, b: mx.Array) => f(a, b).square().sum()
    const got = grad(loss(sampled), { argnums: [0, 1] })(x(), grid())
    const want = grad(loss(composed), { argnums: [0, 1] })(x(), grid())
    got.forEach((g, i) => {
      close(g, want[i].toTypedArray() as Float32Array)
    })
  })
  it("differentiates as a custom function", () => {
    const dx = grad((a: mx.Array) => sampled(a, grid()).square().sum())(x())
    close(dx, loops.gradients(loops.out.map((v) => 2 * v)).dx)
  })
})
