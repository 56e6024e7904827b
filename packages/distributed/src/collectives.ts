/**
 * The collectives as primitives. Members call them in the same order with arrays of the same shape and dtype; under vmap, with batches of
 * the same size. Derivatives are those of a program that runs alike on all members: of one loss where a result is the same everywhere, of
 * the sum of the members' losses where it is not.
 */
import * as mx from "@lazuli/core"
import { type Apply, definePrimitive, format, type HostArray, type Meta } from "@lazuli/core/plugin"
import { asError, communicatorAt, type Work } from "./communicators"

const PACKAGE = "@lazuli/distributed"

/** The bytes of elements. */
const bytesOf = ({ data }: HostArray): Uint8Array => {
  const { buffer, byteOffset, byteLength } = data as unknown as Float32Array
  return new Uint8Array(buffer, byteOffset, byteLength)
}
const isHalf = (dtype: mx.Dtype): boolean => dtype === mx.float16 || dtype === mx.bfloat16

/** A number that is equal for equal shapes, and not negative; of kernels, native/groups.cc has the same. */
const shapeNumber = (shape: readonly number[]): number =>
  shape.reduce((hash, n) => (Math.imul(hash ^ n, 16777619) + shape.length) >>> 0, 2166136261)

/** The semantics: what the group's communicator makes of the bytes. Halves travel as float32, which is what is given of them. */
function exchange(
  group: number,
  kind: Work["kind"],
  [input]: readonly HostArray[],
  output: HostArray,
  extra: Partial<Pick<Work, "reduction" | "peer" | "structure" | "derivative">> = {},
): void {
  const about = kind === "recv" ? output : input
  const { reduction = "sum", peer = 0, structure = 0, derivative = 0 } = extra
  const name = kind === "allReduce" ? { sum: "allSum", max: "allMax", min: "allMin" }[reduction] : kind
  const dtype = isHalf(about.dtype) ? mx.float32 : about.dtype
  const halves = isHalf(output.dtype) ? new Float32Array(output.data.length) : null
  const target = halves ? new Uint8Array(halves.buffer) : bytesOf(output)
  const count = about.shape.reduce((n, m) => n * m, 1)
  try {
    communicatorAt(group).run({
      kind,
      reduction,
      dtype,
      input: kind === "recv" ? new Uint8Array(0) : bytesOf(input),
      output: target,
      count: kind === "barrier" ? 0 : count,
      peer,
      name,
      shape: kind === "barrier" ? 0 : shapeNumber(about.shape),
      structure,
      derivative,
    })
  } catch (error) {
    throw asError(name, error)
  }
  if (kind === "barrier") output.data.set(input.data)
  else if (halves) output.data.set(halves)
}

const facts = { exchanges: true }

/** The rules of what changes nothing about the shape, and works on every element alike. */
const alike = {
  infer: ([x]: readonly Meta[]): Meta => x,
}

/** Operations of derivatives are labelled by their order, so that members that pair them with other operations find out. */
interface Derived {
  /** 0 for the program's own operations. */
  readonly derivative: number
}
/** The parameters of an operation that differentiates another. */
const derived = <P extends Derived>(params: P): P => ({ ...params, derivative: params.derivative + 1 })
/** Parameters of exchanges among the members of a group of a size. */
interface Sized extends Derived {
  readonly group: number
  readonly size: number
}
const sized = { group: "i64", derivative: "i64", size: "i64" } as const

/** Σ, max or min over the members. `structure` is a number for that of a tree of gradients, which all compare; 0 for others. */
export const allReduce: Apply<
  Derived & {
    group: number
    reduction: "sum" | "max" | "min"
    structure: number
  }
