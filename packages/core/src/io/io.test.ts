import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, describe, expect, test } from "vitest"
import * as mx from "../index"

const folder = mkdtempSync(join(tmpdir(), "io-"))
afterAll(() => rmSync(folder, { recursive: true }))
const path = (name: string) => join(folder, name)

const dtypes = [
  mx.bool_,
  mx.uint8,
  mx.uint16,
  mx.uint32,
  mx.uint64,
  mx.int8,
  mx.int16,
  mx.int32,
  mx.int64,
  mx.float16,
  mx.bfloat16,
  mx.float32,
  mx.float64,
  mx.complex64,
]

describe("every dtype and layout survives", () => {
  const arrays = Object.fromEntries(
    dtypes.map((dtype) => [dtype.name, mx.arange(6).reshape([3, 2]).astype(dtype).T]),
  )
  arrays.scalar = mx.array(5)
  arrays.empty = mx.zeros([0, 3])
  const same = (got: Record<string, mx.Array>) => {
    expect(Object.keys(got).sort()).toEqual(Object.keys(arrays).sort())
    for (const [name, a] of Object.entries(arrays)) {
      expect(got[name].dtype).toBe(a.dtype)
      expect(got[name].shape).toEqual(a.shape)
      expect(got[name].tolist()).toEqual(a.tolist())
    }
  }
  test("safetensors", () => {
    mx.saveSafetensors(path("a.safetensors"), arrays, { format: "mlx" })
    same(mx.load(path("a.safetensors") as "a.safetensors"))
    const [got, metadata] = mx.load(path("a.safetensors"), { returnMetadata: true })
    same(got)
    expect(metadata).toEqual({ format: "mlx" })
  })
  test("npz", () => {
    mx.savez(path("a"), arrays)
    same(mx.load(path("a.npz") as "a.npz"))
    mx.savezCompressed(path("b.npz"), mx.ones([2]), { x: mx.zeros([1]) })
    expect(Object.keys(mx.load(path("b.npz") as "b.npz"))).toEqual(["arr_0", "x"])
  })
  test("npy", () => {
    for (const a of Object.values(arrays)) {
      mx.save(path("a.npy"), a)
      const got = mx.load(path("a.npy") as "a.npy")
      expect([got.dtype, got.shape, got.tolist()]).toEqual([a.dtype, a.shape, a.tolist()])
    }
  })
  test("nothing else is left in the folder", () => {
    expect(readdirSync(folder).sort()).toEqual(["a.npy", "a.npz", "a.safetensors", "b.npz"])
  })
})

test("a failed save leaves the old file and nothing beside it", () => {
  const file = path("kept.safetensors")
  mx.saveSafetensors(file, { w: mx.ones([1]) })
  const before = readFileSync(file)
  const bad = mx.take(mx.zeros([2]), [5])
  expect(() => mx.saveSafetensors(file, { w: bad })).toThrow(mx.IndexError)
  expect(() => mx.saveSafetensors(file, { w: 1 as never })).toThrow(mx.ArgumentError)
  expect(readFileSync(file)).toEqual(before)
  expect(readdirSync(folder).filter((name) => name.endsWith(".tmp"))).toEqual([])
})

