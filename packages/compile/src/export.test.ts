/** CachedPrograms in files: what comes back computes the same, and damaged or hostile files are refused. */

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { integers } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { asCall, definePrimitive } from "@lazuli/core/engine"
import { operation } from "@lazuli/core/plugin"
import { customFunction, grad, vmap } from "@lazuli/transforms"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { compile } from "./compile"
import { exporter, exportFunction } from "./export"
import type { ExportedPart } from "./exported-graph"
import { importFunction } from "./import"
import { shown } from "./program-file"

let folder: string
let count = 0
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "lazuli-export-"))
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))
const fresh = (): string => join(folder, `${++count}.lazuli`)

function roundTrip<A extends unknown[], R>(
  f: (...args: A) => R,
  args: [...A],
  options = {},
): (...args: A) => R {
  const file = fresh()
  exportFunction(file, f, args, options)
  return importFunction<A, R>(file)
}

describe("what comes back from a file", () => {
  const x = mx.array([
    [0.5, -1, 2],
    [3, 0.25, -0.5],
  ])

  test("computes the same, constants and structure included", () => {
    const w = mx.array([
      [1, 2],
      [3, 4],
      [5, 6],
    ])
    const f = (tree: { x: mx.Array; y: mx.Array[] }, k: number) => ({
      sum: tree.x.matmul(w).add(tree.y[0]).multiply(k),
      rest: [tree.y[0], tree.x.index(":", "::-2"), mx.concatenate([tree.x, tree.x.astype(mx.float16)], 1)],
      name: "kept",
    })
    const args: Parameters<typeof f> = [{ x, y: [mx.array([1, -1])] }, 2]
    const [got, want] = [roundTrip(f, args)(...args), f(...args)]
    expect(got.sum.tolist()).toEqual(want.sum.tolist())
    expect(got.rest.map((a) => [a.dtype, a.tolist()])).toEqual(want.rest.map((a) => [a.dtype, a.tolist()]))
    expect(got.name).toBe("kept")
  })

  test("holds every kind of constant", () => {
    const f = (a: mx.Array) => [
      mx.where(a.greater(Number.NEGATIVE_INFINITY), Number.NaN, -0),
      mx.full([1], mx.complex(1, Number.POSITIVE_INFINITY)),
      mx.full([1], 2n ** 62n),
      a.index("1:", null, [0, -1]),
      mx.random.normal([2], { key: mx.random.key(3) }),
    ]
    const [got, want] = [roundTrip(f, [x])(x), f(x)]
    got.forEach((a, i) =>
      expect([a.dtype.name, [...a.toTypedArray()]]).toEqual([
        want[i].dtype.name,
        [...want[i].toTypedArray()],
      ]),
    )
  })

  test("can be differentiated, vectorized and compiled, and holds derivatives itself", () => {
    const f = (a: mx.Array) => a.sin().multiply(a).sum()
    const back = roundTrip(f, [x])
    expect(grad(back)(x).tolist()).toEqual(grad(f)(x).tolist())
    expect(compile((a: mx.Array) => back(a).multiply(2))(x).item()).toBe((f(x).item() as number) * 2)
    const row = roundTrip(f, [x.index(0)])
    expect(vmap(row)(x).tolist()).toEqual(vmap(f)(x).tolist())
    const slope = roundTrip(grad(f), [x], { shapeless: true })
    for (const a of [x, x.T, x.index(":1")]) expect(slope(a).tolist()).toEqual(grad(f)(a).tolist())
    const each = roundTrip(vmap(grad(f)), [x], { shapeless: true })
    expect(each(x.T).tolist()).toEqual(vmap(grad(f))(x.T).tolist())
  })

  test("serves the kinds of arguments that it was traced for, and tells which those are", () => {
    const file = fresh()
    const exporting = exporter(file, (a: mx.Array, b?: mx.Array) => (b ? a.add(b) : a.negative()))
    exporting(mx.ones([2]))
    exporting(mx.ones([2]), mx.ones([2]))
    expect(existsSync(file)).toBe(false)
    exporting.close()
    const f = importFunction(file)
    expect((f(mx.array([1, 2])) as mx.Array).tolist()).toEqual([-1, -2])
    expect((f(mx.array([1, 2]), mx.array([1, 2])) as mx.Array).tolist()).toEqual([2, 4])
    expect(() => f(mx.ones([3]))).toThrow(
      /has no trace for float32\[3\]; it has float32\[2\] and float32\[2\], float32\[2\] \(argument 0: float32\[2\] became float32\[3\]; the arguments: 2 items became 1 item\).*shapeless/,
    )
    expect(() => exporting(mx.ones([2]))).toThrow(/is closed/)
  })

  test("can be part of another file, and of a program for any sizes", () => {
    const back = roundTrip((a: mx.Array) => a.exp().sum(), [x], { shapeless: true })
    const twice = (a: mx.Array): mx.Array => back(a).multiply(2)
    for (const f of [roundTrip(twice, [x], { shapeless: true }), compile(twice, { shapeless: true })])
      for (const a of [x, x.T, x.index(":1")]) expect(f(a).tolist()).toEqual(twice(a).tolist())
  })

  test("takes what is given by name in any order, and says which constant differs", () => {
    const f = roundTrip(
      (a: mx.Array, o: { b: mx.Array; a: mx.Array[]; k: number }) => a.add(o.b).divide(o.a[0]),
      [x, { b: mx.array(1), a: [mx.array(4)], k: 3 }],
    )
    const [a, b] = [[mx.array(2)], mx.array(1)]
    expect(f(x, { k: 3, a, b }).tolist()).toEqual(x.add(1).divide(2).tolist())
    expect(() => f(x, { b, a, k: 4 })).toThrow(/has no trace for .*\(argument 1.k: 3 became 4\)/)
  })

  test("keeps arguments that were given by name, and the defaults of the others", () => {
    const scale = mx.array([1, 2, 3])
    const f = (a: mx.Array) => [
      mx.addmm(scale, a, mx.eye(3), { beta: 0.5 }),
      a.flatten({ endAxis: 0 }),
      mx.nanToNum(a, { posinf: 7 }),
      mx.pad(a, 1, { constantValues: 2 }),
      mx.random.uniform({ high: 3, shape: [2], key: mx.random.key(1) }),
      mx.einsum("ij,kj->ik", a, a),
    ]
    const other = mx.einsum("ij->ji", mx.ones([5, 7]))
    expect(other.shape).toEqual([7, 5])
    for (const options of [{}, { shapeless: true }]) {
      const back = roundTrip(f, [x], options)
      expect(back(x).map((a) => a.tolist())).toEqual(f(x).map((a) => a.tolist()))
    }
    const y = x.index(":1")
    expect(roundTrip(f, [x], { shapeless: true })(y).map((a) => a.tolist())).toEqual(
      f(y).map((a) => a.tolist()),
    )
  })

  test("a shapeless program that depends on sizes says so", () => {
    const f = roundTrip((a: mx.Array) => a.reshape([6]), [x], { shapeless: true })
    expect(() => f(mx.ones([4, 3]))).toThrow(/\[reshape\].*12 elements do not fill 6/)
  })
})

