/**
 * Results that are unique only up to a choice: backends that choose otherwise pass, backends that are wrong do not.
 */
import * as mx from "@lazuli/core"
import { definePrimitive, type Storage } from "@lazuli/core/engine"
import { expect, test } from "vitest"
import { encodeReference, registerEdited } from "../../test/edited-backend"
import { INVARIANTS } from "./invariants"
import { kernelColumn } from "./kernels"
import { opCheck } from "./op-check"
import { values } from "./values"

const tall = values([4, 3], -1, 1, 5)
const square = values([3, 3], -1, 1, 4)
const { linalg } = mx

const storeOf = (storage: Storage | null): Float64Array => {
  const bytes = storage?.bytes as ArrayBuffer
  // Pivots are integers of four bytes.
  return new Float64Array(bytes, 0, bytes.byteLength >> 3)
}

type Edit = (outputs: Float64Array[]) => void
let count = 0
/** The kit's verdict on the reference backend with the float64 results of a primitive edited. */
function edited(
  primitive: string,
  f: (x: mx.Array) => mx.Array,
  input: mx.Array,
  edit: Edit,
  { layout = "row-major", within = primitive } = {},
): string {
  const name = `edits${count++}`
  registerEdited(name, (node) => {
    encodeReference(node)
    if (node.primitive?.name !== within || node.dtype !== mx.float64) return
    edit((node.outputs ?? [node]).map(({ storage }) => storeOf(storage)))
  })
  // Edits are of the input's own size.
  const column = kernelColumn(name, {
    ...{ dtypes: [mx.float64], fillings: ["as given"], layouts: [layout], drawnSizes: [] },
  })
  const [{ status, reason }] = opCheck(primitive, [{ f, inputs: [input] }], { columns: [column] }).results
  return status === "failed" ? (reason as string).replace(/ is -?\d.*$/, "") : status
}

test("other choices, and mistakes", () => {
  const flip = (x: Float64Array, at: readonly number[]): void => at.forEach((i) => (x[i] *= -1))
  const qr = (edit: Edit) => edited("qr", (x) => linalg.qr(x)[0], tall, edit)
  const svd = (edit: Edit) => edited("svd", (x) => linalg.svd(x)[0], square, edit)
  const eigh = (edit: Edit) => edited("eigh", (x) => linalg.eigh(x)[0], square, edit)
  const lu = (edit: Edit) => edited("lu", (x) => linalg.luFactor(x)[0], tall, edit)
  expect({
    "qr as it is": qr(() => {}),
    "qr, a column and a row turned": qr(([q, r]) => {
      flip(q, [0, 3, 6, 9])
      flip(r, [0, 1, 2])
    }),
    "qr, a column turned alone": qr(([q]) => flip(q, [0, 3, 6, 9])),
    "qr, a length of two and of a half": qr(([q, r]) => {
      for (const i of [0, 3, 6, 9]) q[i] *= 2
      for (const i of [0, 1, 2]) r[i] /= 2
    }),
    "qr, something below the diagonal": qr(([, r]) => (r[3] = 1e-3)),
    "svd, both vectors turned": svd(([u, , vt]) => {
      flip(u, [1, 4, 7])
      flip(vt, [3, 4, 5])
    }),
    "svd, in another order": svd(([u, s, vt]) => {
      s.reverse()
      for (let i = 0; i < 9; i += 3) u.subarray(i, i + 3).reverse()
      for (let j = 0; j < 3; j++) [vt[j], vt[6 + j]] = [vt[6 + j], vt[j]]
    }),
    "eigh, a vector turned": eigh(([, v]) => flip(v, [0, 3, 6])),
    "eigh, a vector twice": eigh(([, v]) => [1, 4, 7].forEach((i) => (v[i] = v[i - 1]))),
    "lu, one number wrong": lu(([packed]) => (packed[5] += 1e-6)),
  }).toMatchInlineSnapshot(`
    {
      "eigh, a vector turned": "ok",
      "eigh, a vector twice": "as given, row-major: element 1 of A·V",
      "lu, one number wrong": "as given, row-major: element 5 of L[p]·U",
      "qr as it is": "ok",
      "qr, a column and a row turned": "ok",
      "qr, a column turned alone": "as given, row-major: element 0 of Q·R",
      "qr, a length of two and of a half": "as given, row-major: element 0 of Qᴴ·Q",
      "qr, something below the diagonal": "as given, row-major: element 0 of Q·R",
      "svd, both vectors turned": "ok",
      "svd, in another order": "as given, row-major: element 0 of the singular values",
    }
  `)
})

