/**
 * Products of matrices: whole, scaled and added, gathered, in segments, masked by blocks. Rows and columns may step by anything, so that
 * transposes are free.
 */
import {
  broadcastStrides,
  contiguousStrides,
  type Node,
  programOf,
  type ScalarValue,
  type Storage,
  sizeOf,
} from "@lazuli/core/engine"
import type { Argument, DispatchQueue } from "../dispatch"
import { type Ending, type Families, type Family, isCountable } from "../family"
import { collapse, type View, viewOf } from "../layout"
import { computeType, metalType } from "../metal-types"
import {
  columnsSource,
  eachSource,
  FEW_ROWS,
  type ProductText,
  pairsSource,
  rowsSource,
  swapped,
  TILE,
  tilesSource,
} from "../product-source"
import { bytesOf } from "../scalar-source"
import { withRowMajor } from "./copy"
import { programText } from "./elementwise"
import { targetOf } from "./reduce"

/** Sums up to this long, of few rows or columns, take a thread. */
const SHORT = 32
/** From so many columns on, a simdgroup has several: the others keep a GPU busy. */
const MANY_COLUMNS = 1024

/** Chooses a kernel for a product of `batches` times [m, k] and [k, n]. */
export function dispatchProduct(
  queue: DispatchQueue,
  op: string,
  text: ProductText,
  args: readonly Argument[],
  layout: readonly number[],
  targets: readonly Storage[],
  [batches, m, n, k]: readonly [number, number, number, number],
): void {
  if (batches * m * n === 0) return
  const few = Math.min(m, n) <= FEW_ROWS
  if (few && k > SHORT && n < m && text.type !== "float2") {
    const sides = [batches, n, m, k] as const
    dispatchProduct(queue, op, swapped(text), args, layout, targets, sides)
    return
  }
  const all: Argument[] = [...args, Int32Array.from([m, n, k, ...layout])]
  const run = (
    name: string,
    key: string,
    source: () => string,
    groups: number,
    group: [number, number],
  ): void =>
    queue.dispatch({
      op,
      kernel: { key: `${name} ${key} ${text.key}`, name, source },
      arguments: all,
      writes: targets,
      grid: [groups * group[0], group[1], 1],
      threadgroup: [...group, 1],
    })
  if (text.type === "float2") {
    const tiles = Math.ceil(m / 16) * Math.ceil(n / 16)
    run("product_pairs", "", () => pairsSource(text), batches * tiles, [16, 16])
  } else if (few && k <= SHORT) {
    const width = Math.min(256, Math.ceil((m * n) / 32) * 32)
    queue.dispatch({
      op,
      kernel: { key: `product_each ${text.key}`, name: "product_each", source: () => eachSource(text) },
      arguments: all,
      writes: targets,
      grid: [Math.ceil((m * n) / width) * width, batches, 1],
      threadgroup: [width, 1, 1],
    })
  } else if (m <= FEW_ROWS) {
    const rows = m === 1 ? 1 : m <= 4 ? 4 : FEW_ROWS
    if (text.bAlongK) {
      const columns = batches * n < MANY_COLUMNS ? 1 : 4
      const source = (): string => columnsSource(text, rows, columns)
      const groups = batches * Math.ceil(n / (8 * columns))
      run("product_columns", `${rows} ${columns}`, source, groups, [256, 1])
    } else run("product_rows", `${rows}`, () => rowsSource(text, rows), batches * Math.ceil(n / 32), [32, 8])
  } else {
    const tiles = Math.ceil(m / TILE) * Math.ceil(n / TILE)
    run("product_tiles", "", () => tilesSource(text), batches * tiles, [128, 1])
  }
}

/** Statements that add to each named base what the batch `z` steps; axes and strides lie in the layout from `at`. */
function batchSetup(axes: number, at: number, bases: readonly string[]): string {
  const lines = bases.map((name, i) => `  int ${name} = layout[${at + i}];\n`)
  const shapeAt = at + bases.length
  lines.push(`  { uint rest = z;\n    for (int axis = ${axes - 1}; axis >= 0; axis--) {
      int at = int(rest % uint(layout[${shapeAt} + axis]));
      rest /= uint(layout[${shapeAt} + axis]);
${bases.map((name, i) => `      ${name} += at * layout[${shapeAt + axes * (1 + i)} + axis];\n`).join("")}    } }\n`)
  return lines.join("")
}

const INDEX = `inline int lz_matrix(long index, int count) {
  long p = index < 0 ? index + count : index;
  return p < 0 ? 0 : p >= count ? count - 1 : int(p);
}
`

