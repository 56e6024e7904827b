/**
 * Convolutions over one to three axes as products: rows are the patches that the kernel meets, columns the output channels of a group.
 * Their gradients are convolutions as well.
 */
import { type Node, type Storage, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue } from "../dispatch"
import { type Families, isCountable } from "../family"
import { metalType } from "../metal-types"
import { PRODUCT_HEADER } from "../product-source"
import { dispatchProduct, withExtras } from "./matmul"
import { targetOf } from "./reduce"

/** The words of each axis in the layout: sizes of output, input and kernel, stride, padding before, dilations. */
const PER_AXIS = 7

const patchSource = (type: string, axes: number, flip: boolean): string => {
  const at = PRODUCT_HEADER
  const channels = at + axes * PER_AXIS
  return `inline ${type} lz_patch(device const ${type}* x, constant int* layout, uint z, uint r, uint k) {
  int all = layout[${channels}], in_group = layout[${channels + 1}];
  int channel = int(k) % in_group, location = int(k) / in_group, row = int(r), offset = 0, step = 1;
  bool inside = true;
  for (int axis = ${axes - 1}; axis >= 0; axis--) {
    constant int* p = layout + ${at} + axis * ${PER_AXIS};
    int o = row % p[0], w = location % p[2];
    row /= p[0];
    location /= p[2];
    int i = o * p[3] + ${flip ? "(p[2] - 1 - w)" : "w"} * p[5] - p[4];
    inside = inside && i >= 0 && i % p[6] == 0 && i / p[6] < p[1];
    offset += i / p[6] * step;
    step *= p[1];
  }
  if (!inside) return ${type}(0.0f);
  return x[(row * step + offset) * all + int(z) * in_group + channel];
}
`
}

function encode(node: Node, queue: DispatchQueue): void {
  const [x, w] = node.inputs
  const p = node.params as unknown as Record<
    "stride" | "low" | "kernelDilation" | "inputDilation",
    number[]
  > & {
    groups: number
    flip: boolean
  }
  const axes = p.stride.length
  const type = metalType(node.dtype) as string
  const [channels, outputs] = [x.shape[axes + 1], w.shape[0]]
  const columns = outputs / p.groups
  const depth = sizeOf(w.shape.slice(1))
  const rows = sizeOf(node.shape.slice(0, -1))
  const target = targetOf(node)
  const at = PRODUCT_HEADER + axes * PER_AXIS
  withExtras(queue, [x, w], (args) =>
    dispatchProduct(
      queue,
      "conv",
      {
        key: `conv ${type} ${axes} ${p.flip}`,
        type,
        parameters: [`device const ${type}* x`, `device const ${type}* w`, `device ${type}* y`],
        functions: patchSource(type, axes, p.flip),
        setup: "",
        a: "lz_patch(x, layout, z, r, k)",
        b: `w[(z * uint(layout[${at + 2}]) + c) * uint(layout[2]) + k]`,
        store: `y[r * uint(layout[${at + 3}]) + z * uint(layout[${at + 2}]) + c] = ${type}(value);`,
        aAlongK: true,
        bAlongK: true,
      },
      [...args, target],
      [
        ...p.stride.flatMap((stride, i) => [
          ...[node.shape[i + 1], x.shape[i + 1], w.shape[i + 1], stride],
          ...[p.low[i], p.kernelDilation[i], p.inputDilation[i]],
        ]),
        ...[channels, w.shape[axes + 1], columns, outputs],
      ],
      [node.storage as Storage],
      [p.groups, rows, columns, depth],
    ),
  )
}

/** Convolutions. */
export const convolutions: Families = {
  conv: {
    supports: (node) =>
      node.dtype.kind === "floating" &&
      node.inputs.every(({ dtype }) => dtype === node.dtype) &&
      metalType(node.dtype) !== undefined &&
      isCountable(node),
    encode,
  },
}
