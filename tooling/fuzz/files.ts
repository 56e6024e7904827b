/**
 * Damaged files of every format: each is refused with an error of ours whose text is for users, or gives what its bytes say, and nothing
 * is left beside it.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import "@lazuli/backend-cpu"
import { exportFunction, importFunction } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import fc from "fast-check"
import { damageBytes, damageJson, damageText, type Edit, edits, textOf, zipOf } from "./damage"
import { Finding, type Fuzzer, internalText } from "./fuzzer"
import { damageGguf } from "./gguf-fields"
import { readPlainly } from "./plain-readers"

// A program may be right and ask for a billion numbers: whoever opens what others wrote sets a limit.
mx.setMemoryLimit(2 ** 30)
const folder = mkdtempSync(join(tmpdir(), "lazuli-fuzz-"))
process.on("exit", () => rmSync(folder, { recursive: true, force: true }))
const path = (name: string): string => join(folder, name)

interface Format {
  readonly ending: string
  /** Well-formed files. */
  readonly bases: readonly Buffer[]
  /** Damage that knows the format. */
  damage(bytes: Buffer, list: readonly Edit[], base: number): Buffer
  /** Reads a file as a user would, and uses what it gives. */
  use(file: string, bytes: Buffer, base: number): string
}

const written = (name: string, write: (file: string) => void): Buffer => {
  const file = path(name)
  write(file)
  const bytes = readFileSync(file)
  rmSync(file)
  return bytes
}

const arrays = {
  a: mx.arange(40).reshape([8, 5]),
  "layers.0.weight": mx.array([true, false, true]),
  "layers.1.weight": mx.array([[1.5, 2.5]], mx.bfloat16),
  d: mx.arange(64).astype(mx.int8).reshape([2, 32]),
  e: mx.zeros([0, 3]),
  f: mx.array([1.5, -2], mx.float64),
  g: mx.array(mx.complex(1, 2)),
}
const members: [string, Buffer][] = Object.entries(arrays).map(([name, a]) => [
  `${name}.npy`,
  written("member.npy", (file) => mx.save(file, a)),
])

const damageNpy = (bytes: Buffer, list: readonly Edit[]): Buffer => {
  const end = 10 + bytes.readUInt16LE(8)
  const text = list.reduce((header, edit) => damageText(header, edit), bytes.toString("latin1", 10, end))
  const preamble = Buffer.from(bytes.subarray(0, 10))
  preamble.writeUInt16LE(text.length & 0xffff, 8)
  return Buffer.concat([preamble, Buffer.from(text, "latin1"), bytes.subarray(end)])
}

/** A safetensors file with another header. */
const withHeader = (bytes: Buffer, change: (header: Record<string, unknown>) => void): Buffer => {
  const end = 8 + Number(bytes.readBigUInt64LE())
  const header = JSON.parse(bytes.toString("utf8", 8, end)) as Record<string, unknown>
  change(header)
  const text = Buffer.from(textOf(header))
  const preamble = Buffer.alloc(8)
  preamble.writeBigUInt64LE(BigInt(text.length))
  return Buffer.concat([preamble, text, bytes.subarray(end)])
}
const damageSafetensors = (bytes: Buffer, list: readonly Edit[]): Buffer =>
  withHeader(bytes, (header) => {
    for (const edit of list) damageJson(header, edit)
  })

/** Arrays by name, as a file's reader gives them. */
const useArrays = (file: string, bytes: Buffer): string => {
  const read = mx.load(file)
  const named = read instanceof mx.Array ? { "": read } : (read as Record<string, mx.Array>)
  const prototype = Object.getPrototypeOf(named) as unknown
  if (prototype !== Object.prototype && prototype !== null) throw new Error("a key became the prototype")
  const total = Object.values(named).reduce((sum, a) => sum + a.nbytes, 0)
  if (total > 1032 * bytes.length) throw new Error(`${bytes.length} bytes became ${total}`)
  mx.eval(named)
  const expected = readPlainly(file, bytes)
  if (expected) compare(named, expected)
  mx.eval(mx.treeUnflatten(named))
  return "read"
}

function compare(named: Record<string, mx.Array>, expected: ReadonlyMap<string, Buffer>): void {
  const keys = Object.keys(named)
  if (keys.length !== expected.size) throw new Error(`${keys.length} arrays, expected ${expected.size}`)
  for (const [key, bytes] of expected) {
    if (!Object.hasOwn(named, key)) throw new Error(`no array ${JSON.stringify(key)}`)
    if (named[key].dtype === mx.bool_) continue
    const got = mx.contiguous(named[key]).flatten().view(mx.uint8).toTypedArray() as Uint8Array
    if (!bytes.equals(got)) throw new Error(`${JSON.stringify(key)} has other bytes`)
  }
}

type Function = (...xs: mx.Array[]) => unknown
const x = mx.arange(12).reshape([3, 4]).astype(mx.float32)
const y = mx.array([[0, 1, 2]], mx.int32)
/** Functions that between them call much of what a file may name. */
const functions: readonly Function[] = [
  (a) => a.sin().add(1).multiply(a.sum(1, true)).astype(mx.float16),
  (a) => mx.softmax(a.reshape([2, 6]).T.matmul(mx.ones([2, 3])), -1),
  (a, i) =>
    mx
      .concatenate([mx.take(a, i, 0).index("...", "::2"), mx.zeros([1, 3, 2])])
      .cumsum(1)
      .flatten(0, 1),
  (a) => mx.conv1d(a.expandDims(0), mx.ones([2, 3, 4]), 1, 1).squeeze(0),
  (a) => ({ top: mx.topk(a, 2), pad: mx.pad(a, 1).at(0).add(2), list: [mx.sort(a), a.max(0)] }),
  (a) => mx.random.normal([3, 4], { key: mx.random.key(3) }).add(a),
  (a) => [...mx.split(mx.fast.layerNorm(a, null, null, 1e-5), 2, 1), mx.linalg.norm(a, { axis: 1 })],
  (a) =>
    mx
      .where(a.greater(2), a, mx.broadcastTo(mx.array(1), [3, 4]))
      .swapaxes(0, 1)
      .unflatten(0, [2, 2]),
]

