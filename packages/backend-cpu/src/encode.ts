/**
 * From nodes to records: operands, parameters, and the words of scalar programs.
 */
import {
  type AnyParams,
  broadcastStrides,
  contiguousStrides,
  type Dtype,
  float32,
  type Node,
  type ParamSchema,
  type Primitive,
  SCALAR,
  type ScalarProgram,
  type ScalarValue,
  type Shape,
  type Storage,
  type Strides,
  sameShape,
  sizeOf,
} from "@lazuli/core/engine"
import { CommandBuffer, Flag, MAX_INT, Op, putOperand } from "./command-buffer"

/** One array as a kernel takes it. */
export function writeOperand(commands: CommandBuffer, node: Node): void {
  const { shape, dtype } = node
  commands.operand(
    (node.storage as Storage).id,
    dtype.code,
    node.offset * dtype.size,
    sizeOf(shape),
    shape,
    node.strides,
  )
}

/** The same without its strides: an array that lies without gaps, seen with its axes in the order in which they lie. */
export function writeInOrder(commands: CommandBuffer, node: Node, shape: Shape): void {
  const { storage, dtype, offset } = node
  commands.operand((storage as Storage).id, dtype.code, offset * dtype.size, sizeOf(shape), shape, null)
}

/**
 * The axes of arrays of one shape in the order in which all of them lie in memory without gaps, the outermost first; null where that is
 * the row-major order, or where there is none.
 */
export function commonOrder(nodes: readonly Node[], shape: Shape): readonly number[] | null {
  const strides = nodes[0]?.strides
  if (!strides || sizeOf(shape) === 0) return null
  const order = shape.map((_, axis) => axis).sort((a, b) => strides[b] - strides[a])
  const steps = contiguousStrides(order.map((axis) => shape[axis]))
  const lies = (node: Node): boolean =>
    node.strides !== null &&
    sameShape(node.shape, shape) &&
    order.every((axis, i) => shape[axis] === 1 || (node.strides as Strides)[axis] === steps[i])
  return nodes.every(lies) ? order : null
}

/** Only so many inputs of elementwise work may be single elements. */
const MAX_SINGLE = 64
/** A DENSE record has a bit for each input in half a word. */
const MAX_DENSE = 16

/**
 * The record of elementwise work of one result on whole row-major arrays, single elements and numbers, which most is. Returns false, and
 * writes nothing, where it is another. There is room for it.
 */
export function writeDense(commands: CommandBuffer, program: number, node: Node): boolean {
  const { inputs, shape } = node
  const count = inputs.length
  const size = sizeOf(shape)
  if (count > MAX_DENSE || size > MAX_INT) return false
  const { i32 } = commands
  const start = commands.length * 2
  let at = start + 6
  let bits = 0
  for (let k = 0; k < count; k++, at += 2) {
    const input = inputs[k]
    const { storage, dtype, strides } = input
    if (storage === null) {
      const { value } = input.params
      if (dtype !== float32 || typeof value !== "number") return false
      bits |= 0x10000 << k
      commands.f32[at] = value
      i32[at + 1] = 0
      continue
    }
    if (strides !== null || !sameShape(input.shape, shape)) {
      if (!isOneElement(input.shape, strides)) return false
      bits |= 1 << k
    }
    const offset = input.offset * dtype.size
    if (offset > MAX_INT) return false
    i32[at] = storage.id
    i32[at + 1] = offset
  }
  i32[at] = (node.storage as Storage).id
  i32[at + 1] = node.offset * node.dtype.size
  i32[start] = Op.Dense
  i32[start + 1] = count + 4
  i32[start + 2] = program
  i32[start + 3] = count
  i32[start + 4] = size
  i32[start + 5] = bits
  commands.length = (at >> 1) + 1
  return true
}

/**
 * The record of a kernel of one result, with its operands written at once: every call of a method of the buffer stores its length anew.
 * Returns false, with nothing that counts written, where a number takes more than half a word. There is room for it.
 */
export function writeRun(commands: CommandBuffer, id: number, fields: readonly Field[], node: Node): boolean {
  const { inputs } = node
  const { i32 } = commands
  let at = commands.length * 2 + 6
  for (let k = 0; k < inputs.length && at > 0; k++) at = put(i32, at, inputs[k])
  if (at > 0) at = put(i32, at, node)
  if (at < 0) return false
  commands.beginCall(Op.Run, id, inputs.length, 1)
  commands.length = at >> 1
  writeParams(commands, fields, node.params)
  commands.end()
  return true
}

const put = (i32: Int32Array, at: number, { storage, dtype, offset, shape, strides }: Node): number =>
  putOperand(i32, at, (storage as Storage).id, dtype.code, offset * dtype.size, sizeOf(shape), shape, strides)

/** Input `index` of elementwise work: an immediate, a single element, or an array read with the output's shape. */
export function writeMapInput(commands: CommandBuffer, node: Node, index: number, out: Shape): void {
  const { storage, dtype, shape, strides } = node
  if (storage === null) {
    commands.pair(0, dtype.code | (Flag.Immediate << 16))
    commands.scalar(dtype, node.params.value as ScalarValue)
    return
  }
  const whole = strides === null && (shape === out || sameShape(shape, out))
  if (!whole && index < MAX_SINGLE && isOneElement(shape, strides)) {
    commands.operand(storage.id, dtype.code, node.offset * dtype.size, 1, SCALAR, null)
    return
  }
  const steps = whole ? null : broadcastStrides(shape, strides ?? contiguousStrides(shape), out)
  commands.operand(storage.id, dtype.code, node.offset * dtype.size, sizeOf(out), out, steps)
}

