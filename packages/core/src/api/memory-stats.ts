/**
 * Looking at memory and bounding it, on the default device.
 */

import { lifetimes } from "../engine/memory"
import { type Backend, backendFor, listBackends } from "../graph/backend"
import { currentStream } from "../graph/device"
import { ArgumentError, describe } from "../graph/errors"
import type { Memory, MemoryStats } from "../graph/storage"

const backend = (): Backend => backendFor(currentStream().device)
const memory = (): Memory => backend().memory
const NOTHING: MemoryStats = { active: 0, peak: 0, cache: 0, buffers: 0, limit: 0 }
const stats = (): MemoryStats => memory().stats?.() ?? NOTHING

/**
 * Bytes of all living arrays, and of what kernels have borrowed while they run; 0 on a backend that does not count them.
 * @example
 * mx.getActiveMemory() >= 0 // => true
 */
export function getActiveMemory(): number {
  return stats().active
}

/** The most bytes that were alive at once since the start, or since {@link resetPeakMemory}. */
export function getPeakMemory(): number {
  return stats().peak
}

/** Bytes that are free and kept for the next arrays. */
export function getCacheMemory(): number {
  return stats().cache
}

/** The result of {@link memoryReport}. */
export interface MemoryReport extends MemoryStats {
  /** The living buffers by what made them, the most bytes first: a primitive, `array` for data from JavaScript or a file, `copy`. */
  readonly byOp: readonly { readonly op: string; readonly buffers: number; readonly bytes: number }[]
}

/**
 * Memory in use by purpose: after a collection, the living buffers of the default device by the operation that made them. For finding
 * what a program keeps. Empty on a backend that does not count its buffers.
 * @example
 * mx.memoryReport().byOp.every(({ bytes }) => bytes >= 0) // => true
 */
export function memoryReport(): MemoryReport {
  lifetimes.collectGarbage()
  const totals = new Map<string, { op: string; buffers: number; bytes: number }>()
  for (const { op, nbytes } of memory().storages?.() ?? []) {
    const total = totals.get(op) ?? { op, buffers: 0, bytes: 0 }
    total.buffers++
    total.bytes += nbytes
    totals.set(op, total)
  }
  return { ...stats(), byOp: [...totals.values()].sort((a, b) => b.bytes - a.bytes) }
}

/** Starts {@link getPeakMemory} anew. */
export function resetPeakMemory(): void {
  memory().resetPeak?.()
}

/** A bound that was given. @throws ArgumentError where it is none */
function asBound(op: string, limit: number): number {
  if (limit === Infinity || (Number.isSafeInteger(limit) && limit >= 0)) return limit
  throw new ArgumentError(
    op,
    `limit must be a non-negative integer (bytes) or Infinity, received ${describe(limit)}`,
  )
}

/**
 * Bounds the bytes of living arrays, without what kernels borrow while they run: what would exceed it fails with a DeviceError. Infinity is
 * no bound. A lower one waits for the work that this thread has handed over, which is done under the bound before. Gives the bound before.
 * @throws ArgumentError for what is no number of bytes
 * @example
 * const before = mx.setMemoryLimit(2 ** 30)
 * mx.setMemoryLimit(before) // => 1073741824
 */
export function setMemoryLimit(limit: number): number {
  const bound = asBound("setMemoryLimit", limit)
  const before = stats().limit
  if (bound < before) backend().queue.drain?.()
  memory().setLimit?.(bound)
  lifetimes.forgetLimit()
  return before
}

/**
 * Bounds the bytes kept for reuse; 0 keeps none, Infinity all. Gives the bound before, 0 on a backend that keeps none.
 * @throws ArgumentError for what is no number of bytes
 */
export function setCacheLimit(limit: number): number {
  const bound = asBound("setCacheLimit", limit)
  const before = stats().cacheLimit ?? 0
  memory().setCacheLimit?.(bound)
  return before
}

/** Gives the bytes kept for reuse back to the system. */
export function clearCache(): void {
  memory().clearCache?.()
}

let wired = 0
/**
 * Bounds the bytes that stay in physical memory; gives the bound before. Metal keeps buffers there since macOS 15; elsewhere the bound
 * wires nothing.
 * @throws ArgumentError for what is no number of bytes
 */
export function setWiredLimit(limit: number): number {
  const bound = asBound("setWiredLimit", limit)
  const before = wired
  for (const { memory } of listBackends()) memory.setWiredLimit?.(bound)
  wired = bound
  return before
}