/** True if neighbours along an axis are neighbours in memory, rather than along the other. */
const runsAlong = (stride: number, other: number): boolean => stride === 1 || (other !== 1 && stride <= other)

export interface Extras {
  readonly parameters: readonly string[]
  readonly args: readonly Argument[]
  readonly layout: readonly number[]
  /** Of the offset of the extras in the layout. */
  text(at: number): { setup?: string; a?: (a: string) => string; b?: (b: string) => string; value?: string }
  readonly key: string
  readonly functions?: string
  /** True if b lies along k, where `b` above is not its strides. */
  readonly bAlongK?: boolean
}

const nothing: Extras = { parameters: [], args: [], layout: [], text: () => ({}), key: "" }

/** An ending's part of a kernel. */
function endingText(product: Node, { work, results: ofProduct, keeps }: Ending) {
  const program = programOf(work)
  const { lines, results } = programText(program)
  const outputs = work.outputs ?? [work]
  const operands = [...new Set(work.inputs.filter((input) => !ofProduct.has(input)))]
  const stored = operands.filter(({ storage }) => storage !== null)
  const locations = stored.map((node) => {
    const strides = broadcastStrides(node.shape, node.strides ?? contiguousStrides(node.shape), work.shape)
    return {
      ...collapse(work.shape.slice(0, -1), [strides.slice(0, -1)]),
      along: strides[strides.length - 1],
    }
  })
  const type = computeType(product.dtype)
  /** Where an operand's part of the layout begins, behind those before: its offset, its strides and the sizes of its axes. */
  const beginOf = (i: number): number =>
    locations.slice(0, i).reduce((sum, { shape }) => sum + 2 + 2 * shape.length, 0)
  const argument = (input: Node): string => {
    if (ofProduct.has(input)) return "lz_value"
    const name = `end${operands.indexOf(input)}`
    return input.storage === null ? name : `${name}[${name}_at]`
  }
  /** Statements that find a stored operand's element. */
  const locate = (node: Node, i: number, at: number): string => {
    const name = `end${operands.indexOf(node)}_at`
    const axes = locations[i].shape.length
    const begin = at + beginOf(i)
    const steps = [...locations[i].shape.keys()].reverse().map((axis) => {
      const [stride, size] = [begin + 2 + axis, begin + 2 + axes + axis]
      return axis === 0
        ? `${name} += int(rest) * layout[${stride}];`
        : `${name} += int(rest % uint(layout[${size}])) * layout[${stride}]; rest /= uint(layout[${size}]);`
    })
    return `int ${name} = layout[${begin}] + int(c) * layout[${begin + 1}]; { uint rest = z * m + r; ${steps.join(" ")} }`
  }
  return {
    key: `${keeps} ${program.key} ${work.inputs.map((input) => (ofProduct.has(input) ? "y" : operands.indexOf(input)))} ${operands.map((node) => (node.storage === null ? "i" : locations[stored.indexOf(node)].shape.length))}`,
    parameters: [
      ...operands.map((node, i) =>
        node.storage === null
          ? `constant ${metalType(node.dtype)}& end${i}`
          : `device const ${metalType(node.dtype)}* end${i}`,
      ),
      ...outputs.map(({ dtype }, i) => `device ${metalType(dtype)}* out${i}`),
    ],
    args: [
      ...operands.map(({ storage, params, dtype }) =>
        storage === null ? bytesOf(params.value as ScalarValue, dtype) : { storage, offset: 0 },
      ),
      ...outputs.map(targetOf),
    ],
    writes: outputs.map(({ storage }) => storage as Storage),
    layout: locations.flatMap(({ shape, strides, along }, i) => [
      stored[i].offset,
      along,
      ...strides[0],
      ...shape,
    ]),
    text: (at: number): string =>
      [
        `${type} lz_value = ${type}(VALUE);`,
        ...stored.map((node, i) => locate(node, i, at)),
        ...lines.map((line) =>
          line.replace(/\ba(\d+)\b/g, (_, k: string) => argument(work.inputs[Number(k)])),
        ),
        ...results.map((result, i) => `out${i}[(z * m + r) * n + c] = ${result};`),
      ].join(" "),
  }
}

