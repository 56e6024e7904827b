/** The fields of a small, well-formed GGUF file, for damage that knows them: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md */
import { type Edit, names } from "./damage"

/** Bytes of numeric metadata by type. */
const WIDTHS: Readonly<Record<number, number>> = {
  0: 1,
  1: 1,
  2: 2,
  3: 2,
  4: 4,
  5: 4,
  6: 4,
  7: 1,
  10: 8,
  11: 8,
  12: 8,
}
const STRING = 8
const LIST = 9

/** Cuts a file into its fields; the last one is the tensors' bytes. A text and its length are one field. */
function fieldsOf(bytes: Buffer): Buffer[] {
  const fields: Buffer[] = []
  let at = 0
  const take = (length: number): Buffer => {
    const field = bytes.subarray(at, at + length)
    at += length
    fields.push(field)
    return field
  }
  const u32 = (): number => take(4).readUInt32LE()
  const u64 = (): number => Number(take(8).readBigUInt64LE())
  const text = (): Buffer => take(8 + Number(bytes.readBigUInt64LE(at)))
  const value = (type: number): void => {
    if (type === STRING) text()
    else if (type === LIST) {
      const item = u32()
      for (let n = u64(); n > 0; n--) value(item)
    } else take(WIDTHS[type])
  }
  take(4)
  u32()
  const tensors = u64()
  for (let keys = u64(); keys > 0; keys--) {
    text()
    value(u32())
  }
  for (let i = 0; i < tensors; i++) {
    text()
    for (let axes = u32(); axes > 0; axes--) u64()
    u32()
    u64()
  }
  take(bytes.length - at)
  return fields
}

const NUMBERS = [
  0n,
  1n,
  2n,
  3n,
  8n,
  9n,
  10n,
  13n,
  16n,
  31n,
  33n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 40n,
  2n ** 53n,
  2n ** 64n - 1n,
]

/** Changes, removes or repeats a field. */
export function damageGguf(bytes: Buffer, list: readonly Edit[]): Buffer {
  const fields = fieldsOf(bytes)
  for (const [kind, at, what] of list) {
    const position = at % fields.length
    const field = fields[position]
    if (kind % 8 === 0) fields.splice(position, 1)
    else if (kind % 8 === 1) fields.splice(position, 0, fields[what % fields.length])
    else if (field.length === 4 || field.length === 8) {
      const changed = Buffer.alloc(8)
      changed.writeBigUInt64LE(NUMBERS[what % NUMBERS.length])
      fields[position] = changed.subarray(0, field.length)
    } else if (field.length > 8) {
      const name = Buffer.from(names[what % names.length])
      const length = Buffer.alloc(8)
      length.writeBigUInt64LE(BigInt(name.length))
      fields[position] = Buffer.concat([length, name])
    }
    if (fields.length === 0) break
  }
  return Buffer.concat(fields)
}
