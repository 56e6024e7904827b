/**
 * The addon called without the engine: buffers, command buffers, plans, queues and threads. It is long because its tests share one native
 * store and its cleaning up.
 */
import { execFileSync } from "node:child_process"
import { fileURLToPath } from "node:url"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Worker } from "node:worker_threads"
import { generator, integers } from "@lazuli/conformance/generator"
import { afterEach, describe, expect, it } from "vitest"
import {
  alloc,
  type Code,
  code,
  type DtypeName,
  free,
  itemsize,
  map,
  type Operand,
  opNames,
  pair,
  plan,
  program,
  record,
  run,
  size,
} from "../test/command-assembler"
import { commandBench } from "../test/command-bench"
import { native } from "./native"

const { commands, execute, newId, put, get, release } = commandBench({ words: 1 << 20, firstId: 0 })

const bitsOf = (value: number) => BigInt(new Uint32Array(new Float32Array([value]).buffer)[0])
function ok(...records: bigint[][]): void {
  const failed = execute(...records)
  if (failed)
    throw new Error(
      native
        .failures()
        .map((f) => f.message)
        .join("; "),
    )
}
afterEach(() => {
  release()
})

const random = (n: number, low: number, high: number, seed = 1) => {
  const next = generator(seed)
  return Float32Array.from({ length: n }, () => low + next() * (high - low))
}

/** One instruction over whole arrays. */
function apply(
  op: string,
  dtype: DtypeName,
  result: DtypeName,
  out: ArrayBufferView,
  ...inputs: ArrayBufferView[]
): void {
  const id = program(
    inputs.map(() => dtype),
    [[op, result, inputs.map((_, i) => i)]],
  )
  const n = out.byteLength / itemsize(result)
  const target = newId()
  native.allocate(target, out.byteLength)
  ok(
    map(
      id,
      inputs.map((x) => ({ id: put(x), dtype, shape: [n] })),
      [{ id: target, dtype: result, shape: [n] }],
    ),
  )
  get(target, out)
  native.releaseProgram(id)
}

describe("the addon", () => {
  it("tells what it has", () => {
    expect(native.version()).toMatch(/^\d+\.\d+\.\d+/)
    expect(native.kernels()).toContain("copy")
    expect(native.scalarOps()).toContain("add")
    expect(native.scalarSupport("exp", code("float32"))).toBe(true)
    expect(native.scalarSupport("exp", code("float16"))).toBe(true)
    expect(native.scalarSupport("exp", code("int32"))).toBe(false)
    expect(native.scalarSupport("nonsense", 0)).toBe(false)
  })

  it.each([
    [
      "run",
      () => native.run(-1),
      "[run] nWords must be an integer from 0 to 9007199254740992, received -1.000000",
    ],
    [
      "run",
      () => native.run(2 ** 40),
      "[run] 1099511627776 words do not fit the attached command buffer of 8388608 bytes",
    ],
    ["read", () => native.read(12345678, 0, new Uint8Array(1)), "[read] there is no buffer 12345678"],
    [
      "attachCommands",
      () => native.attachCommands({} as ArrayBuffer),
      "[attachCommands] commands must be an ArrayBuffer",
    ],
    ["free", () => native.free("x" as unknown as number), "[free] buffer must be a number"],
    ["releasePlan", () => native.releasePlan(99), "[releasePlan] there is no plan 99"],
    [
      "track",
      () => native.track([1 as unknown as object], 1, new Int32Array(1)),
      "[track] element 0 is not an object",
    ],
    ["allocate", () => native.allocate(2 ** 30, 8), "[allocate] buffer id 1073741824 is out of range"],
    [
      "loadKernels",
      () => (native as unknown as { loadKernels(): void }).loadKernels(),
      "[loadKernels] path is missing",
    ],
  ])("%s checks its arguments", (_, f, message) => {
    expect(f).toThrow(message)
  })

  it("loads in worker threads, each with buffers of its own", async () => {
    const s = put(new Uint8Array([7]))
    const addon =
      process.env.LAZULI_CPU_ADDON ?? fileURLToPath(new URL("../build/lazuli_cpu.node", import.meta.url))
    const worker = new Worker(
      `const { parentPort, workerData } = require('node:worker_threads')
       const native = require(workerData.addon)
       let message = ''
       try { native.read(workerData.s, 0, new Uint8Array(1)) } catch (error) { message = error.message }
       native.allocate(workerData.s, 4)
       native.hostView(workerData.s)
       parentPort.postMessage(message)`,
      { eval: true, workerData: { addon, s } },
    )
    const message = await new Promise((resolve, reject) =>
      worker.once("message", resolve).once("error", reject),
    )
    expect(message).toBe(`[read] there is no buffer ${s}`)
    await worker.terminate()
    expect(get(s, new Uint8Array(1))).toEqual(new Uint8Array([7]))
  })

  it("ends a process that used threads", () => {
    const addon =
      process.env.LAZULI_CPU_ADDON ?? fileURLToPath(new URL("../build/lazuli_cpu.node", import.meta.url))
    const script = `const n = require(${JSON.stringify(addon)}); n.setThreads(4); console.log(n.threads())`
    expect(execFileSync(process.execPath, ["-e", script], { timeout: 60_000 }).toString()).toBe("4\n")
  })
})

