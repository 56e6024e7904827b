/**
 * Files of meshes and points: OFF (Geomview's object file format, http://www.geomview.org/docs/html/OFF.html) and PLY (Turk's polygon file
 * format, 1994), which have no package for Node that reads them without bringing a renderer.
 */
import { readFileSync } from "node:fs"
import * as mx from "@lazuli/core"
import type { Mesh } from "./meshes"

/** A path, or the bytes of a file. */
export type MeshSource = string | Uint8Array

/** The contents of a PLY file: a mesh, and further numbers of each corner. */
export interface PlyMesh extends Mesh {
  /** Properties of corners beside their coordinates, each (V), by their names: `nx`, `red`, … */
  readonly properties: Readonly<Record<string, mx.Array>>
}

type Fail = (fact: string) => mx.FormatError
/** More corners in one face are no face. */
const MAX_CORNERS = 65_536

function open(op: string, source: MeshSource): [bytes: Uint8Array, fail: Fail] {
  if (typeof source !== "string" && !(source instanceof Uint8Array))
    throw new mx.ArgumentError(op, "expected a path or the bytes of a file, as a Uint8Array")
  const name = typeof source === "string" ? JSON.stringify(source) : "this file"
  const bytes = typeof source === "string" ? readFileSync(source) : source
  return [bytes, (fact) => new mx.FormatError(op, `${name} ${fact}`)]
}

const toText = (bytes: Uint8Array): string => new TextDecoder("latin1").decode(bytes)

/** Numbers in a text, one after another; comments go from # to the end of the line. */
class Numbers {
  readonly #pattern = /#[^\n]*|[^\s#]+|\n/g
  constructor(
    readonly text: string,
    at: number,
    readonly fail: Fail,
  ) {
    this.#pattern.lastIndex = at
  }
  /** The next word, or null at the end. */
  word(): string | null {
    for (;;) {
      const [found] = this.#pattern.exec(this.text) ?? [null]
      if (found === null) return null
      if (found !== "\n" && !found.startsWith("#")) return found
    }
  }
  number(of: string): number {
    const word = this.word()
    if (word === null) throw this.fail(`ends before its ${of}`)
    const value = Number(word)
    if (Number.isNaN(value) && word.toLowerCase() !== "nan")
      throw this.fail(`has ${JSON.stringify(word.slice(0, 40))} where a number of its ${of} belongs`)
    return value
  }
  integer(of: string, below: number): number {
    const value = this.number(of)
    if (!Number.isInteger(value) || value < 0 || value >= below)
      throw this.fail(`has ${value} among its ${of}, expected an integer from 0 to ${below - 1}`)
    return value
  }
  endOfLine(): void {
    for (;;) {
      const match = this.#pattern.exec(this.text)
      if (match === null || match[0] === "\n") return
    }
  }
}

/** A polygon as triangles that share its first corner. */
function addTriangles(faces: number[], corners: readonly number[]): void {
  for (let i = 2; i < corners.length; i++) faces.push(corners[0], corners[i - 1], corners[i])
}

const asMesh = (vertices: Float32Array, faces: readonly number[]): Mesh => ({
  vertices: mx.array(vertices).reshape([-1, 3]),
  faces: mx.array(Int32Array.from(faces)).reshape([-1, 3]),
})

/**
 * A mesh from a file in OFF's text form: corners, float32 (V, 3), and faces, int32 (F, 3). Polygons become triangles; colours, normals and
 * texture coordinates are passed over. The count of corners may stand on the line of `OFF`, as in some files of ModelNet.
 * @throws FormatError, which names the file
 * @example
 * const text = 'OFF 4 1 0\n0 0 0\n1 0 0\n1 1 0\n0 1 0\n4 0 1 2 3'
 * readOff(new TextEncoder().encode(text)).faces.tolist() // => [[0, 1, 2], [0, 2, 3]]
 */