describe("what a file cannot hold", () => {
  test("is a number or an axis that other sizes have others of", () => {
    const sized = (a: mx.Array): mx.Array => mx.arange(a.shape[0])
    expect(() => roundTrip(sized, [mx.ones([3])], { shapeless: true })).toThrow(/at sizes[\s\S]*export\.test/)
    const batched = vmap((column: mx.Array) => column.square(), 1)
    const read = roundTrip(batched, [mx.ones([2, 3])], { shapeless: true })
    expect(() => read(mx.ones([4, 0]))).toThrow(/other numbers/)
  })

  test("is refused when it is written, and no file is left", () => {
    const file = fresh()
    const rule = customFunction((a: mx.Array) => a.exp()).vjp((a, g) => g.multiply(a))
    expect(() => exportFunction(file, rule, [mx.ones([2])])).toThrow(/cannot be written to a file/)
    expect(() => exportFunction(file, (d: object) => d, [new Date()])).toThrow(
      /instance of Date.*parameters\(\)/,
    )
    expect(() => exportFunction(file, (a: mx.Array) => a.sum().item(), [mx.ones([2])])).toThrow(
      /has no value/,
    )
    expect(existsSync(file)).toBe(false)
  })

  test("is refused when it is read", () => {
    const file = fresh()
    exportFunction(file, (a: mx.Array) => a.exp().index(mx.s(1, null)), [mx.ones([2])])
    const bytes = readFileSync(file)
    const changed = (from: string, to: string): string => {
      const other = fresh()
      // The same length: a header says how long it is.
      const text = bytes.toString("latin1")
      if (!text.includes(from)) throw new Error(`${from} is not in the file`)
      writeFileSync(other, Buffer.from(text.replace(from, to.padEnd(from.length)), "latin1"))
      return other
    }
    const cases: [string, string, RegExp][] = [
      ['\\"call\\":\\"exp\\"', '\\"call\\":\\"eXp\\"', /calls "eXp", which no loaded package defines/],
      ['\\"value\\":0', '\\"value\\":9', /used before it is defined/],
      ['\\"results\\":[1]', '\\"results\\":[7]', /out of order/],
      ['\\"version\\":1', '\\"version\\":9', /has version 9/],
      ['\\"slice\\"', '\\"spice\\"', /unknown kind/],
      ['\\"traces\\"', '\\"tracks\\"', /traces are malformed/],
    ]
    expect([shown({ undefined: true }), shown([1, 2]), shown("a")]).toEqual([
      "a plain object",
      "a list of length 2",
      '"a"',
    ])
    for (const [from, to, message] of cases)
      expect(() => importFunction(changed(from, to)), from).toThrow(message)
    for (let length = 0; length < bytes.length; length += 37) {
      const cut = fresh()
      writeFileSync(cut, bytes.subarray(0, length))
      expect(() => importFunction(cut)).toThrow(mx.FormatError)
    }
    const plain = fresh()
    mx.saveSafetensors(`${plain}.safetensors`, { w: mx.ones([1]) })
    expect(() => importFunction(`${plain}.safetensors`)).toThrow(/without a program/)
  })

  test("cannot name what takes code, and is refused where it is no program", () => {
    const forge = (trace: object): string => {
      const file = `${fresh()}.safetensors`
      const whole = { shapeless: false, inputs: [], args: [], calls: [], result: null, ...trace }
      const program = { version: 1, epoch: 0, requires: [], traces: [whole] }
      mx.saveSafetensors(file, { w: mx.ones([1]) }, { lazuli_program: JSON.stringify(program) })
      return file
    }
    const call = (name: string, args: unknown[] = []) => [{ call: name, args, results: [0] }]
    for (const name of [
      "metalKernel",
      "primitive @lazuli/compile/program",
      "primitive @lazuli/transforms/custom",
      "constructor",
    ])
      expect(() => importFunction(forge({ calls: call(name) })), name).toThrow(
        /which no loaded package defines/,
      )
    for (const trace of [
      { inputs: [null] },
      { calls: [null] },
      { args: {} },
      { args: [{ value: 0 }] },
      { inputs: [{ dtype: "float32", shape: [] }], result: { value: 0 } },
      { inputs: [{ dtype: "float32", shape: [] }], args: [{ value: 0 }, { value: 0 }] },
      { result: { nothing: 1 } },
    ])
      expect(() => importFunction(forge(trace))).toThrow(mx.FormatError)
    for (const args of [[], [[]], [3], [{ object: {} }]])
      expect(() =>
        importFunction(forge({ calls: call("primitive matmul", args), result: { value: 0 } }))(),
      ).toThrow(mx.LazuliError)
  })
})