/** A strided product; `extras` are operands besides a and b. */
export function encodeProduct(
  queue: DispatchQueue,
  node: Node,
  a: View,
  b: View,
  batch: readonly number[],
  more: readonly (readonly number[])[],
  extras: Extras,
  ending?: Ending,
): void {
  const end = ending && endingText(node, ending)
  const op = node.primitive?.name as string
  const type = metalType(node.dtype) as string
  const [m, k] = a.shape.slice(-2)
  const n = b.shape[b.shape.length - 1]
  const merged = collapse(batch, [a.strides.slice(0, -2), b.strides.slice(0, -2), ...more])
  const axes = merged.shape.length
  const bases = ["a_base", "b_base", ...more.map((_, i) => `base${i}`)]
  const [rowA, columnA] = a.strides.slice(-2)
  const [rowB, columnB] = b.strides.slice(-2)
  // Behind the header: four strides, the bases and the batch.
  const at = 3 + 4
  const layout = [
    ...[rowA, columnA, rowB, columnB],
    ...[a.offset, b.offset, ...more.map(() => 0)],
    ...merged.shape,
    ...merged.strides.flat(),
  ]
  const made = extras.text(3 + layout.length)
  const tailAt = 3 + layout.length + extras.layout.length
  const kept = !ending || ending.keeps
  const element = (name: string, expression: string): string => `${name}[${expression}]`
  const readA = element("a_in", "a_base + int(r) * layout[3] + int(k) * layout[4]")
  const readB = element("b_in", "b_base + int(k) * layout[5] + int(c) * layout[6]")
  const value = `${type}(${made.value ?? "value"})`
  const location = "(z * m + r) * n + c"
  const text: ProductText = {
    key: `${op} ${type} ${axes} ${runsAlong(columnA, rowA)} ${runsAlong(rowB, columnB)} ${extras.key} ${end?.key ?? ""}`,
    type,
    parameters: [
      `device const ${type}* a_in`,
      `device const ${type}* b_in`,
      ...(kept ? [`device ${type}* y`] : []),
      ...extras.parameters,
      ...(end?.parameters ?? []),
    ],
    functions: `${INDEX}${extras.functions ?? ""}`,
    setup: `${batchSetup(axes, at, bases)}${made.setup ?? ""}`,
    a: made.a?.(readA) ?? readA,
    b: made.b?.(readB) ?? readB,
    store: `${kept ? `y[${location}] = ${value};` : ""}${end ? ` { ${end.text(tailAt)} }` : ""}`.replaceAll(
      "VALUE",
      value,
    ),
    aAlongK: runsAlong(columnA, rowA),
    bAlongK: extras.bAlongK ?? runsAlong(rowB, columnB),
  }
  dispatchProduct(
    queue,
    op,
    text,
    [
      ...[a, b].map(({ storage }) => ({ storage, offset: 0 })),
      ...(kept ? [targetOf(node)] : []),
      ...extras.args,
      ...(end?.args ?? []),
    ],
    [...layout, ...extras.layout, ...(end?.layout ?? [])],
    [...(kept ? [node.storage as Storage] : []), ...(end?.writes ?? [])],
    [sizeOf(batch), m, n, k],
  )
}

const supports = (node: Node): boolean =>
  (node.dtype.kind === "floating" || node.dtype.kind === "complex") &&
  metalType(node.dtype) !== undefined &&
  isCountable(node)

const matmul: Family = {
  supports,
  ends: true,
  encode: (node, queue, ending) => {
    const [a, b] = node.inputs.map(viewOf)
    encodeProduct(queue, node, a, b, node.shape.slice(0, -2), [], nothing, ending)
  },
}

const addmm: Family = {
  supports,
  ends: true,
  encode: (node, queue, ending) => {
    const [c, a, b] = node.inputs.map(viewOf)
    const { alpha, beta } = node.params as { alpha: number; beta: number }
    const full = [...new Array<number>(node.shape.length - c.shape.length).fill(0), ...c.strides].map(
      (s, i) => (c.shape[i - (node.shape.length - c.shape.length)] === 1 ? 0 : s),
    )
    const complex = node.dtype.kind === "complex"
    const cast = complex ? "float2" : "float"
    encodeProduct(
      queue,
      node,
      a,
      b,
      node.shape.slice(0, -2),
      [full.slice(0, -2)],
      {
        key: "",
        parameters: [`device const ${metalType(node.dtype)}* c_in`, "constant float* factors"],
        args: [{ storage: c.storage, offset: 0 }, Float32Array.of(alpha, beta)],
        layout: [c.offset, ...full.slice(-2)],
        text: (at) => ({
          value: `factors[0] * value + factors[1] * ${cast}(c_in[layout[${at}] + base0 + int(r) * layout[${at + 1}] + int(c) * layout[${at + 2}]])`,
        }),
      },
      ending,
    )
  },
}

