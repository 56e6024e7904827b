/**
 * Fourier transforms by cuFFT, on its test double: axes, batches, real arrays and both directions agree with the reference; failures, and
 * the own kernels where the library is not there.
 */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import { callsOf } from "../test/calls"
import { failing } from "../test/double"
import "./index"
import { transformFamilies } from "./transforms"

beforeAll(() => mx.setBackend("cuda", "gpu"))

/** The command's code. */
const TRANSFORM = 40
const wave = (shape: number[], phase = 0): mx.Array =>
  mx
    .array(Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(i * i + phase)))
    .reshape(shape)
const pair = (shape: number[]): mx.Array =>
  wave(shape).add(wave(shape, 1).multiply(mx.array(new mx.Complex(0, 1))))

function agree(f: () => mx.Array): void {
  const got = mx.stream(mx.gpu, () => f().tolist() as unknown)
  const want = mx.stream(mx.cpu, f)
  expect(mx.stream(mx.cpu, () => mx.allclose(mx.array(got as never), want, 1e-4, 1e-4).item())).toBe(true)
}

it("agrees over all kinds of axes", () => {
  const calls = callsOf(TRANSFORM)
  const cases: (() => mx.Array)[] = [
    () => mx.fft.fft(pair([3, 17])),
    () => mx.fft.ifft(pair([2, 34])),
    () => mx.fft.fft(pair([17, 3]), { axis: 0 }),
    () => mx.fft.fft(pair([2, 17, 3]), { axis: 1 }),
    () => mx.fft.fft2(pair([2, 3, 19])),
    () => mx.fft.ifftn(pair([17, 2, 3]), { axes: [2, 0] }),
    () => mx.fft.fftn(pair([2, 17, 3]), { norm: "ortho" }),
    () => mx.fft.rfft(wave([3, 17])),
    () => mx.fft.rfft(wave([34, 2]), { axis: 0 }),
    () => mx.fft.rfftn(wave([4, 3, 17])),
    () => mx.fft.rfft2(wave([17, 3, 5]), { axes: [1, 0] }),
    () => mx.fft.irfft(pair([3, 20])),
    () => mx.fft.irfft(pair([3, 18])),
    () => mx.fft.irfft(pair([3, 9]), { n: 17 }),
    () => mx.fft.irfft2(pair([2, 17, 9])),
    () => mx.fft.irfftn(pair([9, 17, 2]), { axes: [1, 2, 0] }),
    () => mx.fft.fft(pair([2, 34]).index("...", "::2")),
  ]
  for (const each of cases) agree(each)
  expect(calls()).toBe(cases.length + 2)
}, 120_000)

it("leaves short lines to the own kernels where it would copy them, and everything where the library is not there", () => {
  const calls = callsOf(TRANSFORM)
  agree(() => mx.fft.fft(pair([24, 3]), { axis: 0 }))
  agree(() => mx.fft.irfft(pair([3, 13])))
  expect(calls()).toBe(0)
  agree(() => mx.fft.fft(pair([3, 24])))
  expect(calls()).toBe(1)
  const { fft } = transformFamilies(() => false)
  const { node } = mx.fft.fft(pair([3, 17])) as unknown as { node: never }
  expect(fft.supports(node)).toBe(false)
}, 60_000)

it("says when it fails, and goes on", () => {
  const run = (): unknown => mx.stream(mx.gpu, () => mx.fft.fft(pair([2, 19])).tolist())
  expect(() => failing("transform", run)).toThrow("[fft] the transform failed with status 6 of cuFFT")
  expect(run).not.toThrow()
}, 60_000)

it("is part of a graph of a compiled function", () => {
  const f = compile((x: mx.Array) => {
    let y = x
    for (let i = 0; i < 3; i++) y = mx.fft.ifft(mx.fft.fft(y).multiply(2))
    return y
  })
  const x = (): mx.Array => pair([2, 17])
  const want = mx.stream(mx.cpu, () => x().multiply(8))
  for (let call = 0; call < 3; call++) {
    const got = mx.stream(mx.gpu, () => (f(x()) as mx.Array).tolist())
    expect(mx.stream(mx.cpu, () => mx.allclose(mx.array(got as never), want, 1e-4, 1e-4).item())).toBe(true)
  }
}, 120_000)
