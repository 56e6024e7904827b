/** Plugins of this process, and kernels in JavaScript and WebAssembly. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { type Backend, listBackends, registerBackend } from "@lazuli/core/engine"
import { definePrimitive, provideKernels } from "@lazuli/core/plugin"
import { afterAll, beforeAll, expect, test } from "vitest"
import { mx } from "./index"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-plugins-"))
afterAll(() => {
  mx.setBackend(null, "cpu")
  rmSync(scratch, { recursive: true })
})
const referenceBackend = listBackends().find(({ name }) => name === "reference") as Backend
// A backend that has no kernel of its own: only elementwise programs.
const bare = {
  ...referenceBackend,
  name: "bare",
  priority: -1,
  queue: {
    ...referenceBackend.queue,
    lower: (node: never) =>
      (node as { primitive: { elementwise: boolean } }).primitive.elementwise
        ? referenceBackend.queue.lower(node)
        : null,
  },
}
beforeAll(() => {
  registerBackend(bare)
  mx.setBackend("bare", "cpu")
})

/** A module whose `twice(x, y, count)` doubles float32 elements. */
const TWICE = Uint8Array.from([
  ...[0, 97, 115, 109, 1, 0, 0, 0],
  // (i32 i32 i32) → ()
  ...[1, 7, 1, 96, 3, 127, 127, 127, 0],
  ...[3, 2, 1, 0],
  // memory of one page
  ...[5, 3, 1, 0, 1],
  ...[7, 18, 2, 6, 109, 101, 109, 111, 114, 121, 2, 0, 5, 116, 119, 105, 99, 101, 0, 0],
  // loop: y[0] = x[0] + x[0]; x += 4; y += 4; count -= 1; again while count
  ...[10, 46, 1, 44, 0, 3, 64],
  ...[32, 1, 32, 0, 42, 2, 0, 32, 0, 42, 2, 0, 146, 56, 2, 0],
  ...[32, 0, 65, 4, 106, 33, 0],
  ...[32, 1, 65, 4, 106, 33, 1],
  ...[32, 2, 65, 1, 107, 34, 2],
  ...[13, 0, 11, 11],
])

const define = (name: string, more: object = {}) =>
  definePrimitive({
    name: `@me/host/${name}`,
    api: 1,
    version: "2.3.4",
    infer: ([x]) => x,
    decompose: ([x]) => x.multiply(-1),
    ...more,
  })

test("a kernel in JavaScript runs where a backend has none", () => {
  const negative = define("negative")
  provideKernels({
    form: "js",
    package: "@me/host",
    kernels: {
      "@me/host/negative": {
        supports: ({ inputs: [x] }) => x.dtype === mx.float32,
        run: ([x], [y]) => {
          for (let i = 0; i < x.data.length; i++) y.data[i] = -x.data[i] * 10
        },
      },
    },
  })
  mx.resetBackendStats()
  expect(
    negative([
      mx
        .array([
          [1, 2],
          [3, 4],
        ])
        .transpose(),
    ]).tolist(),
  ).toEqual([
    [-10, -30],
    [-20, -40],
  ])
  expect(mx.backendStats().bare["@me/host/negative"]).toEqual({ decomposed: 0, reference: 0, borrowed: 1 })
  expect(negative([mx.array([1], mx.int32)]).tolist()).toEqual([-1])
  expect(mx.stream(mx.cpu, () => negative([mx.array([1])])).tolist()).toEqual([-10])
})

test("a kernel in WebAssembly gets operands by address, and memory for them", () => {
  const twice = define("twice")
  const library = join(scratch, "twice.wasm")
  writeFileSync(library, TWICE)
  provideKernels({
    form: "wasm",
    package: "@me/host",
    library,
    kernels: {
      "@me/host/twice": {
        inputNames: ["x"],
        outputNames: ["y"],
        launch: ({ inputs: [x] }) =>
          x.dtype === mx.float32
            ? { call: "twice", arguments: ["x", "y", x.shape.reduce((n, m) => n * m, 1)] }
            : null,
      },
    },
  })
  expect(twice([mx.array([1, 2, 3])]).tolist()).toEqual([2, 4, 6])
  const large = twice([mx.ones([100_000])])
  expect(large.sum().item()).toBe(200_000)
  expect(twice([mx.array([1], mx.int32)]).tolist()).toEqual([-1])
})

test("plugins are listed with their kernels", () => {
  expect(mx.plugins().find((plugin) => plugin.package === "@me/host")).toEqual({
    package: "@me/host",
    version: "2.3.4",
    primitives: ["@me/host/negative", "@me/host/twice"],
    kernels: [
      { form: "js", library: null, primitives: ["@me/host/negative"] },
      { form: "wasm", library: join(scratch, "twice.wasm"), primitives: ["@me/host/twice"] },
    ],
  })
})

test("kernels of others are refused unless the primitive's package allows them", () => {
  const bring = (from: string, name: string): void =>
    provideKernels({ form: "js", package: from, kernels: { [name]: { run: () => {} } } })
  define("closed")
  define("open", { kernelsFrom: ["@you/kernels"] })
  expect(() => bring("@you/kernels", "@me/host/closed")).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [provideKernels] @you/kernels provides a kernel for @me/host/closed, a primitive of @me/host. A package may only provide kernels for its own primitives, unless their definition has kernelsFrom: ["@you/kernels"]]`,
  )
  expect(() => bring("@you/kernels", "softmax")).toThrow(
    "provides a kernel for softmax, a primitive of @lazuli/core",
  )
  bring("@you/kernels", "@me/host/open")
  expect(() => define("wrong", { kernelsFrom: "@you/kernels" })).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/host/wrong] kernelsFrom must be "*" or a list of npm packages, received the string "@you/kernels"]`,
  )
  expect(() =>
    provideKernels({ form: "metall", package: "@me/host" } as never),
  ).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [provideKernels] there is no form "metall"; there are native, metal, cuda, js, wasm. Did you mean "metal"?]`,
  )
})
