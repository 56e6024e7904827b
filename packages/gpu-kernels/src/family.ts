/**
 * A family of kernels: which applications of a primitive it takes, and how it runs them.
 */
import { type Node, sizeOf } from "@lazuli/core/engine"
import type { DispatchQueue } from "./dispatch"

export interface Family {
  /** True if it has a kernel for this application. */
  supports(node: Node): boolean
  /** Adds its work. Inputs and outputs have storage. */
  encode(node: Node, queue: DispatchQueue): void
  /** The inputs over which an output may be written, by index; see {@link Encoder} of a backend. */
  overwrites?(node: Node, output: number): readonly number[]
}

/** Families by primitive. */
export type Families = Readonly<Record<string, Family>>

/** Elements that kernels can count with 32 bits. */
export const MAX_ELEMENTS = 2 ** 31 - 1

/** True if kernels can count the elements of an application's operands with 32 bits. */
export const isCountable = (node: Node): boolean =>
  (node.outputs ?? [node]).every((n) => sizeOf(n.shape) <= MAX_ELEMENTS) &&
  node.inputs.every((n) => n.storage === null || n.storage.nbytes / n.dtype.size <= MAX_ELEMENTS)