describe("hostile files are refused", () => {
  const load = (name: string, bytes: Uint8Array) => {
    writeFileSync(path(name), bytes)
    return () => mx.load(path(name))
  }
  const withHeader = (header: string, data = 8, claimed = Buffer.byteLength(header)) => {
    const length = Buffer.alloc(8)
    length.writeBigUInt64LE(BigInt(claimed))
    return Buffer.concat([length, Buffer.from(header), Buffer.alloc(data)])
  }
  const tensor = (entry: object) => withHeader(JSON.stringify({ w: entry }))
  const good = { dtype: "F32", shape: [2], data_offsets: [0, 8] }
  const cases: [string, Uint8Array][] = [
    ["nothing", Buffer.alloc(0)],
    ["a header longer than the file", withHeader("{}", 0, 1000)],
    ["a header of 2⁶³ bytes", withHeader("{}", 0, 2 ** 63)],
    ["a header that is no JSON", withHeader('{"w":')],
    ["a header that is a list", withHeader("[1]")],
    [
      "bytes that are no UTF-8",
      Buffer.concat([withHeader("{}", 0, 2).subarray(0, 8), Buffer.from([0xff, 0xfe])]),
    ],
    ["no description", withHeader('{"w":null}')],
    ["an unknown dtype", tensor({ ...good, dtype: "F31" })],
    ["a negative size", tensor({ ...good, shape: [-2] })],
    ["a fraction as a size", tensor({ ...good, shape: [0.5] })],
    ["sizes that overflow", tensor({ ...good, shape: [2 ** 32, 2 ** 32, 2 ** 32] })],
    ["a shape that is no list", tensor({ ...good, shape: 2 })],
    ["offsets beyond the file", tensor({ ...good, data_offsets: [8, 16] })],
    ["offsets in the wrong order", tensor({ ...good, data_offsets: [8, 0] })],
    ["offsets that do not fit the shape", tensor({ ...good, data_offsets: [0, 4] })],
    ["metadata that are no strings", withHeader('{"__metadata__":{"a":1}}')],
    ["a name twice", withHeader(`{"w":${JSON.stringify(good)},"w":${JSON.stringify(good)}}`)],
    [
      "a name twice, once escaped",
      withHeader(`{"w":${JSON.stringify(good)},"\\u0077" :${JSON.stringify(good)}}`),
    ],
    [
      "a key of a tensor twice",
      withHeader('{"w":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}}'),
    ],
    ["a key of the metadata twice", withHeader('{"__metadata__":{"a":"\\\\","a":"{"}}', 0)],
    [
      "bytes before the first tensor",
      withHeader(JSON.stringify({ w: { ...good, data_offsets: [8, 16] } }), 16),
    ],
    [
      "bytes between tensors",
      withHeader(JSON.stringify({ v: good, w: { ...good, data_offsets: [9, 17] } }), 17),
    ],
    ["bytes after the last tensor", withHeader(JSON.stringify({ w: good }), 9)],
    ["bytes without a tensor", withHeader("{}", 1)],
    [
      "tensors that overlap",
      withHeader(JSON.stringify({ v: good, w: { ...good, data_offsets: [4, 12] } }), 12),
    ],
    [
      "nothing within a tensor",
      withHeader(JSON.stringify({ v: good, w: { ...good, shape: [0], data_offsets: [4, 4] } })),
    ],
  ]
  for (const [name, bytes] of cases)
    test(name, () => expect(load("x.safetensors", bytes)).toThrow(mx.FormatError))

  test("equal keys of different objects, and texts like keys, are no harm", () => {
    const entry = JSON.stringify(good)
    const none = JSON.stringify({ ...good, shape: [0], data_offsets: [8, 8] })
    const metadata = JSON.stringify({ w: 'a "w": {', '"w"': "\\", v: "w" })
    const bytes = withHeader(`{"__metadata__" : ${metadata}, "w":${entry},"\\"w\\"" :${none}, "v":${none}}  `)
    expect(Object.keys(load("keys.safetensors", bytes)() as Record<string, mx.Array>)).toEqual([
      "w",
      '"w"',
      "v",
    ])
  })

  test("a tensor named __proto__ is only a name", () => {
    const bytes = withHeader(`{"__proto__":${JSON.stringify(good)}}`)
    const got = load("proto.safetensors", bytes)() as Record<string, mx.Array>
    expect(Object.keys(got)).toEqual(["__proto__"])
    expect(Object.getPrototypeOf(got)).toBe(Object.prototype)
  })

  const npy = (header: string, data = 8) => {
    const preamble = Buffer.from([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length, 0])
    return Buffer.concat([preamble, Buffer.from(header), Buffer.alloc(data)])
  }
  const arrays: [string, Uint8Array][] = [
    ["no magic", Buffer.from("hello world")],
    ["an object array", npy("{'descr': '|O8', 'fortran_order': False, 'shape': (1,)}")],
    ["too few bytes", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}")],
    ["a huge shape", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999)}")],
    ["bytes after the elements", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 9)],
    ["bytes after no elements", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", 1)],
    ["no shape", npy("{'descr': '<f4', 'fortran_order': False}")],
    ["an unknown version", Buffer.from([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 9, 0, 0, 0, 0, 0])],
  ]
  for (const [name, bytes] of arrays) test(name, () => expect(load("x.npy", bytes)).toThrow(mx.FormatError))

  test("archives", () => {
    expect(load("x.npz", Buffer.from("PK"))).toThrow(mx.FormatError)
    mx.savez(path("good.npz"), { x: mx.ones([4]) })
    const bytes = readFileSync(path("good.npz"))
    const at = bytes.indexOf("NUMPY")
    const changed = (offset: number, value: number) => {
      const copy = Buffer.from(bytes)
      copy[offset] = value
      return copy
    }
    expect(load("x.npz", changed(at + 130, 77))).toThrow(/wrong checksum/)
    expect(load("x.npz", bytes.subarray(0, bytes.length - 30))).toThrow(mx.FormatError)
    // A member that claims fewer bytes than it unpacks to does not grow beyond its claim.
    mx.savezCompressed(path("bomb.npz"), { x: mx.zeros([100_000]) })
    const bomb = readFileSync(path("bomb.npz"))
    const central = bomb.lastIndexOf(Buffer.from([0x50, 0x4b, 0x01, 0x02]))
    bomb.writeUInt32LE(100, central + 24)
    expect(load("x.npz", bomb)).toThrow(/cannot be decompressed/)
  })

  test("texts name the file and the fact", () => {
    const read = load("t.safetensors", tensor({ ...good, data_offsets: [0, 4] }))
    let text = ""
    try {
      read()
    } catch (error) {
      text = (error as Error).message.replace(folder, "…")
    }
    expect(text).toMatchInlineSnapshot(
      `"[load] …/t.safetensors: tensor "w" of float32 and shape [2] does not fit the bytes 0 to 4 of 8"`,
    )
    expect(() => mx.load("a.txt")).toThrowErrorMatchingInlineSnapshot(
      `[ArgumentError: [load] the format of a.txt must be npy, npz, safetensors or gguf, received the string "txt". The extension decides, or { format }]`,
    )
    expect(() => mx.load(path("file"))).toThrow("received a name without an extension")
    const missing = path("missing.npy")
    expect(() => mx.load(missing)).toThrow(`[load] cannot read ${missing}: ENOENT: no such file or directory`)
    const nowhere = path("none/a")
    const [arrays, fact] = [{ a: mx.ones([1]) }, "ENOENT: no such file or directory"]
    const refused = (op: string, ending: string) => `[${op}] cannot write ${nowhere}.${ending}: ${fact}`
    expect(() => mx.save(nowhere, arrays.a)).toThrow(refused("save", "npy"))
    expect(() => mx.savez(nowhere, arrays)).toThrow(refused("savez", "npz"))
    expect(() => mx.saveSafetensors(nowhere, arrays)).toThrow(refused("saveSafetensors", "safetensors"))
    expect(() => mx.saveGguf(nowhere, arrays)).toThrow(refused("saveGguf", "gguf"))
  })
})

test("arrays and metadata by name are plain objects, and a path is no longer than a system takes", () => {
  const arrays = { a: mx.ones([1]) }
  const wrong = [new Map(Object.entries(arrays)), new Error("a"), () => 0] as unknown as (typeof arrays)[]
  for (const each of wrong) expect(() => mx.savez(path("wrong.npz"), each)).toThrow(/^\[savez\] /)
  for (const metadata of ["text", ["text"], () => 0, new Map()] as unknown as Record<string, string>[]) {
    expect(() => mx.saveGguf(path("wrong.gguf"), arrays, metadata)).toThrow(
      "[saveGguf] metadata must be a plain object",
    )
    expect(() => mx.saveSafetensors(path("wrong.safetensors"), arrays, metadata)).toThrow(
      "[saveSafetensors] metadata must be a plain object",
    )
  }
  expect(readdirSync(folder).filter((name) => name.startsWith("wrong"))).toEqual([])
  expect(() => mx.load(`${"x".repeat(100_000)}.npy`)).toThrow(
    "[load] file must be a path, received one of 100004 characters",
  )
})
