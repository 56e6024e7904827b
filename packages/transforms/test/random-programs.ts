/**
 * Random programs for property tests: graphs of a dozen operations that share their intermediates. Test support only; it is not part
 * of the package.
 */
import * as mx from "@lazuli/core"
import fc from "fast-check"
import { checkpoint } from "../src/checkpoint"
import { customFunction } from "../src/custom"

/** A function of two float64 arrays of shape [2, 3] with a result of that shape. */
export type Program = (x: mx.Array, y: mx.Array) => mx.Array

const tripled = customFunction((a: mx.Array) => a.multiply(3))
  .vjp((_a, g) => g.multiply(3))
  .jvp((_a, t) => t.multiply(3))
const rows = mx.array([1, 0, 1], mx.int32)
const spots = mx.array([[2, 0, 1]], mx.int32)
const heads = (x: mx.Array): mx.Array => x.reshape([1, 1, 2, 3])

/** Operations that keep the shape [2, 3]. */
const operations: ((a: mx.Array, b: mx.Array) => mx.Array)[] = [
  (a, b) => a.add(b),
  (a, b) => a.multiply(b),
  (a, b) => a.subtract(b.sum(1, true)),
  (a, b) => a.divide(b.square().add(1)),
  (a, b) => mx.maximum(a, b),
  (a) => a.sin(),
  (a) => a.tanh(),
  (a) => mx.softmax(a, 1),
  (a) => a.T.reshape([2, 3]),
  (a, b) => a.matmul(b.T).matmul(b).tanh(),
  (a, b) => mx.where(a.greater(0.1), a, b),
  (a) => mx.cumsum(a, 0),
  (a) => mx.cumprod(a.tanh(), 1),
  (a) => mx.logcumsumexp(a.tanh(), 1, { reverse: true }),
  (a) => mx.cummax(a, 1),
  (a, b) => mx.concatenate([a.index("0:1"), b.index("1:")], 0),
  (a) => mx.logsumexp(a, 0, true).broadcastTo([2, 3]),
  (a, b) => mx.addmm(a, b, mx.ones([3, 3], mx.float64), 0.3, 0.7),
  (a) => a.index("::-1").multiply(0.5),
  (a) => mx.sort(a, 1),
  (a, b) => mx.take(a, rows, 0).index("0:2").add(b),
  (a) => mx.takeAlongAxis(a, spots, 1),
  (a, b) => a.at(rows).add(mx.stack([b.index(0), b.index(1), b.index(0)])),
  (a, b) => a.at(":", "1:").multiply(b.index(":", ":2").tanh()),
  (a) =>
    mx
      .pad(a, [
        [1, 0],
        [0, 1],
      ])
      .index(":2", "1:"),
  (a) => mx.prod(a.tanh(), 0, true).add(a),
  (a) => mx.fast.layerNorm(a, null, null, 0.1),
  (a, b) => mx.fast.rmsNorm(a, b.index(0), 0.1),
  (a, b) => mx.fast.scaledDotProductAttention(heads(a), heads(b), heads(a), { scale: 0.5 }).reshape([2, 3]),
  (a) => mx.fast.rope(heads(a), 2, { traditional: true, base: 10, scale: 1, offset: 1 }).reshape([2, 3]),
  checkpoint((a: mx.Array, b: mx.Array) => a.multiply(b.cos())),
  (a) => tripled(a),
]

/** Also those whose derivative is not that of their value. */
const withStops = [...operations, (a: mx.Array) => mx.stopGradient(a)]

/** Programs of up to a dozen of `choice`. */
const of = (choice: typeof operations): fc.Arbitrary<Program> =>
  fc
    .array(fc.record({ op: fc.nat(choice.length - 1), a: fc.nat(20), b: fc.nat(20) }), {
      minLength: 1,
      maxLength: 12,
    })
    .map((steps) => {
      const operands = steps.map(({ op, a, b }, i) => [op, i + 1 - (a % (i + 2)), b % (i + 2)] as const)
      const program = (x: mx.Array, y: mx.Array): mx.Array => {
        const made = [x, y]
        for (const [op, a, b] of operands) made.push(choice[op](made[a], made[b]))
        return made[made.length - 1].add(made[made.length - 2])
      }
      const shown = (): string =>
        operands.map(([op, a, b], i) => `v${i + 2} = (${choice[op]})(v${a}, v${b})`).join("\n")
      return Object.assign(program, { [fc.toStringMethod]: shown })
    })

/** Programs whose derivatives are those of their values. */
export const smoothPrograms = of(operations)
/** Any programs. */
export const programs = of(withStops)

const asked = process.env.LAZULI_PROPERTY_RUNS
/** The number of times a property is tried: the same programs every time, or as many random ones as `LAZULI_PROPERTY_RUNS` asks for. */
export const runs = (count: number): { numRuns: number; seed?: number } =>
  asked === undefined ? { numRuns: count, seed: 42 } : { numRuns: Number(asked) }
/** The time a test of properties may take, in milliseconds. */
export const patience = asked === undefined ? 120_000 : 1000 * Number(asked)
