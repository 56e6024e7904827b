/**
 * Results that are unique only up to a choice: the order within the sides of a partition, the signs of singular vectors, the rounding
 * of ties when quantizing. What must hold instead is checked on matrices of JavaScript numbers, in double precision.
 */
import type * as mx from "@lazuli/core"
import { compareHost, expectedOf, type HostValues, hostOf, isClose } from "./compare"
import { type EncodedArray, type GoldenCase, type JsonObject, Mismatch } from "./format"
import { arrayOf } from "./values"

/** Complex matrices, a batch of them in row-major order. */
interface Matrices {
  readonly count: number
  readonly rows: number
  readonly columns: number
  readonly re: Float64Array
  readonly im: Float64Array
}

function matricesOf({ dtype, shape, values }: HostValues): Matrices {
  const [rows, columns] = shape.length > 1 ? shape.slice(-2) : [1, shape[0] ?? 1]
  const n = values.length / (dtype === "complex64" ? 2 : 1)
  const part = (k: number): Float64Array =>
    Float64Array.from({ length: n }, (_, i) => Number(dtype === "complex64" ? values[2 * i + k] : k ? 0 : values[i]))
  return { count: rows * columns > 0 ? n / (rows * columns) : 0, rows, columns, re: part(0), im: part(1) }
}

function make(count: number, rows: number, columns: number, f: (b: number, i: number, j: number) => [number, number]): Matrices {
  const [re, im] = [new Float64Array(count * rows * columns), new Float64Array(count * rows * columns)]
  for (let b = 0, k = 0; b < count; b++)
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++, k++) [re[k], im[k]] = f(b, i, j)
  return { count, rows, columns, re, im }
}
const at = (m: Matrices, b: number, i: number, j: number): [number, number] => {
  const k = (b * m.rows + i) * m.columns + j
  return [m.re[k], m.im[k]]
}
const product = (a: Matrices, b: Matrices): Matrices =>
  make(a.count, a.rows, b.columns, (n, i, j) => {
    let [re, im] = [0, 0]
    for (let k = 0; k < a.columns; k++) {
      const [[x, y], [u, v]] = [at(a, n, i, k), at(b, n, k, j)]
      re += x * u - y * v
      im += x * v + y * u
    }
    return [re, im]
  })
const adjoint = (m: Matrices): Matrices =>
  make(m.count, m.columns, m.rows, (b, i, j) => {
    const [re, im] = at(m, b, j, i)
    return [re, -im]
  })
const identity = (count: number, n: number): Matrices => make(count, n, n, (_, i, j) => [i === j ? 1 : 0, 0])
const block = (m: Matrices, rows: number, columns: number): Matrices =>
  make(m.count, rows, columns, (b, i, j) => at(m, b, i, j))
/** Each column by one of the numbers in `by`, which holds a row for every matrix. */
const scaled = (m: Matrices, by: Matrices): Matrices =>
  make(m.count, m.rows, m.columns, (b, i, j) => {
    const [[x, y], k] = [at(m, b, i, j), b * m.columns + j]
    return [x * by.re[k] - y * by.im[k], x * by.im[k] + y * by.re[k]]
  })

function expectEqual(a: Matrices, b: Matrices, rtol: number, atol: number, what: string): void {
  for (let i = 0; i < b.re.length; i++)
    if (!(Math.hypot(a.re[i] - b.re[i], a.im[i] - b.im[i]) <= atol + rtol * Math.hypot(b.re[i], b.im[i])))
      throw new Mismatch(`${what}, element ${i}: ${a.re[i]}, expected ${b.re[i]}`)
}