describe("map", () => {
  const close = (a: ArrayLike<number>, b: ArrayLike<number>, relative: number) => {
    for (let i = 0; i < b.length; i++) {
      if (Object.is(a[i], b[i]) || a[i] === b[i]) continue
      if (!(Math.abs(a[i] - b[i]) <= relative * Math.abs(b[i])))
        throw new Error(`at ${i}: expected ${b[i]}, received ${a[i]}`)
    }
  }

  const floats: [string, (x: number, y: number) => number, number][] = [
    ["add", (x, y) => x + y, 0],
    ["subtract", (x, y) => x - y, 0],
    ["multiply", (x, y) => x * y, 0],
    ["divide", (x, y) => x / y, 0],
    ["floorDivide", (x, y) => Math.floor(Math.fround(x / y)), 0],
    ["maximum", Math.max, 0],
    ["minimum", Math.min, 0],
    ["power", (x, y) => x ** y, 3e-7],
    ["arctan2", Math.atan2, 3e-7],
  ]
  it.each(floats)("%s of float32", (op, f, tolerance) => {
    const x = random(1003, -5, 5)
    const y = random(1003, -5, 5, 2)
    const out = new Float32Array(1003)
    apply(op, "float32", "float32", out, x, y)
    close(
      out,
      x.map((v, i) => f(v, y[i])),
      tolerance,
    )
  })

  const functions: [string, (x: number) => number, number, number][] = [
    ["negative", (x) => -x, -9, 9],
    ["abs", Math.abs, -9, 9],
    ["sign", Math.sign, -9, 9],
    ["floor", Math.floor, -9, 9],
    ["ceil", Math.ceil, -9, 9],
    ["sqrt", Math.sqrt, 0, 9],
    ["square", (x) => x * x, -9, 9],
    ["reciprocal", (x) => 1 / x, -9, 9],
    ["rsqrt", (x) => 1 / Math.sqrt(x), 0.1, 9],
    ["exp", Math.exp, -87, 88],
    ["expm1", Math.expm1, -3, 3],
    ["log", Math.log, 1e-6, 100],
    ["log2", Math.log2, 1e-6, 100],
    ["log10", Math.log10, 1e-6, 100],
    ["log1p", Math.log1p, -0.9, 9],
    ["sin", Math.sin, -100, 100],
    ["cos", Math.cos, -100, 100],
    ["tan", Math.tan, -1.5, 1.5],
    ["arcsin", Math.asin, -1, 1],
    ["arccos", Math.acos, -1, 0.99],
    ["arctan", Math.atan, -9, 9],
    ["sinh", Math.sinh, -9, 9],
    ["cosh", Math.cosh, -9, 9],
    ["tanh", Math.tanh, -9, 9],
    ["arcsinh", Math.asinh, -9, 9],
    ["arccosh", Math.acosh, 1.1, 9],
    ["arctanh", Math.atanh, -0.99, 0.99],
    ["sigmoid", (x) => 1 / (1 + Math.exp(-x)), -20, 20],
  ]
  it.each(functions)("%s of float32 and float64", (op, f, low, high) => {
    const x = random(1003, low, high)
    const out = new Float32Array(1003)
    apply(op, "float32", "float32", out, x)
    close(out, x.map(f), 3e-7)
    const wide = Float64Array.from(x)
    const wideOut = new Float64Array(1003)
    apply(op, "float64", "float64", wideOut, wide)
    close(wideOut, wide.map(f), 1e-14)
  })

  it("round goes to even, maximum propagates NaN, -0 stays", () => {
    const out = new Float32Array(6)
    apply("round", "float32", "float32", out, new Float32Array([0.5, 1.5, 2.5, -0.5, -1.5, 1e10]))
    expect([...out]).toEqual([0, 2, 2, -0, -2, 1e10])
    apply(
      "maximum",
      "float32",
      "float32",
      out,
      new Float32Array([Number.NaN, 1, 1, 2, 0, 0]),
      new Float32Array([1, Number.NaN, 2, 1, 0, 0]),
    )
    expect([...out]).toEqual([Number.NaN, Number.NaN, 2, 2, 0, 0])
  })

  const integers = [
    ["int8", Int8Array],
    ["uint8", Uint8Array],
    ["int16", Int16Array],
    ["uint16", Uint16Array],
    ["int32", Int32Array],
    ["uint32", Uint32Array],
  ] as const
  it.each(integers)("%s wraps, divides towards minus infinity and survives zero", (dtype, Ints) => {
    const bits = itemsize(dtype) * 8
    const low = dtype.startsWith("u") ? 0 : -(2 ** (bits - 1))
    const high = dtype.startsWith("u") ? 2 ** bits - 1 : 2 ** (bits - 1) - 1
    const values = [
      low,
      low + 1,
      0,
      1,
      2,
      3,
      7,
      high - 1,
      high,
      dtype.startsWith("u") ? 5 : -5,
      dtype.startsWith("u") ? 1 : -1,
    ]
    const x = Ints.from(values.flatMap((v) => values.map(() => v)))
    const y = Ints.from(values.flatMap(() => values))
    const out = new Ints(x.length)
    const check = (op: string, f: (x: number, y: number) => number) => {
      apply(op, dtype, dtype, out, x, y)
      expect([...out], op).toEqual([...(Ints as typeof Int32Array).from(x, (v, i) => f(v, y[i]))])
    }
    const wrap = (v: bigint) =>
      Number(dtype.startsWith("u") ? BigInt.asUintN(bits, v) : BigInt.asIntN(bits, v))
    check("add", (a, b) => wrap(BigInt(a) + BigInt(b)))
    check("subtract", (a, b) => wrap(BigInt(a) - BigInt(b)))
    check("multiply", (a, b) => wrap(BigInt(a) * BigInt(b)))
    check("floorDivide", (a, b) => (b === 0 ? 0 : wrap(BigInt(Math.trunc(a / b)))))
    check("remainder", (a, b) => (b === 0 ? 0 : ((a % b) + b) % b))
    check("maximum", Math.max)
    check("minimum", Math.min)
    check("bitwiseAnd", (a, b) => wrap(BigInt(a) & BigInt(b)))
    check("bitwiseXor", (a, b) => wrap(BigInt(a) ^ BigInt(b)))
    check("leftShift", (a, b) => (b >= 0 && b < bits ? wrap(BigInt(a) << BigInt(b)) : 0))
    check("rightShift", (a, b) => wrap(BigInt(a) >> BigInt(b >= 0 && b < bits ? b : 64)))
    const bool = new Uint8Array(x.length)
    apply("less", dtype, "bool", bool, x, y)
    expect([...bool]).toEqual([...x].map((v, i) => (v < y[i] ? 1 : 0)))
  })

  it("int64 and uint64", () => {
    const x = new BigInt64Array([-(2n ** 63n), -7n, 7n, 0n, 2n ** 62n])
    const y = new BigInt64Array([-1n, 2n, -2n, 0n, 4n])
    const out = new BigInt64Array(5)
    apply("floorDivide", "int64", "int64", out, x, y)
    expect([...out]).toEqual([-(2n ** 63n), -3n, -3n, 0n, 2n ** 60n])
    apply("remainder", "int64", "int64", out, x, y)
    expect([...out]).toEqual([0n, 1n, -1n, 0n, 0n])
    apply(
      "power",
      "int64",
      "int64",
      out,
      new BigInt64Array([3n, 2n, -1n, 2n, 1n]),
      new BigInt64Array([5n, 63n, -3n, -1n, -9n]),
    )
    expect([...out]).toEqual([243n, -(2n ** 63n), 0n, 0n, 0n])
  })

  it("float16 and bfloat16 round after every instruction", () => {
    for (const dtype of ["float16", "bfloat16"] as const) {
      const narrow = (v: Float32Array) => {
        const s = put(v)
        const out = new Uint16Array(v.length)
        const id = program(["float32"], [["cast", dtype, [0]]])
        const t = newId()
        native.allocate(t, out.byteLength)
        ok(map(id, [{ id: s, dtype: "float32", shape: [v.length] }], [{ id: t, dtype, shape: [v.length] }]))
        return get(t, out)
      }
      const widen = (v: Uint16Array) => {
        const out = new Float32Array(v.length)
        const id = program([dtype], [["cast", "float32", [0]]])
        const t = newId()
        native.allocate(t, out.byteLength)
        ok(
          map(
            id,
            [{ id: put(v), dtype, shape: [v.length] }],
            [{ id: t, dtype: "float32", shape: [v.length] }],
          ),
        )
        return get(t, out)
      }
      const all = Uint16Array.from({ length: 65536 }, (_, i) => i)
      const values = widen(all)
      const back = narrow(values)
      for (let i = 0; i < 65536; i++)
        if (!Number.isNaN(values[i]) && back[i] !== i)
          throw new Error(`${dtype} ${i} came back as ${back[i]}`)
      if (dtype === "float16")
        expect([values[1], values[0x3c00], values[0x7bff], values[0x7c00], values[0x8400]]).toEqual([
          2 ** -24,
          1,
          65504,
          Number.POSITIVE_INFINITY,
          -(2 ** -14),
        ])
      // (x + y) · y in one program and in two.
      const x = narrow(random(1000, -3, 3))
      const y = narrow(random(1000, -3, 3, 2))
      const fused = program(
        [dtype, dtype],
        [
          ["add", dtype, [0, 1]],
          ["multiply", dtype, [2, 1]],
        ],
      )
      const operand = (s: number): Operand => ({ id: s, dtype, shape: [1000] })
      const t = newId()
      native.allocate(t, 2000)
      const xs = put(x)
      const ys = put(y)
      ok(map(fused, [operand(xs), operand(ys)], [operand(t)]))
      const sum = new Uint16Array(1000)
      const product = new Uint16Array(1000)
      apply("add", dtype, dtype, sum, x, y)
      apply("multiply", dtype, dtype, product, sum, y)
      expect(get(t, new Uint16Array(1000))).toEqual(product)
      const wx = widen(x)
      const wy = widen(y)
      expect(sum).toEqual(narrow(wx.map((v, i) => v + wy[i])))
    }
  })

  it("casts like a C program that never traps", () => {
    const cast = (from: DtypeName, to: DtypeName, x: ArrayBufferView, out: ArrayBufferView) => {
      const n = out.byteLength / itemsize(to)
      const id = program([from], [["cast", to, [0]]])
      const t = newId()
      native.allocate(t, out.byteLength)
      ok(map(id, [{ id: put(x), dtype: from, shape: [n] }], [{ id: t, dtype: to, shape: [n] }]))
      return get(t, out)
    }
    const x = new Float32Array([1.9, -1.9, 300, -1, 3e9, -3e9, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 40])
    const with32 = (f: (v: number) => number) => [...x].map(f)
    expect([...(cast("float32", "int32", x, new Int32Array(9)) as Int32Array)]).toEqual(with32((v) => v | 0))
    expect([...(cast("float32", "uint32", x, new Uint32Array(9)) as Uint32Array)]).toEqual(
      with32((v) => v >>> 0),
    )
    expect([...(cast("float32", "uint8", x, new Uint8Array(9)) as Uint8Array)]).toEqual([
      ...Uint8Array.from(x),
    ])
    expect([...(cast("float32", "bool", x, new Uint8Array(9)) as Uint8Array)]).toEqual(Array(9).fill(1))
    expect([
      ...(cast(
        "float64",
        "int64",
        new Float64Array([-1.5, 2 ** 62, Number.NaN]),
        new BigInt64Array(3),
      ) as BigInt64Array),
    ]).toEqual([-1n, 2n ** 62n, 0n])
    expect([
      ...(cast("int32", "float64", new Int32Array([-5, 6]), new Float64Array(2)) as Float64Array),
    ]).toEqual([-5, 6])
    expect([
      ...(cast("bool", "complex64", new Uint8Array([0, 1]), new Float32Array(4)) as Float32Array),
    ]).toEqual([0, 0, 1, 0])
  })

  it("complex64", () => {
    const x = new Float32Array([1, 2, -3, 0.5])
    const y = new Float32Array([0, 1, 2, 2])
    const out = new Float32Array(4)
    apply("multiply", "complex64", "complex64", out, x, y)
    expect([...out]).toEqual([-2, 1, -7, -5])
    apply("divide", "complex64", "complex64", out, x, y)
    close(out, [2, -1, -0.625, 0.875], 1e-6)
    const size = new Float32Array(2)
    apply("abs", "complex64", "float32", size, x)
    close(size, [Math.hypot(1, 2), Math.hypot(3, 0.5)], 1e-6)
    const id = program(["float32", "float32"], [["complex", "complex64", [0, 1]]])
    const t = newId()
    native.allocate(t, 16)
    ok(
      map(
        id,
        [
          { id: put(new Float32Array([1, 3])), dtype: "float32", shape: [2] },
          { id: put(new Float32Array([2, 4])), dtype: "float32", shape: [2] },
        ],
        [{ id: t, dtype: "complex64", shape: [2] }],
      ),
    )
    expect([...get(t, new Float32Array(4))]).toEqual([1, 2, 3, 4])
  })

  /** Elements of a layout over data, in row-major order. */
  function elements(data: Float32Array, shape: number[], strides: number[], offset: number): number[] {
    let out = [offset]
    shape.forEach((extent, axis) => {
      out = out.flatMap((at) => Array.from({ length: extent }, (_, i) => at + i * strides[axis]))
    })
    return out.map((at) => data[at])
  }

  const layouts: [string, number[], number[], number[], number][] = [
    ["rows and a broadcast row", [40, 100], [100, 1], [0, 1], 0],
    ["rows and a broadcast column", [40, 100], [100, 1], [1, 0], 0],
    ["a transpose", [64, 80], [80, 1], [1, 64], 0],
    ["short rows", [500, 3], [3, 1], [0, 1], 0],
    ["every second element", [1000], [1], [2], 0],
    ["backwards", [1000], [1], [-1], 999],
    ["four axes", [3, 5, 7, 11], [385, 77, 11, 1], [1, 3, 0, 15], 0],
    ["a long row, shifted", [3, 700], [700, 1], [701, 1], 5],
  ]
  it.each(layouts)("%s", (_, shape, xStrides, yStrides, offset) => {
    const x = random(size(shape), -1, 1)
    const data = random(8192, -1, 1, 2)
    const n = size(shape)
    const xs = put(x)
    const ys = put(data)
    const b = elements(data, shape, yStrides, offset)
    const a = elements(x, shape, xStrides, 0)
    const expected = Float32Array.from(a, (v, i) => Math.fround(Math.fround(v + b[i]) * b[i]))
    for (const steps of [1, 2]) {
      const id = program(
        ["float32", "float32"],
        [
          ["add", "float32", [0, 1]],
          ["multiply", "float32", [2, 1]],
        ].slice(0, steps) as Code[],
      )
      const t = newId()
      native.allocate(t, n * 4)
      ok(
        map(
          id,
          [
            { id: xs, dtype: "float32", shape },
            { id: ys, dtype: "float32", shape, strides: yStrides, offset: offset * 4 },
          ],
          [{ id: t, dtype: "float32", shape }],
        ),
      )
      expect(get(t, new Float32Array(n))).toEqual(
        steps === 2 ? expected : Float32Array.from(a, (v, i) => v + b[i]),
      )
    }
  })

  it("single elements on every side: immediates, size one, constants, and all at once", () => {
    const x = random(700, -1, 1)
    const xs = put(x)
    const one = put(new Float32Array([3]))
    const big: Operand = { id: xs, dtype: "float32", shape: [700] }
    const three: Operand[] = [
      { bits: bitsOf(3), dtype: "float32" },
      { id: one, dtype: "float32", shape: [1] },
      { id: one, dtype: "float32", shape: [700], strides: [0] },
    ]
    const subtract = program(["float32", "float32"], [["subtract", "float32", [0, 1]]])
    for (const c of three) {
      const t = newId()
      native.allocate(t, 2800)
      const out: Operand = { id: t, dtype: "float32", shape: [700] }
      ok(map(subtract, [c, big], [out]))
      expect(get(t, new Float32Array(700))).toEqual(x.map((v) => 3 - v))
      ok(map(subtract, [big, c], [out]))
      expect(get(t, new Float32Array(700))).toEqual(x.map((v) => v - 3))
      ok(map(subtract, [c, { bits: bitsOf(1), dtype: "float32" }], [out]))
      expect(get(t, new Float32Array(700))).toEqual(new Float32Array(700).fill(2))
    }
    const halve = program(
      ["float32"],
      [
        ["constant", "float32", [], bitsOf(0.5)],
        ["multiply", "float32", [0, 1]],
      ],
    )
    const t = newId()
    native.allocate(t, 2800)
    ok(map(halve, [big], [{ id: t, dtype: "float32", shape: [700] }]))
    expect(get(t, new Float32Array(700))).toEqual(x.map((v) => v / 2))
  })

  it("select with each operand single", () => {
    const n = 300
    const p = Uint8Array.from({ length: n }, (_, i) => (i % 3 === 0 ? 1 : 0))
    const x = random(n, 0, 1)
    const y = random(n, 1, 2)
    const ids = [put(p), put(x), put(y)]
    const id = program(["bool", "float32", "float32"], [["select", "float32", [0, 1, 2]]])
    for (let mask = 0; mask < 8; mask++) {
      const operands: Operand[] = (["bool", "float32", "float32"] as const).map((dtype, i) => ({
        id: ids[i],
        dtype,
        shape: [n],
        ...(mask & (1 << i) ? { strides: [0] } : {}),
      }))
      const t = newId()
      native.allocate(t, n * 4)
      ok(map(id, operands, [{ id: t, dtype: "float32", shape: [n] }]))
      const at = (i: number, k: number) => (mask & (1 << k) ? 0 : i)
      expect(get(t, new Float32Array(n)), `mask ${mask}`).toEqual(
        Float32Array.from(p, (_, i) => (p[at(i, 0)] ? x[at(i, 1)] : y[at(i, 2)])),
      )
    }
  })

  it("in place, and swapping two arrays", () => {
    const n = 5000
    const x = random(n, -1, 1)
    const y = random(n, -1, 1, 2)
    const xs = put(x)
    const ys = put(y)
    const operand = (s: number): Operand => ({ id: s, dtype: "float32", shape: [n] })
    // Both outputs first, then what still needs the inputs.
    const both = program(
      ["float32", "float32"],
      [
        ["add", "float32", [0, 1]],
        ["subtract", "float32", [0, 1]],
      ],
      [2, 3],
    )
    ok(map(both, [operand(xs), operand(ys)], [operand(xs), operand(ys)]))
    expect(get(xs, new Float32Array(n))).toEqual(x.map((v, i) => v + y[i]))
    expect(get(ys, new Float32Array(n))).toEqual(x.map((v, i) => v - y[i]))
    const swap = program(["float32", "float32"], [], [1, 0])
    native.write(xs, 0, x)
    native.write(ys, 0, y)
    ok(map(swap, [operand(xs), operand(ys)], [operand(xs), operand(ys)]))
    expect(get(xs, new Float32Array(n))).toEqual(y)
    expect(get(ys, new Float32Array(n))).toEqual(x)
  })

  it("a program of many registers, with some outputs used further and one given twice", () => {
    const n = 1000
    const steps: Code[] = []
    for (let i = 0; i < 40; i++) steps.push(["add", "float32", [i, Math.max(0, i - 7)]], ...[])
    const id = program(["float32"], steps, [40, 20, 20, 0])
    const x = random(n, 0, 1)
    const registers = [x]
    for (let i = 0; i < 40; i++)
      registers.push(registers[i].map((v, k) => v + registers[Math.max(0, i - 7)][k]))
    const outs = [newId(), newId(), newId(), newId()]
    for (const s of outs) native.allocate(s, n * 4)
    ok(
      map(
        id,
        [{ id: put(x), dtype: "float32", shape: [n] }],
        outs.map((s) => ({ id: s, dtype: "float32" as const, shape: [n] })),
      ),
    )
    expect(outs.map((s) => get(s, new Float32Array(n)))).toEqual([
      registers[40],
      registers[20],
      registers[20],
      x,
    ])
  })

  it("gives the same bits with one thread and two, fused and eager", () => {
    const n = 300_001
    const x = random(n, -4, 4)
    const xs = put(x)
    const operand = (s: number): Operand => ({ id: s, dtype: "float32", shape: [n] })
    const steps: Code[] = [
      ["tanh", "float32", [0]],
      ["multiply", "float32", [1, 0]],
      ["exp", "float32", [2]],
      ["erf", "float32", [3]],
      ["sin", "float32", [2]],
      ["add", "float32", [4, 5]],
    ]
    const fused = program(["float32"], steps)
    const before = native.threads()
    const results: Float32Array[] = []
    for (const threads of [1, 2]) {
      native.setThreads(threads)
      const t = newId()
      native.allocate(t, n * 4)
      ok(map(fused, [operand(xs)], [operand(t)]))
      results.push(get(t, new Float32Array(n)))
    }
    native.setThreads(before)
    const registers = [xs]
    for (const [op, , args] of steps) {
      const t = newId()
      native.allocate(t, n * 4)
      ok(
        map(
          program(
            args.map(() => "float32" as const),
            [[op, "float32", args.map((_, i) => i)]],
          ),
          args.map((a) => operand(registers[a])),
          [operand(t)],
        ),
      )
      registers.push(t)
    }
    const eager = get(registers[registers.length - 1], new Float32Array(n))
    const same = (a: Float32Array, b: Float32Array) =>
      Buffer.compare(Buffer.from(a.buffer), Buffer.from(b.buffer)) === 0
    expect(same(results[0], results[1])).toBe(true)
    expect(same(results[0], eager)).toBe(true)
  })

  it("refuses what it cannot run, by name", () => {
    expect(() => program(["int32"], [["exp", "int32", [0]]])).toThrow(
      "[registerProgram] instruction 0 (exp) is not supported for int32",
    )
    expect(() => program(["int32", "float32"], [["add", "int32", [0, 1]]])).toThrow(
      "instruction 0 (add): arguments must have one dtype, received int32 and float32",
    )
    expect(() => program(["float32"], [["add", "float32", [0, 5]]])).toThrow(
      "register 5 is out of range [-1, 0]",
    )
    expect(() => program(["float32"], [["less", "float32", [0, 0]]])).toThrow(
      "expected a result of dtype bool, received float32",
    )
    expect(() => native.registerProgram(new BigInt64Array([1n, 1n]))).toThrow(
      "the program is shorter than its header says",
    )
  })
})

