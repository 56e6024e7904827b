/**
 * Rotary positions: a thread computes the angle of one pair of features at one position, and turns that pair in several heads.
 */
import { type Application, isInteger, type Node, type Storage, sameShape, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue } from "../dispatch"
import { type Families, type Family, isCountable } from "../family"
import { viewOf } from "../layout"
import { METAL_HEADER, metalType } from "../metal-types"
import { encodeCopy, withAllRowMajor } from "./copy"
import { type Finder, finderOf, indexParameters, POSITION } from "./gather"
import { targetOf } from "./reduce"

/** Heads that a thread turns with one angle; so few threads turn one each, since a thread waits for each of its heads. */
const HEADS = 4
const FEW_THREADS = 16_384
const GROUP = 256
/** Arrays that one kernel turns at most: queries and keys. */
const MOST = 2

/** Elements of an update that a thread copies. */
const COPIED = 4

/** The places of results that are updates of larger arrays. */
interface Places {
  readonly finder: Finder
  /** By array: true if its result is an update. */
  readonly placed: readonly boolean[]
  /** Other updates beside them. */
  readonly copies: number
}

/** A function that finds the place of an update's row of features, and the threads that copy whole updates. */
function placesText({ finder, copies }: Places, type: string): { find: string; copy: string } {
  const { types, text } = finder
  const indices = types.map((_, k) => `, index${k}`).join("")
  const find = `inline bool lz_place(uint i, constant int* layout, ${types.map((each, k) => `device const ${each}* index${k}`).join(", ")}, thread long& at) {
  long start = 0;
  uint spot = 0, order = 0;
  bool inside = true;
${text}  return inside;
}
`
  const choices = Array.from(
    { length: copies },
    (_, n) => `    if (i / each == ${n}) { u = u${n}; z = z${n}; }\n`,
  ).join("")
  const copy = `  if (i >= threads) {
    i -= threads;
    uint each = uint(layout[0]) / ${COPIED};
    if (i >= ${copies} * each) return;
    device const ${type}* u = x0;
    device ${type}* z = y0;
${choices}    uint from = i % each * ${COPIED};
    long at = 0;
    if (lz_place(from, layout${indices}, at))
      for (uint e = 0; e < ${COPIED}; e++) z[at + e] = u[from + e];
    return;
  }
`
  return { find, copy: copies > 0 ? copy : "" }
}

/**
 * A kernel for several arrays, which differ in their heads alone: the threads of one come after those of another. With `places` results
 * are written into larger arrays.
 */
function source(
  parts: number,
  type: string,
  offsets: string,
  traditional: boolean,
  given: string | null,
  places: Places | null,
  together: number,
): string {
  const { find, copy } = places ? placesText(places, type) : { find: "", copy: "" }
  const isPlaced = (n: number): boolean => places?.placed[n] === true
  const indices = places?.finder.types.map((_, k) => `, index${k}`).join("")
  const arrays = Array.from(
    { length: parts },
    (_, n) =>
      `device const ${type}* x${n} [[buffer(${2 * n})]], device ${type}* y${n} [[buffer(${2 * n + 1})]],`,
  )
  const rest = 2 * parts
  const others = Array.from(
    { length: places?.copies ?? 0 },
    (_, n) =>
      `device const ${type}* u${n} [[buffer(${rest + 5 + 2 * n})]], device ${type}* z${n} [[buffer(${rest + 6 + 2 * n})]],`,
  )
  const placing = places
    ? ` constant int* layout [[buffer(${rest + 4})]], ${others.join(" ")} ${indexParameters(places.finder.types, rest + 5 + 2 * places.copies)},`
    : ""
  const to = places
    ? `      long to = from;
      if (placed && !lz_place(from, layout${indices}, to)) continue;
`
    : "      uint to = from;\n"
  const choices = Array.from({ length: parts - 1 }, (_, k) => {
    const n = k + 1
    return `  if (i >= threads) {
    i -= threads;
    x = x${n}, y = y${n}, heads = sizes[${4 + 2 * n}], threads = sizes[${5 + 2 * n}];${places ? `\n    placed = ${isPlaced(n)};` : ""}
  }
`
  })
  return `${METAL_HEADER}${places ? POSITION : ""}${find}
kernel void rope(${arrays.join(" ")} device const ${offsets}* offset [[buffer(${rest})]],
    device const ${given ?? "uchar"}* rates [[buffer(${rest + 1})]], constant uint* sizes [[buffer(${rest + 2})]],
    constant float* numbers [[buffer(${rest + 3})]],${placing} uint number [[thread_position_in_grid]]) {
  // Positions, features, pairs; whether each example has its own offset. Of each array: heads, and threads in all.
  uint length = sizes[0], width = sizes[1], half_width = sizes[2], i = number;
  device const ${type}* x = x0;
  device ${type}* y = y0;
  uint heads = sizes[4], threads = sizes[5];
${places ? `  bool placed = ${isPlaced(0)};\n` : ""}${choices.join("")}${copy}  if (i >= threads) return;
  uint each = half_width + (width - 2 * half_width);
  uint j = i % each, rest = i / each;
  uint position = rest % length;
  rest /= length;
  uint several = (heads + ${together - 1}) / ${together}, first = rest % several * ${together}, batch = rest / several;
  uint base = ((batch * heads + first) * length + position) * width, stride = length * width;
  uint count = min(${together}u, heads - first);
  if (j >= half_width) {
    for (uint h = 0; h < count; h++) {
      uint from = base + h * stride;
${to}      y[to + half_width + j] = x[from + half_width + j];
    }
    return;
  }
  float location = (float(position) + float(offset[sizes[3] != 0 ? batch : 0])) * numbers[0];
  float rate = ${given !== null ? "1.0f / float(rates[j])" : "precise::exp(float(j) * numbers[1])"};
  float angle = location * rate;
  float c = precise::cos(angle), s = precise::sin(angle) * numbers[2];
  uint p = ${traditional ? "2 * j" : "j"}, q = ${traditional ? "p + 1" : "p + half_width"};
  for (uint h = 0; h < count; h++) {
    uint from = base + h * stride;
    float a = float(x[from + p]), b = float(x[from + q]);
${to}    y[to + p] = ${type}(a * c - b * s);
    y[to + q] = ${type}(a * s + b * c);
  }
}
`
}

