import { grad, vmap } from "@lazuli/transforms"
import { describe, expect, test } from "vitest"
import * as mx from "../index"

const SIZES: Record<string, number> = { a: 2, b: 3, c: 4, d: 5, e: 4, f: 3, g: 2, h: 6, i: 5, j: 4, k: 3 }
const shapeOf = (term: string): number[] => [...term].map((c) => SIZES[c])
const numbers = (a: mx.Array): number[] =>
  globalThis.Array.from(a.toTypedArray() as unknown as ArrayLike<number>)

/** Every combination of the letters' values, in loops. */
function byLoops(inputs: string[], output: string, operands: mx.Array[], sizes = SIZES): number[] {
  const letters = [...new Set(inputs.join("") + output)]
  const data = operands.map((x) => numbers(x))
  const offsetOf = (term: string, shape: readonly number[], at: Record<string, number>): number =>
    [...term].reduce((p, c, axis) => p * shape[axis] + (shape[axis] === 1 ? 0 : at[c]), 0)
  const outShape = [...output].map((c) => sizes[c])
  const result = new globalThis.Array<number>(outShape.reduce((a, b) => a * b, 1)).fill(0)
  const visit = (i: number, at: Record<string, number>): void => {
    if (i === letters.length) {
      const term = inputs.reduce((p, input, k) => p * data[k][offsetOf(input, operands[k].shape, at)], 1)
      result[offsetOf(output, outShape, at)] += term
      return
    }
    for (let v = 0; v < sizes[letters[i]]; v++) visit(i + 1, { ...at, [letters[i]]: v })
  }
  visit(0, {})
  return result
}
function close(got: mx.Array, want: number[], digits = 4): void {
  const worst = numbers(got).reduce((w, v, i) => Math.max(w, Math.abs(v - want[i])), 0)
  expect(got.size).toBe(want.length)
  expect(worst).toBeLessThan(10 ** -digits * Math.max(1, ...want.map(Math.abs)))
}
mx.random.seed(11)

describe("against loops", () => {
  test.each([
    "a->a",
    "ab->ba",
    "ab->",
    "aa->a",
    "aa->",
    "aba->b",
    "aabb->ba",
    "aaa->a",
    "abc->cb",
    "->",
    "a,a->a",
    "a,a->",
    "a,b->ab",
    "a,b->ba",
    "a,b->",
    "ab,bc->ac",
    "ab,bc->ca",
    "ab,cb->ac",
    "ba,bc->ac",
    "ab,ab->",
    "ab,ba->",
    "ab,b->a",
    "b,ab->a",
    "abc,bd->acd",
    "abc,cd->bda",
    "abc,acd->abd",
    "abc,cad->dab",
    "abcd,cdef->feab",
    "abcd,efdc->abef",
    "aab,bcc->ac",
    "baa,bcc->ac",
    "ab,c->b",
    "ab,cd->ad",
    "abc,abd->cd",
    "abc,bac->",
    ",a->a",
    "ab,->ba",
    "a,ab,abc->abc",
    "eb,cb,fb->cef",
    "dd,fb,be,cdb->cef",
    "bca,cdb,dbf,afc->",
    "fff,fae,bef,def->abd",
    "ab,ab,c->c",
    "ab,cd,ef->acdf",
    "ab,bcd,cd->abd",
    "ea,fb,gc,abc->efg",
  ])("%s", (subscripts) => {
    const [left, output] = subscripts.split("->")
    const inputs = left.split(",")
    const operands = inputs.map((term) => mx.random.normal(shapeOf(term)))
    const got = mx.einsum(subscripts, ...operands)
    expect(got.shape).toEqual(shapeOf(output))
    const want = byLoops(inputs, output, operands)
    close(got, want)
    // The same from other layouts.
    const turned = operands.map((x) => mx.contiguous(x.transpose()).transpose())
    close(mx.einsum(subscripts, ...turned), want)
  })
  test("axes of size 1 broadcast, also where they are summed", () => {
    const [x, y] = [mx.random.normal([2, 1]), mx.random.normal([3, 4])]
    close(mx.einsum("ab,bc->ac", x, y), byLoops(["ab", "bc"], "ac", [x, y], { a: 2, b: 3, c: 4 }))
    const [p, q] = [mx.random.normal([2, 1, 3, 1]), mx.random.normal([1, 5, 1, 4])]
    close(
      mx.einsum("abcd,abcd->dcba", p, q),
      byLoops(["abcd", "abcd"], "dcba", [p, q], { a: 2, b: 5, c: 3, d: 4 }),
    )
    const [r, s] = [mx.ones([1, 1]), mx.random.normal([3])]
    close(mx.einsum("aa,a->a", r, s), numbers(s))
    expect(mx.einsum("ab->b", mx.ones([1, 1])).shape).toEqual([1])
  })
  test("empty axes sum to zero", () => {
    expect(mx.einsum("ab,bc->ac", mx.zeros([2, 0]), mx.zeros([0, 3])).tolist()).toEqual([
      [0, 0, 0],
      [0, 0, 0],
    ])
    expect(mx.einsum("ab,bc->ac", mx.zeros([0, 2]), mx.zeros([2, 3])).shape).toEqual([0, 3])
    expect(mx.einsum("a,a->", mx.zeros([0]), mx.zeros([0])).item()).toBe(0)
    expect(mx.einsum("ab->", mx.zeros([0, 2])).item()).toBe(0)
    expect(mx.einsum("aa->a", mx.zeros([0, 0])).shape).toEqual([0])
  })
})