const model = (): nn.Module => new nn.Sequential(new nn.Linear(3, 2), new nn.Sequential(new nn.LayerNorm(2)))
const weights = Object.fromEntries(mx.treeFlatten(model().parameters()))

const formats: Readonly<Record<string, Format>> = {
  npy: { ending: "npy", bases: members.map(([, bytes]) => bytes), damage: damageNpy, use: useArrays },
  npz: {
    ending: "npz",
    bases: [zipOf(members, false), zipOf(members, true)],
    damage: (_bytes, list, base) => {
      const changed = members.map(([name, bytes]): [string, Buffer] => [name, bytes])
      for (const edit of list) {
        const [kind, at, what] = edit
        const member = changed[at % changed.length]
        if (kind % 5 === 0) changed.push(changed[what % changed.length])
        else if (kind % 5 === 1) member[0] = `${namesOfMembers[what % namesOfMembers.length]}.npy`
        else if (kind % 5 === 2) member[1] = damageBytes(member[1], edit)
        else member[1] = damageNpyOrNot(member[1], edit)
      }
      return zipOf(changed, base % 2 === 1)
    },
    use: useArrays,
  },
  safetensors: {
    ending: "safetensors",
    bases: [written("base.safetensors", (file) => mx.saveSafetensors(file, arrays, { format: "mlx" }))],
    damage: damageSafetensors,
    use: useArrays,
  },
  gguf: {
    ending: "gguf",
    bases: [
      written("base.gguf", (file) => {
        const { "layers.0.weight": _bool, g: _complex, ...rest } = arrays
        mx.saveGguf(file, rest, {
          name: "x",
          words: ["a", "b"],
          n: mx.array([1, 2]),
          k: mx.array(3, mx.uint32),
        })
      }),
    ],
    damage: damageGguf,
    use: useArrays,
  },
  program: {
    ending: "lazuli",
    bases: functions.flatMap((f) =>
      [true, false].map((shapeless) =>
        written("base.lazuli", (file) => exportFunction(file, f, argumentsOf(f), { shapeless })),
      ),
    ),
    damage: (bytes, list) =>
      withHeader(bytes, (header) => {
        const metadata = header.__metadata__ as Record<string, string>
        const program = JSON.parse(metadata.lazuli_program) as unknown
        for (const edit of list) damageJson(program, edit)
        metadata.lazuli_program = textOf(program)
      }),
    use: (file, _bytes, base) => {
      const f = importFunction<mx.Array[], unknown>(file)
      mx.eval(f(...argumentsOf(functions[base >> 1])))
      return "ran"
    },
  },
  weights: {
    ending: "safetensors",
    bases: [written("base.safetensors", (file) => mx.saveSafetensors(file, weights))],
    damage: damageSafetensors,
    use: (file, _bytes, base) => {
      const loaded = model()
      loaded.loadWeights(file, { strict: base % 2 === 0 })
      mx.eval((loaded as nn.Sequential).forward(mx.ones([2, 3])))
      return "read"
    },
  },
}
const namesOfMembers = [
  "__proto__",
  "a",
  "",
  "../../x",
  "constructor",
  "deep.0.0.0",
  `d${".0".repeat(20_000)}`,
]

function argumentsOf(f: Function): mx.Array[] {
  return f.length > 1 ? [x, y] : [x]
}
function damageNpyOrNot(bytes: Buffer, edit: Edit): Buffer {
  return bytes[0] === 0x93 && bytes.length > 80 ? damageNpy(bytes, [edit]) : damageBytes(bytes, edit)
}

interface Damaged {
  readonly format: string
  readonly base: number
  readonly structured: readonly Edit[]
  readonly raw: readonly Edit[]
}

export const files: Fuzzer<Damaged> = {
  cases: fc.record({
    format: fc.constantFrom(...Object.keys(formats)),
    base: fc.nat(63),
    structured: fc.oneof({ arbitrary: edits, weight: 4 }, { arbitrary: fc.constant([]), weight: 1 }),
    raw: fc.oneof({ arbitrary: edits, weight: 1 }, { arbitrary: fc.constant([]), weight: 3 }),
  }),
  attempt({ format, base, structured, raw }) {
    const { ending, bases, damage, use } = formats[format]
    const chosen = base % bases.length
    const whole = bases[chosen]
    const known = structured.length > 0 ? damage(whole, structured, base) : whole
    const bytes = raw.reduce((before, edit) => damageBytes(before, edit), known)
    const file = path(`damaged.${ending}`)
    writeFileSync(file, bytes)
    try {
      const outcome = `${format} ${use(file, bytes, chosen)}`
      const left = readdirSync(folder)
      if (left.length !== 1) throw new Error(`files were left: ${left.join(", ")}`)
      return outcome
    } catch (error) {
      const { message, name } = error as Error
      if (!(error instanceof mx.LazuliError)) throw new Finding(`${format}: raw ${name}`, message, error)
      const internal = internalText(message.replaceAll(file, "FILE"))
      if (internal) throw new Finding(`${format}: internal text`, `${internal}: ${message}`, error)
      return `${format} refused`
    } finally {
      for (const name of readdirSync(folder)) rmSync(path(name))
    }
  },
}