test("metadata comes back, and is empty where there is none", () => {
  const [plain, noted] = [fresh(), fresh()]
  const f = (x: mx.Array): mx.Array => x.add(1)
  exportFunction(plain, f, [mx.array(1)])
  exportFunction(noted, f, [mx.array(1)], { metadata: "made of w.npz" })
  const [g, text] = importFunction<[mx.Array], mx.Array>(noted, { returnMetadata: true })
  expect([g(mx.array(2)).item(), text, importFunction(plain, true)[1]]).toEqual([3, "made of w.npz", ""])
  expect(() => exportFunction(noted, f, [mx.array(1)], { metadata: 3 as never })).toThrow(
    "[exportFunction] metadata must be a string, received the number 3",
  )
})

test("a callback is told the graph: inputs, outputs, constants, and every primitive after those that it reads", () => {
  const w = mx.array([1, 2])
  const parts: ExportedPart[] = []
  const f = (tree: { x: mx.Array }, k: mx.Array) => ({ y: tree.x.multiply(w).transpose(), same: k, w })
  exportFunction((part) => parts.push(part), f, [{ x: mx.ones([3, 2]) }, mx.array(2)])
  expect(
    parts.map((part) =>
      part.type === "constants" ? part.constants.map(({ name, value }) => [name, value.tolist()]) : part,
    ),
  ).toEqual([
    {
      type: "inputs",
      inputs: [
        { name: "input0", shape: [3, 2], dtype: mx.float32, path: "0.x" },
        { name: "input1", shape: [], dtype: mx.float32, path: "1" },
      ],
    },
    {
      type: "outputs",
      outputs: [
        { name: "value3", shape: [2, 3], dtype: mx.float32, path: "y" },
        { name: "input1", shape: [], dtype: mx.float32, path: "same" },
        { name: "constant4", shape: [2], dtype: mx.float32, path: "w" },
      ],
    },
    [
      ["constant2", [1, 2]],
      ["constant4", [1, 2]],
    ],
    {
      type: "primitive",
      name: "multiply",
      inputs: ["input0", "constant2"],
      outputs: [{ name: "value5", shape: [3, 2], dtype: mx.float32 }],
      params: {},
    },
    {
      type: "primitive",
      name: "transpose",
      inputs: ["value5"],
      outputs: [{ name: "value3", shape: [2, 3], dtype: mx.float32 }],
      params: { axes: [1, 0] },
    },
  ])
  expect(() => exportFunction(() => {}, f, [{ x: w }, w], { shapeless: true })).toThrow(
    "[exportFunction] a callback",
  )
})