> = definePrimitive({
  name: `${PACKAGE}/allReduce`,
  api: 1,
  facts,
  params: { group: "i64", derivative: "i64", reduction: ["sum", "max", "min"], structure: "i64" },
  ...alike,
  reference: (inputs, [out], { group, reduction, structure, derivative }) =>
    exchange(group, "allReduce", inputs, out, { reduction, structure, derivative }),
  vjp: ({ inputs: [x], outputs: [y], cotangents: [g], params: { reduction } }) => [
    reduction === "sum" ? g : mx.where(x.equal(y), g, mx.zerosLike(g)),
  ],
  jvp: ({ inputs: [x], outputs: [y], tangents: [t], params: { group, reduction, derivative } }) => {
    const mine = reduction === "sum" ? t : t && mx.where(x.equal(y), t, mx.zerosLike(t))
    return [mine && sumOf(mine, group, derivative + 1)]
  },
  vmap: ({ inputs, axes, params }) => ({ outputs: [allReduce(inputs, params)], axes }),
})
const sumOf = (x: mx.Array, group: number, derivative: number): mx.Array =>
  allReduce([x], { group, derivative, reduction: "sum", structure: 0 })

/** The rows of an example: a number has one. */
const rowsOf = (x: Meta): readonly number[] => (x.shape.length === 0 ? [1] : x.shape)

/** The arrays of all members, one behind the other. */
function gathered(x: Meta, size: number): Meta {
  const [first, ...rest] = rowsOf(x)
  return { shape: [first * size, ...rest], dtype: x.dtype }
}

const batchFirst = (x: mx.Array, axis: number | null, size: number): mx.Array =>
  axis === null ? mx.broadcastTo(x.expandDims(0), [size, ...x.shape]) : mx.moveaxis(x, axis, 0)
/** With the batch behind the first axis. */
const batchSecond = (x: mx.Array, axis: number | null, size: number): mx.Array => {
  const batch = batchFirst(x, axis, size)
  return batch.ndim === 1 ? batch.expandDims(0) : mx.swapaxes(batch, 0, 1)
}

/** [n, …] of each member → [size · n, …]. */
export const allGather: Apply<Sized> = definePrimitive({
  name: `${PACKAGE}/allGather`,
  api: 1,
  facts,
  params: sized,
  infer: ([x], { size }) => gathered(x, size),
  reference: (inputs, [out], { group, derivative }) =>
    exchange(group, "allGather", inputs, out, { derivative }),
  vjp: ({ inputs: [x], cotangents: [g], params: { group } }) => {
    const { rank } = communicatorAt(group)
    const rows = rowsOf(x)[0]
    return [g.index(mx.s(rank * rows, (rank + 1) * rows)).reshape(x.shape)]
  },
  jvp: ({ tangents: [t], params }) => [t && allGather([t], derived(params))],
  vmap: ({ inputs: [x], axes: [axis], params, size }) => ({
    outputs: [allGather([batchSecond(x, axis, size)], params)],
    axes: [1],
  }),
})

function checkParts(op: string, x: Meta, size: number): void {
  if (x.shape.length === 0 || x.shape[0] % size !== 0)
    throw new mx.ShapeError(
      op,
      `expected a first axis that is divisible by the ${size} members, received shape ${format(x.shape)}`,
    )
}

/** A member's part of an array. */
function partOf(op: string, x: Meta, size: number): Meta {
  checkParts(op, x, size)
  return { shape: [x.shape[0] / size, ...x.shape.slice(1)], dtype: x.dtype }
}

/** [size · n, …] of each member → [n, …]: the sum of the parts for this one. */
export const sumScatter: Apply<Sized> = definePrimitive({
  name: `${PACKAGE}/sumScatter`,
  api: 1,
  facts,
  params: sized,
  infer: ([x], { size }) => partOf("sumScatter", x, size),
  reference: (inputs, [out], { group, derivative }) =>
    exchange(group, "sumScatter", inputs, out, { derivative }),
  vjp: ({ cotangents: [g], params }) => [allGather([g], derived(params))],
  jvp: ({ tangents: [t], params }) => [t && sumScatter([t], derived(params))],
  vmap: ({ inputs: [x], axes: [axis], params, size }) => ({
    outputs: [sumScatter([batchSecond(x, axis, size)], params)],
    axes: [1],
  }),
})

