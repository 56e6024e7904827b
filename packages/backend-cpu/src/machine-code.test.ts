/**
 * Machine code for scalar programs: random programs give the interpreter's bits on every instruction set, and the reference's numbers.
 * What the addon does is decided once a process by its environment, hence processes of their own.
 */
import { execFileSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { generator } from "@lazuli/conformance/generator"
import {
  bfloat16,
  bool_,
  type Dtype,
  float16,
  float32,
  float64,
  fromBfloat16Bits,
  fromFloat16Bits,
  int32,
  interpret,
  ProgramBuilder,
  type ScalarOps,
  type ScalarProgram,
} from "@lazuli/core/engine"
import { describe, expect, test } from "vitest"
import { programWords } from "./encode"
import { native } from "./native"

interface Layout {
  /** The contents of the operand's memory. */
  readonly dtype: Dtype
  readonly shape: readonly number[]
  readonly strides?: readonly number[]
  /** In bytes. */
  readonly offset?: number
}
interface Job {
  readonly program: ScalarProgram
  readonly shape: readonly number[]
  readonly inputs: readonly (Layout & { readonly bytes: Uint8Array<ArrayBuffer> })[]
  /** The input whose memory an output takes over, or -1. */
  readonly inPlace: readonly number[]
  /** Bytes before the outputs in their own memory. */
  readonly offset?: number
}
const count = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1)

/** Runs jobs in a process of its own; gives the bytes of each output of each job, and what the addon says of itself. */
function runElsewhere(jobs: readonly Job[], env: Record<string, string>) {
  const ops = new Map(native.scalarOps().map((name, i) => [name, i]))
  const pair = (low: number, high: number) => BigInt(low) | (BigInt(high) << 32n)
  const operand = (id: number, { dtype, shape, strides, offset = 0 }: Layout) => [
    pair(id, dtype.code | (shape.length << 8) | ((strides ? 0 : 1) << 16)),
    BigInt(offset),
    ...[count(shape), ...shape, ...(strides ?? [])].map(BigInt),
  ]
  const base64 = (buffer: ArrayBufferLike) => Buffer.from(buffer).toString("base64")
  const script = `
    const native = require(${JSON.stringify(process.env.LAZULI_CPU_ADDON ?? fileURLToPath(new URL("../build/lazuli_cpu.node", import.meta.url)))})
    const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"))
    const outputs = []
    for (const job of JSON.parse(require("node:fs").readFileSync(0, "utf8"))) {
      const id = native.registerProgram(bytes(job.program))
      job.inputs.forEach((text, i) => {
        const data = bytes(text)
        native.allocate(i, data.length)
        native.write(i, 0, data)
      })
      job.outputs.forEach(({ id, offset, size }) => id < job.inputs.length || native.allocate(id, offset + size))
      const commands = bytes(job.commands).buffer
      new Int32Array(commands)[2] = id
      native.attachCommands(commands)
      if (native.run(commands.byteLength / 8)) throw new Error(native.failures()[0].message)
      outputs.push(job.outputs.map(({ id, offset, size }) => {
        const data = new Uint8Array(size)
        native.read(id, offset, data)
        return Buffer.from(data).toString("base64")
      }))
      native.releaseProgram(id)
    }
    console.log(JSON.stringify({ outputs, target: native.simdTarget(), ...native.machineCode() }))`
  const input = jobs.map(({ program, shape, inputs, inPlace, offset = 0 }) => {
    const outputs = program.outputs.map((r, o) => ({
      id: inPlace[o] >= 0 ? inPlace[o] : inputs.length + o,
      offset: inPlace[o] >= 0 ? 0 : offset,
      dtype: dtypeOf(program, r),
      shape,
    }))
    const words = [
      pair(0, inputs.length),
      BigInt(outputs.length),
      // The same bytes are sent and stored once.
      ...inputs.flatMap((x) =>
        operand(
          inputs.findIndex(({ bytes }) => bytes === x.bytes),
          x,
        ),
      ),
      ...outputs.flatMap((x) => operand(x.id, x)),
    ]
    return {
      program: base64(programWords(program, ops)),
      inputs: inputs.map(({ bytes }, i) =>
        inputs.findIndex((x) => x.bytes === bytes) === i ? base64(bytes.buffer) : "",
      ),
      outputs: outputs.map((x) => ({ id: x.id, offset: x.offset, size: count(shape) * x.dtype.size })),
      commands: base64(new BigInt64Array([pair(4, words.length + 1), ...words]).buffer),
    }
  })
  const text = execFileSync(process.execPath, ["-e", script], {
    input: JSON.stringify(input),
    env: { ...process.env, ...env },
    maxBuffer: 1 << 28,
  })
  const result = JSON.parse(text.toString()) as {
    outputs: string[][]
    target: string
    state: string
    programs: number
  }
  return {
    ...result,
    outputs: result.outputs.map((all) => all.map((each) => new Uint8Array(Buffer.from(each, "base64")))),
  }
}