function checkMatrices(kind: string, x: HostValues, got: HostValues[], want: HostValues[], c: GoldenCase): void {
  got.forEach((g, i) => {
    if (g.dtype !== want[i].dtype || g.shape.join() !== want[i].shape.join())
      throw new Mismatch(`output ${i}: ${g.dtype} [${g.shape}], expected ${want[i].dtype} [${want[i].shape}]`)
  })
  const a = matricesOf(x)
  let size = 1
  for (const part of [a.re, a.im]) for (const v of part) size = Math.max(size, Math.abs(v))
  const rtol = Math.max(c.rtol, 1e-9)
  const near = c.atol + rtol * size
  const loose = (p: Matrices, q: Matrices, what: string): void => expectEqual(p, q, rtol * 10, near * 10, what)
  const unitary = (m: Matrices, what: string): void =>
    loose(product(adjoint(m), m), identity(m.count, m.columns), `${what} is not orthonormal`)
  const same = (i: number, what: string): void =>
    compareHost(got[i], want[i], { rtol: c.rtol, atol: near }, what)
  const [g, w] = [got.map(matricesOf), want.map(matricesOf)]
  if (kind === "qr") {
    loose(product(g[0], g[1]), a, "Q R")
    unitary(g[0], "Q")
    const magnitude = (m: Matrices): Matrices => ({ ...m, re: m.re.map((re, i) => Math.hypot(re, m.im[i])), im: m.im.map(() => 0) })
    loose(magnitude(g[1]), magnitude(w[1]), "|R|")
    const below = make(a.count, g[1].rows, g[1].columns, (b, i, j) => (i > j ? at(g[1], b, i, j) : [0, 0]))
    expectEqual(below, { ...below, re: below.re.map(() => 0), im: below.im.map(() => 0) }, 0, 0, "R below its diagonal")
  } else if (kind === "svd") {
    same(1, "singular values")
    const n = got[1].shape.at(-1) as number
    const s = { ...g[1], re: g[1].re, im: g[1].im }
    const [u, vt] = [block(g[0], g[0].rows, n), block(g[2], n, g[2].columns)]
    loose(product(scaled({ ...u, count: a.count }, s), vt), a, "U S Vᵀ")
    unitary(g[0], "U")
    unitary(g[2], "Vᵀ")
  } else if (kind === "eigh") {
    same(0, "eigenvalues")
    const upper = c.kwargs?.UPLO === "U"
    const full = make(a.count, a.rows, a.columns, (b, i, j) => {
      if (i === j || i < j === upper) return at(a, b, i, j)
      const [re, im] = at(a, b, j, i)
      return [re, -im]
    })
    loose(product(full, g[1]), scaled(g[1], g[0]), "A v")
    unitary(g[1], "V")
  } else if (kind === "eig" || kind === "eigvals") {
    const n = got[0].shape.at(-1) as number
    for (let b = 0; b < a.count; b++) {
      const left = globalThis.Array.from({ length: n }, (_, i) => [w[0].re[b * n + i], w[0].im[b * n + i]])
      for (let i = 0; i < n; i++) {
        const [re, im] = [g[0].re[b * n + i], g[0].im[b * n + i]]
        const distances = left.map(([x, y]) => Math.hypot(x - re, y - im))
        const best = distances.indexOf(Math.min(...distances))
        const [[x, y]] = left.splice(best, 1)
        if (!(distances[best] <= near * 10 + rtol * 10 * Math.hypot(x, y)))
          throw new Mismatch(`eigenvalue ${re} + ${im}i is not among MLX's`)
      }
    }
    if (kind === "eig") {
      loose(product(a, g[1]), scaled(g[1], g[0]), "A v")
      const lengths = make(g[1].count, 1, g[1].columns, (b, _, j) => {
        let sum = 0
        for (let i = 0; i < g[1].rows; i++) sum += Math.hypot(...at(g[1], b, i, j)) ** 2
        return [Math.sqrt(sum), 0]
      })
      expectEqual(lengths, { ...lengths, re: lengths.re.map(() => 1) }, 1e-3, 1e-3, "lengths of the eigenvectors")
    }
  } else if (kind === "lu") {
    compareHost(got[0], want[0], { ...c, exact: true }, "pivots")
    compareHost(got[1], want[1], c, "L")
    compareHost(got[2], want[2], c, "U")
    const p = got[0].values
    const rows = g[1].rows
    const permuted = make(a.count, rows, g[1].columns, (b, i, j) => at(g[1], b, Number(p[b * rows + i]), j))
    loose(product(permuted, g[2]), a, "L[p] U")
  } else if (kind === "lu_factor") {
    compareHost(got[0], want[0], c, "LU")
    compareHost(got[1], want[1], { ...c, exact: true }, "pivots")
  } else throw new Mismatch(`no rule for comparing ${kind}`)
}

