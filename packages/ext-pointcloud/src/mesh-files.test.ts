import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import { afterAll, describe, expect, test } from "vitest"
import { readOff, readPly } from "./mesh-files"

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
const folder = mkdtempSync(join(tmpdir(), "lazuli-meshes-"))
afterAll(() => rmSync(folder, { recursive: true }))

describe("readOff", () => {
  test("reads corners and polygons, whatever stands beside them", () => {
    const text = `# by hand
COFF # with colours
5 2 0
0 0 0 255 0 0
1 0 0 255 0 0

1 1 0.5 255 0 0   # a comment
0 1 0
-1 2e-1 0
4 0 1 2 3 0.5 0.5 0.5
3 0 3 4`
    const { vertices, faces } = readOff(bytes(text))
    expect(vertices.dtype).toBe(mx.float32)
    expect(vertices.index(2).tolist()).toEqual([1, 1, 0.5])
    expect(faces.tolist()).toEqual([
      [0, 1, 2],
      [0, 2, 3],
      [0, 3, 4],
    ])
  })

  test("reads a file by its path, with counts on the first line and no faces", () => {
    const path = join(folder, "points.off")
    writeFileSync(path, "OFF2 0 0\n1 2 3\r\n4 5 6\r\n")
    const { vertices, faces } = readOff(path)
    expect(vertices.tolist()).toEqual([
      [1, 2, 3],
      [4, 5, 6],
    ])
    expect(faces.shape).toEqual([0, 3])
  })

  test.each([
    ["solid cube", /not an OFF file/],
    ["OFF BINARY\n", /binary form/],
    ["4OFF\n1 0 0\n1 2 3 4", /three coordinates/],
    ["OFF\n2 0 0\n1 2 3\n4 5", /ends before its corners/],
    ["OFF\n1 0 0\n1 2 x", /has "x" where a number/],
    ["OFF\n1e15 0 0\n", /number of corners, expected an integer from 0/],
    ["OFF\n1 1 0\n0 0 0\n3 0 0 1", /has 1 among its faces, expected an integer from 0 to 0/],
    ["OFF\n1 1 0\n0 0 0\n99999999 0", /among its faces/],
  ])("refuses %j", (text, message) => {
    expect(() => readOff(bytes(text))).toThrow(mx.FormatError)
    expect(() => readOff(bytes(text))).toThrow(message)
  })

  test("names the file, and the function for what is no file", () => {
    const path = join(folder, "bad.off")
    writeFileSync(path, "ply")
    expect(() => readOff(path)).toThrow(/\[readOff\].*bad\.off/)
    expect(() => readOff(3 as unknown as string)).toThrow(/\[readOff\] expected a path or the bytes/)
  })
})

/** Two corners with a colour and a normal's part, and a polygon, in binary. */
function binaryPly(little: boolean): Uint8Array {
  const header = bytes(`ply
format binary_${little ? "little" : "big"}_endian 1.0
comment made by hand
element vertex 4
property float x
property float32 y
property double z
property uchar red
element edge 1
property list uchar short ends
element face 1
property list uint8 int32 vertex_indices
property short flags
end_header
`)
  const view = new DataView(new ArrayBuffer(4 * 17 + 5 + 1 + 16 + 2))
  let at = 0
  for (let i = 0; i < 4; i++) {
    view.setFloat32(at, i, little)
    view.setFloat32(at + 4, 10 * i, little)
    view.setFloat64(at + 8, 0.25 * i, little)
    view.setUint8(at + 16, 255 - i)
    at += 17
  }
  view.setUint8(at, 2)
  at += 5
  view.setUint8(at, 4)
  at += 1
  for (const corner of [3, 2, 1, 0]) {
    view.setInt32(at, corner, little)
    at += 4
  }
  return Buffer.concat([header, new Uint8Array(view.buffer)])
}

describe("readPly", () => {
  test.each([true, false])("reads binary files, little-endian: %s", (little) => {
    const { vertices, faces, properties } = readPly(binaryPly(little))
    expect(vertices.index(3).tolist()).toEqual([3, 30, 0.75])
    expect(faces.tolist()).toEqual([
      [3, 2, 1],
      [3, 1, 0],
    ])
    expect(Object.keys(properties)).toEqual(["red"])
    expect(properties.red.tolist()).toEqual([255, 254, 253, 252])
  })

  test("reads text, of any line ends", () => {
    const text =
      "ply\r\nformat ascii 1.0\r\nelement vertex 1\r\nproperty float z\r\nproperty float y\r\nproperty float x\r\nend_header\r\n1 2 3\r\n"
    expect(readPly(bytes(text)).vertices.tolist()).toEqual([[3, 2, 1]])
  })

  const head = (form: string, rest: string): Uint8Array =>
    bytes(`ply\nformat ${form} 1.0\n${rest}end_header\n`)
  const xyz = "property float x\nproperty float y\nproperty float z\n"
  test.each([
    [bytes("OFF"), /not a PLY file/],
    [bytes("ply\nformat ascii 1.0\n"), /no end of its header/],
    [bytes("ply\nelement vertex 0\nend_header\n"), /does not say its format/],
    [head("binary_middle_endian", ""), /unknown format "binary_middle_endian"/],
    [head("ascii", "element face 0\n"), /no vertices with x, y and z/],
    [head("ascii", "property float x\n"), /before any element/],
    [head("ascii", `element vertex 1\nproperty quad x\n`), /unknown type "quad"/],
    [head("ascii", `element vertex 1\nproperty float\n`), /without a type or a name/],
    [head("ascii", `element vertex 999999999\n${xyz}`), /claims 999999999 elements/],
    [head("binary_little_endian", `element vertex 2\n${xyz}`), /ends before its elements/],
    [
      head("ascii", `element vertex 0\n${xyz}element face 1\nproperty list uchar int vertex_index\n`),
      /ends before/,
    ],
  ])("refuses what is no good file", (file, message) => {
    expect(() => readPly(file)).toThrow(mx.FormatError)
    expect(() => readPly(file)).toThrow(message)
  })

  test("refuses corners that are not there, and lists too long", () => {
    const faces = `element vertex 1\n${xyz}element face 1\nproperty list int int vertex_index\n`
    const file = (line: string): Uint8Array =>
      Buffer.concat([head("ascii", faces), bytes(`0 0 0\n${line}\n`)])
    expect(() => readPly(file("3 0 0 1"))).toThrow(/corner 1 in a face, expected an integer from 0 to 0/)
    expect(() => readPly(file("-1"))).toThrow(/list of -1/)
    expect(() => readPly(file("1e9"))).toThrow(/list of 1000000000/)
  })
})
