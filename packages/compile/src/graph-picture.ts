/**
 * Pictures of graphs: what an array would be computed from, or a compiled function before and after fusion, in Graphviz' DOT language and,
 * with the package `@viz-js/viz` installed, as SVG.
 */
import {
  type Application,
  ArgumentError,
  Array,
  applicationOf,
  asPath,
  describe,
  type FilePath,
  forEachLeaf,
  format,
  type Node,
  ofTrees,
  type ScalarProgram,
  TransformError,
  writeBeside,
} from "@lazuli/core/engine"
import { fused } from "./fuse"
import { inOrder } from "./order"

/** An applied operation's name; a fused one lists its instructions. */
function labelOf(application: Application): string {
  if (application.primitive === fused.primitive) {
    const { code } = application.params.program as ScalarProgram
    return code
      .filter(({ op }) => op !== "constant")
      .map(({ op }) => op)
      .join("\n")
  }
  if (!application.primitive?.facts.immediate) return application.primitive?.name ?? ""
  return Object.is(application.params.value, -0) ? "-0" : String(application.params.value)
}

const quote = (text: string): string => JSON.stringify(text).replaceAll("\\\\n", "\\n")

/** The names of inputs, and of outputs by position. */
export interface Names {
  readonly inputs: ReadonlyMap<Node, string>
  readonly outputs: readonly (string | undefined)[]
}

/** A graph in DOT. */
export function dotOf(outputs: readonly Node[], names: Names = { inputs: new Map(), outputs: [] }): string {
  const isLeaf = (node: Node): boolean => node.primitive === null
  const order = inOrder(outputs, isLeaf)
  const ids = new Map<Node, string>()
  const idOf = (node: Node): string => {
    let id = ids.get(node)
    if (id === undefined) ids.set(node, (id = `n${ids.size}`))
    return id
  }
  const lines = [
    "digraph {",
    '  node [fontname="Helvetica", fontsize=11]',
    '  edge [fontname="Helvetica", fontsize=9, color="#555555"]',
  ]
  const leaves = new Set<Node>()
  const edge = (from: Node, to: string): void => {
    if (isLeaf(from) && !leaves.has(from)) {
      leaves.add(from)
      const name = names.inputs.get(from) ?? `input ${leaves.size - 1}`
      lines.push(`  ${idOf(from)} [label=${quote(name)}, shape=ellipse, style=filled, fillcolor="#e8f0fe"]`)
    }
    lines.push(
      `  ${idOf(applicationOf(from))} -> ${to} [label=${quote(`  ${from.dtype.name}${format(from.shape)}  `)}]`,
    )
  }
  for (const application of order) {
    const isFused = application.primitive === fused.primitive
    const look = isFused
      ? 'shape=box, style="filled,rounded", fillcolor="#fde8c8"'
      : application.primitive?.facts.immediate
        ? "shape=plaintext"
        : "shape=box, style=rounded"
    lines.push(`  ${idOf(application)} [label=${quote(labelOf(application))}, ${look}]`)
    for (const input of application.inputs) edge(input, idOf(application))
  }
  outputs.forEach((output, i) => {
    const id = `out${i}`
    const name = names.outputs[i] ?? `output ${i}`
    lines.push(`  ${id} [label=${quote(name)}, shape=ellipse, style=filled, fillcolor="#e6f4ea"]`)
    edge(output, id)
  })
  return `${[...lines, "}"].join("\n")}\n`
}

/**
 * Writes, in DOT, the graph that the arrays in some trees would be computed from. An array in an object is named by its key. What was
 * evaluated has no graph any more.
 *
 * @throws TransformError when there is no array
 * @example
 * const x = mx.array([1, 2])
 * exportToDot('/tmp/graph.dot', { y: x.exp().add(x) })
 */
export function exportToDot(file: FilePath, ...trees: unknown[]): void {
  const outputs: Node[] = []
  const names: (string | undefined)[] = []
  for (const tree of trees)
    ofTrees("exportToDot", () =>
      forEachLeaf(tree, (leaf, path) => {
        if (!(leaf instanceof Array)) return
        outputs.push(leaf.node)
        names.push(path === "" ? undefined : path)
      }),
    )
  if (outputs.length === 0) throw new TransformError("exportToDot", "received no array")
  const inputs = new Map(
    outputs.flatMap((node, i) => (names[i] === undefined ? [] : [[node, names[i]] as const])),
  )
  writeText("exportToDot", asPath("exportToDot", file), dotOf(outputs, { inputs, outputs: names }))
}

function writeText(op: string, path: string, text: string): void {
  writeBeside(op, path, [new TextEncoder().encode(text)])
}

/**
 * Draws a graph in DOT, such as `f.explain(x).dot.after`, to an SVG file.
 *
 * @throws TransformError when the package `@viz-js/viz`, which lays graphs out, is not installed, or the text is no DOT
 * @example
 * const f = compile((x) => x.exp().add(1).sum())
 * await drawGraph('/tmp/graph.svg', f.explain(mx.ones([2])).dot.after)
 */
export async function drawGraph(file: FilePath, dot: string): Promise<void> {
  const path = asPath("drawGraph", file)
  if (typeof dot !== "string")
    throw new ArgumentError("drawGraph", `dot must be a string in DOT, received ${describe(dot)}`)
  const { instance } = await import("@viz-js/viz").catch((cause: unknown) => {
    throw new TransformError("drawGraph", "needs the package @viz-js/viz, which lays graphs out", {
      hint: "npm install @viz-js/viz; or write DOT with exportToDot and use Graphviz",
      cause,
    })
  })
  const viz = await instance()
  const result = viz.render(dot, { format: "svg" })
  if (result.status !== "success")
    throw new TransformError(
      "drawGraph",
      `cannot draw this graph: ${result.errors.map(({ message }) => message).join("; ")}`,
    )
  writeText("drawGraph", path, result.output)
}
