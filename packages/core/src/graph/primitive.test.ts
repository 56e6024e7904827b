/** Defining primitives: what is accepted, what is refused and how, and that one kind of semantics is enough. */
import { describe, expect, test } from "vitest"
import * as mx from "../index"

const infer = ([x]: readonly { shape: readonly number[]; dtype: mx.Dtype }[]) => x

describe("definePrimitive", () => {
  test("registers with its package as provenance", () => {
    mx.definePrimitive({ name: "@someone/ops/double", infer, scalar: (s, [x]) => s.add(x, x) })
    expect(mx.listPrimitives().find((p) => p.name === "@someone/ops/double")).toEqual({
      name: "@someone/ops/double",
      source: "@someone/ops",
      semantics: "scalar",
      params: {},
      rules: [],
    })
    expect(mx.listPrimitives().find((p) => p.name === "softmax")?.source).toBe("@lazuli/core")
  })

  test("a name conflict names both packages", () => {
    const define = () =>
      mx.definePrimitive({ name: "@other/pack/triple", infer, scalar: (s, [x]) => s.add(x, s.add(x, x)) })
    define()
    expect(define).toThrowErrorMatchingInlineSnapshot(
      `[RegistryError: [@other/pack/triple] is already registered by @other/pack, and @other/pack registers it again. Two copies of a package in node_modules cause this (\`npm ls @other/pack\` lists them), and so does a package that registers names of another package]`,
    )
    expect(() =>
      mx.definePrimitive({ name: "softmax", infer, scalar: (_s, [x]) => x }),
    ).toThrowErrorMatchingInlineSnapshot(
      `[RegistryError: [softmax] is already registered by @lazuli/core, and @lazuli/core registers it again. Two copies of a package in node_modules cause this (\`npm ls @lazuli/core\` lists them), and so does a package that registers names of another package]`,
    )
  })

  test("another plugin API is refused", () => {
    expect(() =>
      mx.definePrimitive({ name: "@old/pack/op", api: 99, infer, scalar: (_s, [x]) => x }),
    ).toThrowErrorMatchingInlineSnapshot(
      `[RegistryError: [@old/pack/op] was written for plugin API 99, but the installed @lazuli/core has plugin API 1. Install a version of @old/pack made for it, or another version of @lazuli/core]`,
    )
  })

  test("exactly one kind of semantics is needed, and a well-formed name", () => {
    expect(() => mx.definePrimitive({ name: "@me/pack/none", infer })).toThrowErrorMatchingInlineSnapshot(
      `[RegistryError: [@me/pack/none] needs exactly one kind of semantics (scalar, decompose, reference or view), received none]`,
    )
    expect(() =>
      mx.definePrimitive({ name: "@me/pack/two", infer, scalar: (_s, [x]) => x, decompose: ([x]) => x }),
    ).toThrowErrorMatchingInlineSnapshot(
      `[RegistryError: [@me/pack/two] needs exactly one kind of semantics (scalar, decompose, reference or view), received scalar and decompose]`,
    )
    expect(() =>
      mx.definePrimitive({ name: "a b", infer, decompose: ([x]) => x }),
    ).toThrowErrorMatchingInlineSnapshot(
      `[RegistryError: [definePrimitive] the name "a b" is malformed. Use "<npm package>/<name>", such as "@me/my-ops/axpby"]`,
    )
  })

  test("parameters of third parties are checked against the schema", () => {
    const scale = mx.definePrimitive({
      name: "@me/pack/scale",
      params: { factor: "f64", mode: ["up", "down"] },
      infer,
      scalar: (s, [x], { factor, mode }) =>
        s.multiply(x, s.constant(mode === "up" ? factor : 1 / factor, s.dtypeOf(x))),
    })
    expect(scale([mx.array([1, 2])], { factor: 4, mode: "down" }).tolist()).toEqual([0.25, 0.5])
    expect(() =>
      scale([mx.ones([1])], { factor: "big", mode: "up" } as never),
    ).toThrowErrorMatchingInlineSnapshot(
      `[RegistryError: [@me/pack/scale] parameter "factor" must be f64, received the string "big"]`,
    )
    expect(() =>
      scale([mx.ones([1])], { factor: 1, mode: "sideways" } as never),
    ).toThrowErrorMatchingInlineSnapshot(
      `[RegistryError: [@me/pack/scale] parameter "mode" must be one of up, down, received the string "sideways"]`,
    )
    expect(() =>
      scale([mx.ones([1])], { factor: 1, mode: "up", speed: 2 } as never),
    ).toThrowErrorMatchingInlineSnapshot(
      `[RegistryError: [@me/pack/scale] has no parameter "speed"; it has factor, mode]`,
    )
  })

  test("scalar semantics follow broadcasting, dtypes and strides", () => {
    const blend = mx.definePrimitive({
      name: "@me/pack/blend",
      infer: ([x, y]) => ({ shape: mx.add(mx.zeros(x.shape), mx.zeros(y.shape)).shape, dtype: x.dtype }),
      scalar: (s, [x, y]) => s.multiply(s.add(x, y), s.constant(0.5, s.dtypeOf(x))),
    })
    const x = mx.array([
      [1, 2],
      [3, 4],
    ])
    expect(blend([x.T, mx.array([10, 20])]).tolist()).toEqual([
      [5.5, 11.5],
      [6, 12],
    ])
    expect(blend([x.astype(mx.bfloat16), mx.array([1.0078125, 0], mx.bfloat16)]).dtype.name).toBe("bfloat16")
  })

  test("several outputs come from one application", () => {
    const divmod = mx.definePrimitive({
      name: "@me/pack/halves",
      infer: ([x]) => [x, { shape: [], dtype: x.dtype }],
      reference: ([x], [half, total]) => {
        for (let i = 0; i < x.data.length; i++) {
          half.data[i] = x.data[i] / 2
          total.data[0] += x.data[i]
        }
      },
    })
    const [half, total] = divmod.all([mx.array([1, 2, 3])])
    expect([total.item(), half.tolist()]).toEqual([6, [0.5, 1, 1.5]])
    expect(() => divmod([mx.array([1, 2, 3])])).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [@me/pack/halves] has 2 outputs, expected a primitive with one. Use \`all(inputs, params)\` of the same function]`,
    )
  })
})

test("a decomposition that breaks the promise of infer is reported", () => {
  const wrong = mx.definePrimitive({ name: "@me/pack/wrong", infer, decompose: ([x]) => x.sum() })
  expect(() => wrong([mx.ones([3])]).tolist()).toThrowErrorMatchingInlineSnapshot(
    `[RegistryError: [@me/pack/wrong] its decomposition gave float32 of shape () where infer promised float32 of shape (3,)]`,
  )
})

test("a decomposition that reads a value is refused, and evaluation goes on", () => {
  const peeks = mx.definePrimitive({
    name: "@me/pack/peeks",
    infer,
    decompose: ([x]) => x.add(mx.ones([3]).max().item() as number),
  })
  expect(() =>
    peeks([mx.ones([3])])
      .add(1)
      .tolist(),
  ).toThrowErrorMatchingInlineSnapshot(
    `[TransformError: [eval] a decomposition needs the value of an array. A decomposition states how arrays are computed; it cannot evaluate them]`,
  )
  expect(mx.ones([3]).add(1).tolist()).toEqual([2, 2, 2])
})
