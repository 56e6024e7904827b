import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { afterAll, describe, expect, test } from "vitest"
import { toFloat16Bits } from "../graph/half"
import * as mx from "../index"

const folder = mkdtempSync(join(tmpdir(), "gguf-"))
afterAll(() => rmSync(folder, { recursive: true }))
const path = (name: string) => join(folder, name)

const u32 = (n: number): Buffer => {
  const out = Buffer.alloc(4)
  out.writeUInt32LE(n)
  return out
}
const u64 = (n: number | bigint): Buffer => {
  const out = Buffer.alloc(8)
  out.writeBigUInt64LE(BigInt(n))
  return out
}
const text = (s: string): Buffer => Buffer.concat([u64(Buffer.byteLength(s)), Buffer.from(s)])

interface Parts {
  magic?: string
  version?: number
  tensorCount?: number | bigint
  keyCount?: number | bigint
  metadata?: Buffer[]
  tensors?: Buffer[]
  data?: Buffer
  alignment?: number
}
function gguf(parts: Parts): Buffer {
  const { magic = "GGUF", version = 3, metadata = [], tensors = [], data = Buffer.alloc(0) } = parts
  const head = Buffer.concat([
    Buffer.from(magic),
    u32(version),
    u64(parts.tensorCount ?? tensors.length),
    u64(parts.keyCount ?? metadata.length),
    ...metadata,
    ...tensors,
  ])
  const alignment = parts.alignment ?? 32
  return Buffer.concat([head, Buffer.alloc((alignment - (head.length % alignment)) % alignment), data])
}
/** `shape` in the order of the arrays; the file has the innermost axis first. */
function tensor(name: string, shape: (number | bigint)[], type: number, offset: number | bigint = 0): Buffer {
  return Buffer.concat([
    text(name),
    u32(shape.length),
    ...[...shape].reverse().map(u64),
    u32(type),
    u64(offset),
  ])
}
function load(bytes: Buffer): Record<string, mx.Array> {
  writeFileSync(path("x.gguf"), bytes)
  return mx.load(path("x.gguf") as "x.gguf")
}

