/**
 * Damage to files, with and without regard to their structure. An edit is three numbers, so that fast-check can make it smaller; each
 * format says what they mean for it.
 */
import { crc32, deflateRawSync } from "node:zlib"
import fc from "fast-check"

/** A change: its kind, where, and to what. Every number counts modulo the choices that there are. */
export type Edit = readonly [kind: number, at: number, what: number]

export const edits: fc.Arbitrary<Edit[]> = fc.array(
  fc.tuple(fc.nat(0xffff), fc.nat(0xffffff), fc.nat(0xffff)),
  { minLength: 1, maxLength: 5 },
)

const WIDE = [0n, 1n, 2n ** 31n, 2n ** 32n, 2n ** 40n, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n]

/** A change of bytes that knows nothing of the format. */
export function damageBytes(bytes: Buffer, [kind, at, what]: Edit): Buffer {
  const copy = Buffer.from(bytes)
  if (copy.length < 16) return Buffer.concat([copy, Buffer.alloc(16, what)])
  const position = at % (copy.length - 8)
  switch (kind % 8) {
    case 0:
      return copy.subarray(0, at % copy.length)
    case 1:
      copy[position] = what
      return copy
    case 2:
      copy[position] ^= 1 << (what % 8)
      return copy
    case 3:
      copy.writeBigUInt64LE(WIDE[what % WIDE.length], position)
      return copy
    case 4:
      copy.writeUInt32LE(Number(WIDE[what % WIDE.length] & 0xffffffffn), position)
      return copy
    case 5:
      copy.copy(copy, position, what % copy.length, (what % copy.length) + 32)
      return copy
    case 6:
      return Buffer.concat([copy.subarray(0, position), copy.subarray(position + 1 + (what % 16))])
    default:
      return Buffer.concat([
        copy.subarray(0, position),
        Buffer.alloc(1 + (what % 16), what),
        copy.subarray(position),
      ])
  }
}

/** Names that files should not have, or not so. */
export const names = [
  "__proto__",
  "constructor",
  "",
  "a",
  "a.b",
  "0",
  "7",
  "99999999999",
  "a.__proto__.b",
  "layers.0.weight",
  "../../x",
  "x\0y",
  "é\u{1f600}",
  "\ud800",
  "toString",
  "__metadata__",
  "n".repeat(5000),
  `deep${".0".repeat(50_000)}`,
]

const leaves: readonly unknown[] = [
  0,
  1,
  -1,
  2,
  3,
  5,
  0.5,
  -0.5,
  1e9,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  1e308,
  null,
  true,
  false,
  [],
  {},
  [0],
  [1, 2, 3],
  [-1],
  [0, 0],
  { value: 0 },
  { node: 1 },
  { dtype: "float16" },
  { number: "Infinity" },
  { number: "NaN" },
  { bigint: "9007199254740993" },
  { undefined: true },
  { object: {} },
  "@deep list@",
  "@deep object@",
  "F32",
  "float32",
  "add",
  "max",
  ...names,
]

type Parent = Record<string | number, unknown>

/** Own keys may be `__proto__`. */
const put = (to: Parent, key: string | number, value: unknown): void => {
  Object.defineProperty(to, key, { value, writable: true, enumerable: true, configurable: true })
}

function* placesOf(value: unknown): Generator<[Parent, string | number]> {
  if (typeof value !== "object" || value === null) return
  for (const key of Array.isArray(value) ? value.keys() : Object.keys(value)) {
    yield [value as Parent, key]
    yield* placesOf((value as Parent)[key])
  }
}

/** Changes a value of a JSON tree in place. */
export function damageJson(tree: unknown, [kind, at, what]: Edit): void {
  const positions = [...placesOf(tree)]
  if (positions.length === 0) return
  const [parent, key] = positions[at % positions.length]
  const [other, otherKey] = positions[what % positions.length]
  const copied = (): unknown => structuredClone(other[otherKey])
  switch (kind % 8) {
    case 0:
      if (Array.isArray(parent)) parent.splice(key as number, 1)
      else delete parent[key]
      return
    case 1:
      if (Array.isArray(parent)) parent.splice(key as number, 0, copied())
      else put(parent, names[what % names.length], structuredClone(parent[key]))
      return
    case 2:
      put(parent, key, copied())
      return
    case 3: {
      const value = parent[key]
      put(parent, key, typeof value === "number" ? value + [1, -1, 0.5, -value - 1][what % 4] : [value])
      return
    }
    default:
      put(parent, key, structuredClone(leaves[what % leaves.length]))
  }
}

/** JSON of a tree, with marks for what would not fit JavaScript's stack. */
export function textOf(tree: unknown): string {
  const depth = 20_000
  return JSON.stringify(tree)
    .replaceAll('"@deep list@"', "[".repeat(depth) + "]".repeat(depth))
    .replaceAll('"@deep object@"', `${'{"object":'.repeat(depth)}{}${"}".repeat(depth)}`)
}

/** Changes a number or a word of a text. */
export function damageText(text: string, [kind, at, what]: Edit): string {
  const tokens = text.split(/(\d+|[A-Za-z_]+)/)
  const position = 1 + 2 * (at % Math.max(1, tokens.length >> 1))
  if (position >= tokens.length) return `${text}${what}`
  const numbers = [
    "0",
    "1",
    "2",
    "7",
    "65535",
    "2147483648",
    "4294967296",
    "9007199254740993",
    "-1",
    "1.5",
    "",
    "(2)",
  ]
  const words = [
    "f8",
    "f2",
    "i1",
    "b1",
    "c8",
    "O",
    "U7",
    "True",
    "False",
    "None",
    "V2",
    "descr",
    "shape",
    "é",
    "",
  ]
  const choices = kind % 4 === 0 ? words.concat(numbers) : /^\d/.test(tokens[position]) ? numbers : words
  tokens[position] = choices[what % choices.length]
  return tokens.join("")
}

/** A ZIP archive whose members are as they are given: names twice, bytes that are no array. */
export function zipOf(
  members: readonly (readonly [name: string, bytes: Buffer])[],
  compress: boolean,
): Buffer {
  const parts: Buffer[] = []
  const directory: Buffer[] = []
  let offset = 0
  for (const [name, bytes] of members) {
    const title = Buffer.from(name.slice(0, 60_000))
    const packed = compress ? deflateRawSync(bytes) : bytes
    const fields = Buffer.alloc(26)
    fields.writeUInt16LE(20, 0)
    fields.writeUInt16LE(compress ? 8 : 0, 4)
    fields.writeUInt32LE(crc32(bytes), 10)
    fields.writeUInt32LE(packed.length, 14)
    fields.writeUInt32LE(bytes.length, 18)
    fields.writeUInt16LE(title.length, 22)
    const entry = Buffer.alloc(46)
    entry.writeUInt32LE(0x02014b50, 0)
    fields.copy(entry, 6)
    entry.writeUInt32LE(offset, 42)
    directory.push(entry, title)
    const local = [Buffer.from([0x50, 0x4b, 3, 4]), fields, title, packed]
    parts.push(...local)
    offset += local.reduce((sum, part) => sum + part.length, 0)
  }
  const entries = Buffer.concat(directory)
  const end = Buffer.alloc(22)
  end.writeUInt32LE(0x06054b50, 0)
  end.writeUInt16LE(members.length, 8)
  end.writeUInt16LE(members.length, 10)
  end.writeUInt32LE(entries.length, 12)
  end.writeUInt32LE(offset, 16)
  return Buffer.concat([...parts, entries, end])
}