const dtypeOf = ({ inputs, code }: ScalarProgram, r: number) =>
  r < inputs.length ? inputs[r] : code[r - inputs.length].dtype

/** Stored values as numbers, NaN's bits aside. */
function numbers(dtype: Dtype, bytes: Uint8Array<ArrayBuffer>): number[] {
  if (dtype === bool_) return [...bytes]
  if (dtype === int32) return [...new Int32Array(bytes.buffer)]
  if (dtype === float32) return [...new Float32Array(bytes.buffer)]
  return [...new Uint16Array(bytes.buffer)].map(dtype === float16 ? fromFloat16Bits : fromBfloat16Bits)
}

const edges = [
  0,
  -0,
  1,
  -1,
  Number.NaN,
  Infinity,
  -Infinity,
  1e-45,
  -1e-40,
  2 ** -130,
  3.4e38,
  -1e30,
  2 ** 31,
  2.5,
]
const floats = [float32, float16, bfloat16]
const exact = {
  one: [
    "negative",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round",
    "sqrt",
    "square",
    "reciprocal",
    "logicalNot",
    "real",
  ],
  two: ["add", "subtract", "multiply", "divide", "floorDivide", "maximum", "minimum"],
} as const
const inexact = ["rsqrt", "exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf"] as const
const integer = {
  one: ["negative", "abs", "sign", "floor", "square", "bitwiseInvert", "logicalNot"],
  two: [
    "add",
    "subtract",
    "multiply",
    "maximum",
    "minimum",
    "bitwiseAnd",
    "bitwiseOr",
    "bitwiseXor",
    "leftShift",
    "rightShift",
  ],
} as const
const logic = {
  one: ["bitwiseInvert", "logicalNot", "abs"],
  two: ["add", "multiply", "maximum", "minimum", "bitwiseAnd", "bitwiseOr", "bitwiseXor"],
} as const
const comparisons = [
  "equal",
  "notEqual",
  "less",
  "lessEqual",
  "greater",
  "greaterEqual",
  "logicalAnd",
  "logicalOr",
] as const

/** Stores numbers as a dtype's bytes. */
function store(dtype: Dtype, values: number[]): Uint8Array<ArrayBuffer> {
  if (dtype === bool_) return Uint8Array.from(values, (v) => Number(v > 0))
  if (dtype === int32) return new Uint8Array(Int32Array.from(values).buffer)
  const singles = Float32Array.from(values)
  if (dtype === float32) return new Uint8Array(singles.buffer)
  // Any bits of a half type are a number; these are near the values.
  const bits = new Uint32Array(singles.buffer)
  if (dtype === bfloat16) return new Uint8Array(Uint16Array.from(bits, (b) => b >>> 16).buffer)
  return new Uint8Array(
    Uint16Array.from(
      bits,
      (b) =>
        ((b >>> 16) & 0x8000) |
        (Math.min(31, Math.max(0, ((b >>> 23) & 255) - 112)) << 10) |
        ((b >>> 13) & 1023),
    ).buffer,
  )
}

