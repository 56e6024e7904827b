/** The signature that a user's kernel gets does not depend on how many elements its inputs have. */
import { float32 } from "@lazuli/core/engine"
import { expect, test } from "vitest"
import { customSource, type KernelSpec } from "./custom-source"

const spec = (scalarReferences: boolean): KernelSpec => ({
  name: "k",
  inputNames: ["x"],
  outputNames: ["y"],
  source: "y[0] = 1;",
  header: "",
  ensureRowContiguous: true,
  atomicOutputs: false,
  scalarReferences,
  scalarNames: [],
})
const signatureOf = (shape: readonly number[], scalarReferences: boolean): string =>
  /\bx \[\[|.*\bx \[\[/.exec(
    customSource(spec(scalarReferences), [{ shape, dtype: float32 }], [float32], []).text,
  )?.[0] as string

test("inputs of any size are pointers to memory of the device", () => {
  for (const packaged of [true, false])
    for (const shape of [[0], [1], [7], [8], [100, 3], [1, 1]])
      expect(signatureOf(shape, !packaged).trim()).toBe("const device float* x [[")
})
test("inputs without axes are references in mx.fast.metalKernel, and pointers in packages' kernels", () => {
  expect(signatureOf([], true).trim()).toBe("const constant float& x [[")
  expect(signatureOf([], false).trim()).toBe("const device float* x [[")
})
