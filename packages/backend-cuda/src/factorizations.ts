/**
 * Factorizations of matrices and equations by cuSOLVER, whose matrices lie by columns: a row-major one is to it the transpose. Where the
 * transpose serves, nothing is turned. A matrix with a NaN or an infinity gives NaN, as on the CPU: the library gets the identity instead.
 */
import {
  type Dtype,
  float32,
  float64,
  type Node,
  NumericError,
  type Storage,
  sizeOf,
} from "@lazuli/core/engine"
import {
  type Argument,
  type DispatchQueue,
  type Families,
  type Family,
  isCountable,
  type Location,
  viewOf,
  withRowMajor,
} from "@lazuli/gpu-kernels"
import { nativeSource } from "./native-source"

/** The command's code; native/cuda/device.cc has the same. */
const FACTORIZATION = 41
/** native/cuda/factorizations.h has the same. */
enum Work {
  Lu = 0,
  Solve = 1,
  Cholesky = 2,
  Qr = 3,
  Q = 4,
  Eigen = 5,
  Svd = 6,
  Verdict = 7,
}
/** `cudaDataType`, and the element's type in kernels/matrices.cu. */
const TYPES: Readonly<Record<string, readonly [type: number, element: string]>> = {
  float32: [0, "float"],
  float64: [1, "double"],
  complex64: [4, "Complex"],
}
/** `cublasOperation_t`. */
const [PLAIN, TRANSPOSED] = [0, 1]
/** `cublasFillMode_t` of the matrix as the library sees it: the transpose. */
const fillOf = (isUpper: boolean): number => (isUpper ? 0 : 1)
const VECTORS = 2

/** kernels/matrices.cu has the same. */
enum Part {
  All = 0,
  Lower = 1,
  Upper = 2,
}
enum Instead {
  Identity = 0,
  Nans = 1,
  NansInPart = 2,
}

/** The errors of the CPU, by the numbers that commands carry. */
const VERDICTS = [
  ["linalg.solve", "the matrix is singular"],
  ["linalg.inv", "the matrix is singular"],
  ["linalg.solveTriangular", "the matrix is singular"],
  ["linalg.cholesky", "the matrix is not positive definite"],
  ["linalg.eigh", "the eigenvalues did not converge"],
  ["linalg.eigvalsh", "the eigenvalues did not converge"],
  ["linalg.svd", "the singular values did not converge"],
] as const
const NONE = -1
const verdictOf = (op: string): number => VERDICTS.findIndex(([name]) => name === op)
/** The error of a verdict. */
export function errorOf(verdict: number): NumericError {
  const [op, fact] = VERDICTS[verdict]
  return new NumericError(op, fact)
}

const THREADS = 256
/** Many small matrices are the CPU's: the library takes them one by one. */
const FEW = 16
const SMALL = 64

interface Matrices {
  readonly count: number
  readonly rows: number
  readonly columns: number
}
const matricesOf = ({ shape }: Node): Matrices => {
  const [rows, columns] = shape.slice(-2)
  return { count: sizeOf(shape.slice(0, -2)), rows, columns }
}
/** Elements from a matrix to the next, a row and a column. */
type Steps = readonly [number, number, number]
const byRows = ({ rows, columns }: Matrices): Steps => [rows * columns, columns, 1]
const byColumns = ({ rows, columns }: Matrices): Steps => [rows * columns, 1, rows]

const realOf = (dtype: Dtype): Dtype => (dtype === float64 ? float64 : float32)

/** The work of one application, with its scratch memory. */
class Stage {
  private readonly kept: Storage[] = []
  /** Of each matrix whether it is not finite. */
  private readonly bad: Location

  constructor(
    private readonly queue: DispatchQueue,
    readonly op: string,
    private readonly dtype: Dtype,
    readonly count: number,
  ) {
    this.bad = this.flags()
  }

  scratch(elements: number, size: number = this.dtype.size): Location {
    const storage = this.queue.allocate(Math.max(1, elements) * size)
    this.kept.push(storage)
    return { storage, offset: 0 }
  }
  drop(): void {
    for (const storage of this.kept) storage.drop()
  }