/** The packed weights may differ in one of a hundred elements, which leaves room for rounding ties. */
function checkQuantized(got: HostValues[], want: HostValues[], c: GoldenCase): void {
  got.slice(1).forEach((g, i) => compareHost(g, want[i + 1], c, i === 0 ? "scales" : "biases"))
  const [g, w] = [got[0], want[0]]
  if (g.dtype !== w.dtype || g.shape.join() !== w.shape.join())
    throw new Mismatch(`packed weights: ${g.dtype} [${g.shape}], expected ${w.dtype} [${w.shape}]`)
  const bits = c.compare?.bits as number
  const width = /8$/.test(w.dtype) ? 8 : 32
  // As one long little-endian bit string, because an element of 3, 5 or 6 bits may span two words.
  const elements = (h: HostValues): bigint[] => {
    const out: bigint[] = []
    let [buffer, filled] = [0n, 0]
    for (const v of h.values) {
      buffer |= BigInt(v) << BigInt(filled)
      filled += width
      for (; filled >= bits; filled -= bits, buffer >>= BigInt(bits)) out.push(buffer & ((1n << BigInt(bits)) - 1n))
    }
    return out
  }
  const [a, b] = [elements(g), elements(w)]
  const different = a.filter((v, i) => v !== b[i]).length
  if (different > Math.max(1, Math.floor(a.length / 100)))
    throw new Mismatch(`${different} of ${a.length} quantized values differ`)
}

/** Element `kth` in its sorted position, smaller ones before and larger ones after it; topk as a set. */
function checkPartition(got: mx.Array, want: EncodedArray, c: GoldenCase): void {
  const rule = c.compare as NonNullable<GoldenCase["compare"]>
  const expected = arrayOf(want)
  if (got.dtype !== expected.dtype || got.shape.join() !== expected.shape.join())
    throw new Mismatch(`${got.dtype.name} [${got.shape}], expected ${expected.dtype.name} [${expected.shape}]`)
  const axis = rule.axis ?? null
  const lines = (a: mx.Array): (number | bigint)[][] => {
    const last = axis === null ? a.flatten().reshape([1, -1]) : a.moveaxis(axis, -1)
    const { values, shape } = hostOf(last)
    const n = shape[shape.length - 1]
    return globalThis.Array.from({ length: n ? values.length / n : 0 }, (_, i) => values.slice(i * n, (i + 1) * n))
  }
  const source = rule.kind === "argpartition" ? lines(arrayOf(c.args?.[0] as unknown as EncodedArray)) : null
  const sorted = (list: readonly (number | bigint)[]): string => list.map(Number).sort((x, y) => x - y).join()
  const all = lines(expected)
  lines(got).forEach((line, i) => {
    const values = (from: readonly (number | bigint)[]): readonly (number | bigint)[] =>
      source ? from.map((k) => source[i][Number(k)]) : from
    if (source && new Set(line.map(Number)).size !== line.length) throw new Mismatch(`line ${i} is no permutation: ${line}`)
    const [a, b] = [values(line), values(all[i])]
    const kth = rule.kth === undefined ? null : (rule.kth + b.length) % b.length
    const parts = kth === null ? [[0, b.length]] : [[0, kth], [kth, kth + 1], [kth + 1, b.length]]
    for (const [from, to] of parts)
      if (sorted(a.slice(from, to)) !== sorted(b.slice(from, to))) throw new Mismatch(`line ${i}: ${a}, expected ${b}`)
  })
}

/** Compares outputs by a case's own rule. @throws Mismatch */
export function compareUnique(outputs: readonly unknown[], c: GoldenCase): void {
  const kind = c.compare?.kind as string
  const want = c.outputs as unknown as EncodedArray[]
  if (/partition$|^topk$/.test(kind)) return checkPartition(outputs[0] as mx.Array, want[0], c)
  const got = (outputs as mx.Array[]).map(hostOf)
  const expected = want.map(expectedOf)
  if (kind === "quantize") return checkQuantized(got, expected, c)
  checkMatrices(kind, hostOf(arrayOf((c.args as JsonObject[])[0] as unknown as EncodedArray)), got, expected, c)
}
