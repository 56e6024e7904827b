/** Complex functions of infinities, zeros and NaN: on the GPU what they are on the CPU, and by their definition. */
import "@lazuli/backend-metal"
import * as mx from "@lazuli/core"
import { setBackend } from "@lazuli/core/engine"
import { expect, test } from "vitest"
import "./index"

const parts = [0, -0, 1, -1, 2.5, Infinity, -Infinity, NaN]
const numbers = parts.flatMap((re) => parts.map((im) => [re, im]))
const made = (list: number[][]): mx.Array => mx.array(Float32Array.from(list.flat())).view(mx.complex64)
const z = made(numbers)
const [a, b] = [
  made(numbers.flatMap((each) => numbers.map(() => each))),
  made(numbers.flatMap(() => numbers)),
]

type Run = (options: { stream: mx.Device }) => mx.Array
const unary = {
  abs: mx.abs,
  sign: mx.sign,
  sqrt: mx.sqrt,
  rsqrt: mx.rsqrt,
  square: mx.square,
  reciprocal: mx.reciprocal,
  exp: mx.exp,
  log: mx.log,
  log2: mx.log2,
  log10: mx.log10,
  log1p: mx.log1p,
  sin: mx.sin,
  cos: mx.cos,
  tan: mx.tan,
  arcsin: mx.arcsin,
  arccos: mx.arccos,
  arctan: mx.arctan,
  sinh: mx.sinh,
  cosh: mx.cosh,
  tanh: mx.tanh,
  arcsinh: mx.arcsinh,
  arccosh: mx.arccosh,
  arctanh: mx.arctanh,
}
const binary = {
  multiply: mx.multiply,
  divide: mx.divide,
  power: mx.power,
  maximum: mx.maximum,
  minimum: mx.minimum,
  logaddexp: mx.logaddexp,
}
const runs: [string, Run][] = [
  ...Object.entries(unary).map(([name, f]): [string, Run] => [name, (options) => f(z, options)]),
  ...Object.entries(binary).map(([name, f]): [string, Run] => [name, (options) => f(a, b, options)]),
]

const floatsOf = (x: mx.Array): Float32Array =>
  (x.dtype === mx.complex64 ? x.view(mx.float32) : x).toTypedArray() as Float32Array

/** The same infinities and NaN; other numbers nearly, by the size of the whole. Annex G of C99 leaves the signs of many zeros open. */
function isNear(got: Float32Array, want: Float32Array, i: number): boolean {
  const [x, y, other] = [got[i], want[i], Math.abs(want[i ^ 1] ?? 0)]
  return Object.is(x, y) || Math.abs(x - y) <= 1e-5 * (1 + Math.abs(y) + (Number.isFinite(other) ? other : 0))
}

test.each(runs)("%s", { timeout: 60_000 }, (_, run) => {
  const cpu = floatsOf(run({ stream: mx.cpu }))
  const gpu = floatsOf(run({ stream: mx.gpu }))
  setBackend("reference", "cpu")
  const reference = floatsOf(run({ stream: mx.cpu }))
  setBackend("cpu", "cpu")
  const apart = Array.from(cpu, (_, i) => i).filter((i) => !isNear(gpu, cpu, i) || !isNear(reference, cpu, i))
  expect(apart).toEqual([])
})