  dispatch(
    name: string,
    args: readonly Argument[],
    written: readonly Location[],
    threads: number,
    dtype: Dtype = this.dtype,
  ): void {
    const definition = `#define LZ_ELEMENT ${TYPES[dtype.name][1]}`
    this.queue.dispatch({
      op: this.op,
      kernel: {
        key: `cuda matrices ${name} ${dtype.name}`,
        name,
        source: () => nativeSource("matrices.cu", definition),
        isNative: true,
      },
      arguments: args,
      writes: written.map(({ storage }) => storage),
      grid: [Math.ceil(threads / THREADS) * THREADS, 1, 1],
      threadgroup: [THREADS, 1, 1],
    })
  }

  /** An integer for each matrix, 0. */
  flags(): Location {
    const flags = this.scratch(this.count, 4)
    this.dispatch("clear", [flags, Int32Array.of(this.count)], [flags], this.count)
    return flags
  }
  /** Finds the matrices that are not finite. */
  look(from: Location, m: Matrices, part = Part.All): void {
    const layout = BigInt64Array.from([m.count, m.rows, m.columns, ...byRows(m), 0, 0, 0], BigInt)
    this.dispatch("find_bad", [from, this.bad, layout, Int32Array.of(part)], [this.bad], sizeOfAll(m))
  }
  /** Copies matrices. */
  move(
    from: Location,
    to: Location,
    m: Matrices,
    steps: readonly [from: Steps, to: Steps],
    {
      part = Part.All,
      instead = Instead.Nans,
      conjugated = false,
      dtype = this.dtype,
    }: { part?: Part; instead?: Instead; conjugated?: boolean; dtype?: Dtype } = {},
  ): void {
    const layout = BigInt64Array.from([m.count, m.rows, m.columns, ...steps.flat()], BigInt)
    const numbers = [part, instead, Number(conjugated)].map((n) => Int32Array.of(n))
    this.dispatch("move", [from, this.bad, to, layout, ...numbers], [to], sizeOfAll(m), dtype)
  }
  /** A copy for the library, by rows or turned. */
  taken(from: Location, m: Matrices, isTurned: boolean, part = Part.All): Location {
    const to = this.scratch(sizeOfAll(m))
    const steps = [byRows(m), isTurned ? byColumns(m) : byRows(m)] as const
    this.move(from, to, m, steps, { part, instead: Instead.Identity })
    return to
  }
  /** NaN in the results of matrices that are not finite. */
  spoil(at: Location, rows: number, columns: number, dtype = this.dtype): void {
    const m = { count: this.count, rows, columns }
    this.move(at, at, m, [byRows(m), byRows(m)], { dtype })
  }

  /** Adds the library's work on matrices of rows and columns, the first of the arrays; all that it writes. */
  call(
    work: Work,
    [rows, columns]: readonly [number, number],
    arrays: readonly Location[],
    written: readonly Location[],
    {
      step = rows * columns,
      others = 0,
      option = 0,
      verdict = NONE,
      infos = this.scratch(this.count, 4),
    }: { step?: number; others?: number; option?: number; verdict?: number; infos?: Location } = {},
  ): void {
    const [first, ...rest] = arrays
    this.queue.call({
      op: this.op,
      code: FACTORIZATION,
      words: Int32Array.of(
        ...[work, TYPES[this.dtype.name][0], this.count, rows, columns, step, others, option, verdict],
      ),
      arguments: [first, infos, ...rest],
      writes: [...written, infos].map(({ storage }) => storage),
    })
  }
}
const sizeOfAll = ({ count, rows, columns }: Matrices): number => count * rows * columns

/** One of an application's outputs, which are row-major. */
const outputOf = (node: Node, index: number): Location => {
  const { storage, offset, dtype } = (node.outputs ?? [node])[index]
  return { storage: storage as Storage, offset: offset * dtype.size }
}

type Encode = (stage: Stage, m: Matrices, inputs: readonly Location[], node: Node) => void

const lu: Encode = (stage, m, [x], node) => {
  const { count, rows, columns } = m
  const k = Math.min(rows, columns)
  stage.look(x, m)
  const a = stage.taken(x, m, true)
  const pivots = stage.scratch(count * k, 8)
  stage.call(Work.Lu, [rows, columns], [a, pivots], [a, pivots])
  stage.move(a, outputOf(node, 0), m, [byColumns(m), byRows(m)])
  const results = [outputOf(node, 1), outputOf(node, 2)]
  const order = stage.scratch(count * rows, 4)
  const sizes = [k, rows, count].map((n) => Int32Array.of(n))
  stage.dispatch("order_rows", [pivots, order, ...results, ...sizes], [order, ...results], count)
}