function randomJob(seed: number, exactly: boolean): Job {
  const random = generator(seed)
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)]
  const n = pick([0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 64, 100, 255, 256, 257, 300, 511, 513, 1000])
  const flat = random() < 0.7
  const shape = flat ? [n] : [Math.ceil(n / 40), pick([3, 16, 33, 40])]
  const dtypes = Array.from({ length: 1 + Math.floor(random() * 5) }, () =>
    random() < 0.5 ? float32 : pick([float32, float16, bfloat16, int32, bool_]),
  )
  const inputs = dtypes.map((dtype) => {
    const kind = random()
    const single = kind < 0.2
    const full = [...shape]
    const layout = single
      ? { shape: [1] }
      : kind < 0.4 && !flat
        ? {
            shape: full,
            strides: pick([
              [0, 1],
              [1, 0],
              [1, shape[0]],
            ]),
          }
        : { shape: full }
    const values = Array.from({ length: single ? 1 : count(full) }, () =>
      random() < 0.15
        ? pick(edges)
        : dtype === int32 && random() < 0.3
          ? (random() - 0.5) * 2 ** 32
          : (random() - 0.5) * pick([1, 4, 30, 300]),
    )
    return { dtype, ...layout, bytes: store(dtype, values) }
  })
  const builder = new ProgramBuilder(dtypes)
  const registers = dtypes.map((_, i) => i)
  const ops = builder.ops as ScalarOps<number> & Record<string, (...args: number[]) => number>
  const steps = 1 + Math.floor(random() * pick([4, 12, 40]))
  for (let i = 0; i < steps; i++) {
    const x = random() < 0.6 ? (registers.at(-1) as number) : pick(registers)
    const dtype = builder.dtypeOf(x)
    const alike = (wanted: Dtype) =>
      random() < 0.1
        ? ops.constant(
            wanted === bool_
              ? random() < 0.5
              : wanted === int32
                ? Math.floor((random() - 0.5) * 40)
                : pick([0.5, 3, -0.25, 1e3]),
            wanted,
          )
        : ops.cast(pick(registers), wanted)
    const kind = random()
    const one =
      dtype === bool_
        ? logic.one
        : dtype === int32
          ? integer.one
          : exactly || random() < 0.4
            ? exact.one
            : inexact
    const two = dtype === bool_ ? logic.two : dtype === int32 ? integer.two : exact.two
    registers.push(
      kind < 0.3
        ? ops[pick<string>(one)](x)
        : kind < 0.6
          ? ops[pick<string>(two)](x, alike(dtype))
          : kind < 0.7
            ? ops[pick(comparisons)](x, alike(dtype))
            : kind < 0.8
              ? ops.select(alike(bool_), x, alike(dtype))
              : ops.cast(x, pick([...floats, float32, int32, bool_])),
    )
  }
  const outputs = Array.from({ length: pick([1, 1, 1, 2, 4]) }, (_, o) =>
    o === 0 ? (registers.at(-1) as number) : pick(registers),
  )
  const program = builder.finish(outputs)
  const taken = new Set<number>()
  const inPlace = outputs.map((r) => {
    const i = inputs.findIndex(
      (x, k) =>
        !taken.has(k) &&
        x.dtype === builder.dtypeOf(r) &&
        x.shape.length === shape.length &&
        !("strides" in x) &&
        count(x.shape) === count(shape),
    )
    if (i < 0 || random() < 0.5) return -1
    taken.add(i)
    return i
  })
  return { program, shape, inputs, inPlace }
}

/** An input's values in the order of the output. */
function expanded({ dtype, shape, strides, bytes }: Job["inputs"][number], out: readonly number[]): number[] {
  const values = numbers(dtype, bytes)
  if (shape.length === 1 && shape[0] === 1) return Array(count(out)).fill(values[0])
  const [rows, columns] = out.length === 1 ? [1, out[0]] : out
  const [down, right] = strides ?? (out.length === 1 ? [0, 1] : [columns, 1])
  return Array.from(
    { length: rows * columns },
    (_, i) => values[Math.floor(i / columns) * down + (i % columns) * right],
  )
}

const targets = ["avx2", "avx512"] as const
const have = native.machineCode().state
// Also where this very process is told to do without.
const able = runElsewhere([], { LAZULI_JIT: "1" }).state.startsWith("avx")

test("the addon tells what it does", () => {
  expect(have).toMatch(/^(avx512|avx2|off \(.+\))$/)
  const off = have === "off (not built in)" ? have : "off (LAZULI_JIT=0)"
  expect(runElsewhere([], { LAZULI_JIT: "0" }).state).toBe(off)
})

const reason = able ? "" : `: skipped, because it is ${have}`