/** Part i of the first axis goes to rank i. */
export const allToAll: Apply<Sized> = definePrimitive({
  name: `${PACKAGE}/allToAll`,
  api: 1,
  facts,
  params: sized,
  infer: ([x], { size }) => {
    checkParts("allToAll", x, size)
    return x
  },
  reference: (inputs, [out], { group, derivative }) =>
    exchange(group, "allToAll", inputs, out, { derivative }),
  vjp: ({ cotangents: [g], params }) => [allToAll([g], derived(params))],
  jvp: ({ tangents: [t], params }) => [t && allToAll([t], derived(params))],
  vmap: ({ inputs: [x], axes: [axis], params, size }) => ({
    outputs: [allToAll([batchSecond(x, axis, size)], params)],
    axes: [1],
  }),
})

/** The array of one member. */
export const broadcast: Apply<Derived & { group: number; root: number }> = definePrimitive({
  name: `${PACKAGE}/broadcast`,
  api: 1,
  facts,
  params: { group: "i64", derivative: "i64", root: "i64" },
  ...alike,
  reference: (inputs, [out], { group, root, derivative }) =>
    exchange(group, "broadcast", inputs, out, { peer: root, derivative }),
  // The cotangent is used on all members, so that all evaluate the same operations.
  vjp: ({ cotangents: [g], params: { group, root } }) => [
    mx.where(mx.array(communicatorAt(group).rank === root), g, mx.zerosLike(g)),
  ],
  jvp: ({ tangents: [t], params }) => [t && broadcast([t], derived(params))],
  vmap: ({ inputs, axes, params }) => ({ outputs: [broadcast(inputs, params)], axes }),
})

/** Both sides of a message have a batch of examples, in front, also where one of them sends the same for all. */
const messages = { ...facts, perExample: true }

let serial = 0
/** A number that no other message has, so that equal messages stay two. */
export const nextSerial = (): number => ++serial

/** The array, which goes to another member as well. */
export const send: Apply<{ group: number; to: number; serial: number }> = definePrimitive({
  name: `${PACKAGE}/send`,
  api: 1,
  facts: messages,
  params: { group: "i64", to: "i64", serial: "i64" },
  ...alike,
  reference: (inputs, [out], { group, to }) => exchange(group, "send", inputs, out, { peer: to }),
  vjp: ({ cotangents: [g] }) => [g],
  // The receiver's array depends on nothing in its process: there is no tangent to send.
  jvp: ({ tangents: [t] }) => [t],
  vmap: ({ inputs: [x], axes: [axis], params, size }) => ({
    outputs: [send([batchFirst(x, axis, size)], params)],
    axes: [0],
  }),
})

/** The array that another member sends. */
export const recv: Apply<{
  group: number
  from: number
  serial: number
  shape: readonly number[]
  dtype: mx.Dtype
}> = definePrimitive({
  name: `${PACKAGE}/recv`,
  api: 1,
  facts: messages,
  params: { group: "i64", from: "i64", serial: "i64", shape: "i64[]", dtype: "dtype" },
  infer: (_, { shape, dtype }) => ({ shape, dtype }),
  reference: (_, [out], { group, from }) => exchange(group, "recv", [], out, { peer: from }),
  vjp: () => [],
  jvp: () => [null],
  vmap: ({ params, size }) => ({
    outputs: [recv([], { ...params, shape: [size, ...params.shape] })],
    axes: [0],
  }),
})

/** The array that another member sends, like the input in shape and dtype. It does not depend on the input's elements. */
export const recvLike: Apply<{ group: number; from: number; serial: number }> = definePrimitive({
  name: `${PACKAGE}/recvLike`,
  api: 1,
  facts: messages,
  params: { group: "i64", from: "i64", serial: "i64" },
  ...alike,
  reference: (_, [out], { group, from }) => exchange(group, "recv", [], out, { peer: from }),
  vjp: () => [null],
  jvp: () => [null],
  vmap: ({ inputs: [x], axes: [axis], params, size }) => ({
    outputs: [recvLike([batchFirst(x, axis, size)], params)],
    axes: [0],
  }),
})