interface RopeParams {
  readonly dims: number
  readonly traditional: boolean
  readonly base: number | null
  readonly scale: number
  readonly inverse: boolean
}

/** Examples, heads, positions and features of an array. */
function sizesOf({ shape }: Node): { batch: number; heads: number; length: number; width: number } {
  const [length, width] = shape.slice(-2)
  const batch = shape.length > 2 ? shape[0] : 1
  return { batch, heads: sizeOf(shape) / (batch * length * width), length, width }
}

/** Updates of larger arrays at the same places: results of ropes, and others. */
interface Updates {
  /** By rope: the application that takes its result as an update, if one does. */
  readonly placed: readonly (Node | undefined)[]
  readonly copied: readonly Node[]
}

/** Adds the work of applications that differ in their arrays, and those in their heads alone. */
function encodeAll(nodes: readonly Node[], queue: DispatchQueue, updates?: Updates): void {
  const [x, offset, freqs] = nodes[0].inputs
  const { dims, traditional, base, scale, inverse } = nodes[0].params as unknown as RopeParams
  if (sizeOf(x.shape) === 0) return
  const { batch, length, width } = sizesOf(x)
  const half = dims / 2
  const heads = nodes.map(({ inputs: [own] }) => sizesOf(own).heads)
  const each = (half + width - dims) * length * batch
  const together = heads.reduce((sum, own) => sum + own, 0) * each > FEW_THREADS ? HEADS : 1
  const parts = heads.map((own) => ({ heads: own, threads: each * Math.ceil(own / together) }))
  const scatters = updates ? [...updates.placed, ...updates.copied].flatMap((each) => each ?? []) : []
  const finder = scatters.length > 0 ? finderOf(scatters[0]) : null
  const updated = finder ? sizeOf(scatters[0].inputs[1].shape) : 0
  const copied = updates?.copied ?? []
  const threads =
    parts.reduce((sum, part) => sum + part.threads, 0) + copied.length * Math.ceil(updated / COPIED)
  if (threads === 0) return
  const type = metalType(x.dtype) as string
  const offsets = metalType(offset.dtype) as string
  const rates = base === null ? (metalType(freqs.dtype) as string) : null
  const targets = nodes.map((node, n) => targetOf(updates?.placed[n] ?? node))
  const copies = copied.map(targetOf)
  const places = finder && {
    finder,
    placed: nodes.map((_, n) => updates?.placed[n] !== undefined),
    copies: copied.length,
  }
  for (const each of scatters) {
    const [cache] = each.inputs
    const target = targetOf(each)
    queue.copyOver(cache.storage as Storage, target.storage, () =>
      encodeCopy(queue, viewOf(cache), target, "scatter"),
    )
  }
  const shared = base === null ? [offset, freqs] : [offset]
  const indices = scatters[0]?.inputs.slice(2) ?? []
  const read = [...copied.map(({ inputs: [, own] }) => own), ...indices]
  withAllRowMajor(queue, [...nodes.map(({ inputs: [own] }) => own), ...read, ...shared], (locations) => {
    const [given, rate] = locations.slice(nodes.length + read.length)
    queue.dispatch({
      op: "rope",
      kernel: {
        key: `rope ${together} ${nodes.length} ${type} ${offsets} ${traditional} ${rates}${places ? ` into ${places.placed} ${places.copies} ${places.finder.key}` : ""}`,
        name: "rope",
        source: () => source(nodes.length, type, offsets, traditional, rates, places, together),
      },
      arguments: [
        ...targets.flatMap((target, n): Argument[] => [locations[n], target]),
        given,
        rate ?? given,
        Uint32Array.of(
          length,
          width,
          half,
          offset.shape.length > 0 ? 1 : 0,
          ...parts.flatMap((part) => [part.heads, part.threads]),
        ),
        Float32Array.of(scale, base === null ? 0 : -Math.log(base) / half, inverse ? -1 : 1),
        ...(finder ? [Int32Array.of(updated, finder.slice, ...finder.layout)] : []),
        ...copies.flatMap((target, n): Argument[] => [locations[nodes.length + n], target]),
        ...locations.slice(nodes.length + copies.length, nodes.length + read.length),
      ],
      writes: [...targets, ...copies].map(({ storage }) => storage),
      grid: [Math.ceil(threads / 32) * 32, 1, 1],
      threadgroup: [Math.min(GROUP, Math.ceil(threads / 32) * 32), 1, 1],
    })
  })
}