export function readOff(source: MeshSource): Mesh {
  const [bytes, fail] = open("readOff", source)
  const text = toText(bytes)
  const header = /^\s*(?:#[^\n]*\n\s*)*(ST)?(C)?(N)?(4)?(n)?OFF/.exec(text)
  if (!header) throw fail("is not an OFF file: it does not begin with OFF")
  if (header[4] || header[5])
    throw fail("has corners with other than three coordinates, which are not supported")
  if (/^\s*BINARY/.test(text.slice(header[0].length, header[0].length + 32)))
    throw fail("is in OFF's binary form, which is not supported")
  const numbers = new Numbers(text, header[0].length, fail)
  // A number takes at least two bytes: what a file claims is bounded by its size.
  const most = text.length
  const count = numbers.integer("number of corners", most)
  const polygons = numbers.integer("number of faces", most)
  numbers.integer("number of edges", Number.MAX_SAFE_INTEGER)
  numbers.endOfLine()
  const vertices = new Float32Array(3 * count)
  for (let i = 0; i < count; i++) {
    for (let axis = 0; axis < 3; axis++) vertices[3 * i + axis] = numbers.number("corners")
    numbers.endOfLine()
  }
  const faces: number[] = []
  for (let i = 0; i < polygons; i++) {
    const corners = numbers.integer("faces", MAX_CORNERS)
    addTriangles(
      faces,
      Array.from({ length: corners }, () => numbers.integer("faces", count)),
    )
    numbers.endOfLine()
  }
  return asMesh(vertices, faces)
}

const READERS = {
  char: [1, (view: DataView, at: number) => view.getInt8(at)],
  uchar: [1, (view: DataView, at: number) => view.getUint8(at)],
  short: [2, (view: DataView, at: number, little: boolean) => view.getInt16(at, little)],
  ushort: [2, (view: DataView, at: number, little: boolean) => view.getUint16(at, little)],
  int: [4, (view: DataView, at: number, little: boolean) => view.getInt32(at, little)],
  uint: [4, (view: DataView, at: number, little: boolean) => view.getUint32(at, little)],
  float: [4, (view: DataView, at: number, little: boolean) => view.getFloat32(at, little)],
  double: [8, (view: DataView, at: number, little: boolean) => view.getFloat64(at, little)],
} as const
type PlyType = keyof typeof READERS
const TYPES: Readonly<Record<string, PlyType>> = {
  ...(Object.fromEntries(Object.keys(READERS).map((name) => [name, name])) as Record<PlyType, PlyType>),
  int8: "char",
  uint8: "uchar",
  int16: "short",
  uint16: "ushort",
  int32: "int",
  uint32: "uint",
  float32: "float",
  float64: "double",
}

interface Property {
  readonly name: string
  readonly type: PlyType
  /** The type of a list's length; null for one number. */
  readonly length: PlyType | null
}
interface Element {
  readonly name: string
  readonly count: number
  readonly properties: Property[]
}
type PlyForm = "ascii" | "binary_little_endian" | "binary_big_endian"

function typeOf(name: string, fail: Fail): PlyType {
  if (!Object.hasOwn(TYPES, name))
    throw fail(`has a property of the unknown type ${JSON.stringify(name.slice(0, 40))}`)
  return TYPES[name]
}

/** The elements of a PLY file, and where they begin. */
function plyHeader(bytes: Uint8Array, fail: Fail): { form: PlyForm; elements: Element[]; begin: number } {
  const text = toText(bytes.subarray(0, 65_536))
  if (!/^ply\r?\n/.test(text)) throw fail("is not a PLY file: it does not begin with ply")
  const end = /(?:^|\n)end_header\r?\n/.exec(text)
  if (!end) throw fail("has no end of its header in the first 65536 bytes")
  let form: PlyForm | null = null
  const elements: Element[] = []
  for (const line of text.slice(0, end.index).split(/\r?\n/).slice(1)) {
    const [word, ...rest] = line.trim().split(/\s+/)
    if (word === "format") {
      if (!["ascii", "binary_little_endian", "binary_big_endian"].includes(rest[0]))
        throw fail(`has the unknown format ${JSON.stringify(String(rest[0]).slice(0, 40))}`)
      form = rest[0] as PlyForm
    } else if (word === "element") {
      const count = Number(rest[1])
      if (!Number.isSafeInteger(count) || count < 0 || count > bytes.length)
        throw fail(`claims ${rest[1]} elements, which its ${bytes.length} bytes cannot hold`)
      elements.push({ name: rest[0], count, properties: [] })
    } else if (word === "property") {
      const element = elements[elements.length - 1]
      if (element === undefined) throw fail("has a property before any element")
      const isList = rest[0] === "list"
      const [type, name] = isList ? rest.slice(2) : rest
      if (type === undefined || name === undefined) throw fail("has a property without a type or a name")
      element.properties.push({
        name,
        type: typeOf(type, fail),
        length: isList ? typeOf(rest[1], fail) : null,
      })
    }
  }
  if (form === null) throw fail("does not say its format")
  return { form, elements, begin: end.index + end[0].length }
}

/** The next number of a type, in the file's form. */
function plyNumbers(bytes: Uint8Array, begin: number, form: PlyForm, fail: Fail): (type: PlyType) => number {
  if (form === "ascii") {
    const numbers = new Numbers(toText(bytes), begin, fail)
    return () => numbers.number("elements")
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let at = begin
  return (type) => {
    const [size, read] = READERS[type]
    if (at + size > bytes.length) throw fail("ends before its elements")
    at += size
    return read(view, at - size, form === "binary_little_endian")
  }
}

/**
 * A mesh, or points alone, from a PLY file: text, or binary of either order of bytes. Corners are float32 (V, 3), faces int32 (F, 3), with
 * polygons as triangles, and further properties of corners stand by their names, float32 (V). Other elements and lists are passed over.
 * @throws FormatError, which names the file
 * @example
 * const header = 'ply\nformat ascii 1.0\nelement vertex 2\nproperty float x\nproperty float y\nproperty float z\nproperty uchar red\n'
 * const cloud = readPly(new TextEncoder().encode(`${header}end_header\n0 0 1 255\n0 0 2 0\n`))
 * cloud.vertices.tolist() // => [[0, 0, 1], [0, 0, 2]]
 * cloud.properties.red.tolist() // => [255, 0]
 */
export function readPly(source: MeshSource): PlyMesh {
  const [bytes, fail] = open("readPly", source)
  const { form, elements, begin } = plyHeader(bytes, fail)
  const next = plyNumbers(bytes, begin, form, fail)
  const columns = new Map<string, Float32Array>()
  const faces: number[] = []
  const corners = elements.find(({ name }) => name === "vertex")
  if (!corners || !["x", "y", "z"].every((axis) => corners.properties.some(({ name }) => name === axis)))
    throw fail("has no vertices with x, y and z")
  for (const element of elements) {
    const isVertex = element === corners
    for (const { name, length } of element.properties)
      if (isVertex && length === null) columns.set(name, new Float32Array(element.count))
    for (let i = 0; i < element.count; i++)
      for (const { name, type, length } of element.properties) {
        if (length === null) {
          const value = next(type)
          if (isVertex) (columns.get(name) as Float32Array)[i] = value
          continue
        }
        const count = next(length)
        if (!Number.isInteger(count) || count < 0 || count > MAX_CORNERS)
          throw fail(`has a list of ${count} numbers`)
        const list = Array.from({ length: count }, () => next(type))
        if (element.name !== "face" || !/^vertex_ind(ex|ices)$/.test(name)) continue
        const wrong = list.find(
          (corner) => !Number.isInteger(corner) || corner < 0 || corner >= corners.count,
        )
        if (wrong !== undefined)
          throw fail(`has corner ${wrong} in a face, expected an integer from 0 to ${corners.count - 1}`)
        addTriangles(faces, list)
      }
  }
  const vertices = new Float32Array(3 * corners.count)
  ;["x", "y", "z"].forEach((axis, k) => {
    const column = columns.get(axis) as Float32Array
    for (let i = 0; i < corners.count; i++) vertices[3 * i + k] = column[i]
    columns.delete(axis)
  })
  const properties = Object.fromEntries([...columns].map(([name, column]) => [name, mx.array(column)]))
  return { ...asMesh(vertices, faces), properties }
}