/** True if an array is one element of memory, however often it is repeated. */
function isOneElement(shape: Shape, strides: Strides | null): boolean {
  for (let i = 0; i < shape.length; i++)
    if (shape[i] === 0 || (shape[i] !== 1 && (strides === null || strides[i] !== 0))) return false
  return true
}

const utf8 = new TextEncoder()

/** A parameter of a kernel. */
export interface Field {
  readonly name: string
  /** Its type, without the mark of what may be null. */
  readonly type: string
  readonly mayBeNull: boolean
  /** True if its values have a length, and may take more than two words. */
  readonly hasLength: boolean
  /** The strings that it may be, which are written by their number; null for other types. */
  readonly words: readonly string[] | null
}

/** The parameters of a schema, in its order: read once, as every record has some. */
export const fieldsOf = (schema: ParamSchema): readonly Field[] =>
  Object.entries(schema).map(([name, type]) => {
    if (typeof type !== "string") return { name, type: "", mayBeNull: false, hasLength: false, words: type }
    const mayBeNull = type.endsWith("?")
    const kind = mayBeNull ? type.slice(0, -1) : type
    return { name, type: kind, mayBeNull, hasLength: kind === "string" || kind.endsWith("[]"), words: null }
  })

/** Parameters in the order of the schema; see lazuli/kernel.h. */
export function writeParams(commands: CommandBuffer, fields: readonly Field[], params: AnyParams): void {
  for (let i = 0; i < fields.length; i++) {
    const { name, type, mayBeNull, words } = fields[i]
    const value = params[name]
    if (words !== null) {
      commands.int(words.indexOf(value as string))
      continue
    }
    if (mayBeNull) commands.int(value === null ? 0 : 1)
    if (!mayBeNull || value !== null) writeValue(commands, type, value)
  }
}

function writeValue(commands: CommandBuffer, type: string, value: unknown): void {
  switch (type) {
    case "f64":
      commands.double(value as number)
      break
    case "i64":
      commands.int(value as number)
      break
    case "bool":
      commands.int(value ? 1 : 0)
      break
    case "dtype":
      commands.int((value as Dtype).code)
      break
    case "i64[]":
    case "f64[]": {
      const list = value as readonly number[]
      commands.int(list.length)
      for (const v of list) type === "i64[]" ? commands.int(v) : commands.double(v)
      break
    }
    case "string": {
      const bytes = utf8.encode(value as string)
      commands.int(bytes.length)
      for (let i = 0; i < bytes.length; i += 8) {
        const word = new Uint8Array(8)
        word.set(bytes.subarray(i, i + 8))
        const halves = new Int32Array(word.buffer)
        commands.pair(halves[0], halves[1])
      }
      break
    }
    default:
      throw new TypeError(`a kernel cannot read a parameter of type ${type}`)
  }
}

/** True if a kernel can read all parameters of a primitive. */
export function isEncodable(primitive: Primitive): boolean {
  return Object.values(primitive.schema).every(
    (type) => typeof type !== "string" || !["program", "function", "value"].includes(type),
  )
}

/** An upper bound on the words that an elementwise record takes. */
export function mapWords(node: Node): number {
  const operands = node.inputs.length + (node.outputs === null ? 1 : node.outputs.length)
  return 4 + operands * (4 + 2 * node.shape.length)
}

/** An upper bound on the words that a kernel's record takes. */
export function recordWords(node: Node, fields: readonly Field[]): number {
  const { inputs, outputs, params } = node
  let words = 8 + 2 * fields.length
  for (let i = 0; i < inputs.length; i++) words += 4 + 2 * inputs[i].shape.length
  if (outputs === null) words += 4 + 2 * node.shape.length
  else for (let i = 0; i < outputs.length; i++) words += 4 + 2 * outputs[i].shape.length
  for (let i = 0; i < fields.length; i++) {
    const { name, hasLength } = fields[i]
    if (hasLength) words += (params[name] as { length: number } | null)?.length ?? 0
  }
  return words
}

/** A scalar program's words for registration, op codes looked up in `ops`. */
export function programWords(program: ScalarProgram, ops: ReadonlyMap<string, number>): ArrayBuffer {
  const commands = new CommandBuffer(
    3 + program.inputs.length + program.code.length * 6 + program.outputs.length,
  )
  commands.int(program.inputs.length)
  commands.int(program.code.length)
  commands.int(program.outputs.length)
  for (const dtype of program.inputs) commands.int(dtype.code)
  for (const step of program.code) {
    commands.int(ops.get(step.op) as number)
    commands.int(step.dtype.code)
    for (let i = 0; i < 3; i++) commands.int(step.args[i] ?? -1)
    if (step.op === "constant") commands.scalar(step.dtype, step.value as ScalarValue)
    else commands.int(0)
  }
  for (const register of program.outputs) commands.int(register)
  return commands.buffer
}
