/**
 * Products of matrices by cuBLASLt: which applications it takes, and how they are described to it. The library's matrices lie by columns,
 * so that a row-major product is that of the transposes the other way round.
 */
import {
  contiguousStrides,
  type Dtype,
  encoder,
  flagFrom,
  float16,
  float32,
  fromBfloat16Bits,
  fromFloat16Bits,
  type Node,
  type Primitive,
  programOf,
  type Storage,
  sizeOf,
} from "@lazuli/core/engine"
import {
  collapse,
  type DispatchQueue,
  type Ending,
  type Families,
  type Family,
  familyOf,
  isCountable,
  type Location,
  locationOf,
  type View,
  viewOf,
  withRowMajor,
} from "@lazuli/gpu-kernels"
import { MOST_MATRICES } from "./few-matrices"
import { encodeFewRows, type FewRows, hasFewRows, takesFewRows } from "./few-rows"
import { isTanhGelu } from "./tanh-gelu"

/** The command's code, and the order of its words; native/cuda/device.cc has the same. */
const PRODUCT = 32

/** `cudaDataType` and `cublasComputeType_t` by dtype. */
const TYPES: Readonly<Record<string, readonly [type: number, compute: number]>> = {
  float32: [0, 68],
  float16: [2, 68],
  bfloat16: [14, 68],
  float64: [1, 70],
}
/** float32 in the tensor cores' 19 bits, where somebody asks for it. */
const TF32 = 77

/** A matrix as the library sees it: which way it lies, and the distance of its columns. */
interface Lie {
  readonly transposed: boolean
  readonly row: number
}

/** Layout of the last two axes: row-major or transposed; null where neither. */
function lieOf({ shape, strides }: View): Lie | null {
  const [rows, columns] = shape.slice(-2)
  const [down, across] = strides.slice(-2)
  const steps = (outer: number, inner: number, n: number, count: number): number | null => {
    if (inner !== 1 && n > 1) return null
    // Of a single row the distance to the next is nobody's business.
    if (count === 1) return Math.max(1, n)
    return outer >= n ? outer : null
  }
  const row = steps(down, across, columns, rows)
  if (row !== null) return { transposed: false, row }
  const column = steps(across, down, rows, columns)
  return column === null ? null : { transposed: true, row: column }
}

/** Runs `body` with an operand that the library can read: as it lies, or in a row-major copy. */
function readable(queue: DispatchQueue, view: View, body: (view: View, lie: Lie) => void): void {
  const lie = lieOf(view)
  if (lie) {
    body(view, lie)
    return
  }
  withRowMajor(queue, view, ({ storage, offset }) => {
    const strides = view.shape.map((_, i) => sizeOf(view.shape.slice(i + 1)))
    const copy = { ...view, storage, offset: offset / view.itemsize, strides }
    body(copy, lieOf(copy) as Lie)
  })
}

/** Writes 64-bit integers and doubles as words. */
function wordsOf(integers: readonly number[], doubles: readonly number[]): Int32Array {
  const bytes = new DataView(new ArrayBuffer(8 * (integers.length + doubles.length)))
  integers.forEach((value, i) => {
    bytes.setBigInt64(8 * i, BigInt(value), true)
  })
  doubles.forEach((value, i) => {
    bytes.setFloat64(8 * (integers.length + i), value, true)
  })
  return new Int32Array(bytes.buffer)
}

/** Parts of `cublasLtEpilogue_t`. */
const [RELU, BIAS, GELU] = [2, 4, 32]

/** The end of a product in the library's own kernels: an activation, or the multiplication by a number. */
interface Epilogue {
  readonly flag: number
  readonly scale: number
  /** The node that takes the result. */
  readonly target: Node
}

