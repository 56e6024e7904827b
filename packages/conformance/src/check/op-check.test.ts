/**
 * The kit itself: it passes what is right, and says what is wrong with deliberately wrong primitives and backends.
 */
import * as mx from "@lazuli/core"
import { definePrimitive, isInexact, type Node, type PrimitiveRules, promote } from "@lazuli/core/engine"
import { checkpoint } from "@lazuli/transforms"
import { expect, test, vi } from "vitest"
import "@lazuli/backend-cpu"
import { encodeReference, registerEdited } from "../../test/edited-backend"
import { kernelColumn } from "./kernels"
import { formatChecks, type OpCheckOptions, type OpReport, opCheck } from "./op-check"
import { exportColumn, shapelessColumn } from "./programs"
import { numbers } from "./values"

const x = mx.array(Float64Array.from(numbers(6))).reshape([2, 3])
const y = mx.array(Float64Array.from(numbers(3, 1, 2))).reshape([3])

type Params = { readonly alpha: number; readonly beta: number }
const params = { alpha: 2, beta: 3 }
const right: PrimitiveRules<Params> = {
  infer: ([a, b]) => {
    const dtype = promote(a.dtype, b.dtype)
    if (!isInexact(dtype)) throw new mx.DTypeError("axpby", `needs a floating dtype, received ${dtype.name}`)
    return { shape: mx.broadcastShapes(a.shape, b.shape), dtype }
  },
  decompose: ([a, b], { alpha, beta }) => a.multiply(alpha).add(b.multiply(beta)),
  vjp: ({ cotangents: [g], inputs, params: { alpha, beta } }) => {
    const sumTo = (t: mx.Array, like: mx.Array): mx.Array =>
      t.ndim > like.ndim ? t.sum(globalThis.Array.from({ length: t.ndim - like.ndim }, (_, i) => i)) : t
    return [sumTo(g.multiply(alpha), inputs[0]), sumTo(g.multiply(beta), inputs[1])]
  },
  jvp: ({ tangents: [s, t], outputs: [out], params: { alpha, beta } }) => {
    const parts = [s?.multiply(alpha), t?.multiply(beta)].filter((part) => part !== undefined)
    return [parts.reduce((a, b) => a.add(b)).broadcastTo(out.shape)]
  },
}
let count = 0
/** axpby with some rules replaced, checked. */
function axpby(rules: Partial<PrimitiveRules<Params>>, options: OpCheckOptions = { backends: [] }): OpReport {
  const apply = definePrimitive({
    name: `@lazuli/conformance-test/axpby${count++}`,
    params: { alpha: "f64", beta: "f64" },
    ...right,
    ...rules,
  })
  return opCheck(apply, [{ inputs: [x, y], params }], options)
}
const failures = (report: OpReport): Record<string, string> =>
  Object.fromEntries(
    report.results.flatMap(({ column, status, reason }) =>
      status === "failed" ? [[column, (reason as string).replace(/-?\d+\.\d+/g, "…")]] : [],
    ),
  )

test("a primitive whose rules are right passes every column", () => {
  const report = axpby({}, {})
  expect(failures(report)).toEqual({})
  expect(report.ok).toBe(true)
  expect(report.results.map(({ column }) => column)).toEqual(
    "infer,cpu,jvp,vjp,second order,dtypes,vmap,compiled,shapeless,export,memory".split(","),
  )
})

test("the jvp of MLX's documentation, whose condition is inverted", () => {
  // `if (argnums.size() > 1)` there scales the one tangent, and adds two tangents otherwise.
  const report = axpby({
    jvp: ({ tangents: [s, t], params: { alpha, beta }, outputs: [out] }) => {
      if (s && t) return [s.multiply(alpha).broadcastTo(out.shape)]
      const only = (s ?? t) as mx.Array
      return [only.multiply(alpha).add(only.multiply(beta)).broadcastTo(out.shape)]
    },
  })
  expect(failures(report)).toMatchInlineSnapshot(`
    {
      "dtypes": "in float32: ⟨c, J·t⟩ is …, ⟨Jᴴ·c, t⟩ … (sample 0: float64[2,3], float64[3] with {"alpha":2,"beta":3})",
      "jvp": "w.r.t. inputs 0: element 0 of output 0 is …, the difference quotient … (sample 0: float64[2,3], float64[3] with {"alpha":2,"beta":3})",
      "vjp": "w.r.t. inputs 0: ⟨c, J·t⟩ is …, ⟨Jᵀ·c, t⟩ … (sample 0: float64[2,3], float64[3] with {"alpha":2,"beta":3})",
    }
  `)
})

