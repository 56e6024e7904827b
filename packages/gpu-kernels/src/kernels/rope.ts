/**
 * Rotary positions: a thread computes the angle of one pair of features at one position, and turns that pair in several heads.
 */
import { type Node, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue } from "../dispatch"
import { type Families, isCountable } from "../family"
import { viewOf } from "../layout"
import { METAL_HEADER, metalType } from "../metal-types"
import { withRowMajor } from "./copy"
import { targetOf } from "./reduce"

/** Heads that a thread turns with one angle. */
const HEADS = 4
const GROUP = 256

const source = (
  type: string,
  offsets: string,
  traditional: boolean,
  given: string | null,
): string => `${METAL_HEADER}
kernel void rope(device const ${type}* x [[buffer(0)]], device const ${offsets}* offset [[buffer(1)]],
    device const ${given ?? "uchar"}* rates [[buffer(2)]], device ${type}* y [[buffer(3)]], constant uint* sizes [[buffer(4)]],
    constant float* numbers [[buffer(5)]], uint i [[thread_position_in_grid]]) {
  // Heads, positions, features, pairs; whether each example has its own offset; threads in all.
  uint heads = sizes[0], length = sizes[1], width = sizes[2], half_width = sizes[3];
  if (i >= sizes[5]) return;
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
  float location = (float(position) + float(offset[sizes[4] != 0 ? batch : 0])) * numbers[0];
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

function encode(node: Node, queue: DispatchQueue): void {
  const [x, offset, freqs] = node.inputs
  const { dims, traditional, base, scale, inverse } = node.params as {
    dims: number
    traditional: boolean
    base: number | null
    scale: number
    inverse: boolean
  }
  if (sizeOf(x.shape) === 0) return
  const { shape } = x
  const [length, width] = shape.slice(-2)
  const batch = shape.length > 2 ? shape[0] : 1
  const heads = sizeOf(shape) / (batch * length * width)
  const half = dims / 2
  const threads = (half + width - dims) * length * Math.ceil(heads / HEADS) * batch
  if (threads === 0) return
  const type = metalType(x.dtype) as string
  const offsets = metalType(offset.dtype) as string
  const rates = base === null ? (metalType(freqs.dtype) as string) : null
  const target = targetOf(node)
  const dispatch = (locations: readonly Argument[]): void =>
    queue.dispatch({
      op: "rope",
      kernel: {
        key: `rope ${type} ${offsets} ${traditional} ${rates}`,
        name: "rope",
        source: () => source(type, offsets, traditional, rates),
      },
      arguments: [
        ...locations,
        target,
        Uint32Array.of(heads, length, width, half, offset.shape.length > 0 ? 1 : 0, threads),
        Float32Array.of(scale, base === null ? 0 : -Math.log(base) / half, inverse ? -1 : 1),
      ],
      writes: [target.storage],
      grid: [Math.ceil(threads / 32) * 32, 1, 1],
      threadgroup: [Math.min(GROUP, Math.ceil(threads / 32) * 32), 1, 1],
    })
  withRowMajor(queue, viewOf(x), (a) =>
    withRowMajor(queue, viewOf(offset), (b) => {
      if (base === null) withRowMajor(queue, viewOf(freqs), (c) => dispatch([a, b, c]))
      else dispatch([a, b, b])
    }),
  )
}

/** Rotary positions. */
export const rope: Families = {
  rope: {
    supports: (node) =>
      node.inputs[0].dtype.kind === "floating" &&
      node.inputs[0].shape.length > 1 &&
      node.inputs.every(({ dtype }) => metalType(dtype) !== undefined) &&
      isCountable(node),
    encode,
  },
}