/** Work on a product as its epilogue; null where the library has none. `added` tells that the product has an addend. */
function epilogueOf(product: Node, { work, results, keeps }: Ending, added: boolean): Epilogue | null {
  if (keeps || work.outputs !== null || work.dtype !== product.dtype || !isFloat(product)) return null
  const program = programOf(work)
  if (work.inputs.every((input) => results.has(input)))
    return isTanhGelu(program) ? { flag: GELU, scale: 1, target: work } : null
  const { code, outputs } = program
  if (code.length !== 1 || outputs.length !== 1 || work.inputs.length !== 2) return null
  const of = work.inputs.findIndex((input) => results.has(input))
  const other = work.inputs[1 - of]
  if (of < 0 || other.primitive?.facts.immediate !== true || other.dtype !== product.dtype) return null
  const value = other.params.value
  const { op } = code[0]
  if (op === "maximum" && value === 0) return { flag: RELU, scale: 1, target: work }
  if (op !== "multiply" || typeof value !== "number" || added) return null
  const scale = rounded(value, product.dtype)
  return Number.isFinite(scale) && scale !== 0 ? { flag: 0, scale, target: work } : null
}
/** A number as a constant of a dtype holds it. */
function rounded(value: number, dtype: Dtype): number {
  if (dtype === float32) return Math.fround(value)
  const bits = Number(encoder(dtype)(value))
  return dtype === float16 ? fromFloat16Bits(bits) : fromBfloat16Bits(bits)
}
const isFloat = ({ dtype }: Node): boolean => dtype.kind === "floating" && dtype.size <= 4

/** A term added to a product: a matrix of its shape, or a row for all of its rows. */
interface Addend {
  readonly view: View
  readonly isRow: boolean
}

/** alpha · a · b + beta · c */
export function encodeProduct(
  queue: DispatchQueue,
  node: Node,
  x: View,
  y: View,
  added: Addend | null,
  alpha: number,
  beta: number,
  epilogue: Epilogue | null = null,
): void {
  const addend = added && !added.isRow ? added.view : null
  const [type, exact] = TYPES[node.dtype.name]
  const compute = node.dtype.name === "float32" && flagFrom("LAZULI_CUDA_TF32") === true ? TF32 : exact
  const result = epilogue?.target ?? node
  const target = {
    ...viewOf(result),
    ...(epilogue && { shape: node.shape, strides: contiguousStrides(node.shape) }),
  }
  readable(queue, x, (a, lieA) =>
    readable(queue, y, (b, lieB) => {
      let [m, k] = a.shape.slice(-2)
      const n = b.shape[b.shape.length - 1]
      const outer = (view: View): readonly number[] => view.strides.slice(0, -2)
      const merged = collapse(node.shape.slice(0, -2), [
        outer(a),
        outer(b),
        outer(target),
        addend ? outer(addend) : outer(target),
      ])
      let { shape: batch, strides } = merged
      const rowC = addend ? Math.max(n, addend.strides[addend.strides.length - 2]) : n
      // Rows of all matrices under each other, where they share the second operand.
      const [stepA, stepB, stepD, stepC] = strides.map((each) => each[each.length - 1])
      if (
        batch.length === 1 &&
        batch[0] > 1 &&
        stepB === 0 &&
        !lieA.transposed &&
        stepA === m * lieA.row &&
        stepD === m * n &&
        (!addend || stepC === m * rowC)
      ) {
        m *= batch[0]
        batch = [1]
        strides = [[0], [0], [0], [0]]
      }
      const inner = batch.length - 1
      const count = sizeOf(batch.slice(0, -1))
      for (let z = 0; z < count; z++) {
        const at = [0, 0, 0, 0]
        let rest = z
        for (let axis = inner - 1; axis >= 0; axis--) {
          const index = rest % batch[axis]
          rest = Math.floor(rest / batch[axis])
          for (let i = 0; i < 4; i++) at[i] += index * strides[i][axis]
        }
        const moved = (view: View, by: number): Location => locationOf({ ...view, offset: view.offset + by })
        const [sa, sb, sd, sc] = strides.map((each) => each[inner])
        queue.call({
          op: node.primitive?.name as string,
          code: PRODUCT,
          words: wordsOf(
            [
              ...[type, compute, Number(lieB.transposed), Number(lieA.transposed), n, m, k],
              ...[lieB.row, lieA.row, rowC, batch[inner], sb, sa, sc, sd],
              (added?.isRow ? BIAS : 0) | (epilogue?.flag ?? 0),
            ],
            [alpha * (epilogue?.scale ?? 1), addend ? beta : 0],
          ),
          // The first operand is the second one here.
          arguments: [
            moved(b, at[1]),
            moved(a, at[0]),
            moved(target, at[2]),
            ...(added ? [moved(added.view, addend ? at[3] : 0)] : []),
          ],
          writes: [result.storage as Storage],
        })
      }
    }),
  )
}

/** Matrix axes beyond the last two that a few calls go through. */
export const MANY = 16

