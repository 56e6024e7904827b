/**
 * A family of kernels: which applications of a primitive it takes, and how it runs them.
 */
import { type Application, type Node, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue } from "./dispatch"

/** Elementwise work on the result of a kernel, as that makes it. */
export interface Ending {
  /** It has as many elements as the result, and as many in a row. */
  readonly work: Node
  /** The result itself, and the same in other shapes: the work reads them. */
  readonly results: ReadonlySet<Node>
  /** The result is written as well: others read it. */
  readonly keeps: boolean
}

export interface Family {
  /** True if it has a kernel for this application. */
  supports(node: Node): boolean
  /** Adds its work. Inputs and outputs have storage. Where {@link ends} is set, an ending may come with it. */
  encode(node: Node, queue: DispatchQueue, ending?: Ending): void
  /**
   * Applications that read the same first operands as one kernel, or null. Asked before anything lies somewhere; where the kernel does not
   * suit how operands then lie, the work is that of one after another.
   */
  together?(nodes: readonly Node[]): ((queue: DispatchQueue) => void) | null
  /**
   * Applications of which one or more are this family's, and the others work before and behind them, as one kernel, or null; `inner` are
   * the results that nothing else reads. Asked like {@link together}; the work is false, having added nothing, where the kernel does not
   * suit how operands lie.
   */
  around?(
    members: readonly Application[],
    inner: ReadonlySet<Node>,
  ): ((queue: DispatchQueue) => boolean) | null
  /** Its work is never part of a recording. */
  readonly unplanned?: boolean
  /** True of an application whose work is worked out anew where the same comes again; of others it may be remembered. */
  isOnce?(node: Node): boolean
  /** Its kernels can end with elementwise work: with any, or with what this says. */
  readonly ends?: boolean | ((product: Node, ending: Ending) => boolean)
  /** The inputs over which an output may be written, by index; see {@link Encoder} of a backend. */
  overwrites?(node: Node, output: number): readonly number[]
  /** The bytes of the output at which inputs may lie beforehand; see {@link Encoder} of a backend. */
  partsAt?(node: Node): readonly number[] | null
  /** Its work in a recording is that of several processes, beside other work; all of them add it in the same order. */
  readonly isExchange?: boolean
}

/** Families by primitive. */
export type Families = Readonly<Record<string, Family>>

/** Elements that kernels can count with 32 bits. */
export const MAX_ELEMENTS = 2 ** 31 - 1

/** True if kernels can count the elements of an application's operands with 32 bits. */
export const isCountable = (node: Node): boolean =>
  (node.outputs ?? [node]).every((n) => sizeOf(n.shape) <= MAX_ELEMENTS) &&
  node.inputs.every((n) => n.storage === null || n.storage.nbytes / n.dtype.size <= MAX_ELEMENTS)