test("without an arrow, with an ellipsis, with spaces", () => {
  const [x, y] = [mx.random.normal([2, 3, 4]), mx.random.normal([2, 4, 5])]
  const product = numbers(x.matmul(y))
  close(mx.einsum("...ij,...jk->...ik", x, y), product)
  close(mx.einsum("...ij , ...jk", x, y), product)
  close(mx.einsum("bij,bjk->bik", x, y), product)
  expect(mx.einsum("ba", mx.ones([2, 3])).shape).toEqual([3, 2])
  expect(mx.einsum("bA", mx.ones([2, 3])).shape).toEqual([3, 2])
  expect(mx.einsum("ij,jh", mx.ones([2, 3]), mx.ones([3, 4])).shape).toEqual([4, 2])
  expect(mx.einsum("i...->...i", mx.ones([2, 3, 4])).shape).toEqual([3, 4, 2])
  expect(mx.einsum("i...,j...->ij...", mx.ones([2, 4]), mx.ones([3, 5, 4])).shape).toEqual([2, 3, 5, 4])
  // Axes of an ellipsis are summed where the output has none.
  expect(mx.einsum("i...->i", mx.ones([2, 3, 4])).tolist()).toEqual([12, 12])
  expect(mx.einsum("...->...", mx.array(3)).item()).toBe(3)
})

test("dtypes are those of the operations", () => {
  const i = mx.array([1, 2, 3], mx.int32)
  expect(mx.einsum("i,i->i", i, i).dtype).toBe(mx.int32)
  expect(mx.einsum("i->", i).dtype).toBe(mx.int32)
  expect(mx.einsum("i,i->", i, i).dtype).toBe(mx.float32)
  expect(mx.einsum("i,i->", i.astype(mx.float64), i).dtype).toBe(mx.float64)
  expect(mx.einsum("i,j->ij", i.astype(mx.float16), i).dtype).toBe(mx.float16)
  const z = mx.array([mx.complex(0, 1), mx.complex(2, 0)])
  expect(String(mx.einsum("i,i->", z, z).item())).toBe("3+0j")
})

test("transforms go through", () => {
  const [a, b] = [mx.random.normal([3, 4], mx.float64), mx.random.normal([4, 2], mx.float64)]
  const f = (x: mx.Array): mx.Array => mx.einsum("ij,jk,lj->", x, b, x)
  const g = numbers(grad(f)(a))
  const eps = 1e-5
  const difference = g.map((_, i) => {
    const step = mx.array(Float64Array.from({ length: 12 }, (_v, k) => (k === i ? eps : 0))).reshape([3, 4])
    return ((f(a.add(step)).item() as number) - (f(a.subtract(step)).item() as number)) / (2 * eps)
  })
  g.forEach((v, i) => {
    expect(v).toBeCloseTo(difference[i], 7)
  })
  const batch = mx.random.normal([5, 3, 4])
  const loop = mx.stack([...batch].map((x) => mx.einsum("ij,ij->i", x, x)))
  close(vmap((x: mx.Array) => mx.einsum("ij,ij->i", x, x))(batch), numbers(loop))
})