/** The transpose of x, factored. */
function factored(stage: Stage, m: Matrices, x: Location, verdict: number): readonly [Location, Location] {
  const pivots = stage.scratch(m.count * m.rows, 8)
  stage.look(x, m)
  const a = stage.taken(x, m, false)
  stage.call(Work.Lu, [m.rows, m.rows], [a, pivots], [a, pivots], { verdict })
  return [a, pivots]
}
/** a⁻¹·b by factors of the transpose, or of a itself. */
function solved(
  stage: Stage,
  m: Matrices,
  [a, pivots]: readonly [Location, Location],
  b: Location,
  node: Node,
  option: number,
): Location {
  const right = { ...m, columns: node.shape[node.shape.length - 1] }
  const x = stage.scratch(sizeOfAll(right))
  // An element of b that is not finite spoils its own column alone.
  stage.move(b, x, right, [byRows(right), byColumns(right)])
  stage.call(Work.Solve, [m.rows, m.rows], [a, pivots, x], [x], { others: right.columns, option })
  stage.move(x, outputOf(node, 0), right, [byColumns(right), byRows(right)])
  return x
}
const solve: Encode = (stage, m, [x, b], node) => {
  solved(stage, m, factored(stage, m, x, verdictOf("linalg.solve")), b, node, TRANSPOSED)
}
const inv: Encode = (stage, m, [x], node) => {
  const [a, pivots] = factored(stage, m, x, verdictOf("linalg.inv"))
  const size = sizeOfAll(m)
  const y = outputOf(node, 0)
  stage.dispatch("identities", [y, Int32Array.of(m.rows), BigInt64Array.of(BigInt(size))], [y], size)
  // The transpose of the transpose's inverse.
  stage.call(Work.Solve, [m.rows, m.rows], [a, pivots, y], [y], { others: m.rows, option: PLAIN })
  stage.spoil(y, m.rows, m.columns)
}
/** As factors of which one is the identity. */
const solveTriangular: Encode = (stage, m, [x, b], node) => {
  const { count, rows } = m
  const isUpper = node.params.upper as boolean
  const zeros = stage.flags()
  const pivots = stage.scratch(count * rows, 8)
  const sizes = [rows, count].map((n) => Int32Array.of(n))
  stage.dispatch("find_zeros", [x, zeros, ...sizes], [zeros], count * rows)
  stage.dispatch("in_order", [pivots, ...sizes], [pivots], count * rows)
  // The library's second factor is an upper triangle: that of the transpose, where this one is a lower triangle.
  const a = stage.taken(x, m, isUpper, isUpper ? Part.Upper : Part.Lower)
  stage.call(Work.Verdict, [rows, rows], [a], [a], {
    infos: zeros,
    verdict: verdictOf("linalg.solveTriangular"),
  })
  solved(stage, m, [a, pivots], b, node, isUpper ? PLAIN : TRANSPOSED)
}

const cholesky: Encode = (stage, m, [x], node) => {
  const isUpper = node.params.upper as boolean
  const part = isUpper ? Part.Upper : Part.Lower
  stage.look(x, m, part)
  const a = stage.taken(x, m, false, part)
  stage.call(Work.Cholesky, [m.rows, m.rows], [a], [a], {
    option: fillOf(isUpper),
    verdict: verdictOf("linalg.cholesky"),
  })
  stage.move(a, outputOf(node, 0), m, [byRows(m), byRows(m)], { part, instead: Instead.NansInPart })
}

const qr: Encode = (stage, m, [x], node) => {
  const { count, rows, columns } = m
  const k = Math.min(rows, columns)
  stage.look(x, m)
  const a = stage.taken(x, m, true)
  const factors = stage.scratch(count * k)
  const step = rows * columns
  stage.call(Work.Qr, [rows, columns], [a, factors], [a, factors])
  const [q, r] = [
    { count, rows, columns: k },
    { count, rows: k, columns },
  ]
  const from: Steps = [step, 1, rows]
  stage.move(a, outputOf(node, 1), r, [from, byRows(r)], { part: Part.Upper })
  stage.call(Work.Q, [rows, k], [a, factors], [a], { step })
  stage.move(a, outputOf(node, 0), q, [from, byRows(q)])
}

