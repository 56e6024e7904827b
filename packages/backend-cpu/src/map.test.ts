/**
 * Scalar programs run by the addon alone, on whole, strided, broadcast and single elements.
 * It is long because every instruction is held to its values for every dtype.
 */
import { afterEach, describe, expect, it } from "vitest"
import {
  type Code,
  type DtypeName,
  itemsize,
  map,
  type Operand,
  program,
  size,
} from "../test/command-assembler"
import { bitsOf, commandBench, random } from "../test/command-bench"
import { native } from "./native"

const { newId, put, get, release, ok, apply } = commandBench({ words: 1 << 20, firstId: 0 })
afterEach(() => {
  release()
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
      "instruction 0 (add): arguments must have the same dtype, received int32 and float32",
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