test("arrays of another copy of core are refused by the function that was called", () => {
  class Foreign {}
  Object.defineProperty(Foreign.prototype, Symbol.for("@lazuli/core/copy"), {
    value: { url: "file:///far/index.js" },
  })
  const far = new Foreign() as never
  const x = mx.ones([2])
  const path = join(folder, "foreign.lazuli")
  const same = (a: mx.Array): mx.Array => a
  const calls: [name: string, call: () => unknown][] = [
    ["exportFunction", () => exportFunction(path, same, [far])],
    ["exportFunction", () => exportFunction(path, (_x: mx.Array) => [far], [x])],
    ["exportFunction", () => exportFunction(() => {}, same, [far])],
    [
      "exportFunction",
      () =>
        exportFunction(
          () => {},
          (_x: mx.Array) => [far],
          [x],
        ),
    ],
    ["exporter", () => exporter(path, (_x: mx.Array) => [far])(x)],
  ]
  for (const [name, call] of calls)
    expect(call).toThrow(`[${name}] a leaf is an mx.Foreign of another copy of @lazuli/core`)
})

test("exporting draws no random numbers, and neither does opening a file", () => {
  const file = fresh()
  const draw = (x: mx.Array): mx.Array => x.add(mx.random.uniform())
  mx.random.seed(5)
  const numbers = [mx.random.uniform().item(), mx.random.uniform().item()]
  mx.random.seed(5)
  exportFunction(file, draw, [mx.array(0)])
  const f = importFunction<[mx.Array], mx.Array>(file)
  expect([f(mx.array(0)).item(), mx.random.uniform().item()]).toEqual(numbers)
})

test("functions of other packages are named with them, with the version that they say", () => {
  const scaleOf = operation(
    "@someone/scales/scale",
    ["x", "by"],
    (x: mx.Array, by: number) => x.multiply(by),
    {
      version: "2.1.0",
    },
  )
  const file = fresh()
  exportFunction(file, (x: mx.Array) => scaleOf([x, 3]), [mx.ones([2])])
  expect(importFunction<[mx.Array], mx.Array>(file)(mx.ones([2])).tolist()).toEqual([3, 3])
  const text = readFileSync(file, "latin1")
  expect(text).toContain('"requires\\":[{\\"package\\":\\"@someone/scales\\",\\"version\\":\\"2.1.0\\"}]')
  const other = fresh()
  writeFileSync(other, text.replaceAll("@someone/scales", "@someone/scalez"), "latin1")
  expect(() => importFunction(other)).toThrow(
    "applies the @someone/scalez/scale of @someone/scalez@2.1.0, which is not loaded. Install @someone/scalez@2.1.0 and import it before the file is read",
  )
})