/** Tells that the library takes this application: there is something to compute, and batches need few calls. */
function takes(node: Node, inputs: readonly Node[]): boolean {
  if (!Object.hasOwn(TYPES, node.dtype.name) || node.size === 0) return false
  const k = inputs[0].shape[inputs[0].shape.length - 1]
  if (k === 0 || Math.max(k, ...node.shape.slice(-2)) >= 2 ** 31) return false
  const batch = node.shape.slice(0, -2)
  const strides = inputs.map((each) => viewOf(each).strides.slice(0, -2))
  const merged = collapse(batch, [...strides, viewOf(node).strides.slice(0, -2)])
  return sizeOf(merged.shape.slice(0, -1)) <= MANY
}

/** The addend of an application, if it lies as the library wants it: with rows of neighbours, or one row for all, by a factor of 1. */
function addendOf(node: Node): Addend | null {
  const c = node.inputs[0]
  const view = viewOf(c)
  const missing = node.shape.length - c.shape.length
  const strides = node.shape.map((_, i) =>
    i < missing || c.shape[i - missing] === 1 ? 0 : view.strides[i - missing],
  )
  const [m, n] = node.shape.slice(-2)
  const [down, across] = strides.slice(-2)
  if (across !== 1 && n > 1) return null
  const spread = { ...view, shape: node.shape, strides }
  if (m === 1 || down >= n) return { view: spread, isRow: false }
  const isRow = node.params.beta === 1 && strides.slice(0, -1).every((stride) => stride === 0)
  return isRow ? { view: spread, isRow } : null
}

/** True of products with the same few rows, which are operand `first` of each. */
const shareFewRows = (nodes: readonly Node[], first: number): boolean =>
  nodes.length <= MOST_MATRICES &&
  nodes.every(
    (node) =>
      node.inputs[first] === nodes[0].inputs[first] &&
      node.dtype === nodes[0].dtype &&
      hasFewRows(node, node.inputs.slice(first)),
  )

/** The families; `present` tells whether the library is there, `isModern` whether the GPU has tensor cores for a few rows. */
export function productFamilies(present: () => boolean, isModern: () => boolean): Families {
  /** `matmul`, whose operands are all of its inputs, or `addmm`, which has an addend before them. */
  const familyFrom = (first: 0 | 1): Family => {
    const operandsOf = (node: Node): readonly Node[] => node.inputs.slice(first)
    const addedTo = (node: Node): Addend | null => (first === 0 ? null : addendOf(node))
    // The same wherever operands lie, before which it is known what is joined.
    const isFew = (node: Node): boolean => hasFewRows(node, operandsOf(node)) && isModern()
    /** An application as the kernel for few rows has it; null where it does not take it. */
    const fewRowsOf = (node: Node): FewRows | null => {
      const operands = operandsOf(node)
      if (!takesFewRows(node, operands) || !isModern()) return null
      if (first === 0) return { node, operands, added: null }
      if (node.params.alpha !== 1 || node.params.beta !== 1) return null
      const addend = addendOf(node)
      const isRow = addend !== null && (addend.isRow || sizeOf(node.shape.slice(0, -1)) === 1)
      return isRow ? { node, operands, added: locationOf(addend.view) } : null
    }
    const isOfLibrary = (node: Node): boolean =>
      takes(node, operandsOf(node)) && (first === 0 || addendOf(node) !== null) && present()
    const family: Family = {
      supports: (node) => (isFew(node) && isCountable(node)) || isOfLibrary(node),
      ends: (node, ending) => !isFew(node) && epilogueOf(node, ending, first === 1) !== null,
      encode(node, queue, ending) {
        const few = ending ? null : fewRowsOf(node)
        if (few) encodeFewRows(queue, [few])
        else if (isOfLibrary(node)) {
          const { alpha = 1, beta = 0 } = node.params as { alpha?: number; beta?: number }
          const [a, b] = operandsOf(node).map(viewOf)
          const epilogue = ending && epilogueOf(node, ending, first === 1)
          encodeProduct(queue, node, a, b, addedTo(node), alpha, beta, epilogue)
        } else (familyOf(node.primitive as Primitive) as Family).encode(node, queue)
      },
      together(nodes) {
        if (!shareFewRows(nodes, first) || !isModern()) return null
        return (queue) => {
          const few = nodes.map(fewRowsOf)
          if (few.every((each) => each !== null)) encodeFewRows(queue, few)
          else for (const node of nodes) family.encode(node, queue)
        }
      },
    }
    return family
  }
  return { matmul: familyFrom(0), addmm: familyFrom(1) }
}
