/**
 * Derivatives and batches of `mx.linalg` on the reference backend: against finite differences, in float64 and complex64, and
 * against loops. Factors that are unique up to signs and phases are tested through what does not depend on them.
 */
import { values } from "@lazuli/conformance"
import * as mx from "@lazuli/core"
import { describe, expect, it } from "vitest"
import { grad, jvp, vjp, vmap } from "./index"

const { linalg } = mx
type Fn = (...xs: mx.Array[]) => mx.Array[]
const adjoint = (x: mx.Array): mx.Array => x.swapaxes(-1, -2).conjugate()
const columns = (x: mx.Array, n: number): mx.Array => x.index("...", `:${n}`)
/** Σ over columns of the projections on them, with different weights. */
const projections = (u: mx.Array): mx.Array => {
  const weights = mx.arange(1, u.shape[u.ndim - 1] + 1).astype(u.dtype)
  return u.multiply(weights.multiply(weights)).matmul(adjoint(u))
}

const floats = (shape: number[], seed: number): mx.Array => values(shape, -1, 1, seed)
const complexes = (shape: number[], seed: number): mx.Array =>
  floats(shape, seed)
    .astype(mx.complex64)
    .add(
      floats(shape, seed + 50)
        .astype(mx.complex64)
        .multiply(mx.complex(0, 1)),
    )
type Maker = typeof floats

/** Positive definite, with eigenvalues apart. */
const definite = (n: number, make: Maker, batch: number[] = []): mx.Array => {
  const x = make([...batch, n, n], 3)
  return x.matmul(adjoint(x)).add(mx.diag(mx.arange(1, n + 1).astype(x.dtype)))
}
const regular = (n: number, make: Maker, batch: number[] = []): mx.Array =>
  make([...batch, n, n], 7).add(mx.diag(mx.arange(2, n + 2).astype(mx.float64)).astype(make([1], 1).dtype))

interface Case {
  name: string
  f: Fn
  inputs: (make: Maker) => mx.Array[]
  /** True if tangents are Hermitian. */
  hermitian?: boolean
}
const half = (x: mx.Array): mx.Array => x.add(adjoint(x)).multiply(0.5)
const svdOf: Fn = (a) => {
  const [u, s, vt] = linalg.svd(a)
  const k = s.shape[s.ndim - 1]
  const [u1, v1] = [columns(u, k), columns(adjoint(vt), k)]
  const out = [s, u1.multiply(s.sin().expandDims(-2).astype(u.dtype)).matmul(adjoint(v1)), projections(u1)]
  const [m, n] = a.shape.slice(-2)
  // The complement's projection.
  if (m > k) {
    const rest = u.index("...", `${k}:`)
    out.push(rest.matmul(adjoint(rest)))
  }
  if (n > k) {
    const rest = adjoint(vt).index("...", `${k}:`)
    out.push(rest.matmul(adjoint(rest)))
  }
  return out
}
const luOf: Fn = (a) => {
  const [packed] = linalg.luFactor(a)
  const [, l, u] = linalg.lu(a)
  return [packed, l, u.sin()]
}
const cases: Case[] = [
  { name: "inv", f: (a) => [linalg.inv(a)], inputs: (m) => [regular(3, m)] },
  { name: "triInv", f: (a) => [linalg.triInv(a), linalg.triInv(a, true)], inputs: (m) => [regular(3, m)] },
  {
    name: "solve",
    f: (a, b) => [linalg.solve(a, b)],
    inputs: (m) => [regular(3, m), m([3, 2], 5)],
  },
  {
    name: "solve with a vector and a batch",
    f: (a, b) => [linalg.solve(a, b)],
    inputs: (m) => [regular(3, m, [2]), m([3], 5)],
  },
  {
    name: "solveTriangular",
    f: (a, b) => [linalg.solveTriangular(a, b), linalg.solveTriangular(a, b, { upper: true })],
    inputs: (m) => [regular(3, m), m([2, 3, 2], 5)],
  },
  {
    name: "cholesky",
    f: (a) => [linalg.cholesky(half(a)), linalg.cholesky(half(a), true)],
    inputs: (m) => [definite(4, m)],
  },
  { name: "choleskyInv", f: (a) => [linalg.choleskyInv(a)], inputs: (m) => [regular(3, m)] },
  { name: "lu, square", f: luOf, inputs: (m) => [m([4, 4], 21)] },
  { name: "lu, tall", f: luOf, inputs: (m) => [m([5, 3], 22)] },
  { name: "lu, wide", f: luOf, inputs: (m) => [m([2, 3, 5], 23)] },
  { name: "qr, square", f: (a) => linalg.qr(a), inputs: (m) => [regular(3, m)] },
  { name: "qr, tall", f: (a) => linalg.qr(a), inputs: (m) => [m([2, 5, 3], 24)] },
  { name: "qr, wide", f: (a) => linalg.qr(a), inputs: (m) => [m([3, 5], 25)] },
  { name: "svd, square", f: svdOf, inputs: (m) => [regular(3, m)] },
  { name: "svd, tall", f: svdOf, inputs: (m) => [m([4, 3], 26)] },
  { name: "svd, wide", f: svdOf, inputs: (m) => [m([2, 2, 4], 27)] },
  { name: "singular values", f: (a) => [linalg.svd(a, false)], inputs: (m) => [m([4, 3], 28)] },
  { name: "pinv, tall", f: (a) => [linalg.pinv(a)], inputs: (m) => [m([4, 2], 29)] },
  { name: "pinv, wide", f: (a) => [linalg.pinv(a)], inputs: (m) => [m([2, 2, 4], 30)] },
  {
    name: "eigh",
    f: (a) => {
      const [w, v] = linalg.eigh(half(a))
      return [w, projections(v), linalg.eigvalsh(half(a), "U")]
    },
    inputs: (m) => [definite(4, m)],
  },
  {
    name: "eig",
    f: (a) => {
      const [w, v] = linalg.eig(a)
      return [
        v.multiply(w.square().expandDims(-2)).matmul(linalg.inv(v)),
        v.abs().square().matmul(w.square().expandDims(-1)),
      ]
    },
    inputs: (m) => [regular(3, m)],
  },
  { name: "eigvals", f: (a) => [linalg.eigvals(a).square().sum(-1)], inputs: (m) => [regular(3, m)] },
  ...[1, 2, 3, 4].map(
    (n): Case => ({ name: `det ${n}×${n}`, f: (a) => [linalg.det(a)], inputs: (m) => [m([2, n, n], 31)] }),
  ),
  { name: "slogdet", f: (a) => linalg.slogdet(a), inputs: (m) => [m([2, 4, 4], 32)] },
  {
    name: "norms",
    f: (a) =>
      ([null, 1, -1, 2, -2, "fro", "nuc", Number.POSITIVE_INFINITY] as const).map((order) =>
        linalg.norm(a, order, [-2, -1]),
      ),
    inputs: (m) => [m([2, 3, 4], 37)],
  },
  {
    name: "vector norms",
    f: (a) => [null, 1, 2, 3, -1, Number.POSITIVE_INFINITY].map((order) => linalg.norm(a, order, 1)),
    inputs: (m) => [m([2, 3], 34)],
  },
  { name: "cross", f: (a, b) => [linalg.cross(a, b)], inputs: (m) => [m([2, 3], 35), m([2], 36)] },
]

