/**
 * Scalar programs: elementwise work as data. A program is a list of instructions over registers, each with its own dtype; the reference
 * backend interprets it, the CPU runs it block by block, Metal compiles it to source code. The semantics of an elementwise primitive is a
 * function of a `ScalarOps`, which yields a program (here) or, on arrays instead of registers, a graph (primitive.ts).
 */
import { bool_, complex64, type Dtype, float32 } from "./dtype"
import { DTypeError } from "./errors"

/** Unary instructions. */
export const unaryOps = [
  "negative",
  "abs",
  "sign",
  "floor",
  "ceil",
  "round",
  "sqrt",
  "rsqrt",
  "square",
  "reciprocal",
  "exp",
  "expm1",
  "log",
  "log2",
  "log10",
  "log1p",
  "sin",
  "cos",
  "tan",
  "arcsin",
  "arccos",
  "arctan",
  "sinh",
  "cosh",
  "tanh",
  "arcsinh",
  "arccosh",
  "arctanh",
  "erf",
  "erfinv",
  "sigmoid",
  "bitwiseInvert",
  "logicalNot",
  "conjugate",
  "real",
  "imag",
] as const
/** Binary instructions on arguments of one dtype. */
export const binaryOps = [
  "add",
  "subtract",
  "multiply",
  "divide",
  "floorDivide",
  "remainder",
  "power",
  "maximum",
  "minimum",
  "arctan2",
  "logaddexp",
  "bitwiseAnd",
  "bitwiseOr",
  "bitwiseXor",
  "leftShift",
  "rightShift",
  "logicalAnd",
  "logicalOr",
  "equal",
  "notEqual",
  "less",
  "lessEqual",
  "greater",
  "greaterEqual",
  "complex",
] as const

/** The name of a unary instruction. */
export type UnaryOp = (typeof unaryOps)[number]
/** The name of a binary instruction. */
export type BinaryOp = (typeof binaryOps)[number]
/** The name of an instruction. */
export type ScalarOp = UnaryOp | BinaryOp | "select" | "cast" | "constant"

const comparisons = new Set<string>([
  "equal",
  "notEqual",
  "less",
  "lessEqual",
  "greater",
  "greaterEqual",
  "logicalAnd",
  "logicalOr",
])

/** A scalar of any dtype; complex numbers are objects with `re` and `im`. */
export type ScalarValue = number | bigint | boolean | { readonly re: number; readonly im: number }

/** The operations in which an elementwise primitive expresses its semantics; `V` is a register or an array. */
export type ScalarOps<V> = { [K in UnaryOp]: (x: V) => V } & { [K in BinaryOp]: (x: V, y: V) => V } & {
  /** `x` where the bool `condition` holds, `y` elsewhere. */
  select(condition: V, x: V, y: V): V
  /** Conversion to another dtype. */
  cast(x: V, dtype: Dtype): V
  /** A constant. */
  constant(value: ScalarValue, dtype: Dtype): V
  /** The dtype of a value. */
  dtypeOf(x: V): Dtype
}

/** An instruction; the i-th one writes register `inputs + i`. */
export interface Instruction {
  readonly op: ScalarOp
  /** The dtype of the result. */
  readonly dtype: Dtype
  /** Registers read. */
  readonly args: readonly number[]
  /** The value of a `constant`. */
  readonly value?: ScalarValue
}

/** Elementwise work as data: registers 0 … inputs − 1 hold the inputs, followed by one register per instruction. */
export interface ScalarProgram {
  readonly inputs: readonly Dtype[]
  readonly code: readonly Instruction[]
  /** The registers of the results. */
  readonly outputs: readonly number[]
  /** Equal for equal programs. */
  readonly key: string
  /** Program ids, by backend index. */
  readonly ids: (number | undefined)[]
}