describe("the command buffer", () => {
  const f32 = (s: number, n = 4): Operand => ({ id: s, dtype: "float32", shape: [n] })
  const add = program(["float32", "float32"], [["add", "float32", [0, 1]]])

  it("allocates, runs, frees; ALLOC of a taken id replaces the buffer", () => {
    const x = put(new Float32Array([1, 2, 3, 4]))
    const y = newId()
    ok(
      alloc(y, 16),
      alloc(y, 16),
      map(add, [f32(x), f32(x)], [f32(y)]),
      run(native.kernels().indexOf("copy"), [f32(y)], [f32(x)]),
    )
    expect([...get(x, new Float32Array(4))]).toEqual([2, 4, 6, 8])
    ok(free(y))
    expect(() => native.read(y, 0, new Uint8Array(1))).toThrow("there is no buffer")
  })

  it("poisons what depends on a failure and runs the rest", () => {
    const [a, b, c, d] = [put(new Float32Array(4).fill(1)), newId(), newId(), newId()]
    native.poisoned()
    const failed = execute(
      alloc(b, 16),
      alloc(c, 16),
      alloc(d, 16),
      run(4000, [f32(a)], [f32(b)]),
      map(add, [f32(a), f32(b)], [f32(c)]),
      map(add, [f32(a), f32(a)], [f32(d)]),
    )
    expect(failed).toBe(1)
    expect(native.failures()).toEqual([{ word: 9, message: "there is no kernel 4000" }])
    expect(native.poisoned().map(({ id }) => id)).toEqual([b, c])
    expect(native.poisoned().map(({ id }) => id)).toEqual([])
    expect([...get(d, new Float32Array(4))]).toEqual([2, 2, 2, 2])
    // Poison lasts over runs until the buffer is allocated anew or freed.
    expect(execute(map(add, [f32(c), f32(a)], [f32(d)]))).toBe(0)
    expect(native.poisoned().map(({ id }) => id)).toEqual([d])
    ok(
      alloc(c, 16),
      free(d),
      alloc(d, 16),
      map(add, [f32(a), f32(a)], [f32(c)]),
      map(add, [f32(c), f32(a)], [f32(d)]),
    )
    expect([...get(d, new Float32Array(4))]).toEqual([3, 3, 3, 3])
  })

  it("survives an allocation beyond the limit, and says what was asked", () => {
    const [a, b] = [newId(), newId()]
    const { limit } = native.memory()
    native.setMemoryLimit(1 << 20)
    try {
      expect(execute(alloc(a, 1 << 24), alloc(b, 16), map(add, [f32(a), f32(b)], [f32(b)]))).toBe(1)
      expect(native.failures()[0].message).toMatch(
        /^\[allocate\] out of memory: requested 16777216 bytes with \d+ active, limit 1048576$/,
      )
      expect(native.poisoned().map(({ id }) => id)).toEqual([a, b])
      expect(() => native.allocate(a, 1 << 24)).toThrow("out of memory: requested 16777216 bytes")
    } finally {
      native.setMemoryLimit(limit)
    }
  })

  it("turns every malformed record into a failure", () => {
    const x = put(new Float32Array([1, 2, 3, 4]))
    const y = put(new Float32Array(4))
    const messages: string[] = []
    const bad: bigint[][] = [
      [0n],
      [pair(4, 100)],
      record(77, []),
      record(1, [1n]),
      record(1, [BigInt(y), -5n]),
      record(1, [-1n, 5n]),
      record(3, []),
      record(4, []),
      record(5, []),
      record(5, [pair(12345, 0)]),
      record(4, [pair(add, 2), 1n]),
      map(12345, [f32(x), f32(x)], [f32(y)]),
      map(add, [f32(x)], [f32(y)]),
      map(add, [f32(x, 5000), f32(x, 5000)], [f32(y, 5000)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [3] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "int32", shape: [4] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [4], strides: [1000000] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [4], strides: [-1] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [4], strides: [2 ** 60] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [2 ** 33, 2 ** 33], strides: [0, 0] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [-4], strides: [1] }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [4], offset: 2 }], [f32(y)]),
      map(add, [f32(x), { id: x, dtype: "float32", shape: [4], offset: -16 }], [f32(y)]),
      map(add, [f32(x), { id: 66_000_000, dtype: "float32", shape: [4] }], [f32(y)]),
      map(add, [f32(x), f32(x)], [{ bits: 0n, dtype: "float32" }]),
    ]
    for (const [i, each] of bad.entries()) {
      expect(execute(each), `record ${i}`).toBe(1)
      messages.push(native.failures()[0].message)
      native.poisoned()
      native.free(y)
      native.allocate(y, 16)
    }
    expect(
      messages.map((m) =>
        m.replaceAll(/(buffer|buffer id) \d+/g, "$1 N").replaceAll(/, which has \d+/g, ", which has C"),
      ),
    ).toMatchInlineSnapshot(`
      [
        "malformed command buffer: a record of 0 words where 1 are left",
        "malformed command buffer: a record of 100 words where 1 are left",
        "malformed record: unknown opcode 77",
        "malformed record: ALLOC takes a buffer id and bytes",
        "[allocate] cannot allocate -5 bytes",
        "[allocate] buffer id N is out of range",
        "malformed record: RUN lacks its kernel or operands",
        "malformed record: MAP lacks its program or operands",
        "malformed record: PLAN lacks its plan",
        "there is no plan 12345",
        "malformed record: MAP lacks its program or operands",
        "there is no scalar program 12345",
        "[map] the program takes 2 inputs and 1 outputs, received 1 and 1",
        "malformed record: an operand reaches bytes 0 to 20000 of buffer N, which has C",
        "[map] input 1 has shape [3], the output [4]",
        "[map] input 1 must be float32, received int32",
        "malformed record: an operand reaches bytes 0 to 12000004 of buffer N, which has C",
        "malformed record: an operand reaches bytes -12 to 4 of buffer N, which has C",
        "malformed record: an operand's shape does not match its size",
        "malformed record: an operand's shape does not match its size",
        "malformed record: an operand's size is out of range",
        "malformed record: an operand's offset is negative or not aligned",
        "malformed record: an operand's offset is negative or not aligned",
        "there is no buffer N",
        "malformed record: an output is an immediate",
      ]
    `)
  })

  it("does not crash on noise", () => {
    const x = put(new Float32Array(1024))
    const y = put(new Float32Array(1024))
    const shape = [32, 32]
    const base = [
      map(
        add,
        [
          { id: x, dtype: "float32", shape },
          { id: x, dtype: "float32", shape, strides: [1, 32] },
        ],
        [{ id: y, dtype: "float32", shape }],
      ),
      run(native.kernels().indexOf("copy"), [f32(x, 1024)], [f32(y, 1024)]),
    ].flat()
    const next = integers(12345)
    const values = [
      0n,
      1n,
      -1n,
      2n,
      31n,
      33n,
      1n << 20n,
      1n << 40n,
      -(1n << 62n),
      (1n << 63n) - 1n,
      0x1000100000001n,
    ]
    for (let round = 0; round < 5000; round++) {
      commands.set(base)
      for (let k = next(3); k >= 0; k--) {
        const at = next(base.length)
        commands[at] = next(2) ? values[next(values.length)] : commands[at] ^ (1n << BigInt(next(40)))
      }
      native.run(base.length)
      native.poisoned()
      native.allocate(y, 4096)
      if (round % 64 === 0) native.allocate(x, 4096)
    }
  })

  it("does not crash on noise in programs and plans", () => {
    const x = put(new Float32Array(256))
    const y = put(new Float32Array(256))
    const f = code("float32")
    const op = (name: string) => opNames.indexOf(name)
    const steps = [
      [op("exp"), f, 0, -1, -1, 0],
      [op("less"), 0, 0, 1, -1, 0],
      [op("constant"), f, -1, -1, -1, 7],
      [op("select"), f, 3, 4, 1, 0],
      [op("cast"), code("float16"), 5, -1, -1, 0],
      [op("cast"), f, 6, -1, -1, 0],
    ]
    const programs = [2, steps.length, 1, f, f, ...steps.flat(), 7].map(BigInt)
    const operand = (s: number): Operand => ({ id: s, dtype: "float32", shape: [16, 16] })
    const plans = [
      ...map(add, [operand(0), operand(0)], [operand(2)]),
      ...map(add, [operand(2), operand(0)], [operand(1)]),
    ]
    const next = integers(99)
    const noisy = (words: bigint[]) => {
      const out = new BigInt64Array(words)
      for (let k = next(3); k >= 0; k--)
        out[next(out.length)] = [0n, 1n, -1n, 3n, 13n, 60n, 255n, 1n << 33n, -(1n << 60n)][next(9)]
      return next(4) ? out : out.subarray(0, next(out.length))
    }
    let [ran, refused] = [0, 0]
    for (let round = 0; round < 3000; round++) {
      try {
        const id = native.registerProgram(noisy(programs))
        execute(map(id, [f32(x, 256), f32(x, 256)], [f32(y, 256)]))
        native.releaseProgram(id)
        ran++
      } catch {
        refused++
      }
      try {
        const id = native.registerPlan(noisy(plans), 1, 1, 1024)
        execute(plan(id, [[x, 0]], [[y, 0]]))
        native.releasePlan(id)
        ran++
      } catch {
        refused++
      }
      native.free(y)
      native.allocate(y, 1024)
    }
    native.poisoned()
    expect(ran).toBeGreaterThan(100)
    expect(refused).toBeGreaterThan(100)
  })

  it("keeps running when the command buffer was detached", () => {
    const other = new ArrayBuffer(64)
    native.attachCommands(other)
    structuredClone(other, { transfer: [other] })
    expect(() => native.run(2)).toThrow("2 words do not fit the attached command buffer of 0 bytes")
    native.attachCommands(commands.buffer)
  })
})

