/**
 * The samples of `mx.linalg`: one for every primitive, of matrices at which their factors are smooth.
 */
import * as mx from "@lazuli/core"

type Values = (shape: readonly number[], low?: number, high?: number, seed?: number) => mx.Array
type LinalgSample = readonly [name: string, f: (...xs: mx.Array[]) => mx.Array, ...inputs: mx.Array[]]

const { linalg } = mx
/** The sum of functions of all outputs, so that every one has a part in the derivatives. */
const all = (...outputs: mx.Array[]): mx.Array =>
  outputs
    .map((y, i) =>
      y
        .multiply(i + 1)
        .sin()
        .sum(),
    )
    .reduce((x, y) => x.add(y))
/** The projections on columns, which their signs do not change. */
const projection = (u: mx.Array): mx.Array =>
  u.multiply(mx.arange(1, 4).astype(u.dtype)).matmul(u.swapaxes(-1, -2))

/** Functions of matrices, by name, with inputs. */
export function linalgSamples(values: Values): LinalgSample[] {
  const diagonal = mx.diag(mx.array(Float64Array.of(2, 3, 4)))
  const regular = values([3, 3], -1, 1, 4).add(diagonal)
  const symmetric = (x: mx.Array): mx.Array => x.add(x.T).add(diagonal)
  const tall = values([4, 3], -1, 1, 5)
  return [
    ["solve", (a, b) => linalg.solve(a, b), regular, values([3, 2], -1, 1, 6)],
    ["solveTriangular", (a, b) => linalg.solveTriangular(a, b), regular, values([3, 2], -1, 1, 6)],
    ["inv", (a) => linalg.inv(a), regular],
    ["lu", (a) => linalg.luFactor(a)[0], tall],
    ["lu of wide matrices", (a) => all(...linalg.lu(a).slice(1)), tall.T],
    ["qr", (a) => all(...linalg.qr(a)), tall],
    ["cholesky", (a) => linalg.cholesky(symmetric(a)), values([3, 3], 0, 0.3, 7)],
    ["cholesky, upper", (a) => linalg.cholesky(symmetric(a), true), values([3, 3], 0, 0.3, 7)],
    [
      "svd",
      (a) => {
        const [u, s, vt] = linalg.svd(a)
        return all(projection(u.index(":", ":3")), s, projection(vt.T))
      },
      tall,
    ],
    ["singular values", (a) => linalg.svd(a, false), tall],
    ["pinv", (a) => linalg.pinv(a), tall],
    [
      "eigh",
      (a) => {
        const [w, v] = linalg.eigh(symmetric(a))
        return all(w, projection(v))
      },
      regular,
    ],
    ["eigvalsh", (a) => linalg.eigvalsh(symmetric(a), "U"), regular],
    ["det", (a) => linalg.det(a), values([4, 4], -1, 1, 9)],
    ["slogdet", (a) => all(...linalg.slogdet(a)), regular],
    ["norm", (a) => linalg.norm(a, "nuc"), tall],
  ]
}

/** Factorizations that are computed in complex64 whatever they are given. */
export function complexLinalgSamples(values: Values): LinalgSample[] {
  // Real eigenvalues, so that neither values nor vectors have phases to choose.
  const a = values([3, 3], -0.2, 0.2, 4)
    .add(mx.diag(mx.array(Float64Array.of(1, 2, 4))))
    .astype(mx.float32)
  return [
    ["eig", (x) => linalg.eig(x)[1].abs(), a],
    ["eigvals", (x) => linalg.eigvals(x), a],
  ]
}