/** Validates an instruction's arguments and returns the dtype of its result. @throws DTypeError */
export function resultDtype(op: ScalarOp, args: readonly Dtype[]): Dtype {
  if (op === "select") {
    if (args[0] !== bool_)
      throw new DTypeError("select", `the condition must be bool_, received ${args[0].name}`)
    if (args[1] !== args[2])
      throw new DTypeError(
        "select",
        `both branches must have the same dtype, received ${args[1].name} and ${args[2].name}`,
      )
    return args[1]
  }
  if (args.length === 2 && args[0] !== args[1]) {
    throw new DTypeError(
      op,
      `both arguments must have the same dtype, received ${args[0].name} and ${args[1].name}`,
    )
  }
  if (comparisons.has(op) || op === "logicalNot") return bool_
  if (op === "complex") return complex64
  if ((op === "abs" || op === "real" || op === "imag") && args[0] === complex64) return float32
  return args[0]
}

/** Builds a program by running a definition on registers. Equal instructions are emitted once. */
export class ProgramBuilder {
  private readonly code: Instruction[] = []
  private readonly seen = new Map<string, number>()
  /** The operations to pass to a definition. */
  readonly ops: ScalarOps<number>

  constructor(private readonly inputs: readonly Dtype[]) {
    const table: Record<string, unknown> = {}
    for (const op of unaryOps) table[op] = (x: number) => this.emit(op, [x])
    for (const op of binaryOps) table[op] = (x: number, y: number) => this.emit(op, [x, y])
    table.select = (c: number, x: number, y: number) => this.emit("select", [c, x, y])
    table.cast = (x: number, dtype: Dtype) => (this.dtypeOf(x) === dtype ? x : this.emit("cast", [x], dtype))
    table.constant = (value: ScalarValue, dtype: Dtype) => this.emit("constant", [], dtype, value)
    table.dtypeOf = (x: number) => this.dtypeOf(x)
    this.ops = table as unknown as ScalarOps<number>
  }

  /** The dtype of a register. */
  dtypeOf(register: number): Dtype {
    return register < this.inputs.length
      ? this.inputs[register]
      : this.code[register - this.inputs.length].dtype
  }

  /** The current number of instructions. */
  get length(): number {
    return this.code.length
  }

  /** Appends the instructions of another program, with its inputs bound to registers of this one; returns its outputs. */
  inline(program: ScalarProgram, args: readonly number[]): number[] {
    const registers = args.slice()
    for (const step of program.code) {
      registers.push(
        this.emit(
          step.op,
          step.args.map((a) => registers[a]),
          step.dtype,
          step.value,
        ),
      )
    }
    return program.outputs.map((o) => registers[o])
  }

  /** The program whose results are `outputs`. */
  finish(outputs: readonly number[]): ScalarProgram {
    const key = `${this.inputs.map((d) => d.code).join(",")};${this.code.map(keyOf).join(";")};${outputs.join(",")}`
    return { inputs: this.inputs, code: this.code, outputs, key, ids: [] }
  }

  private emit(op: ScalarOp, args: readonly number[], dtype?: Dtype, value?: ScalarValue): number {
    const step: Instruction = {
      op,
      dtype:
        dtype ??
        resultDtype(
          op,
          args.map((a) => this.dtypeOf(a)),
        ),
      args,
      value,
    }
    const key = keyOf(step)
    const known = this.seen.get(key)
    if (known !== undefined) return known
    this.code.push(step)
    const register = this.inputs.length + this.code.length - 1
    this.seen.set(key, register)
    return register
  }
}

function keyOf(step: Instruction): string {
  return `${step.op}:${step.dtype.code}(${step.args.join(",")})${step.value === undefined ? "" : `=${valueKey(step.value)}`}`
}

/** A string that is equal exactly for equal scalars: 1, 1n, true and -0 differ from each other. */
export function valueKey(value: ScalarValue): string {
  if (typeof value === "object") return `${valueKey(value.re)}+${valueKey(value.im)}i`
  if (typeof value === "bigint") return `${value}n`
  return Object.is(value, -0) ? "-0" : String(value)
}