describe("plans", () => {
  const operand = (s: number, offset = 0, n = 256): Operand => ({
    id: s,
    dtype: "float32",
    shape: [n],
    offset,
  })
  const add = program(["float32", "float32"], [["add", "float32", [0, 1]]])
  const scale = program(["float32", "float32"], [["multiply", "float32", [0, 1]]])

  it("replay a recorded commands on new inputs, nested ones too", () => {
    // Bindings: 0 input, 1 output, 2 arena.
    const double = native.registerPlan(
      new BigInt64Array(
        [
          map(add, [operand(0), operand(0)], [operand(2, 1024)]),
          map(scale, [operand(2, 1024), { bits: bitsOf(0.5), dtype: "float32" }], [operand(2)]),
          map(add, [operand(2), operand(2, 1024)], [operand(1)]),
        ].flat(),
      ),
      1,
      1,
      2048,
    )
    const outer = native.registerPlan(
      new BigInt64Array([plan(double, [[0, 0]], [[2, 0]]), plan(double, [[2, 0]], [[1, 0]])].flat()),
      1,
      1,
      1024,
    )
    const x = random(256, -1, 1)
    const xs = put(new Float32Array([9, 9, ...x]))
    const y = newId()
    for (let round = 1; round < 4; round++) {
      ok(alloc(y, 1024), plan(double, [[xs, 8]], [[y, 0]]))
      expect(get(y, new Float32Array(256))).toEqual(x.map((v) => v + 2 * v))
      ok(alloc(y, 1024), plan(outer, [[xs, 8]], [[y, 0]]))
      expect(get(y, new Float32Array(256))).toEqual(x.map((v) => Math.fround(v + 2 * v) * 3))
    }
    native.releasePlan(double)
    ok(plan(outer, [[xs, 8]], [[y, 0]]))
    expect(execute(plan(double, [[xs, 8]], [[y, 0]]))).toBe(1)
    expect(native.failures()[0].message).toBe(`there is no plan ${double}`)
  })

  it("take any number of inputs", () => {
    const n = 400
    const words: bigint[] = []
    for (let i = 0; i < n; i++)
      words.push(...map(add, [operand(i, 0, 1), operand(n, 0, 1)], [operand(n, 0, 1)]))
    const id = native.registerPlan(new BigInt64Array(words), n, 1, 0)
    const ids = Array.from({ length: n }, (_, i) => put(new Float32Array([i])))
    const y = put(new Float32Array(1))
    ok(
      plan(
        id,
        ids.map((s) => [s, 0]),
        [[y, 0]],
      ),
    )
    expect(get(y, new Float32Array(1))[0]).toBe((n * (n - 1)) / 2)
  })

  it("are checked when registered and when run", () => {
    const words = (r: bigint[]) => new BigInt64Array(r)
    expect(() =>
      native.registerPlan(words(map(add, [operand(0), operand(0)], [operand(1)])), 1, 0, 16),
    ).toThrow("records reach 1024 bytes of an arena of 16")
    expect(() =>
      native.registerPlan(words(map(add, [operand(7), operand(0)], [operand(1)])), 1, 1, 0),
    ).toThrow("binding 7 is out of range")
    expect(() => native.registerPlan(words(alloc(0, 8)), 1, 1, 0)).toThrow(
      "a plan cannot hold records of opcode 1",
    )
    expect(() => native.registerPlan(words(run(4000, [], [operand(0)])), 1, 1, 0)).toThrow(
      "there is no kernel 4000",
    )
    const id = native.registerPlan(words(map(add, [operand(0), operand(0)], [operand(1)])), 1, 1, 0)
    const small = put(new Float32Array(4))
    const y = put(new Float32Array(256))
    expect(execute(plan(id, [[small, 0]], [[y, 0]]))).toBe(1)
    expect(native.failures()[0].message).toMatch(
      "the plan's binding 0 needs 1024 bytes from offset 0 of a buffer of 64",
    )
    expect(native.poisoned().map(({ id }) => id)).toEqual([y])
    expect(execute(plan(id, [[small, 0]], []))).toBe(1)
    expect(native.failures()[0].message).toMatch("takes 2 buffers with offsets")
    const z = newId()
    ok(alloc(z, 1024))
    expect(execute(plan(id, [[y, 0]], [[z, 0]]))).toBe(0)
    expect(native.poisoned().map(({ id }) => id)).toEqual([z])
    ok(alloc(y, 2048))
    expect(execute(plan(id, [[y, 2]], [[z, 0]]))).toBe(1)
    expect(native.failures()[0].message).toMatch(
      "offset 2 of the plan's binding 0 is negative or not aligned",
    )
  })
})

