/**
 * Simplification: dead code goes because only what the outputs need is rebuilt; equal applications become one; what a
 * backend has no kernel for is replaced by its decomposition; constants of constants are computed; casts, views and arithmetic that
 * change nothing vanish; views between elementwise operations move in front of them.
 */
import {
  type Application,
  Array,
  applicationOf,
  type Backend,
  decompose,
  type Node,
  outputsOf,
  paramsKey,
  sameShape,
  sizeOf,
} from "@lazuli/core/engine"
import { soleOperation, withoutComputing } from "./identities"
import { keepingAll } from "./kept"
import { inOrder, isLeaf, primitiveOf } from "./order"
import { onePosition } from "./picks"
import { reapply, rebuild } from "./rebuild"
import { isView, lifted, merged } from "./views"

/** Rewrites a graph for a backend; the result's applications are views, or the backend has kernels for them. Null where that fails. */
export function simplify(backend: Backend, outputs: readonly Node[]): Node[] | null {
  return new Simplifier(backend, outputs).run()
}

/** A view moves in front of this many operations in a row at most: chains may be long. */
const MAX_LIFTED = 32

/** Elementwise work on arrays: not a constant. */
const isWork = (node: Node): boolean =>
  !isLeaf(node) && primitiveOf(node).elementwise && node.outputs === null && node.inputs.length > 0

class Simplifier {
  private readonly known = new Map<string, readonly Node[]>()
  private readonly ids = new Map<Node, number>()
  /** Nodes that went through the rewriting. */
  private readonly rewritten = new Set<Node>()
  private readonly maxima = new Map<string, Node>()
  /** The readers of a node of the original graph; null stands for the caller. */
  private readonly readers = new Map<Node, Set<Node | null>>()
  /** Rewritten nodes that only one application reads. */
  private readonly single = new Set<Node>()
  private possible = true

  constructor(
    private readonly backend: Backend,
    private readonly outputs: readonly Node[],
  ) {
    const note = (node: Node, reader: Node | null): void => {
      const readers = this.readers.get(node)
      if (readers) readers.add(reader)
      else this.readers.set(node, new Set([reader]))
    }
    for (const application of inOrder(outputs, isLeaf))
      for (const input of application.inputs) note(input, application)
    for (const node of outputs) note(node, null)
  }

  run(): Node[] | null {
    const simplified = rebuild(this.outputs, new Map(), isLeaf, this.rewrite)
    return this.possible ? simplified : null
  }

  private idOf(node: Node): number {
    let id = this.ids.get(node)
    if (id === undefined) this.ids.set(node, (id = this.ids.size))
    return id
  }

  private readonly rewrite = (application: Application, inputs: readonly Node[]): readonly Node[] => {
    const { primitive } = application
    // In another process the inputs may differ, where here they do not.
    if (primitive.facts.exchanges === true) return this.noted(application, this.build(application, inputs))
    const key = `${primitive.id}(${inputs.map((n) => this.idOf(n)).join(",")})${paramsKey(primitive.schema, application.params)}`
    const equal = this.known.get(key)
    if (equal) {
      for (const node of equal) this.single.delete(node)
      return equal
    }
    const results = this.build(application, this.clamped(application, inputs) ?? inputs)
    this.known.set(key, results)
    if (soleOperation(results[0]) === "maximum")
      this.maxima.set(results[0].inputs.map((n) => this.idOf(n)).join(","), results[0])
    return this.noted(application, results)
  }

  private noted(application: Application, results: readonly Node[]): readonly Node[] {
    outputsOf(application).forEach((node, i) => {
      if (this.rewritten.has(results[i])) this.single.delete(results[i])
      else if (this.readers.get(node)?.size === 1) this.single.add(results[i])
    })
    for (const node of results) this.rewritten.add(node)
    return results
  }

  /**
   * x > c and max(x, c) > c are the same for every x and c, NaN included. Where the maximum is there anyway, as in the derivative of relu,
   * x itself need not be kept.
   */
  private clamped(application: Application, inputs: readonly Node[]): readonly Node[] | null {
    // Complex numbers with NaN in one part have no such order.
    if (soleOperation(application) !== "greater" || inputs[0].dtype.kind === "complex") return null
    const maximum = this.maxima.get(inputs.map((n) => this.idOf(n)).join(","))
    return maximum && sameShape(maximum.shape, inputs[0].shape) ? [maximum, inputs[1]] : null
  }

  private build(application: Application, inputs: readonly Node[]): readonly Node[] {
    const { primitive } = application
    const instead = withoutComputing(application, inputs)
    if (instead) return [instead]
    const picked = onePosition(application, inputs, this.backend.plans?.whole === true)
    if (picked) return this.rewriting([picked])
    if (isView(application))
      return [this.show(application, inputs[0], this.isReadElementwise(application) ? MAX_LIFTED : 0)]
    const nodes = reapply(application, inputs)
    if (primitive.rules.view || this.backend.queue.lower(nodes[0]) !== null) return nodes
    if (!primitive.rules.decompose) {
      this.possible = false
      return nodes
    }
    const parts = decompose(
      primitive,
      inputs.map((n) => new Array(n)),
      application.params,
    ).map((a) => a.node)
    const rewritten = this.rewriting(parts)
    if (primitive.facts.exchanges !== true) return rewritten
    return keepingAll(rewritten, (i) => this.readers.has(outputsOf(application)[i]))
  }

  /** The same where new applications pass through the rewriting; nodes that went through it already are leaves. */
  private rewriting(nodes: readonly Node[]): readonly Node[] {
    return rebuild(nodes, new Map(), (node) => this.rewritten.has(node) || isLeaf(node), this.rewrite)
  }

  /** A view of a node: in front of the elementwise work that made it, where that lets the work join what reads the view. */
  private show(view: Node, input: Node, lift: number): Node {
    const [node] = reapply(applicationOf(view), [input])
    if (lift > 0 && this.single.has(input) && isWork(input) && sizeOf(node.shape) <= sizeOf(input.shape)) {
      const work = lifted(node, input, (n) => this.show(view, n, lift - 1))
      if (work) {
        this.single.add(work)
        return work
      }
    }
    return this.shared(merged(node))
  }

  /** The same view, where there was one. */
  private shared(node: Node): Node {
    if (!isView(node)) return node
    const primitive = primitiveOf(node)
    const key = `${primitive.id}(${this.idOf(node.inputs[0])})${paramsKey(primitive.schema, node.params)}`
    const known = this.known.get(key)
    if (!known) this.known.set(key, [node])
    return known ? known[0] : node
  }

  private isReadElementwise(application: Application): boolean {
    const readers = [...(this.readers.get(application) ?? [])]
    return readers.length > 0 && readers.every((reader) => reader !== null && primitiveOf(reader).elementwise)
  }
}