describe("einsumPath", () => {
  const sizes = [..."abcdefghijklmopqABC"].map((c, i) => [
    c,
    [2, 3, 4, 5, 4, 3, 2, 6, 5, 4, 3, 2, 5, 7, 4, 3, 2, 3, 4][i],
  ])
  const table = Object.fromEntries(sizes) as Record<string, number>
  // NumPy's answers.
  test.each([
    [
      "eb,cb,fb->cef",
      [
        [0, 2],
        [0, 1],
      ],
    ],
    [
      "dd,fb,be,cdb->cef",
      [
        [0, 3],
        [0, 1],
        [0, 1],
      ],
    ],
    [
      "bca,cdb,dbf,afc->",
      [
        [1, 2],
        [0, 2],
        [0, 1],
      ],
    ],
    [
      "dcc,fce,ea,dbf->ab",
      [
        [1, 2],
        [0, 1],
        [0, 1],
      ],
    ],
    [
      "ea,fb,gc,hd,abcd->efgh",
      [
        [2, 4],
        [2, 3],
        [1, 2],
        [0, 1],
      ],
    ],
    [
      "abhe,hidj,jgba,hiab,gab",
      [
        [2, 4],
        [0, 3],
        [1, 2],
        [0, 1],
      ],
    ],
    [
      "chd,bde,agbc,hiad,bdi,cgh,agdb",
      [
        [3, 4],
        [0, 3],
        [3, 4],
        [1, 3],
        [1, 2],
        [0, 1],
      ],
    ],
  ])("%s", (subscripts, path) => {
    const terms = subscripts.split("->")[0].split(",")
    const operands = terms.map((term) => mx.zeros([...term].map((c) => table[c])))
    expect(mx.einsumPath(subscripts, ...operands)[0]).toEqual(path)
  })
  test("one or two operands, and the description", () => {
    expect(mx.einsumPath("ii", mx.zeros([5, 5]))[0]).toEqual([[0]])
    expect(mx.einsumPath("ij,jk", mx.zeros([5, 8]), mx.zeros([8, 3]))[0]).toEqual([[0, 1]])
    const [, text] = mx.einsumPath("ij,jk,kl", mx.zeros([5, 8]), mx.zeros([8, 10]), mx.zeros([10, 7]))
    expect(text).toMatchInlineSnapshot(`
      "  Complete contraction:  ij,jk,kl
               Naive scaling:  4
           Optimized scaling:  3
            Naive FLOP count:  8400
        Optimized FLOP count:  1680
      "
    `)
  })
})

test("errors", () => {
  const x = mx.ones([3, 6])
  const thrown = (...args: unknown[]): string => {
    try {
      ;(mx.einsum as (...args: unknown[]) => unknown)(...args)
    } catch (error) {
      return String(error)
    }
    return "nothing was thrown"
  }
  expect([
    thrown("ij,jk->ik", x, x),
    thrown("ij->ijk", x),
    thrown("ij,jk->ik", x),
    thrown("ij"),
    thrown("ij->jj", mx.ones([2, 2])),
    thrown("ijk->i", x),
    thrown("i j->>", x),
    thrown("i1->i", x),
    thrown("...i...->i", x),
    thrown("ijk...", x),
    thrown("ii", x),
    thrown(3, x),
    thrown("ij", [1]),
    thrown("ij", x, { device: 1 }),
  ]).toMatchInlineSnapshot(`
    [
      "ShapeError: [einsum] "j" has size 6 before, and 3 in operand 1 of shape (3, 6)",
      "ArgumentError: [einsum] the output's "k" is in no input of "ij->ijk"",
      "ArgumentError: [einsum] "ij,jk->ik" describes 2 operands, received 1",
      "ArgumentError: [einsum] needs at least one operand",
      "ArgumentError: [einsum] the output repeats "j" in "ij->jj"",
      "ShapeError: [einsum] operand 0 of shape (3, 6) does not have the axes of "ijk"",
      "ArgumentError: [einsum] subscripts must be letters, received ">" in ">"",
      "ArgumentError: [einsum] subscripts must be letters, received "1" in "i1"",
      "ArgumentError: [einsum] a term takes one ellipsis at most, received "...i..."",
      "ShapeError: [einsum] operand 0 of shape (3, 6) does not have the axes of "ijk..."",
      "ShapeError: [einsum] "i" stands for the sizes 3 and 6 of one operand of shape (3, 6)",
      "ArgumentError: [einsum] subscripts must be a string, received the number 3",
      "ArgumentError: [einsum] operand 0 must be an array, received a list of length 1. mx.array(data) makes one",
      "ArgumentError: [einsum] has no parameter "device"; it takes subscripts, operands, stream",
    ]
  `)
  expect(mx.einsum("ij->", x, { stream: mx.cpu }).item()).toBe(18)
})

test("many operands: as many as the order of contraction can be found for, and no more", () => {
  const x = mx.array([1, 1])
  const of = (n: number): [string, ...mx.Array[]] => [
    `${new Array(n).fill("i").join(",")}->i`,
    ...new Array<mx.Array>(n).fill(x),
  ]
  const started = performance.now()
  expect(mx.einsum(...of(128)).tolist()).toEqual([1, 1])
  for (const f of [mx.einsum, mx.einsumPath])
    for (const n of [129, 40_000])
      expect(() => f(...of(n))).toThrow(
        `[${f.name}] takes at most 128 operands, received ${n}. Contract them in groups`,
      )
  expect(() => mx.einsum("i".repeat(100_000), x)).toThrow("[einsum] operand 0 of shape (2,)")
  expect(performance.now() - started).toBeLessThan(20_000)
})
