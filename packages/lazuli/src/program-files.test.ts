/**
 * Damaged and hostile program files: whatever is changed in one, it is refused in plain words, or is another program.
 * `LAZULI_FILE_RUNS=100000` looks longer, `LAZULI_FILE_SEED` elsewhere.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { integers } from "@lazuli/conformance/generator"
import { arraysOf } from "@lazuli/core/engine"
import { mx, nn } from "lazuli"
import { afterAll, beforeAll, expect, test } from "vitest"

const RUNS = Number(process.env.LAZULI_FILE_RUNS ?? 1500)
const SEED = Number(process.env.LAZULI_FILE_SEED ?? 1)
/** The longest that a load may take, in milliseconds; a busy machine gets some more. */
const LONGEST = 1000

type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

let folder: string
let limit: number
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "lazuli-programs-"))
  // A file may ask for arrays of any size.
  limit = mx.setMemoryLimit(2 ** 28)
})
afterAll(() => {
  mx.setMemoryLimit(limit)
  rmSync(folder, { recursive: true, force: true })
})

const x = mx.arange(12).reshape([3, 4]).astype(mx.float32)
const loss = (v: mx.Array): mx.Array => v.softmax(-1).multiply(v.index("::-1")).cumsum(0).max(1).sum()
const updated = (v: mx.Array): mx.Array => {
  const y = v.add(0)
  y.set(["1:", [0, 2]], 5)
  y.set([v.greater(5)], 1)
  return y.at(0, "1:3").add(2)
}
const programs: ((v: mx.Array) => unknown)[] = [
  (v) => [
    v.flatten(0, 1).unflatten(0, [2, 6]),
    v.transpose([1, 0]),
    v.reshape([4, -1]),
    v.squeeze().expandDims([0, 2]),
  ],
  (v) => [
    v.index("1:", [0, -1], null),
    v.take(mx.array([1, 0], mx.int32), 1),
    mx.takeAlongAxis(v, v.argsort(-1), -1),
    updated(v),
  ],
  (v) => [
    mx.split(v, 2, 1),
    mx.concatenate([v, v], 0),
    mx.stack([v, v], 1),
    mx.pad(v, [
      [1, 0],
      [0, 2],
    ]),
    mx.tile(v, [2, 1]),
    v.repeat(2, 0),
    mx.roll(v, 1),
  ],
  (v) => [
    mx.einsum("ij,kj->ik", v, v),
    v.matmul(v.T),
    mx.addmm(v.sum(0), v, mx.eye(4)),
    mx.fast.rmsNorm(v, null, 1e-5),
    mx.fast.layerNorm(v, null, null, 1e-5),
  ],
  (v) => [
    v.sum([0, 1]),
    v.var(0),
    v.logsumexp(1),
    v.cumprod(1, { reverse: true }),
    v.topk(2),
    v.sort(0),
    mx.searchsorted(mx.arange(4), v),
  ],
  (v) => [
    mx.grad(loss)(v),
    mx.jvp(loss, [v], [v])[1][0],
    mx.vmap(loss)(v.expandDims(1)),
    mx.linearize(loss, [v])[1](v),
  ],
  (v) => [
    mx.random.normal([2, 3]),
    mx.random.randint(0, 5, [3]),
    mx.random.permutation(v),
    v.view(mx.int16),
    mx.asStrided(v, [2, 2], [1, 3], 1),
  ],
  (v) => [
    mx.conv2d(v.reshape([1, 3, 4, 1]), mx.ones([2, 2, 2, 1]), 1, 1),
    new nn.MaxPool2d(2).forward(v.reshape([1, 3, 4, 1])),
    new nn.GRU(4, 3).forward(v.expandDims(0)),
    nn.gelu(nn.leakyRelu(v, 0.1)),
    nn.losses.crossEntropy(v, mx.array([0, 1, 2], mx.int32)),
    new nn.Upsample({ scaleFactor: 2, mode: "linear" }).forward(v.expandDims(0)),
  ],
  (v) => [
    mx.fft.rfft(v),
    mx.linalg.qr(v),
    mx.linalg.norm(v),
    mx.fast.rope(v.expandDims(0), 4, { traditional: false, base: 1e4, scale: 1, offset: 0 }),
    mx.quantize(mx.tile(v, [1, 16]), 32, 4),
  ],
]

/** A file's header and what follows it. */
function parts(file: string): { header: { __metadata__: { lazuli_program: string } }; data: Buffer } {
  const bytes = readFileSync(file)
  const length = Number(bytes.readBigUInt64LE(0))
  return { header: JSON.parse(bytes.toString("utf8", 8, 8 + length)), data: bytes.subarray(8 + length) }
}

const below = integers(SEED)
const pick = <T>(list: readonly T[]): T => list[below(list.length)]

