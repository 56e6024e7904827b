/** Products with the same rows, which a compiled function runs as one piece of work, give what each alone gives. */
import { compile } from "@lazuli/compile"
import { noise } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import "./index"

test.each([
  [mx.bfloat16, "exact"],
  [mx.float16, "exact"],
  [mx.float32, "exact"],
  [mx.bfloat16, "int8"],
  [mx.float32, "int8"],
] as const)("%s, %s", (dtype, activations) => {
  const q = { bits: 4, groupSize: 32 }
  const packed = [700, 48, 20, 333].map((n, i) => mx.quantize(noise([n, 256], i).astype(dtype), q))
  const product = (x: mx.Array, [w, scales, biases]: mx.Array[]): mx.Array =>
    mx.quantizedMatmul(x, w, scales, biases, { ...q, activations })
  // Between the products is work of several kinds, and one of them has other rows.
  const body = (x: mx.Array): mx.Array[] => {
    const y = mx.fast.rmsNorm(x, null, 1e-5)
    const [a, b, c, d] = packed.map((each) => product(y, each))
    const gated = a.multiply(mx.sigmoid(a)).multiply(2)
    return [mx.softmax(b, -1), gated, product(x, packed[2]), c, d.add(d.cumsum(-1)), mx.sort(b)]
  }
  const together = compile(body)
  for (const shape of [[256], [1, 256], [1, 2, 256], [7, 256], [40, 256], [0, 256]]) {
    const x = noise(shape, 9).astype(dtype)
    const [got, want] = [together(x), body(x)]
    got.forEach((y, i) => {
      expect(mx.arrayEqual(y, want[i]).item(), `${shape}: ${i}`).toBe(true)
    })
  }
})

test("each with a bias behind it, and of several bits", () => {
  const weights = [4, 4, 8, 4].map((bits, i) => {
    const [w, scales, biases] = mx.quantize(noise([128, 64], i), { bits })
    return (x: mx.Array) => mx.quantizedMatmul(x, w, scales, biases, { bits }).add(noise([128], 8 + i))
  })
  const body = (x: mx.Array): mx.Array[] => weights.map((product) => product(x))
  const together = compile(body)
  for (const rows of [1, 3, 40]) {
    const x = noise([rows, 64], 2)
    const [got, want] = [together(x), body(x)]
    got.forEach((y, i) => {
      expect(mx.arrayEqual(y, want[i]).item(), `${rows}: ${i}`).toBe(true)
    })
  }
})

test("a product that reads what another one writes waits for it", () => {
  const [w, scales, biases] = mx.quantize(noise([64, 64], 1))
  const body = (x: mx.Array): mx.Array => {
    const y = mx.quantizedMatmul(x, w, scales, biases)
    return mx
      .quantizedMatmul(y, w, scales, biases)
      .add(mx.quantizedMatmul(x, w, scales, y.index(0, mx.s(0, 1)).multiply(0).add(biases)))
  }
  const x = noise([1, 64], 2)
  expect(mx.arrayEqual(compile(body)(x), body(x)).item()).toBe(true)
})
