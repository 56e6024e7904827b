/** The entry for packages that bring primitives: what it asks for beyond core's own, and the exchange of kernels. */
import { expect, test, vi } from "vitest"
import * as mx from "../index"
import { definePrimitive, type NativeKernels, operation, provideKernels } from "../plugin"
import { callNamed, versionOf } from "./calls"
import { onKernels } from "./kernel-offers"

const infer = ([x]: readonly { shape: readonly number[]; dtype: mx.Dtype }[]) => x

test("a primitive names its package and its plugin API", () => {
  const scale = definePrimitive({
    name: "@me/plugin/scale",
    api: 1,
    params: { by: "f64" },
    infer,
    decompose: ([x], { by }) => x.multiply(by),
  })
  expect(scale([mx.array([1, 2])], { by: 3 }).tolist()).toEqual([3, 6])
  expect(() =>
    definePrimitive({ name: "scale", api: 1, infer, decompose: ([x]) => x }),
  ).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [definePrimitive] the name "scale" does not name its package. Use "<npm package>/<name>", such as "@me/my-ops/axpby"; bare names are those of @lazuli/core]`,
  )
  expect(() =>
    definePrimitive({ name: "@me/plugin/old", infer, decompose: ([x]: readonly mx.Array[]) => x } as never),
  ).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/plugin/old] does not say for which plugin API it was written: expected api, a number, received nothing. The installed @lazuli/core has plugin API 1: write api: 1]`,
  )
  expect(() =>
    definePrimitive({ name: "@me/plugin/new", api: 7, infer, decompose: ([x]) => x }),
  ).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/plugin/new] was written for plugin API 7, but the installed @lazuli/core has plugin API 1. Install a version of @me/plugin made for it, or another version of @lazuli/core]`,
  )
})

test("an operation names its package, and no name is taken twice", () => {
  const twice = (x: mx.Array): mx.Array => x.multiply(2)
  const scale = operation("@me/plugin/twice", ["x"], twice, { version: "1.2.0" })
  expect(scale([mx.array([1, 2])]).tolist()).toEqual([2, 4])
  expect(versionOf("@me/plugin")).toBe("1.2.0")
  expect(() => scale([mx.array([1]), 2])).toThrow("[twice] takes at most 1 arguments (x), received 2")
  expect(() => operation("softmax", ["x"], twice)).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [operation] the name "softmax" does not name its package. Use "<npm package>/<name>", such as "@me/my-ops/axpby"; bare names are those of @lazuli/core]`,
  )
  expect(() => operation("@me/plugin/twice", ["x"], twice)).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/plugin/twice] is already defined, and is defined again. Two copies of a package in node_modules cause this (\`npm ls @me/plugin\` lists them), and so does a package that registers names of another package]`,
  )
  operation("@me/plugin/hidden", ["f"], twice, { inFiles: false })
  expect(callNamed("@me/plugin/hidden")).toBeUndefined()
})

test("kernels reach backends in any order", () => {
  const [a, b] = ["a", "b"].map(
    (library): NativeKernels => ({ form: "native", package: "@me/plugin", library }),
  )
  const take = vi.fn()
  provideKernels(a)
  onKernels("native", take)
  expect(take.mock.calls).toEqual([[a]])
  provideKernels(b)
  provideKernels({ form: "metal", package: "@me/plugin", kernels: {} })
  expect(take.mock.calls).toEqual([[a], [b]])
  expect(() => provideKernels({} as never)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [provideKernels] expected { form, package, … }, received a plain object. form is one of native, metal, cuda, js, wasm, package the npm name of the package that provides the kernels]`,
  )
})

test("a definition is held to the rules and kinds that there are, and what it is applied to to arrays", () => {
  const base = { api: 1, decompose: ([x]: readonly mx.Array[]) => x, infer }
  const define = (name: string, more: object): unknown =>
    definePrimitive({ name: `@me/kinds/${name}`, ...base, ...more } as never)
  expect(() => define("a", { vpj: () => [] })).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/kinds/a] there is no rule or property "vpj"; there are name, params, facts, version, api, kernelsFrom, infer, scalar, decompose, reference, view, partials, vjp, jvp, vmap, rows, plan, planForStrides, expand, undo. Did you mean "api"?]`,
  )
  expect(() => define("b", { vjp: 3 })).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/kinds/b] vjp must be a function, received the number 3]`,
  )
  expect(() => define("c", { params: { k: "f46" } })).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/kinds/c] the parameter "k" must have one of the kinds f64, i64, bool, string, dtype, i64[], f64[], program, function, value, or a list of strings, received the string "f46"]`,
  )
  expect(() => define("d", { facts: { opaqe: true } })).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/kinds/d] there is no fact "opaqe"; there are immediate, broadcasts, keepsOrder, stopsGradient, opaque, ambiguous, along, places, exchanges, perExample. Did you mean "opaque"?]`,
  )
  const same = define("same", {}) as (inputs: unknown, params?: unknown) => mx.Array
  expect(() => same(mx.ones([2]))).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [@me/kinds/same] inputs must be a list of arrays, received an mx.Array]`,
  )
  expect(() => same([mx.ones([2]), 3])).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [@me/kinds/same] input 1 must be an array, received the number 3. mx.array(data) makes one]`,
  )
  expect(() => same([mx.ones([2])], { k: 1 })).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/kinds/same] has no parameter "k"; it has none]`,
  )
  const odd = define("odd", { infer: () => ({ shape: [-1], dtype: "float32" }) }) as typeof same
  expect(() => odd([mx.ones([2])])).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/kinds/odd] infer must return a shape of non-negative integers, received a list of length 1]`,
  )
})
