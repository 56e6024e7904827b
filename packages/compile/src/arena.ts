/**
 * One block of memory, cut ahead of time: what lives at the same time lies apart, and everything lies as low as it can.
 */
export const ALIGNMENT = 64
/** From this many allocations on, the search over all of them would take longer than what it saves. */
const MAX_SEARCHED = 3000

const align = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT

/** Memory for some bytes from one step to another, both included. */
export interface Allocation {
  readonly bytes: number
  readonly from: number
  to: number
  /** Set by {@link layOut}. */
  offset: number
}

/** The bytes that a layout takes, and the most bytes that live at once: what no layout could go below. */
export interface Extent {
  readonly size: number
  readonly peak: number
}

/** Gives every allocation its offset: largest first or in order of their steps, whichever takes less. */
export function layOut(allocations: readonly Allocation[]): Extent {
  const peak = peakOf(allocations)
  const byStep = [...allocations].sort((a, b) => a.from - b.from)
  let best = fill(byStep, true)
  if (best.size > peak && allocations.length <= MAX_SEARCHED) {
    const bySize = fill(
      [...allocations].sort((a, b) => b.bytes - a.bytes || a.from - b.from),
      false,
    )
    if (bySize.size < best.size) best = bySize
  }
  for (const [allocation, offset] of best.offsets) allocation.offset = offset
  return { size: best.size, peak }
}

/** The most bytes that live at one step. */
function peakOf(allocations: readonly Allocation[]): number {
  const changes = new Map<number, number>()
  const change = (step: number, bytes: number): void => {
    changes.set(step, (changes.get(step) ?? 0) + bytes)
  }
  for (const { bytes, from, to } of allocations) {
    change(from, align(bytes))
    change(to + 1, -align(bytes))
  }
  let live = 0
  let peak = 0
  for (const [, bytes] of [...changes].sort(([a], [b]) => a - b)) peak = Math.max(peak, (live += bytes))
  return peak
}

/** Puts one allocation after the other into the smallest gap that the earlier ones leave, or at the end of those it meets. */
function fill(
  allocations: readonly Allocation[],
  ascending: boolean,
): { size: number; offsets: Map<Allocation, number> } {
  const offsets = new Map<Allocation, number>()
  let size = 0
  /** Ascending by offset. In order of steps, those that ended are dropped. */
  let laid: { offset: number; end: number; allocation: Allocation }[] = []
  for (const allocation of allocations) {
    const bytes = align(allocation.bytes)
    if (ascending) laid = laid.filter((other) => other.allocation.to >= allocation.from)
    let at = -1
    let smallest = Number.POSITIVE_INFINITY
    let reached = 0
    for (const { offset, end, allocation: other } of laid) {
      if (!ascending && (other.to < allocation.from || allocation.to < other.from)) continue
      const gap = offset - reached
      if (gap >= bytes && gap < smallest) {
        smallest = gap
        at = reached
      }
      reached = Math.max(reached, end)
    }
    if (at < 0) at = reached
    offsets.set(allocation, at)
    size = Math.max(size, at + bytes)
    if (bytes === 0) continue
    let index = laid.length
    while (index > 0 && laid[index - 1].offset > at) index--
    laid.splice(index, 0, { offset: at, end: at + bytes, allocation })
  }
  return { size, offsets }
}