test("derivatives that are wrong for some arguments, some orders, some dtypes", () => {
  const grads = (context: Parameters<NonNullable<typeof right.vjp>>[0]): (mx.Array | null)[] => [
    ...(right.vjp as NonNullable<typeof right.vjp>)(context),
  ]
  const wrong: Record<string, Partial<PrimitiveRules<Params>>> = {
    "twice too large": { vjp: (c) => grads(c).map((g) => g?.multiply(2) ?? null) },
    "right only when all are wanted": {
      vjp: (c) => (c.wanted.every(Boolean) ? grads(c) : grads(c).map((g) => g?.multiply(2) ?? null)),
    },
    "constant to itself": {
      decompose: ([a, b]) => a.multiply(a).add(b),
      vjp: (c) => [
        c.cotangents[0].multiply(mx.stopGradient(c.inputs[0])).multiply(2),
        c.cotangents[0].sum(0),
      ],
      jvp: undefined,
    },
  }
  expect(
    Object.fromEntries(Object.entries(wrong).map(([name, rules]) => [name, failures(axpby(rules))])),
  ).toMatchInlineSnapshot(`
    {
      "constant to itself": {
        "dtypes": "in complex64: ⟨c, J·t⟩ is …, ⟨Jᴴ·c, t⟩ … (sample 0: float64[2,3], float64[3] with {"alpha":2,"beta":3})",
        "second order": "forward over reverse: element 0 w.r.t. input 0 is 0, the difference quotient … (sample 0: float64[2,3], float64[3] with {"alpha":2,"beta":3})",
      },
      "right only when all are wanted": {
        "vjp": "w.r.t. inputs 0 of 0,1: element 0 is …, expected … (sample 0: float64[2,3], float64[3] with {"alpha":2,"beta":3})",
      },
      "twice too large": {
        "dtypes": "in float32: ⟨c, J·t⟩ is …, ⟨Jᴴ·c, t⟩ … (sample 0: float64[2,3], float64[3] with {"alpha":2,"beta":3})",
        "vjp": "w.r.t. inputs 0: ⟨c, J·t⟩ is …, ⟨Jᵀ·c, t⟩ … (sample 0: float64[2,3], float64[3] with {"alpha":2,"beta":3})",
      },
    }
  `)
})

