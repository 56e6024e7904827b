/**
 * Failures of cuBLASLt and cuDNN, on their test doubles: errors that name the operation and the library's status, after which work goes on.
 */

import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { beforeAll, expect, it } from "vitest"
import { failing } from "../test/double"
import "./index"

beforeAll(() => {
  mx.setBackend("cuda", "gpu")
  mx.setDefaultDevice(mx.gpu)
})

/** The error of a value; a DeviceError. */
function errorOf(body: () => mx.Array): string {
  try {
    body().tolist()
  } catch (error) {
    expect(error).toBeInstanceOf(mx.DeviceError)
    return (error as Error).message
  }
  return "none"
}

it("a handle that cannot be made, then a product that fails, then one that has no kernel", () => {
  const product = (n: number): mx.Array => mx.ones([n, 3]).matmul(mx.ones([3, n]))
  expect(failing("library-memory", () => errorOf(() => product(2)))).toMatchInlineSnapshot(
    `"[matmul] cublasLtCreate failed with status 3 of cuBLASLt"`,
  )
  expect(failing("product", () => errorOf(() => product(2)))).toMatchInlineSnapshot(
    `"[matmul] the product failed with status 13 of cuBLASLt"`,
  )
  expect(failing("product-choice", () => errorOf(() => product(5)))).toMatchInlineSnapshot(
    `"[matmul] the choice of a kernel failed with status 15 of cuBLASLt"`,
  )
  // An operation on the product has no value either, and nothing else is lost.
  const [a, b] = failing("product", () => {
    const [lost, kept] = [product(2).add(1), mx.ones([2]).add(1)]
    try {
      mx.eval(lost, kept)
    } catch {}
    return [lost, kept]
  })
  expect(errorOf(() => a)).toContain("cuBLASLt")
  expect(b.tolist()).toEqual([2, 2])
  expect(product(1).tolist()).toEqual([[3]])
}, 60_000)

it("a convolution that fails; without a handle of cuDNN's kernels run", () => {
  const convolution = (): mx.Array => mx.conv2d(mx.ones([1, 6, 6, 1]), mx.ones([1, 3, 3, 1])).sum()
  expect(failing("library-memory", () => convolution().item())).toBe(144)
  expect(failing("convolution", () => errorOf(convolution))).toMatchInlineSnapshot(`"none"`)
  expect(convolution().item()).toBe(144)
}, 60_000)

it("a product that fails in a compiled function, on its own and as a graph is captured", () => {
  const f = compile((x: mx.Array) => {
    let y = x
    for (let i = 0; i < 6; i++) y = mx.cumsum(y.matmul(x), 0)
    return y
  })
  const x = mx.eye(2)
  const want = mx.stream(mx.cpu, () => f(mx.eye(2)) as mx.Array).tolist()
  for (let call = 0; call < 2; call++)
    expect(failing("product", () => errorOf(() => f(x) as mx.Array))).toContain("the product failed")
  for (let call = 0; call < 3; call++) expect((f(x) as mx.Array).tolist()).toEqual(want)
}, 60_000)