describe("memory", () => {
  it("counts, caches and gives back", () => {
    native.clearCache()
    const before = native.memory()
    const s = newId()
    native.allocate(s, 1 << 22)
    expect(native.memory().active - before.active).toBe(1 << 22)
    expect(native.memory().buffers - before.buffers).toBe(1)
    expect(native.address(s) % 4096n).toBe(0n)
    const at = native.address(s)
    native.free(s)
    expect(native.memory().active).toBe(before.active)
    expect(native.memory().cache).toBe(1 << 22)
    native.allocate(s, 1 << 22)
    expect(native.address(s)).toBe(at)
    native.free(s)
    native.clearCache()
    expect(native.memory().cache).toBe(0)
    native.resetPeakMemory()
    expect(native.memory().peak).toBe(native.memory().active)
  })

  it("keeps the cache within its limit, dropping the oldest", () => {
    const { cacheLimit } = native.memory()
    native.clearCache()
    native.setCacheLimit(1 << 20)
    const ids = Array.from({ length: 32 }, () => newId())
    for (const s of ids) native.allocate(s, 1 << 16)
    for (const s of ids) native.free(s)
    expect(native.memory().cache).toBe(1 << 20)
    native.setCacheLimit(0)
    expect(native.memory().cache).toBe(0)
    native.setCacheLimit(cacheLimit)
  })

  it("shares, views and adopts without a copy", () => {
    const s = put(new Float32Array([1, 2, 3]))
    const t = newId()
    native.share(s, t)
    native.free(s)
    const view = native.hostView(t)
    expect(native.hostView(t)).toBe(view)
    expect([...new Float32Array(view)]).toEqual([1, 2, 3])
    new Float32Array(view)[1] = 20
    expect([...get(t, new Float32Array(3))]).toEqual([1, 20, 3])
    const u = newId()
    native.adopt(u, native.address(t), 12, view)
    native.free(t)
    expect([...get(u, new Float32Array(3))]).toEqual([1, 20, 3])
    expect(() => native.read(u, 8, new Float32Array(2))).toThrow(
      "8 bytes at offset 8 do not fit the buffer's 12",
    )
  })

  it("lets go of a viewed buffer when both the id and the view are gone", async () => {
    setFlagsFromString("--expose-gc")
    const gc = runInNewContext("gc") as () => void
    const s = newId()
    native.allocate(s, 1 << 20)
    const { active } = native.memory()
    ;(() => new Uint8Array(native.hostView(s)).fill(1))()
    native.free(s)
    expect(native.memory().active).toBe(active)
    for (let i = 0; i < 20 && native.memory().active > active - (1 << 20); i++) {
      gc()
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(native.memory().active).toBeLessThanOrEqual(active - (1 << 20))
  })

  it("serves several isolates at once", async () => {
    const addon =
      process.env.LAZULI_CPU_ADDON ?? fileURLToPath(new URL("../build/lazuli_cpu.node", import.meta.url))
    const before = native.threads()
    native.setThreads(4)
    const script = `
      const { parentPort, workerData } = require('node:worker_threads')
      const native = require(workerData.addon)
      native.attachCommands(workerData.commands.buffer)
      native.registerProgram(workerData.program)
      let wrong = 0
      for (let round = 0; round < 60; round++) {
        for (let s = 0; s < 2; s++) native.allocate(s, 4 << 18)
        native.write(0, 0, new Float32Array(1 << 18).fill(round))
        wrong += native.run(workerData.commands.length)
        const out = new Float32Array(1 << 18)
        native.read(1, 0, out)
        wrong += out.findIndex((v) => v !== 2 * round) === -1 ? 0 : 1
      }
      parentPort.postMessage(wrong)`
    const operand = (s: number): Operand => ({ id: s, dtype: "float32", shape: [1 << 18] })
    const words = new BigInt64Array(map(0, [operand(0), operand(0)], [operand(1)]))
    const code32 = BigInt(code("float32"))
    const double = new BigInt64Array([
      2n,
      1n,
      1n,
      code32,
      code32,
      BigInt(opNames.indexOf("add")),
      code32,
      0n,
      1n,
      -1n,
      0n,
      2n,
    ])
    const results = Array.from({ length: 4 }, () => {
      const worker = new Worker(script, {
        eval: true,
        workerData: { addon, commands: words, program: double },
      })
      return new Promise((resolve, reject) => worker.once("message", resolve).once("error", reject))
    })
    expect(await Promise.all(results)).toEqual([0, 0, 0, 0])
    native.setThreads(before)
  })

  it("finds handles that are gone after a minor collection, and not those in use", () => {
    setFlagsFromString("--expose-gc")
    const gc = runInNewContext("gc") as (options?: { type: "minor" }) => void
    const out = new Int32Array(2000)
    const kept: object[] = []
    const make = () => {
      const objects = Array.from({ length: 1000 }, (_, i) => ({ i }))
      native.track(
        objects,
        1000,
        Int32Array.from(objects, (_, i) => 5000 + i),
      )
      kept.push(...objects.slice(0, 100))
      objects.length = 0
    }
    make()
    gc({ type: "minor" })
    const found = native.poll(0, out)
    expect(found).toBeGreaterThan(800)
    expect(found).toBeLessThanOrEqual(900)
    expect(Math.min(...out.subarray(0, found))).toBeGreaterThanOrEqual(5100)
    // Survivors of two walks are old, and only a walk of all finds them.
    native.poll(0, out)
    native.poll(0, out)
    kept.splice(0, 50)
    gc()
    expect(native.poll(0, out)).toBe(0)
    const small = new Int32Array(10)
    let old = 0
    for (let n = native.poll(1, small); n > 0; n = native.poll(1, small)) old += n
    expect(old).toBeGreaterThanOrEqual(40)
    for (const each of kept as { i: number }[]) native.untrack(5000 + each.i)
    kept.length = 0
    gc()
    expect(native.poll(1, out)).toBe(0)
  })
})