test("batches, promises, memory and compiled calls that are wrong", () => {
  const kept: mx.Array[] = []
  const tile = (reference: PrimitiveRules<object>["reference"], vmap?: PrimitiveRules<object>["vmap"]) => {
    const apply = definePrimitive({
      name: `@lazuli/conformance-test/tile${count++}`,
      infer: ([a]) => ({ shape: [a.shape[0]], dtype: a.dtype }),
      reference,
      vjp: () => [null],
      jvp: () => [null],
      vmap,
    })
    return failures(opCheck(apply, [{ inputs: [mx.array([1, 2, 5], mx.int32)] }], { backends: ["cpu"] }))
  }
  let calls = 0
  expect({
    "writes too much": tile(([a], [out]) => {
      for (let i = 0; i <= a.data.length; i++) out.data[i] = i
    }),
    "has no batching rule": tile(([a], [out]) => out.data.set(a.data)),
    "takes the wrong axis": tile(
      ([a], [out]) => out.data.set(a.data),
      ({ inputs }) => ({ outputs: [inputs[0]], axes: [0] }),
    ),
    "is not a function": tile(
      ([a], [out]) => {
        for (let i = 0; i < a.data.length; i++) out.data[i] = calls++
      },
      ({ inputs, axes }) => ({ outputs: [inputs[0]], axes }),
    ),
    "throws for a batch": tile(
      ([a], [out]) => out.data.set(a.data),
      () => {
        throw new mx.ShapeError("tile", "expected one axis")
      },
    ),
    "keeps what it makes": failures(
      axpby({
        vjp: (c) => {
          const made = (right.vjp as NonNullable<typeof right.vjp>)(c)
          kept.push(...(made as mx.Array[]))
          return made
        },
      }),
    ).memory?.replace(/\d+/g, "N"),
  }).toMatchInlineSnapshot(`
    {
      "has no batching rule": {
        "vmap": "has no rule: it runs example by example (sample 0: int32[3])",
      },
      "is not a function": {
        "compiled": "output 0 of the first call: element 0 is 34, expected 37 (sample 0: int32[3])",
        "cpu": "as given, row-major: element 0 of output 0 is 22, the reference's 19 (sample 0: int32[3])",
        "export": "output 0 from a file: element 0 is 46, expected 49 (sample 0: int32[3])",
        "infer": "Cannot convert 18 to a BigInt (sample 0: int32[3])",
        "shapeless": "output 0 as traced: element 0 is 40, expected 43 (sample 0: int32[3])",
        "vmap": "over inputs 0, batch axis first: element 0 is 1, expected 25 (sample 0: int32[3])",
      },
      "keeps what it makes": "N bytes in N buffers were in use before, N in N after (sample N: floatN[N,N], floatN[N] with {"alpha":N,"beta":N})",
      "takes the wrong axis": {
        "vmap": "over inputs 0, batch axis last: element 1 is 5, expected 2 (sample 0: int32[3])",
      },
      "throws for a batch": {
        "vmap": "over inputs 0, batch axis first: [tile] expected one axis (sample 0: int32[3])",
      },
      "writes too much": {
        "cpu": "Cannot convert 0 to a BigInt (sample 0: int32[3])",
        "infer": "@lazuli/conformance-test/tile5 writes element 3 of 3 that infer promises: int32[3] (sample 0: int32[3])",
        "vmap": "has no rule: it runs example by example (sample 0: int32[3])",
      },
    }
  `)
})

test("calls that are traced for each size, or give something else from a file", () => {
  const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {})
  let calls = 0
  const check = (f: (...xs: mx.Array[]) => mx.Array): OpReport =>
    opCheck("add", [{ f, inputs: [x] }], { columns: [shapelessColumn, exportColumn] })
  expect({
    right: failures(check((a) => a.add(a.sum(0)))),
    "sizes outside of calls": failures(check((a) => a.add(a.shape[0]))),
    "what changes": failures(check((a) => a.add(calls++))),
  }).toMatchInlineSnapshot(`
    {
      "right": {},
      "sizes outside of calls": {
        "shapeless": "is traced anew with inputs 0 twice as long along axis 0 (sample 0: float64[2,3], float64[])",
      },
      "what changes": {
        "export": "output 0 from a file: element 0 is …, expected … (sample 0: float64[2,3], float64[])",
        "shapeless": "output 0 as traced: element 0 is …, expected … (sample 0: float64[2,3], float64[])",
      },
    }
  `)
  expect(check((a) => checkpoint((b: mx.Array) => b.add(1))(a)).results.map(({ reason }) => reason)).toEqual([
    null,
    expect.stringContaining("what @lazuli/transforms/custom does cannot be written to a file"),
  ])
  warn.mockRestore()
})

/** The reference backend with one kernel of its own. */
function backendWith(name: string, kernel: (node: Node) => void): void {
  registerEdited(name, (node) => (node.primitive?.name === "negative" ? kernel(node) : encodeReference(node)))
}
/** Bytes behind a node, from its first element on. */
const bytes = (node: Node): Uint8Array => new Uint8Array(node.storage?.bytes as ArrayBuffer)

