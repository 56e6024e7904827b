/**
 * Rotary positions: a thread computes the angle of one pair of features at one position, and turns that pair in several heads.
 */
import { type Node, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue } from "../dispatch"
import { type Families, isCountable } from "../family"
import { METAL_HEADER, metalType } from "../metal-types"
import { withAllRowMajor } from "./copy"
import { targetOf } from "./reduce"

/** Heads that a thread turns with one angle. */
const HEADS = 4
const GROUP = 256
/** Arrays that one kernel turns at most: queries and keys. */
const MOST = 2

/** A kernel for several arrays, which differ in their heads alone: the threads of one come after those of another. */
function source(
  parts: number,
  type: string,
  offsets: string,
  traditional: boolean,
  given: string | null,
): string {
  const arrays = Array.from(
    { length: parts },
    (_, n) =>
      `device const ${type}* x${n} [[buffer(${2 * n})]], device ${type}* y${n} [[buffer(${2 * n + 1})]],`,
  )
  const rest = 2 * parts
  const choices = Array.from({ length: parts - 1 }, (_, k) => {
    const n = k + 1
    return `  if (i >= threads) {
    i -= threads;
    x = x${n}, y = y${n}, heads = sizes[${4 + 2 * n}], threads = sizes[${5 + 2 * n}];
  }
`
  })
  return `${METAL_HEADER}
kernel void rope(${arrays.join(" ")} device const ${offsets}* offset [[buffer(${rest})]],
    device const ${given ?? "uchar"}* rates [[buffer(${rest + 1})]], constant uint* sizes [[buffer(${rest + 2})]],
    constant float* numbers [[buffer(${rest + 3})]], uint number [[thread_position_in_grid]]) {
  // Positions, features, pairs; whether each example has its own offset. Of each array: heads, and threads in all.
  uint length = sizes[0], width = sizes[1], half_width = sizes[2], i = number;
  device const ${type}* x = x0;
  device ${type}* y = y0;
  uint heads = sizes[4], threads = sizes[5];
${choices.join("")}  if (i >= threads) return;
  uint each = half_width + (width - 2 * half_width);
  uint j = i % each, rest = i / each;
  uint position = rest % length;
  rest /= length;
  uint several = (heads + ${HEADS - 1}) / ${HEADS}, first = rest % several * ${HEADS}, batch = rest / several;
  uint base = ((batch * heads + first) * length + position) * width, stride = length * width;
  uint count = min(${HEADS}u, heads - first);
  if (j >= half_width) {
    for (uint h = 0; h < count; h++) y[base + h * stride + half_width + j] = x[base + h * stride + half_width + j];
    return;
  }
  float location = (float(position) + float(offset[sizes[3] != 0 ? batch : 0])) * numbers[0];
  float rate = ${given !== null ? "1.0f / float(rates[j])" : "precise::exp(float(j) * numbers[1])"};
  float angle = location * rate;
  float c = precise::cos(angle), s = precise::sin(angle) * numbers[2];
  uint p = base + ${traditional ? "2 * j" : "j"}, q = ${traditional ? "p + 1" : "p + half_width"};
  for (uint h = 0; h < count; h++) {
    float a = float(x[p + h * stride]), b = float(x[q + h * stride]);
    y[p + h * stride] = ${type}(a * c - b * s);
    y[q + h * stride] = ${type}(a * s + b * c);
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

/** Adds the work of applications that differ in their arrays, and those in their heads alone. */
function encodeAll(nodes: readonly Node[], queue: DispatchQueue): void {
  const [x, offset, freqs] = nodes[0].inputs
  const { dims, traditional, base, scale, inverse } = nodes[0].params as unknown as RopeParams
  if (sizeOf(x.shape) === 0) return
  const { batch, length, width } = sizesOf(x)
  const half = dims / 2
  const parts = nodes.map(({ inputs: [own] }) => {
    const { heads } = sizesOf(own)
    return { heads, threads: (half + width - dims) * length * Math.ceil(heads / HEADS) * batch }
  })
  const threads = parts.reduce((sum, part) => sum + part.threads, 0)
  if (threads === 0) return
  const type = metalType(x.dtype) as string
  const offsets = metalType(offset.dtype) as string
  const rates = base === null ? (metalType(freqs.dtype) as string) : null
  const targets = nodes.map(targetOf)
  const shared = base === null ? [offset, freqs] : [offset]
  withAllRowMajor(queue, [...nodes.map(({ inputs: [own] }) => own), ...shared], (locations) => {
    const [given, rate] = locations.slice(nodes.length)
    queue.dispatch({
      op: "rope",
      kernel: {
        key: `rope ${nodes.length} ${type} ${offsets} ${traditional} ${rates}`,
        name: "rope",
        source: () => source(nodes.length, type, offsets, traditional, rates),
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
      ],
      writes: targets.map(({ storage }) => storage),
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
  },
}
