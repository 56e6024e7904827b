/**
 * Functions that Math lacks, in double precision, for the reference implementations.
 */
const TWO_OVER_SQRT_PI = 1.1283791670955126

/**
 * erf: the Maclaurin series below 2.5, the continued fraction of erfc (Lentz's evaluation) above.
 * Source: DLMF 7.6.1 and 7.9.2.
 */
export function erf(x: number): number {
  if (Number.isNaN(x)) return Number.NaN
  const a = Math.abs(x)
  if (a > 6) return Math.sign(x)
  if (a < 2.5) {
    let term = x
    let sum = x
    for (let n = 1; n < 200; n++) {
      term *= (-x * x) / n
      const step = term / (2 * n + 1)
      sum += step
      if (Math.abs(step) <= 1e-17 * Math.abs(sum)) break
    }
    return TWO_OVER_SQRT_PI * sum
  }
  // erfc(a) = exp(-a²)/√π · 1/(a + (1/2)/(a + 1/(a + (3/2)/(a + …))))
  let tail = a
  for (let n = 60; n > 0; n--) tail = a + n / 2 / tail
  const erfc = Math.exp(-a * a) / (Math.sqrt(Math.PI) * tail)
  return Math.sign(x) * (1 - erfc)
}

/**
 * The inverse of erf: an initial guess from the logarithm (Winitzki's approximation), refined by Halley steps on erf.
 */
export function erfinv(y: number): number {
  if (Number.isNaN(y) || Math.abs(y) > 1) return Number.NaN
  if (Math.abs(y) === 1) return y * Number.POSITIVE_INFINITY
  if (y === 0) return y
  const log = Math.log1p(-y * y)
  const half = 2 / (Math.PI * 0.147) + log / 2
  let x = Math.sign(y) * Math.sqrt(Math.sqrt(half * half - log / 0.147) - half)
  for (let i = 0; i < 4; i++) {
    const error = erf(x) - y
    const slope = TWO_OVER_SQRT_PI * Math.exp(-x * x)
    if (slope === 0) break
    const step = error / slope
    x -= step / (1 + x * step)
  }
  return x
}

/** Rounds half to even, as NumPy's and MLX's `round` do. */
export function roundHalfEven(x: number): number {
  const floor = Math.floor(x)
  const rest = x - floor
  if (rest < 0.5) return floor === 0 && x < 0 ? -0 : floor
  if (rest > 0.5) return floor + 1 === 0 ? -0 : floor + 1
  const even = floor % 2 === 0 ? floor : floor + 1
  return even === 0 && x < 0 ? -0 : even
}