test("backends whose kernels are wrong in some dtypes, layouts or corners", () => {
  backendWith("layouts", (node) => {
    const [input] = node.inputs
    const { strides } = input
    input.strides = null
    encodeReference(node)
    input.strides = strides
  })
  backendWith("offsets", (node) => {
    const [input] = node.inputs
    const { offset } = input
    input.offset = 0
    encodeReference(node)
    input.offset = offset
  })
  backendWith("halves", (node) => {
    encodeReference(node)
    if (node.dtype === mx.bfloat16 && node.size > 0) bytes(node)[1] ^= 1
  })
  backendWith("empty", (node) => {
    if (node.size === 0) throw new mx.DeviceError("negative", "cannot launch 0 threads")
    encodeReference(node)
  })
  const report = opCheck("negative", [{ inputs: [x] }], {
    backends: ["layouts", "offsets", "halves", "empty"],
  })
  expect(failures(report)).toMatchInlineSnapshot(`
    {
      "empty": "empty along axis 0, row-major: [negative] cannot launch 0 threads (sample 0: float64[2,3])",
      "halves": "bfloat16, as given, row-major: element 0 of output 0 is …, the reference's … (sample 0: float64[2,3])",
      "layouts": "as given, transposed: element 1 of output 0 is …, the reference's … (sample 0: float64[2,3])",
      "offsets": "as given, reversed: element 0 of output 0 is …, the reference's … (sample 0: float64[2,3])",
    }
  `)
})

test("backends that write what is not finite", () => {
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY])
    registerEdited(`only ${value}`, (node) => {
      encodeReference(node)
      if (node.primitive?.name !== "matmul" && node.primitive?.name !== "negative") return
      const { buffer, byteOffset, byteLength } = bytes(node)
      if (node.dtype === mx.float64) new Float64Array(buffer, byteOffset, byteLength / 8).fill(value)
      if (node.dtype === mx.float32) new Float32Array(buffer, byteOffset, byteLength / 4).fill(value)
    })
  const backends = ["only NaN", "only Infinity"]
  for (const dtype of [mx.float64, mx.float32])
    for (const filling of ["as given", "of both signs", "special"] as const) {
      const columns = backends.map((name) => kernelColumn(name, { dtypes: [dtype], fillings: [filling] }))
      const elementwise = opCheck("negative", [{ inputs: [x.astype(dtype)] }], { columns })
      const product = opCheck("matmul", [{ inputs: [x.astype(dtype), x.T.astype(dtype)] }], { columns })
      for (const report of [elementwise, product])
        expect(Object.keys(failures(report)), `${report.primitive} ${dtype.name} ${filling}`).toEqual(
          backends,
        )
    }
})

test("what no sample uses is not ok", () => {
  for (const samples of [[], [{ f: (a: mx.Array) => a.add(1), inputs: [x] }]]) {
    const report = opCheck("exp", samples, { backends: [] })
    expect(report.ok).toBe(false)
    expect(new Set(Object.values(failures(report)))).toEqual(new Set(["no sample uses the primitive"]))
  }
  expect(opCheck("exp", [], { columns: [] }).ok).toBe(false)
  expect(opCheck("exp", [{ f: (a: mx.Array) => a.exp(), inputs: [x] }], { backends: [] }).ok).toBe(true)
})

test("a column of one's own, and the table", () => {
  const report = opCheck("negative", [{ inputs: [x] }], {
    columns: [
      { name: "named", check: ({ primitive }) => (primitive.name.length > 3 ? null : "too short to tell") },
      { name: "odd", check: ({ inputs }) => (inputs.length > 1 ? null : "has one input") },
      {
        name: "bad",
        check: () => {
          throw new Error("never")
        },
      },
    ],
  })
  expect(report).toMatchInlineSnapshot(`
    {
      "ok": false,
      "primitive": "negative",
      "results": [
        {
          "column": "named",
          "reason": null,
          "status": "ok",
        },
        {
          "column": "odd",
          "reason": "has one input",
          "status": "not applicable",
        },
        {
          "column": "bad",
          "reason": "never (sample 0: float64[2,3])",
          "status": "failed",
        },
      ],
    }
  `)
  expect(formatChecks([report])).toMatchInlineSnapshot(`
    "primitive  named  odd  bad
    negative   ok     –    FAILED

    negative, bad: never (sample 0: float64[2,3])"
  `)
})

test("a sample whose function gives a list is refused with the way to check several outputs", () => {
  const f = ((x: mx.Array) => mx.split(x, 2)) as unknown as (x: mx.Array) => mx.Array
  expect(() => opCheck("negative", [{ f, inputs: [mx.ones([2])] }])).toThrow(
    "[opCheck] a sample's f must give one array, received",
  )
})