describe("what is written is read", () => {
  const dtypes = [mx.float32, mx.float16, mx.bfloat16, mx.float64, mx.int8, mx.int16, mx.int32, mx.int64]
  test("every dtype and layout, and names", () => {
    const arrays: Record<string, mx.Array> = Object.fromEntries(
      dtypes.map((dtype) => [`blk.${dtype.name}`, mx.arange(6).reshape([3, 2]).astype(dtype).T]),
    )
    arrays.scalar = mx.array(5)
    arrays.empty = mx.zeros([0, 3])
    arrays.größe = mx.ones([2, 1, 3])
    mx.saveGguf(path("a"), arrays)
    const got = mx.load(path("a.gguf") as "a.gguf")
    expect(Object.keys(got)).toEqual(Object.keys(arrays))
    for (const [name, a] of Object.entries(arrays))
      expect([got[name].dtype, got[name].shape, got[name].tolist()]).toEqual([a.dtype, a.shape, a.tolist()])
  })

  test("metadata of every kind", () => {
    const numbers = [
      mx.bool_,
      mx.uint8,
      mx.uint16,
      mx.uint32,
      mx.uint64,
      mx.int8,
      mx.int16,
      mx.int32,
      mx.int64,
      mx.float32,
    ]
    const metadata: Record<string, mx.Array | string | string[]> = {
      "general.name": "näme",
      words: ["a", "", "ccc"],
      none: [],
      long: "x".repeat(100_000),
    }
    for (const dtype of numbers) {
      metadata[dtype.name] = mx.array(1, dtype)
      metadata[`${dtype.name}s`] = mx.array([1, 0, 1], dtype)
    }
    mx.saveGguf(path("m.gguf"), { w: mx.ones([1]) }, metadata)
    const [arrays, got] = mx.load(path("m.gguf"), { returnMetadata: true })
    expect(arrays.w.tolist()).toEqual([1])
    expect(Object.keys(got)).toEqual(Object.keys(metadata))
    for (const [key, want] of Object.entries(metadata)) {
      const value = got[key]
      if (!(want instanceof mx.Array)) expect(value).toEqual(want)
      else
        expect(value instanceof mx.Array && [value.dtype, value.tolist()]).toEqual([
          want.dtype,
          want.tolist(),
        ])
    }
    expect(mx.load(pathToFileURL(path("m.gguf")), "gguf", true)[1].words).toEqual(["a", "", "ccc"])
  })

  test("another alignment", () => {
    const align = { "general.alignment": mx.array(128, mx.uint32) }
    mx.saveGguf(path("b.gguf"), { a: mx.ones([3]), b: mx.ones([2]) }, align)
    expect(readFileSync(path("b.gguf")).length % 128).toBe(0)
    expect(mx.load(path("b.gguf") as "b.gguf").b.tolist()).toEqual([1, 1])
    const bad = { "general.alignment": mx.array(0, mx.uint32) }
    expect(() => mx.saveGguf(path("c.gguf"), {}, bad)).toThrow(mx.ArgumentError)
  })

  test("what cannot be written is refused before anything is", () => {
    const save = (arrays: unknown, metadata?: unknown) => () =>
      mx.saveGguf(path("bad.gguf"), arrays as Record<string, mx.Array>, metadata as Record<string, string>)
    expect(save({ w: mx.ones([2], mx.uint32) })).toThrowErrorMatchingInlineSnapshot(
      `[DTypeError: [saveGguf] "w" has dtype uint32, which the format does not support]`,
    )
    expect(save({ w: [1] })).toThrow(mx.ArgumentError)
    expect(save(mx.ones([2]))).toThrow(mx.ArgumentError)
    expect(save({}, { n: 3 })).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [saveGguf] the metadata "n" must be an array, a string or a list of strings, received the number 3. Pass a number as mx.array(3, mx.uint32)]`,
    )
    expect(save({}, { n: mx.ones([1, 1]) })).toThrow(/at most one axis/)
    expect(save({}, { n: mx.zeros([0]) })).toThrow(mx.ArgumentError)
    expect(save({}, { n: mx.complex(1, 1) })).toThrow(mx.ArgumentError)
    expect(save({}, { n: mx.ones([1], mx.float16) })).toThrow(mx.DTypeError)
    expect(() => readFileSync(path("bad.gguf"))).toThrow(/ENOENT/)
  })
})

const half = (x: number): Buffer => {
  const out = Buffer.alloc(2)
  out.writeUInt16LE(toFloat16Bits(x))
  return out
}
/** Any fixed numbers below `n`. */
const some = (count: number, n: number): number[] =>
  Array.from({ length: count }, (_, i) => ((i * 2654435761 + 12345) >>> 7) % n)

/** Two nibbles a byte, the first half of the elements in the low ones. */
const nibbles = (q: number[]): Buffer =>
  Buffer.from(q.slice(0, q.length / 2).map((low, i) => low | (q[i + q.length / 2] << 4)))
/** One bit of each element. */
function bits(values: number[]): Buffer {
  const out = Buffer.alloc(values.length / 8)
  values.forEach((v, i) => {
    out[i >> 3] |= v << (i & 7)
  })
  return out
}
/** Six-bit scales and minima of eight groups in twelve bytes. */
function sixBits(scales: number[], mins: number[]): Buffer {
  const out = Buffer.alloc(12)
  for (let j = 0; j < 4; j++) {
    out[j] = scales[j] | ((scales[j + 4] >> 4) << 6)
    out[j + 4] = mins[j] | ((mins[j + 4] >> 4) << 6)
    out[j + 8] = (scales[j + 4] & 15) | ((mins[j + 4] & 15) << 4)
  }
  return out
}

describe("blocks", () => {
  /** Elements of packed weights, lowest bits first. */
  function unpack(w: mx.Array, width: number): number[] {
    const words = w.tolist() as number[][]
    const per = 32 / width
    return words
      .flat()
      .flatMap((x) => Array.from({ length: per }, (_, i) => Math.floor(x / 2 ** (i * width)) % 2 ** width))
  }
  const q = some(64, 16)
  const q8 = some(64, 256).map((v) => v - 128)
  const two = (block: (i: number) => Buffer): Buffer => Buffer.concat([block(0), block(1)])
  const part = (list: number[], i: number): number[] => list.slice(i * 32, i * 32 + 32)
  const cases: [string, number, number, Buffer, (i: number) => number][] = [
    [
      "Q4_0",
      2,
      4,
      two((i) => Buffer.concat([half(0.5 + i), nibbles(part(q, i))])),
      (i) => (q[i] - 8) * (i < 32 ? 0.5 : 1.5),
    ],
    [
      "Q4_1",
      3,
      4,
      two((i) => Buffer.concat([half(0.5 + i), half(-3), nibbles(part(q, i))])),
      (i) => q[i] * (i < 32 ? 0.5 : 1.5) - 3,
    ],
    [
      "Q8_0",
      8,
      8,
      two((i) => Buffer.concat([half(0.5 + i), Buffer.from(part(q8, i).map((v) => v & 255))])),
      (i) => q8[i] * (i < 32 ? 0.5 : 1.5),
    ],
  ]
  for (const [name, type, width, data, want] of cases)
    test(`${name} stays quantized`, () => {
      const got = load(gguf({ tensors: [tensor("a.weight", [2, 32], type)], data }))
      expect(Object.keys(got)).toEqual(["a.weight", "a.scales", "a.biases"])
      const { "a.weight": w, "a.scales": scales, "a.biases": biases } = got
      expect([w.dtype, w.shape]).toEqual([mx.uint32, [2, width]])
      expect([scales.dtype, scales.shape, biases.dtype, biases.shape]).toEqual([
        mx.float16,
        [2, 1],
        mx.float16,
        [2, 1],
      ])
      const [s, b] = [scales.flatten().tolist() as number[], biases.flatten().tolist() as number[]]
      const values = unpack(w, width).map((x, i) => x * s[i >> 5] + b[i >> 5])
      expect(values).toEqual(Array.from({ length: 64 }, (_, i) => want(i)))
    })

  const float16 = (type: number, data: Buffer, elements: number): number[] => {
    const got = load(gguf({ tensors: [tensor("w", [1, elements], type)], data }))
    expect([got.w.dtype, got.w.shape]).toEqual([mx.float16, [1, elements]])
    return (got.w.tolist() as number[][])[0]
  }
  const rounded = (values: number[]): number[] => mx.array(values, mx.float16).tolist() as number[]

  test("Q5_0 and Q5_1", () => {
    const v = some(32, 32)
    const low = nibbles(v.map((x) => x & 15))
    const high = bits(v.map((x) => x >> 4))
    expect(float16(6, Buffer.concat([half(0.25), high, low]), 32)).toEqual(v.map((x) => (x - 16) * 0.25))
    expect(float16(7, Buffer.concat([half(0.25), half(-2), high, low]), 32)).toEqual(
      v.map((x) => x * 0.25 - 2),
    )
  })

  const scales = some(8, 64)
  const mins = some(8, 61)
  test("Q4_K and Q5_K", () => {
    const v = some(256, 32)
    const lows = v.map((x) => x & 15)
    // 64 elements share 32 bytes: the first half of them in the low nibbles.
    const low = Buffer.concat([0, 1, 2, 3].map((i) => nibbles(lows.slice(i * 64, i * 64 + 64))))
    const want = (x: number[]) => rounded(x.map((y, i) => 0.125 * scales[i >> 5] * y - 0.5 * mins[i >> 5]))
    const head = Buffer.concat([half(0.125), half(0.5), sixBits(scales, mins)])
    expect(float16(12, Buffer.concat([head, low]), 256)).toEqual(want(lows))
    const high = Buffer.alloc(32)
    v.forEach((x, i) => {
      high[i & 31] |= (x >> 4) << (i >> 5)
    })
    expect(float16(13, Buffer.concat([head, high, low]), 256)).toEqual(want(v))
  })
  test("Q2_K", () => {
    const v = some(256, 4)
    const [s, m] = [some(16, 16), some(16, 15)]
    const packed = Buffer.alloc(64)
    v.forEach((x, i) => {
      packed[(i >> 7) * 32 + (i & 31)] |= x << (((i >> 5) & 3) * 2)
    })
    const data = Buffer.concat([Buffer.from(s.map((x, i) => x | (m[i] << 4))), packed, half(0.5), half(0.25)])
    expect(float16(10, data, 256)).toEqual(rounded(v.map((x, i) => 0.5 * s[i >> 4] * x - 0.25 * m[i >> 4])))
  })
  test("Q6_K", () => {
    const v = some(256, 64)
    const s = some(16, 200).map((x) => x - 100)
    const [low, high] = [Buffer.alloc(128), Buffer.alloc(64)]
    v.forEach((x, i) => {
      const [cluster, k] = [i >> 7, i & 127]
      low[cluster * 64 + (k & 63)] |= (x & 15) << ((k >> 6) * 4)
      high[cluster * 32 + (k & 31)] |= (x >> 4) << ((k >> 5) * 2)
    })
    const data = Buffer.concat([low, high, Buffer.from(s.map((x) => x & 255)), half(0.0625)])
    expect(float16(14, data, 256)).toEqual(rounded(v.map((x, i) => 0.0625 * s[i >> 4] * (x - 32))))
  })
})

describe("hostile files are refused", () => {
  const good = tensor("w", [2], 0)
  const data = Buffer.alloc(32)
  const key = (type: number, value: Buffer, name = "k") => Buffer.concat([text(name), u32(type), value])
  const cases: [string, Parts][] = [
    ["another magic", { magic: "GGML" }],
    ["an unknown version", { version: 1 }],
    ["the other byte order", { version: 0x03000000 }],
    ["more tensors than bytes", { tensorCount: 2 ** 40 }],
    ["2⁶⁴-1 tensors", { tensorCount: 2n ** 64n - 1n }],
    ["more keys than bytes", { keyCount: 2 ** 50 }],
    ["a longer text than the file", { metadata: [key(8, u64(2 ** 40))] }],
    ["a text that is no UTF-8", { metadata: [key(8, Buffer.concat([u64(2), Buffer.from([255, 254])]))] }],
    ["a longer list than the file", { metadata: [key(9, Buffer.concat([u32(4), u64(2 ** 40)]))] }],
    ["a list of lists", { metadata: [key(9, Buffer.concat([u32(9), u64(0)]))] }],
    ["an unknown value type", { metadata: [key(13, Buffer.alloc(8))] }],
    ["a key twice", { metadata: [key(0, Buffer.from([1])), key(0, Buffer.from([1]))] }],
    ["a zero alignment", { metadata: [key(4, u32(0), "general.alignment")] }],
    ["a name twice", { tensors: [good, tensor("w", [2], 0, 32)], data: Buffer.alloc(64) }],
    [
      "names that collide",
      {
        tensors: [tensor("a.weight", [32], 2), tensor("a.scales", [2], 0, 32)],
        data: Buffer.alloc(64),
      },
    ],
    ["an unknown type", { tensors: [tensor("w", [2], 99)], data }],
    ["too many axes", { tensors: [tensor("w", [1, 1, 1, 1, 1, 1, 1, 1, 1], 0)], data }],
    ["2³² axes", { tensors: [Buffer.concat([text("w"), u32(0xffffffff), Buffer.alloc(64)])] }],
    ["sizes that overflow", { tensors: [tensor("w", [2n ** 62n, 2n ** 62n], 0)], data }],
    ["sizes beyond 2⁵³", { tensors: [tensor("w", [2n ** 63n], 24)], data }],
    ["a tensor beyond the file", { tensors: [tensor("w", [2], 0, 64)], data }],
    ["a far offset", { tensors: [tensor("w", [2], 0, 2n ** 64n - 32n)], data }],
    ["an offset between", { tensors: [tensor("w", [2], 0, 4)], data }],
    ["overlapping tensors", { tensors: [good, tensor("v", [2], 0, 0)], data }],
    ["rows that are no blocks", { tensors: [tensor("w", [16], 2)], data }],
    ["a block without an axis", { tensors: [tensor("w", [], 2)], data }],
  ]
  for (const [name, parts] of cases) test(name, () => expect(() => load(gguf(parts))).toThrow(mx.FormatError))
  test("a short one", () => expect(() => load(Buffer.from("GGUF"))).toThrow(mx.FormatError))
  test("a tensor named __proto__ is only a name", () => {
    const got = load(gguf({ tensors: [tensor("__proto__", [2], 0)], data }))
    expect(Object.keys(got)).toEqual(["__proto__"])
  })
})
