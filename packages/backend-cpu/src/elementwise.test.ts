// Elementwise kernels whose vectors take another way than the reference: logaddexp in float32, wide integers and NaNs to the half types.
import "./index"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"

function onReference(f: () => mx.Array): unknown {
  mx.setBackend("reference")
  try {
    return f().tolist()
  } finally {
    mx.setBackend("cpu")
  }
}

test("logaddexp keeps its digits, and knows infinities and NaN", () => {
  const n = 20_001
  const x = Float32Array.from({ length: n }, (_, i) => (i - n / 2) / 80)
  const y = mx.logaddexp(mx.array(x), 0).toTypedArray() as Float32Array
  for (let i = 0; i < n; i++) {
    const exact = Math.max(x[i], 0) + Math.log1p(Math.exp(-Math.abs(x[i])))
    expect(Math.abs(y[i] - exact)).toBeLessThanOrEqual(3e-7 * exact + 2e-45)
  }
  const edges = [0, 1, -200, 3e38, -3e38, Infinity, -Infinity, Number.NaN]
  for (const a of edges)
    for (const b of edges) {
      const f = (): mx.Array => mx.logaddexp(mx.array([a, a, a]), mx.array([b, b, b]))
      const want = (onReference(f) as number[])[0]
      const got = (f().tolist() as number[])[0]
      if (Math.abs(want) < 1e38) expect(Math.abs(got - want)).toBeLessThanOrEqual(1e-6)
      else expect(got).toBe(want)
    }
})

test("NaNs keep their first bits as float16, however many are converted", () => {
  const payloads = [0x7fc00000, 0xffc00000, 0x7fffffff, 0xffffffff, 0x7f800001, 0x7fa00000, 0xffc12000 | 0]
  const wanted = payloads.map((bits) => ((bits >>> 16) & 0x8000) | 0x7e00 | ((bits >>> 13) & 0x3ff))
  // One block, several, and more than the caches hold, where machine code may take over.
  for (const repeats of [1, 1000, 1 << 19]) {
    const floats = mx.tile(mx.array(Int32Array.from(payloads)), repeats).view(mx.float32)
    const half = (x: mx.Array): mx.Array => x.astype(mx.float16).view(mx.uint16)
    const want = mx.tile(mx.array(wanted, mx.uint16), repeats)
    for (const f of [half, compile(half)])
      expect(mx.arrayEqual(f(floats), want).item(), `${repeats} times`).toBe(true)
  }
})

test("64-bit integers round once to the half types", () => {
  const values: bigint[] = []
  for (let k = 0n; k < 64n; k++)
    for (const m of [1n, 3n, 0x101n, 0x1ffn, 0x100000001n])
      for (const d of [-3n, -1n, 0n, 1n, 2n]) values.push(BigInt.asIntN(64, (m << k) + d))
  const signed = BigInt64Array.from(values)
  const unsigned = BigUint64Array.from(values.map((v) => BigInt.asUintN(64, v)))
  for (const dtype of [mx.bfloat16, mx.float16])
    for (const make of [() => mx.array(signed), () => mx.array(unsigned)]) {
      const f = (): mx.Array => make().astype(dtype).astype(mx.float32)
      expect(f().tolist()).toEqual(onReference(f))
    }
})