const eigen =
  (op: string, vectors: boolean): Encode =>
  (stage, m, [x], node) => {
    const isUpper = node.params.uplo === "U"
    const part = isUpper ? Part.Upper : Part.Lower
    const { dtype } = node.inputs[0]
    const values = outputOf(node, 0)
    stage.look(x, m, part)
    const a = stage.taken(x, m, false, part)
    stage.call(Work.Eigen, [m.rows, m.rows], [a, values], [a, values], {
      option: fillOf(isUpper) + (vectors ? VECTORS : 0),
      verdict: verdictOf(op),
    })
    stage.spoil(values, 1, m.rows, realOf(dtype))
    // The transpose of a Hermitian matrix is its conjugate, and so are the vectors.
    const conjugated = dtype.kind === "complex"
    if (vectors) stage.move(a, outputOf(node, 1), m, [byColumns(m), byRows(m)], { conjugated })
  }

/** The library wants at least as many rows as columns: otherwise the transpose is factored, whose left vectors are the right ones. */
const svd =
  (jobOf: (node: Node) => "A" | "S" | "N"): Encode =>
  (stage, m, [x], node) => {
    const { count, rows, columns } = m
    const job = jobOf(node)
    const isTurned = rows > columns
    const [high, k] = isTurned ? [rows, columns] : [columns, rows]
    const real = realOf(node.inputs[0].dtype)
    const option = job.charCodeAt(0)
    const verdict = verdictOf("linalg.svd")
    stage.look(x, m)
    const a = stage.taken(x, m, isTurned)
    const values = outputOf(node, job === "N" ? 0 : 1)
    if (job === "N") stage.call(Work.Svd, [high, k], [a, values], [a, values], { option, verdict })
    else {
      const wide = job === "A" ? high : k
      const [u, vt] = [outputOf(node, 0), outputOf(node, 2)]
      // By columns both lie as their transposes do by rows, which the other ones' are.
      const [left, right] = isTurned
        ? [stage.scratch(count * high * wide), stage.scratch(count * k * k)]
        : [vt, u]
      const written = [a, values, left, right]
      stage.call(Work.Svd, [high, k], written, written, { option, verdict })
      if (isTurned) {
        const [us, vts] = [
          { count, rows: high, columns: wide },
          { count, rows: k, columns: k },
        ]
        stage.move(left, u, us, [byColumns(us), byRows(us)])
        stage.move(right, vt, vts, [byColumns(vts), byRows(vts)])
      } else {
        stage.spoil(u, k, k)
        stage.spoil(vt, wide, high)
      }
    }
    stage.spoil(values, 1, k, real)
  }

/** By primitive. */
const WORK: Readonly<Record<string, readonly [op: string, encode: Encode]>> = {
  lu: ["linalg.lu", lu],
  solve: ["linalg.solve", solve],
  inv: ["linalg.inv", inv],
  solveTriangular: ["linalg.solveTriangular", solveTriangular],
  cholesky: ["linalg.cholesky", cholesky],
  qr: ["linalg.qr", qr],
  eigh: ["linalg.eigh", eigen("linalg.eigh", true)],
  eigvalsh: ["linalg.eigvalsh", eigen("linalg.eigvalsh", false)],
  svd: ["linalg.svd", svd(({ params }) => (params.full ? "A" : "S"))],
  singularValues: ["linalg.svd", svd(() => "N")],
}

function takes(node: Node): boolean {
  const { dtype } = node.inputs[0]
  const { count, rows, columns } = matricesOf(node.inputs[0])
  return (
    Object.hasOwn(TYPES, dtype.name) &&
    node.inputs.every((input) => input.dtype === dtype && sizeOf(input.shape) > 0) &&
    (node.outputs ?? [node]).every((output) => sizeOf(output.shape) > 0) &&
    (count <= FEW || Math.min(rows, columns) >= SMALL) &&
    isCountable(node)
  )
}

/** The families; `present` tells whether the library is there, and `begins` is told that commands with verdicts come. */
export function factorizationFamilies(present: () => boolean, begins: () => void): Families {
  const families = Object.entries(WORK).map(([primitive, [op, encode]]): [string, Family] => [
    primitive,
    {
      // The library waits for the GPU on the way.
      unplanned: true,
      supports: (node) => takes(node) && present(),
      encode(node, queue) {
        begins()
        const [x, b] = node.inputs
        const m = matricesOf(x)
        const stage = new Stage(queue, op, x.dtype, m.count)
        const run = (inputs: readonly Location[]): void => encode(stage, m, inputs, node)
        withRowMajor(queue, viewOf(x), (a) =>
          b ? withRowMajor(queue, viewOf(b), (second) => run([a, second])) : run([a]),
        )
        stage.drop()
      },
    },
  ])
  return Object.fromEntries(families)
}