describe.runIf(able)(`machine code${reason}`, () => {
  const jobs = Array.from({ length: 400 }, (_, i) => randomJob(1000 + i, i % 2 === 0))

  const runs = new Map<string, ReturnType<typeof runElsewhere>>()
  const run = (target: string) => {
    const known = runs.get(target)
    const made = known ?? runElsewhere(jobs, { LAZULI_JIT: "1", LAZULI_SIMD: target })
    runs.set(target, made)
    return made
  }

  test.each(targets)("of random programs gives the interpreter's bits on %s", (target) => {
    const coded = run(target)
    // A processor without it takes another.
    if (coded.target !== target) return
    const interpreted = runElsewhere(jobs, { LAZULI_JIT: "0", LAZULI_SIMD: target })
    expect([coded.state, interpreted.state, interpreted.programs]).toEqual([target, "off (LAZULI_JIT=0)", 0])
    expect(coded.programs).toBeGreaterThan(jobs.length / 2)
    jobs.forEach(({ program }, j) => {
      program.outputs.forEach((r, o) => {
        const dtype = dtypeOf(program, r)
        expect(numbers(dtype, coded.outputs[j][o]), `program ${j}: ${program.key}`).toEqual(
          numbers(dtype, interpreted.outputs[j][o]),
        )
      })
    })
  })

  test.each(targets)("of exact programs gives the reference's numbers on %s", (target) => {
    const coded = run(target)
    if (coded.target !== target) return
    jobs.forEach(({ program, shape, inputs }, j) => {
      if (j % 2) return
      const n = count(shape)
      const values = inputs.map((x) => {
        const stored = expanded(x, shape)
        return x.dtype === bool_
          ? Uint8Array.from(stored)
          : x.dtype === int32
            ? Int32Array.from(stored)
            : Float32Array.from(stored)
      })
      interpret(program, values, n).forEach((expected, o) => {
        const dtype = dtypeOf(program, program.outputs[o])
        expect(numbers(dtype, coded.outputs[j][o]), `program ${j}: ${program.key}`).toEqual(
          Array.from({ length: n }, (_, i) => Number(expected[i])),
        )
      })
    })
  })

  test("of long programs with many inputs, outputs and live values, beyond the registers", () => {
    const dtypes = Array(40).fill(float32) as Dtype[]
    const builder = new ProgramBuilder(dtypes)
    const { ops } = builder
    const masks = Array.from({ length: 20 }, (_, i) => ops.less(i, i + 20))
    const sums = Array.from({ length: 40 }, (_, i) => ops.multiply(i, (i + 7) % 40))
    const chosen = sums.map((s, i) => ops.select(masks[i % 20], s, ops.add(s, (i * 3) % 40)))
    const total = chosen.reduceRight((a, b) => ops.add(ops.tanh(a), b))
    const random = generator(3)
    const job: Job = {
      program: builder.finish([total, masks[0], masks[19], ...chosen.slice(0, 20)]),
      shape: [531],
      inputs: dtypes.map((dtype) => ({
        dtype,
        shape: [531],
        bytes: store(
          dtype,
          Array.from({ length: 531 }, () => random() * 4 - 2),
        ),
      })),
      inPlace: Array(23).fill(-1),
    }
    for (const target of targets) {
      const coded = runElsewhere([job], { LAZULI_JIT: "1", LAZULI_SIMD: target })
      if (coded.target !== target) continue
      expect(coded.programs).toBe(1)
      expect(coded.outputs).toEqual(runElsewhere([job], { LAZULI_JIT: "0", LAZULI_SIMD: target }).outputs)
    }
  })

  test("of more data than the caches hold, wherever the output begins", () => {
    // Many inputs at one address are much data as well.
    const n = 540_011
    const dtypes = Array(15).fill(float32) as Dtype[]
    const builder = new ProgramBuilder(dtypes)
    const bytes = new Uint8Array(Float32Array.from({ length: n }, (_, i) => (i % 1001) - 500).buffer)
    const total = dtypes.reduce((sum, _, i) => builder.ops.add(sum, builder.ops.multiply(i, i)), 0)
    const program = builder.finish([total, builder.ops.less(total, 1), builder.ops.abs(total)])
    const jobs = [0, 4, 60, 64].map((offset): Job => {
      const inputs = dtypes.map((dtype) => ({ dtype, shape: [n], bytes }))
      return { program, shape: [n], inputs, inPlace: [-1, -1, -1], offset }
    })
    for (const target of targets) {
      const coded = runElsewhere(jobs, { LAZULI_JIT: "1", LAZULI_SIMD: target })
      if (coded.target !== target) continue
      expect(coded.programs).toBe(jobs.length)
      const interpreted = runElsewhere(jobs.slice(0, 1), { LAZULI_JIT: "0", LAZULI_SIMD: target })
      for (const outputs of coded.outputs)
        outputs.forEach((each, o) => {
          expect(Buffer.compare(each, interpreted.outputs[0][o]), `output ${o} on ${target}`).toBe(0)
        })
    }
  })

  test("leaves other programs to the interpreter, and small work until it has added up", () => {
    const squares = (dtype: Dtype, n: number): Job => {
      const builder = new ProgramBuilder([dtype])
      let x = 0
      for (let i = 0; i < 100; i++) x = builder.ops.square(builder.ops.add(x, 0))
      const bytes = new Uint8Array(n * dtype.size)
      return {
        program: builder.finish([x]),
        shape: [n],
        inputs: [{ dtype, shape: [n], bytes }],
        inPlace: [-1],
      }
    }
    const made = (job: Job, wish: string) => runElsewhere([job], { LAZULI_JIT: wish }).programs
    expect(made(squares(float64, 100), "1")).toBe(0)
    expect(made(squares(float32, 100), "1")).toBe(1)
    expect(made(squares(float32, 1000), "")).toBe(0)
    expect(made(squares(float32, 50_000), "")).toBe(1)
  })
})
