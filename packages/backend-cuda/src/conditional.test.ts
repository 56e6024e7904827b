/**
 * `c ? a : b` of half and other types in users' Metal kernels, on the test double: the types that Metal's rules give.
 */
import "../test/double"
import * as mx from "@lazuli/core"
import { expect, it } from "vitest"
import "./index"

it("a half and a float make a float, a half and an integer a half, and 0 a null pointer", () => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
  const kernel = mx.fast.metalKernel({
    name: "branches",
    inputNames: ["x", "h"],
    outputNames: ["y"],
    header: `
template <typename T> T larger(T a, T b) { return a > b ? a : b; }
void twice(threadgroup float* p) { p[0] *= 2; }
`,
    source: `
  uint i = thread_position_in_grid.x;
  bool c = i % 2 == 0;
  float f = 0.1;
  threadgroup float t[1];
  t[0] = 3;
  c ? twice(t) : twice(t);
  const device float* none = c ? 0 : x;
  const device float* some = c ? x : nullptr;
  float sum = none == nullptr && some == x ? 1 : 100;
  // 2048 + 1 needs more bits than a half has.
  half large = 2048, h0 = h[0];
  y[i] = (c ? large : 0.0f) + 1.0f;
  y[i] += c ? h0 : f;
  y[i] += (c ? h0 : 1) * (c ? 2 : h0);
  y[i] += c ? (i > 2 ? h0 : 0.5f) : i > 1 ? f : i > 0 ? h0 : half(4);
  y[i] += larger(h0, half(1)) + larger<float>(c ? f : h0, 0) + sum;
  (c ? y[i] : sum) += t[0];
  y[i] += sizeof(c ? h0 : f) == 4 && sizeof(c ? h0 : 1) == 2 && sizeof(c ? h0 : h0) == 2 ? 0.25f : h0;
`,
  })
  const run = (): unknown =>
    kernel({
      inputs: [mx.array([1, 2, 3, 4]), mx.array([0.5], mx.float16)],
      grid: [4, 1, 1],
      threadgroup: [1, 1, 1],
      outputShapes: [[4]],
      outputDtypes: [mx.float32],
    })[0].tolist()
  const odd = [0 + 1, 0.1, 1 * 0.5, 1 + 0.5 + 100, 0.25]
  const want = (more: readonly number[]): number => Math.fround(more.reduce((a, b) => a + b))
  const got = run() as number[]
  expect(got[0]).toBeCloseTo(want([2049, 0.5, 1, 0.5, 1, 0.1, 1, 6, 0.25]), 2)
  expect(got[1]).toBeCloseTo(want([...odd, 0.5]), 2)
  expect(got[2]).toBeCloseTo(want([2049, 0.5, 1, 0.5, 1, 0.1, 1, 6, 0.25]), 2)
  expect(got[3]).toBeCloseTo(want([...odd, 0.1]), 2)
}, 60_000)
