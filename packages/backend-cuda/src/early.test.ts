/** Kernels of a decoding step, on the test double as a Hopper GPU: graphs may launch each before the one before it has ended. */
import "../test/double"
import "../test/hopper"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { expect, it, vi } from "vitest"
import "./index"
import { cudaNative } from "./native"

mx.setBackend("cuda", "gpu")
mx.setDefaultDevice(mx.gpu)

const wave = (shape: number[], phase: number): mx.Array =>
  mx
    .array(Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(i * 0.7 + phase)))
    .reshape(shape)
    .astype(mx.bfloat16)

it("kernels of one more token wait for earlier work by themselves", () => {
  const kernels = vi.spyOn(cudaNative(), "newKernel")
  const [dense, norm, keys, values] = [
    wave([128, 128], 1),
    wave([128], 2),
    wave([1, 1, 600, 64], 3),
    wave([1, 1, 600, 64], 4),
  ]
  const packed = mx.quantize(wave([128, 128], 5)) as [mx.Array, mx.Array, mx.Array]
  const seen = mx.arange(600).less(550)
  const f = (x: mx.Array): mx.Array => {
    const y = mx.quantizedMatmul(mx.fast.rmsNorm(x, norm, 1e-5), ...packed)
    const q = mx.fast.rope(y.reshape([1, 2, 1, 64]), 64, {
      traditional: false,
      base: 10000,
      scale: 1,
      offset: 5,
    })
    const z = mx.fast.scaledDotProductAttention(q, keys, values, { scale: 0.1, mask: seen })
    return x.add(mx.matmul(z.reshape([1, 128]), dense.T))
  }
  mx.eval(dense, norm, keys, values, packed, seen)
  kernels.mockClear()
  const g = compile(f)
  const x = wave([1, 128], 6)
  const want = mx.stream(mx.cpu, () => f(x).astype(mx.float32).tolist()) as number[][]
  for (let i = 0; i < 3; i++) {
    const got = g(x).astype(mx.float32).tolist() as number[][]
    got[0].forEach((value, k) => {
      expect(Math.abs(value - want[0][k])).toBeLessThan(0.05)
    })
  }
  const waiting = kernels.mock.calls.map(([, symbol, , waits]) => [symbol, waits])
  const names = waiting.map(([symbol]) => symbol)
  expect(names).toContain("few_rows")
  expect(names).toContain("attend_few")
  expect(waiting.filter(([, waits]) => !waits)).toEqual([])
}, 120_000)
