/**
 * NumPy's .npy format (one array), versions 1.0 to 3.0: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 */

import { evalTrees, partsOf } from "../engine/readback"
import type { Dtype } from "../graph/dtype"
import { ArgumentError, describe, type ErrorDetails, type FormatError } from "../graph/errors"
import { Array } from "../graph/graph"
import { transpose } from "../ops/view"
import { npyNames } from "./element-types"
import { asPath, type BoundedFile, bytesOfShape, type FilePath, swapBytes, writeBeside } from "./files"

/** The longest accepted header; NumPy's have about a hundred bytes. */
const MAX_HEADER = 65536
/** The largest size of the preamble, which precedes the header's text. */
export const NPY_PREAMBLE = 12
const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59]

/** The contents of an .npy header. */
export interface NpyHeader {
  readonly dtype: Dtype
  readonly shape: number[]
  /** Bytes of the elements. */
  readonly length: number
  /** The elements are column-major. */
  readonly fortran: boolean
  /** The elements are big-endian. */
  readonly swapped: boolean
}

/** The range of the header's text, from the preamble of a file of `size` bytes. */
export function npyPreamble(
  preamble: Uint8Array,
  size: number,
  fail: (fact: string) => FormatError,
): [number, number] {
  if (preamble.length < 10 || MAGIC.some((b, i) => preamble[i] !== b)) throw fail("is not an .npy file")
  const major = preamble[6]
  if (major < 1 || major > 3) throw fail(`has unknown format version ${major}`)
  const begin = major === 1 ? 10 : 12
  if (preamble.length < begin) throw fail("ends in its header")
  const view = new DataView(preamble.buffer, preamble.byteOffset, preamble.byteLength)
  const length = major === 1 ? view.getUint16(8, true) : view.getUint32(8, true)
  if (length > MAX_HEADER || begin + length > size) throw fail(`claims a header of ${length} bytes`)
  return [begin, begin + length]
}

/** Parses the header's text, a Python dictionary. The file has `available` bytes after it, which must be exactly the elements. */
export function parseNpyHeader(
  text: string,
  available: number,
  fail: (fact: string, details?: ErrorDetails) => FormatError,
): NpyHeader {
  const descr = /'descr'\s*:\s*'([<>|=]?)([a-zA-Z]\d*)'/.exec(text)
  const order = /'fortran_order'\s*:\s*(True|False)/.exec(text)
  const sizes = /'shape'\s*:\s*\(([\d\s,L]*)\)/.exec(text)
  if (/'descr'\s*:\s*\[/.test(text))
    throw fail("contains structured elements (records), which are not supported")
  if (!descr || !order || !sizes) throw fail("has a malformed header")
  if (descr[2].startsWith("O")) throw fail("contains pickled Python objects, which are never loaded")
  const dtype = npyNames.dtypeOf.get(descr[2])
  if (!dtype) throw fail(`has elements of unknown type ${descr[2]}`)
  const shape = sizes[1]
    .split(",")
    .map((part) => part.trim().replace(/L$/, ""))
    .filter((part) => part !== "")
    .map(Number)
  const length = bytesOfShape(shape, dtype.size, available)
  if (length === null)
    throw fail(
      `has ${available} bytes of elements, but its shape (${sizes[1].trim().slice(0, 100)}) needs more`,
    )
  if (length < available)
    throw fail(`has ${available - length} extra bytes after its elements`, {
      hint: "A file with several arrays saved one after the other is not supported; NumPy's savez saves several in one file",
    })
  return { dtype, shape, length, fortran: order[1] === "True", swapped: descr[1] === ">" }
}

/** The array that a header describes; `make` reads the elements in the order of the file. */
export function npyArray(
  header: NpyHeader,
  make: (shape: number[], dtype: Dtype, convert?: (bytes: Uint8Array) => void) => Array,
): Array {
  const { dtype, shape, fortran, swapped } = header
  const convert = swapped ? (bytes: Uint8Array) => swapBytes(bytes, dtype) : undefined
  if (!fortran || shape.length < 2) return make(shape, dtype, convert)
  return transpose(make(shape.slice().reverse(), dtype, convert))
}

/** Reads an .npy file. @throws FormatError if the file is malformed */
export function readNpy(file: BoundedFile): Array {
  const fail = (fact: string, details?: ErrorDetails): FormatError => file.error(fact, details)
  const [begin, end] = npyPreamble(file.read(0, Math.min(NPY_PREAMBLE, file.size)), file.size, fail)
  const text = Buffer.from(file.read(begin, end - begin)).toString("latin1")
  const header = parseNpyHeader(text, file.size - end, fail)
  return npyArray(header, (shape, dtype, convert) => file.readArray(end, shape, dtype, convert))
}

/** The bytes before the elements in an .npy file. */
export function formatNpyHeader(a: Array): Uint8Array {
  const code = npyNames.nameOf.get(a.dtype) as string
  const shape = `(${a.shape.join(", ")}${a.ndim === 1 ? "," : ""})`
  const text = `{'descr': '${a.dtype.size === 1 ? "|" : "<"}${code}', 'fortran_order': False, 'shape': ${shape}, }`
  // The elements begin at a multiple of 64 bytes.
  const length = Math.ceil((10 + text.length + 1) / 64) * 64 - 10
  const preamble = [...MAGIC, 1, 0, length & 255, length >> 8]
  return Buffer.concat([Buffer.from(preamble), Buffer.from(`${text.padEnd(length - 1)}\n`, "latin1")])
}

/**
 * Saves an array as an .npy file; the extension `.npy` is appended if missing. An existing file is replaced atomically.
 * @throws ArgumentError unless the arguments are a path and an array
 * @example
 * mx.save('/tmp/a.npy', mx.ones([2])); mx.load('/tmp/a.npy').tolist() // => [1, 1]
 */
export function save(file: FilePath, arr: Array): void {
  const path = asPath("save", file, ".npy")
  if (!(arr instanceof Array))
    throw new ArgumentError("save", `arr must be an array, received ${describe(arr)}`)
  evalTrees(arr)
  writeBeside(
    "save",
    path,
    (function* (): Generator<Uint8Array> {
      yield formatNpyHeader(arr)
      yield* partsOf(arr)
    })(),
  )
}
