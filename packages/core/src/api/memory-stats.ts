/**
 * Memory statistics and limits of the default device.
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
 * Bytes in use by arrays and by the scratch memory of running kernels; 0 if the backend does not count them.
 * @example
 * mx.getActiveMemory() >= 0 // => true
 */
export function getActiveMemory(): number {
  return stats().active
}

/** The peak of {@link getActiveMemory} since the start or the last {@link resetPeakMemory}. */
export function getPeakMemory(): number {
  return stats().peak
}

/** Bytes cached for reuse by later arrays. */
export function getCacheMemory(): number {
  return stats().cache
}

/** The result of {@link memoryReport}. */
export interface MemoryReport extends MemoryStats {
  /** Live buffers by origin, largest first: a primitive, `array` for data from JavaScript or a file, or `copy`. */
  readonly byOp: readonly { readonly op: string; readonly buffers: number; readonly bytes: number }[]
}

/**
 * Memory in use by origin: collects garbage, then totals the live buffers of the default device by the operation that made them. Helps to
 * find leaks. Empty if the backend does not count its buffers.
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

/** Resets {@link getPeakMemory} to the memory in use. */
export function resetPeakMemory(): void {
  memory().resetPeak?.()
}

/** A valid limit. @throws ArgumentError otherwise */
function asLimit(op: string, limit: number): number {
  if (limit === Infinity || (Number.isSafeInteger(limit) && limit >= 0)) return limit
  throw new ArgumentError(
    op,
    `limit must be a non-negative integer (bytes) or Infinity, received ${describe(limit)}`,
  )
}

/**
 * Limits the bytes in use by arrays, not counting the scratch memory of kernels; an allocation beyond the limit throws a DeviceError.
 * Infinity removes the limit. Lowering it first waits for the work this thread has already submitted. Returns the previous limit.
 * @throws ArgumentError unless the limit is a number of bytes
 * @example
 * const before = mx.setMemoryLimit(2 ** 30)
 * mx.setMemoryLimit(before) // => 1073741824
 */
export function setMemoryLimit(limit: number): number {
  const next = asLimit("setMemoryLimit", limit)
  const before = stats().limit
  if (next < before) backend().queue.drain?.()
  memory().setLimit?.(next)
  lifetimes.forgetLimit()
  return before
}

/**
 * Limits the bytes cached for reuse; 0 disables the cache, Infinity removes the limit. Returns the previous limit, 0 if the backend has no
 * cache.
 * @throws ArgumentError unless the limit is a number of bytes
 */
export function setCacheLimit(limit: number): number {
  const next = asLimit("setCacheLimit", limit)
  const before = stats().cacheLimit ?? 0
  memory().setCacheLimit?.(next)
  return before
}

/** Returns cached memory to the system. */
export function clearCache(): void {
  memory().clearCache?.()
}

let wired = 0
/**
 * Limits the bytes wired in physical memory; returns the previous limit. Has an effect only with Metal on macOS 15 or later.
 * @throws ArgumentError unless the limit is a number of bytes
 */
export function setWiredLimit(limit: number): number {
  const next = asLimit("setWiredLimit", limit)
  const before = wired
  for (const { memory } of listBackends()) memory.setWiredLimit?.(next)
  wired = next
  return before
}