/** Real and imaginary parts, in float64. */
const flat = (a: mx.Array): number[] => {
  const parts = a.dtype === mx.complex64 ? mx.concatenate([a.real.flatten(), a.imag.flatten()]) : a.flatten()
  return Array.from(parts.astype(mx.float64).toTypedArray() as Float64Array)
}
const dot = (as: readonly mx.Array[], bs: readonly mx.Array[]): number =>
  as.reduce((sum, a, i) => {
    const [x, y] = [flat(a), flat(bs[i])]
    return sum + x.reduce((s, v, k) => s + v * y[k], 0)
  }, 0)
const like = (xs: readonly mx.Array[], seed: number): mx.Array[] =>
  xs.map((x, i) => (x.dtype === mx.complex64 ? complexes : floats)(x.shape, seed + i).astype(x.dtype))
const moved = (xs: readonly mx.Array[], ts: readonly mx.Array[], by: number): mx.Array[] =>
  xs.map((x, i) => x.add(ts[i].multiply(by)))
function expectClose(got: readonly number[], want: readonly number[], tolerance: number): void {
  expect(got.length).toBe(want.length)
  const size = Math.max(1, ...want.map(Math.abs))
  got.forEach((g, i) => {
    if (!(Math.abs(g - want[i]) <= tolerance * size)) expect.fail(`element ${i}: ${g}, expected ${want[i]}`)
  })
}