describe("primitives of other packages", () => {
  const thrice = definePrimitive({
    name: "@someone/ops/thrice",
    version: "1.4.2",
    infer: ([{ shape, dtype }]) => ({ shape, dtype }),
    decompose: ([x]) => x.multiply(3),
  })
  const shiftOf = asCall("@someone/layers/shift", (x: mx.Array): mx.Array => x.add(1))
  let bytes: Buffer
  beforeAll(() => {
    const file = fresh()
    exportFunction(file, (x: mx.Array) => shiftOf(thrice([x])), [mx.ones([2])])
    bytes = readFileSync(file)
  })
  const changed = (...replacements: [from: string, to: string][]): string => {
    const file = fresh()
    let text = bytes.toString("latin1")
    for (const [from, to] of replacements) {
      // A header says how long it is.
      if (!text.includes(from) || from.length !== to.length)
        throw new Error(`cannot replace ${from} by ${to}`)
      text = text.replaceAll(from, to)
    }
    writeFileSync(file, Buffer.from(text, "latin1"))
    return file
  }
  const open = (file: string): unknown => importFunction<[mx.Array], mx.Array>(file)(mx.ones([2])).tolist()

  test("are named with their version, and compatible versions serve", () => {
    expect(bytes.toString("latin1")).toContain(
      '"requires\\":[{\\"package\\":\\"@someone/ops\\",\\"version\\":\\"1.4.2\\"},{\\"package\\":\\"@someone/layers\\",\\"version\\":null}]',
    )
    expect(open(changed())).toEqual([4, 4])
    expect(open(changed(["1.4.2", "1.9.0"]))).toEqual([4, 4])
  })

  test.each<[string, [string, string][], RegExp]>([
    [
      "whose package is not loaded",
      [["@someone/ops", "@nobody1/ops"]],
      /applies the primitive @nobody1\/ops\/thrice of @nobody1\/ops@1\.4\.2, which is not loaded\. Install @nobody1\/ops@1\.4\.2 and import it/,
    ],
    [
      "that another version of the package lacks",
      [["ops/thrice", "ops/thrixe"]],
      /primitive @someone\/ops\/thrixe of @someone\/ops@1\.4\.2, which is not loaded/,
    ],
    [
      "whose package is loaded in an older version",
      [["1.4.2", "2.0.0"]],
      /of @someone\/ops@2\.0\.0, but @someone\/ops@1\.4\.2 is loaded\. Install @someone\/ops@2\.0\.0, or export the function again with 1\.4\.2/,
    ],
    [
      "whose package is loaded in another version from before 1.0",
      [["1.4.2", "0.3.1"]],
      /of @someone\/ops@0\.3\.1, but @someone\/ops@1\.4\.2 is loaded/,
    ],
    [
      "beside functions of a package that is not loaded",
      [["layers/shift", "layers/shaft"]],
      /applies the @someone\/layers\/shaft of @someone\/layers, which is not loaded\. Install @someone\/layers and import it/,
    ],
  ])("%s are refused", (_what, replacements, message) => {
    const file = changed(...replacements)
    expect(() => importFunction(file)).toThrow(message)
    expect(() => importFunction(file)).toThrow(mx.TransformError)
  })
})

test("a file with any bit changed is refused, or is another program: nothing else happens", () => {
  const w = mx.array([[1, 2]])
  const file = fresh()
  exportFunction(
    file,
    (a: mx.Array, options: { k: number }) => ({
      y: mx.concatenate([a.index("1:", [0, -1]).multiply(options.k), w.astype(mx.float16)], 0).softmax(-1),
      z: mx.random.normal([2], { key: mx.random.key(3) }).add(mx.full([2], 2n ** 40n)),
    }),
    [mx.ones([2, 2]), { k: 2 }],
    { shapeless: true },
  )
  const bytes = readFileSync(file)
  const outcomes = { refused: 0, other: 0 }
  const random = integers(1)
  for (let i = 0; i < 600; i++) {
    const spoiled = Buffer.from(bytes)
    const bit = random(8 * bytes.length)
    spoiled[bit >> 3] ^= 1 << (bit & 7)
    writeFileSync(file, spoiled)
    try {
      mx.eval(importFunction(file)(mx.ones([3, 2]), { k: 2 }))
      outcomes.other++
    } catch (error) {
      if (!(error instanceof mx.LazuliError)) throw error
      outcomes.refused++
    }
  }
  expect(outcomes.refused).toBeGreaterThan(300)
  expect(outcomes.other).toBeGreaterThan(10)
})

test("keys such as __proto__ come through captured state and files", () => {
  const keyed = (x: mx.Array): Record<string, mx.Array> => Object.fromEntries([["__proto__", x]])
  const f = (tree: Record<string, mx.Array>) => keyed(Object.values(tree)[0].add(1))
  const path = join(folder, "keys.lazuli")
  exportFunction(path, f, [keyed(mx.array(1))])
  for (const run of [compile(f), importFunction<[Record<string, mx.Array>], object>(path)]) {
    const result = run(keyed(mx.array(4)))
    expect(Object.getPrototypeOf(result)).toBe(Object.prototype)
    expect(Object.entries(result).map(([key, x]) => [key, (x as mx.Array).item()])).toEqual([
      ["__proto__", 5],
    ])
  }
  const state: Record<string, unknown> = {}
  const put = compile(
    (x: mx.Array) => {
      Object.defineProperty(state, "__proto__", {
        value: x.add(1),
        writable: true,
        enumerable: true,
        configurable: true,
      })
      return x
    },
    { inputs: state, outputs: state },
  )
  for (const k of [1, 2]) {
    put(mx.array(k))
    expect(Object.getPrototypeOf(state)).toBe(Object.prototype)
    expect((Object.entries(state)[0][1] as mx.Array).item()).toBe(k + 1)
  }
})
