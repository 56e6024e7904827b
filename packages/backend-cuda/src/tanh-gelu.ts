/**
 * The gelu that cuBLASLt has as an epilogue: ½ x (1 + tanh(√(2/π) (x + 0.044715 x³))), in whatever order it is written. The exact form, by
 * the error function, is another function.
 */
import { type Dtype, float32, type Instruction, type ScalarProgram } from "@lazuli/core/engine"

const SCALE = Math.sqrt(2 / Math.PI)
const CUBIC = 0.044715
/** Relative difference of constants that are written with fewer digits. */
const CLOSE = 1e-6
/** Highest power of x in it. */
const DEGREE = 3

/** Coefficients by powers of x, and those of the terms with the hyperbolic tangent. */
interface Polynomial {
  readonly plain: readonly number[]
  readonly tanh: readonly number[]
}

const polynomial = (plain: readonly number[], tanh: readonly number[] = []): Polynomial => ({ plain, tanh })
const ONE_TANH = polynomial([], [1])

const isClose = (coefficients: readonly number[], expected: readonly number[]): boolean =>
  Array.from({ length: DEGREE + 1 }).every((_, i) => {
    const [a, b] = [coefficients[i] ?? 0, expected[i] ?? 0]
    return Math.abs(a - b) <= CLOSE * Math.abs(b)
  })

/** Null where terms cancel: they do not for infinities. */
function sumOf(a: readonly number[], b: readonly number[]): number[] | null {
  const sum = Array.from({ length: Math.max(a.length, b.length) }, (_, i) => (a[i] ?? 0) + (b[i] ?? 0))
  return sum.some((each, i) => each === 0 && (a[i] ?? 0) !== 0) ? null : sum
}

function productOf(a: readonly number[], b: readonly number[]): number[] | null {
  let product: number[] | null = []
  a.forEach((x, i) => {
    const moved = [...new Array<number>(i).fill(0), ...b.map((y) => x * y)]
    product = product && sumOf(product, moved)
  })
  return product && (product as number[]).length <= DEGREE + 1 ? product : null
}

function add(a: Polynomial, b: Polynomial): Polynomial | null {
  const [plain, tanh] = [sumOf(a.plain, b.plain), sumOf(a.tanh, b.tanh)]
  return plain && tanh && polynomial(plain, tanh)
}

function multiply(a: Polynomial, b: Polynomial): Polynomial | null {
  if (a.tanh.length > 0 && b.tanh.length > 0) return null
  const plain = productOf(a.plain, b.plain)
  const tanh = a.tanh.length > 0 ? productOf(a.tanh, b.plain) : productOf(b.tanh, a.plain)
  return plain && tanh && polynomial(plain, tanh)
}

/** The number that a polynomial is; null for another one. */
const numberOf = ({ plain, tanh }: Polynomial): number | null =>
  plain.length === 1 && tanh.length === 0 ? plain[0] : null

/** The value of an instruction; null where it is of no such function. */
function valueOf(
  { op, dtype, value }: Instruction,
  args: readonly Polynomial[],
  of: Dtype,
): Polynomial | null {
  const [a, b] = args
  const times = (x: Polynomial, factor: number): Polynomial | null => multiply(x, polynomial([factor]))
  switch (op) {
    case "constant":
      return typeof value === "number" && value !== 0 && Number.isFinite(value) ? polynomial([value]) : null
    case "cast":
      return dtype === float32 || dtype === of ? a : null
    case "add":
      return add(a, b)
    case "subtract": {
      const negative = times(b, -1)
      return negative && add(a, negative)
    }
    case "negative":
      return times(a, -1)
    case "multiply":
      return multiply(a, b)
    case "square":
      return multiply(a, a)
    case "divide": {
      const by = numberOf(b)
      return by ? times(a, 1 / by) : null
    }
    case "power": {
      const square = multiply(a, a)
      const exponent = numberOf(b)
      return exponent === 2 ? square : exponent === 3 ? square && multiply(square, a) : null
    }
    case "tanh":
      return a.tanh.length === 0 && isClose(a.plain, [0, SCALE, 0, SCALE * CUBIC]) ? ONE_TANH : null
    default:
      return null
  }
}

/** True of a program of a single number, by any of its inputs, that is this function of it. */
export function isTanhGelu({ inputs, code, outputs }: ScalarProgram): boolean {
  const values: Polynomial[] = inputs.map(() => polynomial([0, 1]))
  for (const instruction of code) {
    const args = instruction.args.map((register) => values[register])
    const value = valueOf(instruction, args, inputs[0])
    if (!value) return false
    values.push(value)
  }
  if (outputs.length !== 1) return false
  const { plain, tanh } = values[outputs[0]]
  return isClose(plain, [0, 0.5]) && isClose(tanh, [0, 0.5])
}