describe.each(cases)("$name", ({ name, f, inputs: make }) => {
  // eig computes in complex64 whatever it is given.
  const single = name.startsWith("eig") && name !== "eigh"
  const kinds = [
    { kind: "float64", maker: floats, step: single ? 1e-2 : 1e-5, exact: single ? 1e-4 : 1e-9 },
    { kind: "complex64", maker: complexes, step: 4e-3, exact: 2e-4 },
  ]
  it.each(kinds)("has derivatives that agree with finite differences, $kind", ({ maker, step, exact }) => {
    const inputs = make(maker)
    const ts = like(inputs, 60)
    const [ys, slopes] = jvp((...xs: mx.Array[]) => f(...xs), inputs, ts)
    const [after, before] = [f(...moved(inputs, ts, step)), f(...moved(inputs, ts, -step))]
    const tolerance = step === 1e-5 ? 1e-7 : 4e-3
    ys.forEach((y, i) => {
      expect(slopes[i].dtype).toBe(y.dtype)
      expect(slopes[i].shape).toEqual(y.shape)
      const difference = after[i].subtract(before[i]).multiply(0.5 / step)
      expectClose(flat(slopes[i]), flat(difference), tolerance)
    })
    const cs = like(ys, 70)
    const [, grads] = vjp((...xs: mx.Array[]) => f(...xs), inputs, cs)
    grads.forEach((g, i) => {
      expect(g.shape).toEqual(inputs[i].shape)
      expect(g.dtype).toBe(inputs[i].dtype)
    })
    const want = dot(cs, slopes)
    expectClose([dot(grads, ts)], [want], exact * 10)
  })

  it("has second derivatives", () => {
    if (single) return
    const inputs = make(floats)
    const [ts, cs] = [like(inputs, 80), like(f(...inputs), 90)]
    const gradients = (...xs: mx.Array[]): mx.Array[] => vjp((...ys: mx.Array[]) => f(...ys), xs, cs)[1]
    const [, curved] = jvp(gradients, inputs, ts)
    const step = 1e-5
    const [after, before] = [gradients(...moved(inputs, ts, step)), gradients(...moved(inputs, ts, -step))]
    curved.forEach((t, i) => {
      expectClose(flat(t), flat(after[i].subtract(before[i]).multiply(0.5 / step)), 1e-5)
    })
    const twice = vjp(gradients, inputs, ts)[1]
    expectClose([dot(twice, ts)], [dot(curved, ts)], 1e-8)
  })

  it("has a vmap that agrees with a loop", () => {
    const inputs = make(floats)
    const batches = inputs.map((x) => mx.stack([x, x.multiply(0.9), x.multiply(1.05)]))
    const loop = (pick: (k: number) => mx.Array[]): number[][] => {
      const runs = [0, 1, 2].map((k) => f(...pick(k)))
      return runs[0].map((_, i) => flat(mx.stack(runs.map((run) => run[i]))))
    }
    const check = (got: mx.Array[], want: number[][]): void =>
      got.forEach((y, i) => {
        expectClose(flat(y), want[i], single ? 1e-5 : 1e-10)
      })
    check(
      vmap(f)(...batches),
      loop((k) => batches.map((b) => b.index(k))),
    )
    inputs.forEach((_, which) => {
      const last = batches[which].moveaxis(0, -1)
      const axes = inputs.map((_x, i) => (i === which ? last.ndim - 1 : null))
      check(
        vmap(f, axes)(...inputs.map((x, i) => (i === which ? last : x))),
        loop((k) => inputs.map((x, i) => (i === which ? batches[i].index(k) : x))),
      )
    })
  })
})

describe("derivatives where others have none", () => {
  it("det has gradients of singular matrices: their cofactors", () => {
    const x = mx.array(Float64Array.from([1, 2, 3, 4, 2, 4, 6, 8, 0, 1, 0, 1, 3, 0, 1, 2])).reshape([4, 4])
    const g = grad((a: mx.Array) => linalg.det(a))(x)
    const step = 1e-4
    const want = Array.from({ length: 16 }, (_, i) => {
      const t = mx.equal(mx.arange(16), i).reshape([4, 4]).astype(mx.float64).multiply(step)
      return (
        (linalg
          .det(x.add(t))
          .subtract(linalg.det(x.subtract(t)))
          .item() as number) /
        (2 * step)
      )
    })
    expectClose(flat(g), want, 1e-8)
  })
  it("equal singular values and eigenvalues leave gradients of what does not tell them apart finite", () => {
    const one = mx.eye(3, { dtype: mx.float64 })
    expectClose(flat(grad((a: mx.Array) => linalg.norm(a, "nuc"))(one)), flat(one), 1e-12)
    const again = (a: mx.Array): mx.Array => {
      const [w, v] = linalg.eigh(a)
      return v.multiply(w).matmul(v.T).square().sum()
    }
    expectClose(flat(grad(again)(one)), flat(one.multiply(2)), 1e-12)
  })
  it("nuclear norms of matrices without full rank have subgradients", () => {
    const g = grad((a: mx.Array) => linalg.norm(a, "nuc"))(
      mx
        .array([
          [3, 0],
          [0, 0],
        ])
        .astype(mx.float64),
    )
    expect(flat(g).every(Number.isFinite)).toBe(true)
    expect(flat(g)[0]).toBeCloseTo(1, 12)
  })
  it("gradients of Hermitian functions are Hermitian", () => {
    const a = definite(3, floats)
    for (const f of [
      (x: mx.Array) => linalg.cholesky(x).sin().sum(),
      (x: mx.Array) => linalg.eigvalsh(x).sin().sum(),
    ]) {
      const g = grad(f)(a)
      expectClose(flat(g), flat(g.T), 1e-12)
    }
  })
})
