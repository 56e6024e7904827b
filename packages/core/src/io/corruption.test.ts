/**
 * Files that were cut, changed and patched at random, in every format: each loads, or is refused with a FormatError, and none
 * claims more memory than its bytes could mean.
 */

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { deflateRawSync, inflateRawSync } from "node:zlib"
import { integers } from "@lazuli/conformance/generator"
import { afterAll, describe, expect, test } from "vitest"
import * as mx from "../index"
import { bytesOf, writeBeside } from "./files"
import { archive } from "./npz"

const folder = mkdtempSync(join(tmpdir(), "corrupt-"))
afterAll(() => rmSync(folder, { recursive: true }))
const path = (name: string) => join(folder, name)

/** https://www.rfc-editor.org/rfc/rfc1952#section-8 */
function crcOf(bytes: Uint8Array): number {
  let c = -1
  for (const byte of bytes) {
    c ^= byte
    for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1
  }
  return ~c >>> 0
}

const arrays = {
  a: mx.arange(40).reshape([8, 5]),
  b: mx.array([true, false, true]),
  c: mx.array([[1.5, 2.5]], mx.bfloat16),
  d: mx.arange(64).astype(mx.int8).reshape([2, 32]),
}
const { b: _, ...noBool } = arrays
const writers: Record<string, (file: string) => void> = {
  npy: (file) => mx.save(file, arrays.a),
  npz: (file) => mx.savez(file, arrays),
  safetensors: (file) => mx.saveSafetensors(file, arrays, { format: "mlx" }),
  gguf: (file) => mx.saveGguf(file, noBool, { name: "x", words: ["a", "b"], n: mx.array([1, 2]) }),
}

function change(bytes: Buffer, random: (n: number) => number): Buffer {
  const copy = Buffer.from(bytes)
  switch (random(6)) {
    case 0:
      return copy.subarray(0, random(copy.length))
    case 1:
      for (let k = 0; k <= random(4); k++) copy[random(copy.length)] = random(256)
      return copy
    case 2: {
      const at = random(copy.length - 8)
      copy.writeBigUInt64LE([0n, 2n ** 64n - 1n, 2n ** 40n, 2n ** 53n, 2n ** 63n][random(5)], at)
      return copy
    }
    case 3: {
      const at = random(copy.length - 4)
      copy.writeUInt32LE([0, 0xffffffff, 0x7fffffff, 1][random(4)], at)
      return copy
    }
    case 4: {
      const [at, from] = [random(copy.length), random(copy.length)]
      copy.copy(copy, at, from, from + random(32))
      return copy
    }
    default: {
      const at = random(copy.length)
      return Buffer.concat([copy.subarray(0, at), Buffer.alloc(random(16), random(256)), copy.subarray(at)])
    }
  }
}

describe("no change of a file does more than a FormatError", () => {
  const compressed: [string, (file: string) => void] = ["npz", (file) => mx.savezCompressed(file, arrays)]
  const all = [...Object.entries(writers), compressed]
  for (const [i, [format, write]] of all.entries())
    test(`${format}${i === all.length - 1 ? ", compressed" : ""}`, () => {
      const file = path(`x.${format}`)
      write(file)
      const bytes = readFileSync(file)
      const random = integers(7 + i)
      let refused = 0
      for (let round = 0; round < 250; round++) {
        const changed = change(bytes, random)
        writeFileSync(file, changed)
        try {
          const got = mx.load(file)
          const list = got instanceof mx.Array ? [got] : Object.values(got as Record<string, mx.Array>)
          const total = list.reduce((sum, a) => sum + a.nbytes, 0)
          expect(total).toBeLessThanOrEqual(changed.length * 1032)
          mx.eval(list)
        } catch (error) {
          if (!(error instanceof mx.FormatError)) throw new Error(`round ${round}`, { cause: error })
          refused++
        }
      }
      expect(refused).toBeGreaterThan(50)
    })
})

