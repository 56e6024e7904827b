/**
 * Products with packed weights, gathered too, packing and unpacking. Weights are unpacked as they are multiplied.
 */
import { type Node, sizeOf } from "@lazuli/core/engine"
import type { Argument, DispatchQueue } from "../dispatch"
import { type Ending, type Families, type Family, isCountable } from "../family"
import { type View, viewOf } from "../layout"
import { metalType } from "../metal-types"
import {
  type PackedFormat,
  packedFunctions,
  packedParameters,
  packSource,
  packSpan,
  unpackRun,
  unpackSource,
} from "../packed-source"
import { encodeProduct, withExtras } from "./matmul"
import { dispatchEach } from "./moves"
import { targetOf } from "./reduce"

type Params = PackedFormat & { transpose: boolean }

// Products of rows rounded to 8 bits are by definition exact ones of the rounded rows: those run here.
const supports = (node: Node): boolean =>
  node.params.activations !== "int8" &&
  node.inputs.every(({ dtype }) => metalType(dtype) !== undefined) &&
  metalType(node.dtype) !== undefined &&
  isCountable(node)

function encode(node: Node, queue: DispatchQueue, gathers: boolean, ending?: Ending): void {
  const [x, ...rest] = node.inputs
  const params = node.params as unknown as Params
  const affine = params.mode === "affine"
  const packed = rest.slice(0, affine ? 3 : 2)
  const indices = gathers ? rest.slice(-2) : []
  const [w, scales] = packed
  const a = viewOf(x)
  const [m, k] = x.shape.slice(-2)
  const n = node.shape[node.shape.length - 1]
  const batch = node.shape.slice(0, -2)
  const [rows, columns] = params.transpose ? [n, k] : [k, n]
  // b has no strides: it is unpacked.
  const b: View = { ...a, shape: [...batch, k, n], strides: node.shape.map(() => 0), offset: 0 }
  const left: View = gathers ? { ...a, strides: [0, ...a.strides.slice(1)] } : a
  const type = metalType(x.dtype) as string
  const names = affine ? "words, scales, biases" : "words, scales"
  withExtras(queue, [...packed, ...indices], (args: readonly Argument[]) =>
    encodeProduct(
      queue,
      node,
      left,
      b,
      batch,
      [],
      {
        key: `${params.mode} ${params.bits} ${params.groupSize} ${params.transpose} ${scales.dtype.name} ${indices.map((i) => i.dtype.name)} ${m === 0}`,
        parameters: [
          ...packedParameters(params, scales.dtype),
          ...indices.map((i, at) => `device const ${metalType(i.dtype)}* ${at === 0 ? "lhs" : "rhs"}`),
        ],
        args,
        layout: [rows, columns, ...(gathers ? [x.shape[0], a.strides[0], w.shape[0]] : [])],
        functions: packedFunctions(params, scales.dtype),
        bAlongK: params.transpose,
        text: (at) => ({
          setup: gathers
            ? `  a_base += lz_matrix(long(lhs[z]), layout[${at + 2}]) * layout[${at + 3}];
  uint stack = uint(lz_matrix(long(rhs[z]), layout[${at + 4}])) * uint(layout[${at}]);
`
            : `  uint stack = z * uint(layout[${at}]);\n`,
          b: () =>
            `${type}(lz_weight(${names}, stack + ${params.transpose ? "c, k" : "k, c"}, uint(layout[${at + 1}])))`,
        }),
      },
      ending,
    ),
  )
}

const dequantize: Family = {
  supports: (node) =>
    supports(node) &&
    (node.params.mode === "affine" || node.inputs.length < 3 || node.inputs[2].dtype.name === "float32"),
  encode: (node, queue) => {
    const format = node.params as unknown as PackedFormat
    const global = format.mode !== "affine" && node.inputs.length > 2
    const { dtype } = node
    const runs = sizeOf(node.shape) / unpackRun(format.bits)
    const target = targetOf(node)
    const aligned = target.offset % 16 === 0
    const scales = node.inputs[1].dtype
    withExtras(queue, node.inputs, (args) =>
      dispatchEach(
        queue,
        "dequantize",
        {
          key: `unpack ${format.mode} ${format.bits} ${format.groupSize} ${scales.name} ${dtype.name} ${global} ${aligned}`,
          name: "unpack",
          source: () => unpackSource(format, scales, dtype, global, aligned),
        },
        [...args, target, Uint32Array.of(runs)],
        [target.storage],
        runs,
      ),
    )
  },
}

/** Simdgroups of a group. */
const TOGETHER = 8

const quantize: Family = {
  supports: (node) => supports(node) && metalType(node.inputs[0].dtype) !== undefined,
  encode: (node, queue) => {
    const format = node.params as unknown as PackedFormat
    const [x, global] = node.inputs
    const n = sizeOf(x.shape)
    if (n === 0) return
    const factor = global ? (metalType(global.dtype) as string) : null
    const outputs = (node.outputs as readonly Node[]).map(targetOf)
    const spans = Math.ceil(n / packSpan(format.groupSize))
    const together = Math.min(TOGETHER, spans)
    withExtras(queue, node.inputs, (args) =>
      queue.dispatch({
        op: "quantize",
        kernel: {
          key: `pack ${format.mode} ${format.bits} ${format.groupSize} ${x.dtype.name} ${factor}`,
          name: "pack",
          source: () => packSource(format, x.dtype, factor),
        },
        arguments: [...args, ...outputs, Uint32Array.of(n)],
        writes: outputs.map(({ storage }) => storage),
        grid: [Math.ceil(spans / together) * together * 32, 1, 1],
        threadgroup: [together * 32, 1, 1],
      }),
    )
  },
}

/** Products with packed weights, by primitive. */
export const quantized: Families = {
  quantizedMatmul: {
    supports,
    ends: true,
    encode: (node, queue, ending) => encode(node, queue, false, ending),
  },
  gatherQmm: { supports, ends: true, encode: (node, queue, ending) => encode(node, queue, true, ending) },
  quantize,
  dequantize,
}