const NUMBERS = [
  0,
  1,
  -1,
  2,
  3,
  5,
  7,
  64,
  255,
  65536,
  2 ** 31,
  -(2 ** 31),
  2 ** 32,
  1e9,
  2 ** 53,
  -(2 ** 53),
  1e300,
  0.5,
  -2.5,
]
const TEXTS = [
  "",
  "set",
  "ij->",
  "...",
  "::-1",
  "1:99999999999",
  "__proto__",
  "constructor",
  "x".repeat(5000),
]
const VALUES: (() => Json)[] = [
  () => null,
  () => pick([true, false]),
  () => pick(NUMBERS),
  () => pick(TEXTS),
  () => [],
  () => Array.from({ length: below(5) }, () => pick(NUMBERS)),
  () => ({ value: below(8) }),
  () => ({ node: below(8) }),
  () => ({ constant: `constant.${below(3)}` }),
  () => ({ dtype: pick(["float32", "int8", "complex64", "bool_", "nothing"]) }),
  () => ({ slice: [pick(NUMBERS), null, pick(NUMBERS)] }),
  () => ({ number: pick(["NaN", "Infinity", "1e9"]) }),
  () => ({ bigint: pick(["9223372036854775807", "-1", "x"]) }),
  () => ({ undefined: true }),
  () => ({ object: { axis: pick(NUMBERS), shape: [pick(NUMBERS)] } }),
]

/** Every position of a tree, as a list or an object with a key. */
function positions(tree: Json, found: [Json[] | Record<string, Json>, string | number][] = []): typeof found {
  if (tree === null || typeof tree !== "object") return found
  for (const key of Object.keys(tree)) {
    const at = Array.isArray(tree) ? Number(key) : key
    found.push([tree, at])
    positions((tree as Record<string, Json>)[key], found)
  }
  return found
}

/** Changes one thing. */
function mutate(program: Json, names: readonly string[]): void {
  const [holder, key] = pick(positions(program))
  const target = holder as Record<string, Json>
  const value = target[key]
  if (key === "call" && below(3) > 0) target.call = pick(names)
  else if (Array.isArray(value) && below(2) === 0) {
    const change = below(4)
    if (change === 0) value.splice(below(value.length + 1), 0, pick(VALUES)())
    else if (change === 1) value.splice(below(value.length), 1)
    else if (change === 2 && value.length > 0) value.push(structuredClone(pick(value)))
    else value.sort(() => below(3) - 1)
  } else if (typeof value === "number" && below(2) === 0)
    target[key] = pick([value + 1, value - 1, -value, value * 1e9])
  else if (below(8) === 0) delete target[key]
  else if (below(3) === 0)
    target[key] = structuredClone((pick(positions(program)) as [Record<string, Json>, string])[0]) as Json
  else target[key] = pick(VALUES)()
}

/** Words that only the engine's own errors have. */
const INTERNAL =
  /properties of (undefined|null)|undefined is not|is not a function|is not iterable|Cannot (read|destructure|convert|mix)|malformed record|is not defined|Maximum call stack|Invalid array length|promised/

test("a program changed anywhere is refused in plain words, or is another program", {
  timeout: 3_600_000,
}, () => {
  const originals = programs.map((f, i) => {
    const file = join(folder, `original-${i}.lazuli`)
    mx.exportFunction(file, f, [x], { shapeless: i % 2 === 1 })
    return parts(file)
  })
  const names = [
    ...new Set(
      originals.flatMap(({ header }) =>
        [...header.__metadata__.lazuli_program.matchAll(/"call":"([^"]*)"/g)].map((m) => m[1]),
      ),
    ),
    ...Object.keys(mx).filter(
      (name) => typeof (mx as unknown as Record<string, unknown>)[name] === "function",
    ),
    ..."transpose softmax flatten sliceUpdate gather scatter".split(" ").map((name) => `primitive ${name}`),
  ]
  const outcomes = { refused: 0, failed: 0, other: 0 }
  let longest = 0
  const wrong = new Map<string, string>()
  const file = join(folder, "changed.lazuli")
  for (let run = 0; run < RUNS; run++) {
    const { header, data } = pick(originals)
    const program = JSON.parse(header.__metadata__.lazuli_program) as Json
    for (let n = 1 + below(3); n > 0; n--) mutate(program, names)
    const text = JSON.stringify(program)
    const bytes = Buffer.from(JSON.stringify({ ...header, __metadata__: { lazuli_program: text } }))
    const length = Buffer.alloc(8)
    length.writeBigUInt64LE(BigInt(bytes.length))
    writeFileSync(file, Buffer.concat([length, bytes, data]))
    if (process.env.LAZULI_FILE_TRACE) writeFileSync(process.env.LAZULI_FILE_TRACE, text)
    const check = (error: unknown): void => {
      const { message } = error as Error
      if (error instanceof mx.LazuliError && !INTERNAL.test(message) && message.length < 1500) return
      const kind = message.replace(/\d+/g, "#").slice(0, 120)
      if (!wrong.has(kind)) wrong.set(kind, `${(error as Error).stack}\n${text.slice(0, 3000)}`)
    }
    const begun = performance.now()
    let f: (v: mx.Array) => unknown
    try {
      f = mx.importFunction<[mx.Array], unknown>(file)
    } catch (error) {
      check(error)
      outcomes.refused++
      continue
    } finally {
      const took = performance.now() - begun
      if (took > longest) longest = took
      if (took > LONGEST) console.log(took, text.slice(0, 3000))
    }
    try {
      const result = f(x)
      // Values of a billion elements are nobody's mistake here.
      mx.eval(arraysOf(result).filter(({ size }) => size < 1e6))
      outcomes.other++
    } catch (error) {
      check(error)
      outcomes.failed++
    }
  }
  console.log(outcomes, longest)
  expect([...wrong.values()]).toEqual([])
  expect(outcomes.refused).toBeGreaterThan(RUNS / 3)
  expect(outcomes.other).toBeGreaterThan(RUNS / 50)
  expect(longest).toBeLessThan(LONGEST * 2)
})