describe("archives", () => {
  const load =
    (bytes: Buffer, options: { maxBytes?: number | null } = {}) =>
    () => {
      writeFileSync(path("y.npz"), bytes)
      return mx.load(path("y.npz") as "y.npz", options)
    }
  const saved = (args: Parameters<typeof archive>[1], compress: boolean, limit?: number): Buffer =>
    Buffer.concat([...archive("savez", args, compress, limit)])

  test("numbers of 64 bits", () => {
    for (const limit of [0, 100, 400]) {
      const got = load(saved(Object.entries(arrays), false, limit))()
      for (const [name, a] of Object.entries(arrays)) expect(got[name].tolist()).toEqual(a.tolist())
    }
  })
  test("entries that share their bytes are refused before anything is unpacked", () => {
    // The quine of all bombs: each of many entries points to the same packed bytes.
    const one = saved([["x", mx.zeros([100_000])]], true)
    const begin = one.readUInt32LE(one.length - 6)
    const entry = one.subarray(begin, one.length - 22)
    const entries = Array.from({ length: 200 }, (_v, i) => {
      const copy = Buffer.from(entry)
      copy[46] = 65 + (i % 26)
      copy[47] = 65 + Math.floor(i / 26)
      return copy
    })
    const end = Buffer.from(one.subarray(one.length - 22))
    end.writeUInt16LE(entries.length, 8)
    end.writeUInt16LE(entries.length, 10)
    end.writeUInt32LE(entries.length * entry.length, 12)
    expect(load(Buffer.concat([one.subarray(0, begin), ...entries, end]))).toThrow(/overlap/)
  })
  test("a claim that deflate cannot keep is refused", () => {
    const one = saved([["x", mx.zeros([1000])]], true)
    one.writeUInt32LE(0x7fffffff, one.readUInt32LE(one.length - 6) + 24)
    expect(load(one)).toThrow(/cannot have 2147483647 bytes/)
  })
  test("archives that unpack to more than is allowed are refused before anything is unpacked", () => {
    // A member that claims 512 MiB, in a megabyte of which deflate could make as much.
    const size = 2 ** 29
    const bomb = saved([["x", mx.zeros([1000])]], true)
    const at = bomb.readUInt32LE(bomb.length - 6)
    const grown = Buffer.concat([bomb.subarray(0, at), Buffer.alloc(2 ** 20), bomb.subarray(at)])
    const entry = at + 2 ** 20
    grown.writeUInt32LE(grown.readUInt32LE(entry + 20) + 2 ** 20, entry + 20)
    grown.writeUInt32LE(size, entry + 24)
    grown.writeUInt32LE(entry, grown.length - 6)
    expect(load(grown)).toThrow(mx.FormatError)
    expect(load(grown)).toThrow(
      /would expand from \d+ bytes to 536870912, .*load the file with \{ maxBytes: 536870912 \}/,
    )
    // Let through, it is found to be no such thing.
    expect(load(grown, { maxBytes: size })).toThrow(/536870912|cannot be decompressed/)
  })
  test("maxBytes bounds what a file is unpacked", () => {
    const zeros = mx.zeros([2 ** 20], mx.uint8)
    const bomb = saved(
      [
        ["x", zeros],
        ["y", zeros],
      ],
      true,
    )
    const size = 2 * (2 ** 20 + 128)
    expect(bomb.length).toBeLessThan(size / 200)
    expect(load(bomb, { maxBytes: size - 1 })).toThrow(/would expand to 2097408 bytes, more than maxBytes/)
    for (const maxBytes of [size, Infinity, null, undefined])
      expect(load(bomb, { maxBytes })().y.shape).toEqual([2 ** 20])
    const stored = saved([["x", zeros]], false)
    expect(load(stored, { maxBytes: 2 ** 20 })).toThrow(mx.FormatError)
    expect(load(stored, { maxBytes: stored.length })().x.shape).toEqual([2 ** 20])
    for (const [format, write] of Object.entries(writers)) {
      const file = path(`limit.${format}`)
      write(file)
      const { length } = readFileSync(file)
      expect(() => mx.load(file, { maxBytes: length - 1 })).toThrow(mx.FormatError)
      expect(() => mx.load(file, { maxBytes: format === "npz" ? 2 * length : length })).not.toThrow()
    }
    for (const maxBytes of [-1, Number.NaN, "1", 1n])
      expect(load(stored, { maxBytes: maxBytes as number })).toThrow(mx.ArgumentError)
  })
  test("a member with bytes after its elements", () => {
    for (const compress of [false, true]) {
      const bytes = saved([["x", mx.zeros([16, 4], mx.uint8)]], compress)
      // One element less, in a header that is as long.
      const plain = compress ? inflateRawSync(bytes.subarray(35)) : bytes.subarray(35, 35 + 192)
      const changed = Buffer.from(plain.toString("latin1").replace("(16, 4)", "(15, 4)"), "latin1")
      const packed = compress ? deflateRawSync(changed) : changed
      const at = bytes.readUInt32LE(bytes.length - 6)
      const rest = Buffer.from(bytes.subarray(at))
      rest.writeUInt32LE(crcOf(changed), 16)
      rest.writeUInt32LE(packed.length, 20)
      rest.writeUInt32LE(35 + packed.length, rest.length - 6)
      expect(load(Buffer.concat([bytes.subarray(0, 35), packed, rest]))).toThrow(
        /"x.npy" has 4 extra bytes after/,
      )
    }
  })
  test("a name twice", () => {
    const a = mx.ones([1])
    const twice: [string, mx.Array][] = [
      ["x", a],
      ["x", a],
    ]
    expect(load(saved(twice, false))).toThrow(/appears twice/)
    expect(() => mx.savez(path("z.npz"), a, { arr_0: a })).toThrow(/appears twice/)
  })
})

test("writing that fails at any point leaves the file as it was", () => {
  const file = path("kept.bin")
  writeFileSync(file, "before")
  for (let parts = 0; parts < 4; parts++) {
    const failing = function* (): Generator<Uint8Array> {
      for (let i = 0; i < parts; i++) yield bytesOf(new Float32Array(100))
      throw new Error("no more")
    }
    expect(() => writeBeside("save", file, failing())).toThrow("no more")
    expect(readFileSync(file, "utf8")).toBe("before")
  }
  expect(readdirSync(folder).filter((name) => name.endsWith(".tmp"))).toEqual([])
})
