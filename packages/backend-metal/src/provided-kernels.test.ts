/**
 * Metal kernels that packages bring for their primitives: what is refused, and whom the error names.
 */
import * as mx from "@lazuli/core"
import { definePrimitive, type MetalKernelSource, provideKernels } from "@lazuli/core/plugin"
import { expect, test } from "vitest"
import "./index"

const NAME = "@test/metal-kernels/twice"
const twice = definePrimitive({
  name: NAME,
  api: 1,
  infer: ([x]) => x,
  decompose: ([x]) => x.add(x),
})
const kernel: MetalKernelSource = {
  inputNames: ["x"],
  outputNames: ["y"],
  source: "uint i = thread_position_in_grid.x; y[i] = x[i] + x[i];",
  launch: ({ outputs: [{ shape }] }) => ({ grid: [shape[0]], threadgroup: [32] }),
}
const offer = (kernels: unknown, from = "@test/metal-kernels"): void =>
  provideKernels({ form: "metal", package: from, kernels } as never)
const onGpu = (x: mx.Array): unknown => mx.stream(mx.gpu, () => twice([x])).tolist()

test("malformed offers are refused, and change nothing", () => {
  expect(() => offer(undefined)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [@test/metal-kernels] kernels must be an object keyed by primitive names, received nothing]`,
  )
  expect(() => offer({ [NAME]: { ...kernel, launch: undefined } })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [@test/metal-kernels: @test/metal-kernels/twice] a Metal kernel needs a source and launch, received a plain object]`,
  )
  expect(() => offer({ [NAME]: { ...kernel, inputNames: ["x", "x"] } })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [@test/metal-kernels: @test/metal-kernels/twice] an input's name cannot be "x", because another parameter is called that]`,
  )
  expect(() => offer({ [NAME]: { ...kernel, outputNames: "y" } })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [@test/metal-kernels: @test/metal-kernels/twice] outputNames must be a list of names that Metal accepts, received the string "y"]`,
  )
  expect(onGpu(mx.array([1, 2]))).toEqual([2, 4])
})

test("a kernel that names other operands than its primitive has, and one that launches nonsense", () => {
  offer({ [NAME]: { ...kernel, inputNames: ["x", "z"] } })
  expect(() => onGpu(mx.array([1, 2]))).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [@test/metal-kernels/twice] its Metal kernel names 2 inputs and 1 outputs, but the primitive has 1 and 1]`,
  )
  expect(() => offer({ [NAME]: kernel }, "@rival/kernels")).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [provideKernels] @rival/kernels provides a kernel for @test/metal-kernels/twice, a primitive of @test/metal-kernels. A package may only provide kernels for its own primitives, unless their definition has kernelsFrom: ["@rival/kernels"]]`,
  )

  const other = "@test/metal-kernels/same"
  const same = definePrimitive({ name: other, api: 1, infer: ([x]) => x, decompose: ([x]) => x.add(0) })
  let grid: number[] = [-1]
  offer({ [other]: { ...kernel, source: "y[0] = x[0];", launch: () => ({ grid, threadgroup: [1] }) } })
  const run = (): unknown => mx.stream(mx.gpu, () => same([mx.array([7])])).tolist()
  expect(run).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [@test/metal-kernels/same] grid must be a list of one to three integers from 0 to 4294967295, received [-1]]`,
  )
  grid = [1]
  expect(run()).toEqual([7])
})
