/**
 * Complex functions at zero, infinities and NaN: what backends and the reference agree on.
 */
import "@lazuli/backend-cpu"
import "@lazuli/backend-metal"
import * as mx from "@lazuli/core"
import { describe, expect, it } from "vitest"
import { onBackendNamed } from "./backend-choice"

const { NaN: nan, POSITIVE_INFINITY: inf } = Number
const z = mx.complex

// The runtime that runs Metal kernels on the CPU is for Linux.
const kernels = process.platform === "linux" ? ["cpu", "metal"] : ["cpu"]

describe.each([...kernels, "reference"])("complex64 on %s", (backend) => {
  const of = (f: (a: mx.Array, b: mx.Array) => mx.Array, x: mx.Complex, y: mx.Complex) =>
    onBackendNamed(backend, () => {
      const { re, im } = f(mx.array([x]), mx.array([y])).item() as mx.Complex
      return [re, im]
    })

  it("power of zero is 0, 1 to the power 0, and NaN to the power NaN", () => {
    const zero = z(0, 0)
    for (const y of [z(nan, 0), z(0, nan), z(2, nan), z(nan, nan)])
      expect(of(mx.power, zero, y)).toEqual([nan, nan])
    expect(of(mx.power, zero, z(2, 1))).toEqual([0, 0])
    expect(of(mx.power, zero, zero)).toEqual([1, 0])
    expect(of(mx.power, z(nan, 1), zero)).toEqual([1, 0])
  })

  it("logaddexp of two infinities of one sign is that infinity", () => {
    expect(of(mx.logaddexp, z(-inf, 0), z(-inf, 0))[0]).toBe(-inf)
    expect(of(mx.logaddexp, z(inf, 0), z(inf, 1))[0]).toBe(inf)
    expect(of(mx.logaddexp, z(-inf, 0), z(2, 1))).toEqual([2, 1])
  })
})

describe.each(kernels)("every function of complex64 has one value on %s and the reference", (kernel) => {
  const functions = mx as unknown as Record<string, (...inputs: mx.Array[]) => mx.Array>
  const parts = [0, -0, 1, -1, 0.5, -2, 30, inf, -inf, nan]
  const table = parts.flatMap((re) => parts.map((im) => z(re, im)))
  const few = [0, -0, 1, -2, inf, -inf, nan]
  const pairs = few.flatMap((re) => few.map((im) => z(re, im)))
  const numbers = (x: mx.Array): number[] =>
    (x.tolist() as (mx.Complex | number)[]).flatMap((v) =>
      typeof v === "object" ? [v.re, v.im] : [Number(v)],
    )
  /** Where the two differ; 0 and −0 are equal. */
  const compare = (f: (...inputs: mx.Array[]) => mx.Array, inputs: mx.Complex[][]): string[] => {
    const [native, reference] = [kernel, "reference"].map((backend) =>
      onBackendNamed(backend, () => numbers(f(...inputs.map((x) => mx.array(x))))),
    )
    const width = native.length / inputs[0].length
    return inputs[0].flatMap((_, i) => {
      const at = (values: number[]): number[] => values.slice(i * width, (i + 1) * width)
      const [a, b] = [at(native), at(reference)]
      // Metal has no double to compute in: its errors are small beside the number, not beside each part.
      const beside = kernel === "metal" ? Math.max(...b.map(Math.abs).filter(Number.isFinite)) : 0
      const isSame = (a: number, b: number): boolean =>
        Object.is(a, b) || a === b || Math.abs(a - b) <= 2e-6 * Math.max(1, Math.abs(b), beside)
      if (a.every((v, k) => isSame(v, b[k]))) return []
      return [`(${inputs.map((x) => `${x[i].re}, ${x[i].im}`).join("; ")}): ${a} and ${b}`]
    })
  }

  it.each([
    "negative",
    "abs",
    "sign",
    "sqrt",
    "rsqrt",
    "square",
    "reciprocal",
    "exp",
    "log",
    "log2",
    "log10",
    "log1p",
    "sin",
    "cos",
    "tan",
    "arcsin",
    "arccos",
    "arctan",
    "sinh",
    "cosh",
    "tanh",
    "arcsinh",
    "arccosh",
    "arctanh",
    "logicalNot",
    "conjugate",
    "real",
    "imag",
  ] as const)("%s", (name) => {
    expect(compare(functions[name], [table])).toEqual([])
  })

  it.each([
    "add",
    "subtract",
    "multiply",
    "divide",
    "power",
    "maximum",
    "minimum",
    "logaddexp",
    "logicalAnd",
    "logicalOr",
    "equal",
    "notEqual",
    "less",
    "lessEqual",
    "greater",
    "greaterEqual",
  ] as const)("%s", (name) => {
    const left = pairs.flatMap((x) => pairs.map(() => x))
    const right = pairs.flatMap(() => pairs)
    expect(compare(functions[name], [left, right])).toEqual([])
  })
})
