/** When the memory of a long loop counts as flat. Nothing here measures. */

/** Bytes in use at a step, as it happens; `peak` since the sample before. */
export interface Sample {
  readonly step: number
  readonly seconds: number
  readonly rss: number
  readonly heapUsed: number
  readonly heapTotal: number
  readonly active: number
  readonly cache: number
  readonly peak: number
}

/** The memory left once all garbage is collected. */
export interface Settled {
  readonly active: number
  readonly buffers: number
  readonly heap: number
}

const MB = 2 ** 20
/** JavaScript's heap may grow by so much for code and statistics that V8 makes late. */
const LATE_CODE = 3 * MB
/**
 * The last step's results may still be known to something, and tiny buffers are given back in groups of 32: each of the parameters, the
 * moments and the results may keep one. A loop that keeps a buffer a step is over this in the shortest test.
 */
const LAST_STEP = { bytes: 2 * MB, buffers: 256 }
const inMB = (bytes: number): string => `${(bytes / MB).toFixed(1)} MB`

/**
 * The reasons why memory is not flat; empty where it is. Memory left after a collection must hardly change from a quarter to the end.
 * What is in use in between goes up and down with V8's collections, so its maxima are compared: over the last half, and before it.
 */
export function verdict(
  samples: readonly Sample[],
  quarter: Settled,
  end: Settled,
  { ofProcess = true } = {},
): string[] {
  const problems: string[] = []
  if (end.active > quarter.active + LAST_STEP.bytes)
    problems.push(`living arrays took ${quarter.active} bytes after a quarter and ${end.active} at the end`)
  if (end.buffers > quarter.buffers + LAST_STEP.buffers)
    problems.push(`${quarter.buffers} buffers lived after a quarter and ${end.buffers} at the end`)
  if (end.heap > quarter.heap + LATE_CODE)
    problems.push(`the heap kept ${inMB(quarter.heap)} after a quarter and ${inMB(end.heap)} at the end`)
  const half = samples.length >> 1
  const figures = ofProcess ? (["rss", "heapTotal", "peak", "cache"] as const) : (["peak", "cache"] as const)
  for (const figure of figures) {
    const most = (part: readonly Sample[]): number => Math.max(...part.map((sample) => sample[figure]))
    const [before, after] = [most(samples.slice(0, half)), most(samples.slice(half))]
    if (after > 1.1 * before + 4 * MB)
      problems.push(`${figure} rose from at most ${inMB(before)} to ${inMB(after)} in the last half`)
  }
  return problems
}