/** True of arrays at the same positions, which are turned alike. */
function areAlike(nodes: readonly Node[]): boolean {
  const [first] = nodes
  const { batch, length, width } = sizesOf(first.inputs[0])
  const params = first.params as unknown as RopeParams
  return nodes.every((node) => {
    const [x, ...shared] = node.inputs
    const sizes = sizesOf(x)
    const own = node.params as unknown as RopeParams
    return (
      x.dtype === first.inputs[0].dtype &&
      x.shape.length === first.inputs[0].shape.length &&
      sizes.batch === batch &&
      sizes.length === length &&
      sizes.width === width &&
      shared.every((input, i) => input === first.inputs[i + 1]) &&
      (Object.keys(params) as (keyof RopeParams)[]).every((key) => own[key] === params[key])
    )
  })
}

/** True of updates at the same places of arrays of one shape, by rows of so many features. */
function areAtOnePlace(scatters: readonly Application[], { dtype }: Node, width: number): boolean {
  const [{ inputs, params }] = scatters
  return scatters.every((each) => {
    const [x, updates, ...indices] = each.inputs
    return (
      each.primitive.name === "scatter" &&
      each.params.mode === "set" &&
      x.dtype === dtype &&
      updates.dtype === dtype &&
      String(each.params.axes) === String(params.axes) &&
      sameShape(x.shape, inputs[0].shape) &&
      sameShape(updates.shape, inputs[1].shape) &&
      indices.length === inputs.length - 2 &&
      indices.every((index, i) => index === inputs[i + 2] && isInteger(index.dtype)) &&
      updates.shape[updates.shape.length - 1] === width &&
      isCountable(each)
    )
  })
}

/** Ropes, and updates of larger arrays by their results and beside them, as one kernel; null where they are something else. */
const around: Family["around"] = (members, inner) => {
  const all = new Set<Node>(members)
  const own = members.filter(({ primitive }) => !primitive.rules.view)
  const ropes = own.filter(({ primitive }) => primitive.name === "rope")
  const scatters = own.filter(({ primitive }) => primitive.name === "scatter")
  if (ropes.length + scatters.length !== own.length || ropes.length === 0 || ropes.length > MOST) return null
  if (scatters.length === 0 || scatters.length > MOST || !areAlike(ropes) || !ropes.every(isCountable))
    return null
  const { width, length } = sizesOf(ropes[0].inputs[0])
  if (width % COPIED !== 0 || ropes[0].size === 0 || !areAtOnePlace(scatters, ropes[0], width)) return null
  if (finderOf(scatters[0]).meet || scatters[0].inputs[1].size === 0) return null
  const made = new Set<Node>([...ropes, ...scatters])
  const behind = (node: Node): Node =>
    all.has(node) && node.primitive?.rules.view ? behind(node.inputs[0]) : node
  const sourceOf = (scatter: Node): Node => behind(scatter.inputs[1])
  const placed = ropes.map((each) => scatters.find((scatter) => sourceOf(scatter) === each))
  const copied = scatters.filter((each) => !placed.includes(each))
  // An update that is made here as well is a rope's result that nothing else wants.
  const fits =
    copied.length < scatters.length &&
    length > 0 &&
    !ropes.some(({ inputs }) => inputs.some((input) => made.has(behind(input)))) &&
    placed.every((each, i) => (each === undefined) !== inner.has(ropes[i])) &&
    copied.every((each) => !made.has(sourceOf(each))) &&
    scatters.every(({ inputs: [x, , ...indices] }) => ![x, ...indices].some((input) => all.has(input))) &&
    new Set(placed.filter(Boolean)).size === placed.filter(Boolean).length
  if (!fits) return null
  return (queue) => {
    encodeAll(ropes, queue, { placed, copied })
    return true
  }
}

/** Rotary positions. */
export const rope: Families = {
  rope: {
    supports: (node) =>
      node.inputs[0].dtype.kind === "floating" &&
      node.inputs[0].shape.length > 1 &&
      node.inputs.every(({ dtype }) => metalType(dtype) !== undefined) &&
      isCountable(node),
    encode: (node, queue) => encodeAll([node], queue),
    together: (nodes) =>
      nodes.length <= MOST && nodes[0].size > 0 && areAlike(nodes) && nodes.every(isCountable)
        ? (queue) => encodeAll(nodes, queue)
        : null,
    around,
  },
}
