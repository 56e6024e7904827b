/** The memory limit and what evaluation takes: on devices that count each byte the two are the same, for random programs. */
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { type Backend, type MemoryStats, registerBackend, setBackend } from "@lazuli/core/engine"
import fc from "fast-check"
import { expect, test } from "vitest"
import { discreteBackend } from "../test/discrete-backend"

const host = discreteBackend("host", Infinity, "cpu")
const card = discreteBackend("card", Infinity, "gpu")
const devices = [host, card]
for (const device of devices) registerBackend(device)
const figures = ({ memory }: Backend): MemoryStats => (memory.stats as () => MemoryStats)()
setBackend("host", "cpu")
setBackend("card", "gpu")

/** A program's step: work on two arrays of rows · columns elements. */
type Operation = (a: mx.Array, b: mx.Array) => mx.Array
const operationsOn = (rows: number, columns: number): readonly Operation[] => {
  const size = rows * columns
  return [
    (a, b) => a.flatten().add(b.flatten()),
    (a) => a.multiply(2),
    (a) => a.exp().subtract(1),
    (a) => a.reshape([columns, rows]).T,
    (a) => a.reshape([rows, columns]).T.flatten(),
    (a, b) => mx.concatenate([a.flatten(), b.flatten()]).index(`2:${size + 2}`),
    (a, b) =>
      a
        .reshape([rows, columns])
        .matmul(b.reshape([columns, rows]))
        .matmul(a.reshape([rows, columns])),
    (a) =>
      a
        .flatten()
        .index("::2")
        .expandDims(1)
        .add(mx.ones([1, 2]))
        .flatten(),
    (a) =>
      a
        .reshape([rows, columns])
        .sum(1, true)
        .add(a.reshape([rows, columns])),
    (a) => mx.softmax(a.flatten()),
    (a) => mx.sort(a.flatten()),
    (a) => a.flatten().index("::-1"),
    (a) => a.view(mx.int32).view(mx.float32),
    (a) => mx.broadcastTo(a.flatten().index("3:4"), [size]),
    (a) => mx.stack(mx.split(a.flatten(), 2)).flatten(),
  ]
}
const donating = compile((a: mx.Array) => a.multiply(2).add(a.exp()).flatten(), { donate: [0] })

/** Eager and compiled, on small arrays and on such as plans do not make row-major for good. */
const families = [
  [4, 6],
  [48, 32],
].map(([rows, columns]) => {
  const eager = operationsOn(rows, columns)
  const compiled = eager.map((f) =>
    compile((a: mx.Array, b: mx.Array) => f(a.multiply(3), b).flatten().add(a.flatten().sum())),
  )
  return { rows, columns, eager, compiled, donating: eager.map(() => donating) }
})

interface Step {
  readonly op: number
  readonly way: "eager" | "compiled" | "donating"
  readonly first: number
  readonly second: number
  readonly device: number
  readonly dispose: boolean
  readonly evaluate: boolean
}
const steps: fc.Arbitrary<Step[]> = fc.array(
  fc.record({
    op: fc.nat(families[0].eager.length - 1),
    way: fc.constantFrom("eager", "eager", "eager", "compiled", "donating"),
    first: fc.nat(7),
    second: fc.nat(7),
    device: fc.nat(1),
    dispose: fc.boolean(),
    evaluate: fc.nat(5).map((n) => n === 0),
  }),
  { minLength: 1, maxLength: 14 },
)

/** Adds a program to the graph, and gives its arrays. What is disposed only the graph knows. */
function build(family: (typeof families)[number], program: readonly Step[]): mx.Array[] {
  const { rows, columns } = family
  const arrays = [mx.arange(rows * columns).astype(mx.float32), mx.ones([rows, columns]).add(1)]
  for (const { op, way, first, second, device, dispose, evaluate } of program) {
    const [i, k] = [first % arrays.length, second % arrays.length]
    const [a, b] = [arrays[i], arrays[k]]
    const result = mx.stream(device === 0 ? mx.cpu : mx.gpu, () => family[way][op](a, b))
    if (evaluate) mx.eval(result)
    arrays.push(result)
    if (dispose || way === "donating") arrays.splice(i, 1)[0].dispose()
  }
  return arrays
}

test("an evaluation takes as much as it is refused for, on each device", () => {
  let refusals = 0
  const property = fc.property(fc.nat(families.length - 1), steps, (which, program) => {
    const arrays = mx.tidy(() => build(families[which], program))
    for (const device of devices) device.memory.setLimit?.(figures(device).active)
    try {
      for (;;) {
        for (const { memory } of devices) memory.resetPeak?.()
        try {
          mx.eval(arrays)
          break
        } catch (error) {
          const [, name, needed] = /out of memory of (\w+): needs (\d+) bytes/.exec(String(error)) ?? []
          const lacking = devices.find((device) => device.name === name)
          if (lacking === undefined) throw error
          refusals++
          const { active, peak } = figures(lacking)
          expect(peak).toBe(active)
          lacking.memory.setLimit?.(active + Number(needed))
        }
      }
      for (const device of devices) {
        const { peak, limit } = figures(device)
        expect(peak).toBe(limit)
      }
    } finally {
      for (const { memory } of devices) memory.setLimit?.(Infinity)
      for (const array of arrays) array.dispose()
    }
  })
  fc.assert(property, { numRuns: Number(process.env.LAZULI_PROPERTY_RUNS ?? 150), seed: 16 })
  expect(refusals).toBeGreaterThan(50)
})