/** The array, once all members have come to it. */
export const barrier: Apply<{ group: number; serial: number }> = definePrimitive({
  name: `${PACKAGE}/barrier`,
  api: 1,
  facts,
  params: { group: "i64", serial: "i64" },
  ...alike,
  reference: (inputs, [out], { group }) => exchange(group, "barrier", inputs, out),
  vjp: ({ cotangents: [g] }) => [g],
  jvp: ({ tangents: [t] }) => [t],
  vmap: ({ inputs, axes, params }) => ({ outputs: [barrier(inputs, params)], axes }),
})

/** The array itself; of its cotangents, the sum over the members. */
export const sumGradients: Apply<{ group: number }> = definePrimitive({
  name: `${PACKAGE}/sumGradients`,
  api: 1,
  facts: { exchanges: "derivatives" },
  params: { group: "i64" },
  ...alike,
  view: ({ offset, strides }) => ({ offset, strides }),
  vjp: ({ cotangents: [g], params: { group } }) => [sumOf(g, group, 1)],
  jvp: ({ tangents: [t] }) => [t],
  vmap: ({ inputs, axes, params }) => ({ outputs: [sumGradients(inputs, params)], axes }),
})

/** Those that are there, exchanged together. */
const together = (
  exchange: (inputs: readonly mx.Array[]) => mx.Array[],
  all: readonly (mx.Array | null)[],
): (mx.Array | null)[] => {
  const given = all.filter((each) => each !== null)
  const results = given.length > 0 ? exchange(given) : []
  return all.map((each) => each && (results.shift() as mx.Array))
}

/** {@link sumScatter} of the gradients of several parameters. */
export const scatterGradients: Apply<Sized> = definePrimitive({
  name: `${PACKAGE}/scatterGradients`,
  api: 1,
  facts,
  params: sized,
  infer: (inputs, { size }) => inputs.map((x) => partOf("scatterGradients", x, size)),
  decompose: (inputs, params) => inputs.map((x) => sumScatter([x], params)),
  vjp: ({ cotangents, params, wanted }) =>
    cotangents.map((g, i) => (wanted[i] ? allGather([g], derived(params)) : null)),
  jvp: ({ tangents, params }) => together((given) => scatterGradients.all(given, derived(params)), tangents),
  vmap: ({ inputs, axes, params, size }) => ({
    outputs: scatterGradients.all(
      inputs.map((x, i) => batchSecond(x, axes[i], size)),
      params,
    ),
    axes: inputs.map(() => 1),
  }),
})

/** {@link scatterGradients}, divided by the number of members. Sums of float16 are float32: float16 may hold no more than the averages. */
function averageParts(gradients: readonly mx.Array[], params: Sized): mx.Array[] {
  const wide = gradients.map((x) => (x.dtype === mx.float16 ? x.astype(mx.float32) : x))
  return scatterGradients
    .all(wide, params)
    .map((sum, i) => sum.divide(params.size).astype(gradients[i].dtype))
}

/** {@link allGather} of the parts of several parameters; of their cotangents, the members' averages of this member's parts. */
export const gatherParameters: Apply<Sized> = definePrimitive({
  name: `${PACKAGE}/gatherParameters`,
  api: 1,
  facts,
  params: sized,
  infer: (inputs, { size }) => inputs.map((x) => gathered(x, size)),
  decompose: (inputs, params) => inputs.map((x) => allGather([x], params)),
  vjp: ({ inputs, cotangents, params, wanted }) =>
    together(
      (given) => averageParts(given, derived(params)),
      cotangents.map((g, i) => (wanted[i] ? g : null)),
    ).map((mean, i) => (mean === null ? null : mean.reshape(inputs[i].shape))),
  jvp: ({ tangents, params }) => together((given) => gatherParameters.all(given, derived(params)), tangents),
  vmap: ({ inputs, axes, params, size }) => ({
    outputs: gatherParameters.all(
      inputs.map((x, i) => batchSecond(x, axes[i], size)),
      params,
    ),
    axes: inputs.map(() => 1),
  }),
})
