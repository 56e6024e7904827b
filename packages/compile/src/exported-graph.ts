/**
 * The graph of a traced function, told part by part to a callback: what {@link exportFunction} gives those who write it in a form of their
 * own.
 */
import {
  type Array,
  type Dtype,
  forEachLeaf,
  type Node,
  outputsOf,
  TransformError,
} from "@lazuli/core/engine"
import { inOrder, isLeaf } from "./order"
import type { TracedGraph } from "./traced-graph"

/** An array of an exported graph. */
export interface ExportedArray {
  /** Unique in the graph. */
  readonly name: string
  readonly shape: readonly number[]
  readonly dtype: Dtype
}

/**
 * A part of an exported graph, in the order of MLX: the inputs, the outputs, the constants, and every operation after those that it reads.
 */
export type ExportedPart =
  | {
      readonly type: "inputs"
      /** The arrays among the arguments; `path` says where each is. */
      readonly inputs: readonly (ExportedArray & { readonly path: string })[]
    }
  | {
      readonly type: "outputs"
      /** The arrays of the result; `path` says where each is. */
      readonly outputs: readonly (ExportedArray & { readonly path: string })[]
    }
  | {
      readonly type: "constants"
      /** Arrays that the function reads without being given them. */
      readonly constants: readonly { readonly name: string; readonly value: Array }[]
    }
  | {
      readonly type: "primitive"
      /** The primitive's name. */
      readonly name: string
      /** Names of the arrays that it reads. */
      readonly inputs: readonly string[]
      readonly outputs: readonly ExportedArray[]
      readonly params: Readonly<Record<string, unknown>>
    }

/** Takes an exported graph, part by part. */
export type ExportCallback = (part: ExportedPart) => void

/** A traced function: its arguments' stand-ins come first among the graph's inputs, what else it reads after them. */
interface Traced {
  readonly args: readonly unknown[]
  readonly given: readonly Array[]
  readonly result: unknown
  readonly graph: TracedGraph | null
  readonly outside: readonly Array[]
  /** Where the result's arrays come from: an output of the graph, an argument, or outside. */
  readonly sources: readonly (
    | { readonly from: "graph"; readonly index: number }
    | { readonly from: "argument"; readonly index: number }
    | { readonly from: "outside"; readonly value: Array }
  )[]
  isArray(leaf: unknown): boolean
}

const pathsOf = (tree: unknown, isArray: (leaf: unknown) => boolean): string[] => {
  const paths: string[] = []
  forEachLeaf(tree, (leaf, path) => {
    if (isArray(leaf)) paths.push(path)
  })
  return paths
}

/** Tells a graph. @throws TransformError where an operation takes code, which no form but this process has */
export function tellGraph(
  { args, given, result, graph, outside, sources, isArray }: Traced,
  tell: ExportCallback,
): void {
  const names = new Map<Node, string>()
  const describe = (node: Node, prefix = "value"): ExportedArray => {
    let name = names.get(node)
    if (name === undefined) names.set(node, (name = `${prefix}${names.size}`))
    return { name, shape: [...node.shape], dtype: node.dtype }
  }
  const leaves = graph?.inputs ?? given.map(({ node }) => node)
  const argumentPaths = pathsOf(args, isArray)
  const inputs = given.map((_, i) => ({ ...describe(leaves[i], "input"), path: argumentPaths[i] }))
  const read = outside.map((value, i) => ({
    name: describe(leaves[given.length + i], "constant").name,
    value,
  }))
  const paths = pathsOf(result, isArray)
  const others: typeof read = []
  const outputs = sources.map((source, i) => {
    const path = paths[i]
    if (source.from === "argument") return { ...describe(leaves[source.index]), path }
    if (source.from === "graph") return { ...describe((graph as TracedGraph).outputs[source.index]), path }
    const array = describe(source.value.node, "constant")
    others.push({ name: array.name, value: source.value })
    return { ...array, path }
  })
  tell({ type: "inputs", inputs })
  tell({ type: "outputs", outputs })
  tell({ type: "constants", constants: [...read, ...others] })
  for (const application of inOrder(graph?.outputs ?? [], isLeaf)) {
    const primitive = application.primitive
    if (primitive.facts.opaque)
      throw new TransformError(
        "exportFunction",
        `what ${primitive.name} does depends on code, which a callback cannot write`,
      )
    tell({
      type: "primitive",
      name: primitive.name,
      inputs: application.inputs.map((node) => describe(node).name),
      outputs: outputsOf(application).map((node) => describe(node)),
      params: { ...application.params },
    })
  }
}