test("lu without pivots, or with pivots that say something else", () => {
  const check = (packed: mx.Array, pivots: number[], permutation: number[], a: mx.Array): string[] => {
    const outputs = [packed, mx.array(pivots, mx.uint32), mx.array(permutation, mx.uint32)]
    const pairs = INVARIANTS.lu({ inputs: [a], outputs, reference: outputs, params: {} })
    return Object.entries(pairs).flatMap(([what, [got, want]]) =>
      mx.allclose(got, want, 1e-6, 1e-6).item() ? [] : [what],
    )
  }
  const a = mx.array([
    [1, 2],
    [4, 4],
  ])
  expect(
    check(
      mx.array([
        [4, 4],
        [0.25, 1],
      ]),
      [1, 1],
      [1, 0],
      a,
    ),
  ).toEqual([])
  expect(
    check(
      mx.array([
        [1, 2],
        [4, -4],
      ]),
      [0, 1],
      [0, 1],
      a,
    ),
  ).toEqual(["L where it exceeds what pivots allow"])
  expect(
    check(
      mx.array([
        [4, 4],
        [0.25, 1],
      ]),
      [0, 1],
      [1, 0],
      a,
    ),
  ).toEqual(["the permutation that follows from the pivots"])
})

test("eigenvalues count with their multiplicity", () => {
  const a = mx.diag(mx.array([2, 2, 5]))
  const wrong = (...w: number[]): string[] =>
    Object.entries(
      INVARIANTS.eigvals({
        inputs: [a],
        outputs: [mx.array(w).astype(mx.complex64)],
        reference: [],
        params: {},
      }),
    ).flatMap(([what, [got, want]]) => (mx.allclose(got, want, 1e-5, 1e-5).item() ? [] : [what]))
  expect(wrong(5, 2, 2)).toEqual([])
  expect(wrong(5, 5, 2).length).toBeGreaterThan(0)
  expect(wrong(5, 2, 2.01).length).toBeGreaterThan(0)
})

test("a determinant of 0 may be tiny, and no more", () => {
  // With one row in place of all it is singular: the last number of U is 0.
  const found = (last: number) =>
    edited(
      "slogdet",
      (x) => linalg.slogdet(x)[1],
      square,
      ([packed]) => {
        for (const i of [4, 8]) if (packed[i] === 0) packed[i] = last
      },
      { layout: "broadcast", within: "lu" },
    )
  // The reference backend has no kernel for it.
  const agrees = "not applicable"
  expect([found(0), found(-1e-16), found(1e-3)]).toEqual([
    agrees,
    agrees,
    "as given, broadcast: element 0 of output 0",
  ])
})

test("a primitive of another package says itself what holds of its results", () => {
  // A square root, of whichever sign.
  const apply = definePrimitive({
    name: "@lazuli/conformance-test/anyRoot",
    infer: ([x]) => x,
    reference: ([x], [out]) => {
      for (let i = 0; i < x.data.length; i++) out.data[i] = Math.sqrt(x.data[i] as number)
    },
    facts: { ambiguous: true },
  })
  registerEdited("negative roots", (node) => {
    encodeReference(node)
    if (node.primitive !== apply.primitive || node.dtype !== mx.float64) return
    new Float64Array(node.storage?.bytes as ArrayBuffer).forEach((v, i, all) => (all[i] = -v))
  })
  const check = (options: Parameters<typeof kernelColumn>[1]): string => {
    const column = kernelColumn("negative roots", {
      dtypes: [mx.float64],
      fillings: ["as given"],
      ...options,
    })
    const [{ status, reason }] = opCheck(apply, [{ inputs: [values([3])] }], { columns: [column] }).results
    return status === "failed" ? (reason as string).replace(/ is -?\d.*$/, "") : status
  }
  const { name } = apply.primitive
  expect([
    check({}),
    check({ invariants: { [name]: ({ inputs: [x], outputs: [y] }) => ({ "the square": [y.square(), x] }) } }),
    check({ invariants: { [name]: ({ outputs: [y] }) => ({ "the sign": [mx.sign(y), mx.onesLike(y)] }) } }),
  ]).toMatchInlineSnapshot(`
    [
      "its results are ambiguous, and invariants["@lazuli/conformance-test/anyRoot"] does not say what holds of them (sample 0: float64[3])",
      "ok",
      "as given, row-major: element 0 of the sign",
    ]
  `)
})
