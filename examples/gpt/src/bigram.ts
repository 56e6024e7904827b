/**
 * The baseline: how well the last byte alone predicts the next one. A model that does not beat it has learned nothing but
 * which letters are common after which.
 */
const BYTES = 256

/** Counts of pairs, smoothed towards the frequencies of single bytes. */
export interface Bigram {
  /** The weight of the single-byte frequencies in each row, in bytes. */
  readonly smoothing: number
  /** The natural logarithm of the probability that `next` follows `last`, at `last * 256 + next`. */
  readonly logProbabilities: Float64Array
}

/** Candidates for the smoothing. */
const SMOOTHINGS = [0.5, 1, 2, 4, 8, 16, 32, 64, 128, 1e3, 1e4, 1e5]

/**
 * Counts the pairs of a text. p(b | a) = (n(a, b) + s·p(b)) / (n(a) + s), a Dirichlet prior around the frequencies
 * p(b) = (n(b) + 1) / (n + 256). The weight s is the one under which the text predicts each of its pairs best from all others.
 */
export function fitBigram(text: Uint8Array): Bigram {
  const pairs = new Float64Array(BYTES * BYTES)
  const rows = new Float64Array(BYTES)
  const single = new Float64Array(BYTES).fill(1)
  for (let i = 0; i + 1 < text.length; i++) {
    pairs[text[i] * BYTES + text[i + 1]]++
    rows[text[i]]++
  }
  for (const byte of text) single[byte]++
  for (let b = 0; b < BYTES; b++) single[b] /= text.length + BYTES

  const leftOut = (s: number): number => {
    let loss = 0
    pairs.forEach((n, i) => {
      if (n > 0) loss -= n * Math.log((n - 1 + s * single[i % BYTES]) / (rows[(i / BYTES) | 0] - 1 + s))
    })
    return loss
  }
  const smoothing = SMOOTHINGS.reduce((best, s) => (leftOut(s) < leftOut(best) ? s : best))
  const logProbabilities = pairs.map((n, i) =>
    Math.log((n + smoothing * single[i % BYTES]) / (rows[(i / BYTES) | 0] + smoothing)),
  )
  return { smoothing, logProbabilities }
}

/** The mean loss, in nats a byte, over the same predictions that the model is asked for: all but the first byte of each window. */
export function bigramLoss({ logProbabilities }: Bigram, windows: readonly Int32Array[]): number {
  let loss = 0
  let count = 0
  for (const window of windows) {
    for (let i = 0; i + 1 < window.length; i++) loss -= logProbabilities[window[i] * BYTES + window[i + 1]]
    count += window.length - 1
  }
  return loss / count
}

/** Nats to bits. */
export const bits = (nats: number): number => nats / Math.LN2