/** Small operands row-major, while `body` adds its work. */
export function withExtras(
  queue: DispatchQueue,
  nodes: readonly Node[],
  body: (args: readonly Argument[]) => void,
  args: readonly Argument[] = [],
): void {
  if (args.length === nodes.length) body(args)
  else withRowMajor(queue, viewOf(nodes[args.length]), (p) => withExtras(queue, nodes, body, [...args, p]))
}

const gatherMm: Family = {
  supports,
  encode: (node, queue) => {
    const [x, y, lhs, rhs] = node.inputs
    const [a, b] = [viewOf(x), viewOf(y)]
    const drop = (v: View): View => ({ ...v, strides: [0, ...v.strides.slice(1)] })
    withExtras(queue, [lhs, rhs], (args) =>
      encodeProduct(queue, node, drop(a), drop(b), [node.shape[0]], [], {
        key: `${lhs.dtype.name} ${rhs.dtype.name}`,
        parameters: [
          `device const ${metalType(lhs.dtype)}* lhs`,
          `device const ${metalType(rhs.dtype)}* rhs`,
        ],
        args,
        layout: [a.shape[0], a.strides[0], b.shape[0], b.strides[0]],
        text: (at) => ({
          setup: `  a_base += lz_matrix(long(lhs[z]), layout[${at}]) * layout[${at + 1}];
  b_base += lz_matrix(long(rhs[z]), layout[${at + 2}]) * layout[${at + 3}];
`,
        }),
      }),
    )
  },
}

const segmentedMm: Family = {
  supports,
  encode: (node, queue) => {
    const [x, y, segments] = node.inputs
    const [a, b] = [viewOf(x), viewOf(y)]
    const spread = (v: View): View => ({
      ...v,
      shape: [node.shape[0], ...v.shape],
      strides: [0, ...v.strides],
    })
    withExtras(queue, [segments], (args) =>
      encodeProduct(queue, node, spread(a), spread(b), [node.shape[0]], [], {
        key: segments.dtype.name,
        parameters: [`device const ${metalType(segments.dtype)}* segments`],
        args,
        layout: [],
        text: () => ({
          setup: `  { long from = long(segments[2 * z]), to = long(segments[2 * z + 1]);
    begin = from < 0 ? 0 : from > long(end) ? end : uint(from);
    end = to < long(begin) ? begin : to > long(end) ? end : uint(to); }
`,
        }),
      }),
    )
  },
}

const blockMaskedMm: Family = {
  supports: (node) =>
    supports(node) &&
    node.dtype.kind === "floating" &&
    node.inputs.every((i) => metalType(i.dtype) !== undefined),
  encode: (node, queue) => {
    const [x, y, ...masks] = node.inputs
    const { blockSize, hasOut, hasLhs, hasRhs } = node.params as Record<string, boolean> & {
      blockSize: number
    }
    const [a, b] = [viewOf(x), viewOf(y)]
    const names = [hasOut && "out", hasLhs && "lhs", hasRhs && "rhs"].filter((s): s is string => s !== false)
    withExtras(queue, masks, (args) =>
      encodeProduct(queue, node, a, b, node.shape.slice(0, -2), [], {
        key: `${names} ${masks.map((mask) => mask.dtype.name)} ${blockSize}`,
        parameters: names.map((name, i) => `device const ${metalType(masks[i].dtype)}* ${name}_mask`),
        args,
        layout: masks.flatMap((mask) => mask.shape.slice(-2)),
        text: (at) => {
          /** A value where its block's mask keeps it. */
          const masked = (name: string, value: string, row: string, column: string): string => {
            const i = names.indexOf(name)
            if (i < 0) return value
            const location = `${name}_mask[(z * uint(layout[${at + 2 * i}]) + ${row} / ${blockSize}) * uint(layout[${at + 2 * i + 1}]) + ${column} / ${blockSize}]`
            const type = metalType(node.dtype)
            return masks[i].dtype.kind === "bool"
              ? `(${location} ? ${value} : ${type}(0.0f))`
              : `${type}(float(${value}) * float(${location}))`
          }
          return {
            a: (value) => masked("lhs", value, "r", "k"),
            b: (value) => masked("rhs", value, "k", "c"),
            value: `float(${masked("out", `${metalType(node.dtype)}(value)`, "r", "c")})`,
          }
        },
      }),
    )
  },
}

/** Products, by primitive. */
export const products: Families = { matmul, addmm, gatherMm, segmentedMm, blockMaskedMm }
