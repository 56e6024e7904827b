/**
 * Random programs whose exchanges come in one order on all ranks, whatever differs between these: the sizes of their own arrays, down to
 * none, constants, what is compiled, inside a transform or around it, and what was computed before. Arguments: the first seed and the
 * number of programs. Prints one line of JSON: the programs that failed, and how.
 */
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import { integers } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import { sumGradients } from "@lazuli/nn"
import { checkpoint, grad, jvp, valueAndGrad, vjp, vmap } from "@lazuli/transforms"
import "@lazuli/distributed"

const [, , first, count] = process.argv
const group = mx.distributed.init(true)
const [rank, size] = [group.rank(), group.size()]
const device = mx.defaultDevice()
const streams = [mx.defaultStream(device), mx.newStream(device), mx.newStream(device)]

/** Results of weights, which are equal on all ranks, and of this rank's rows. */
type Program = (weights: mx.Array[], rows: mx.Array) => mx.Array[]

const EXAMPLES = 3
/** The weights of as many examples. */
const batched = (weights: readonly mx.Array[]): mx.Array[] =>
  weights.map((w) => mx.stack(Array.from({ length: EXAMPLES }, (_, i) => w.multiply(i + 1))))
/** A number that depends on every result, of one example or of several. */
const lossOf =
  (program: Program) =>
  (weights: mx.Array[], rows: mx.Array): mx.Array =>
    program(weights, rows)
      .map((y, i) =>
        y
          .square()
          .mean()
          .multiply(i + 1),
      )
      .reduce((a, b) => a.add(b))
const mapped = (program: Program): Program => vmap(program, { inAxes: [0, null] })
const tangentsOf = (arrays: readonly mx.Array[]): mx.Array[] => arrays.map((x) => mx.onesLike(x))

/** Programs made of programs. */
const TRANSFORMS: readonly ((program: Program) => Program)[] = [
  (program) => program,
  (program) => grad(lossOf(program)),
  (program) => (weights, rows) => {
    const [loss, gradients] = valueAndGrad(lossOf(program))(weights, rows)
    return [...gradients, loss]
  },
  (program) => (weights, rows) => {
    const results = (w: mx.Array[]): mx.Array[] => program(w, rows)
    const [outputs, tangents] = jvp(results, [weights], [tangentsOf(weights)])
    return [...tangents, ...outputs]
  },
  (program) => (weights, rows) => {
    const loss = (w: mx.Array[]): mx.Array => lossOf(program)(w, rows)
    const [[value], [gradients]] = vjp(loss, [weights], [mx.array(2)])
    return [value, ...gradients]
  },
  (program) => (weights, rows) => mapped(program)(batched(weights), rows),
  (program) => (weights, rows) => grad(lossOf(mapped(program)))(batched(weights), rows),
  (program) => (weights, rows) => mapped(grad(lossOf(program)))(batched(weights), rows),
  (program) => grad(lossOf(checkpoint(program))),
  (program) => (weights, rows) => {
    const gradients = (w: mx.Array[]): mx.Array[] => grad(lossOf(program))(w, rows)
    return jvp(gradients, [weights], [tangentsOf(weights)])[1]
  },
]

/** A program for this rank, the same as all ranks may run it, and the sizes of the weights and of the ranks' rows. */
interface Drawn {
  readonly own: Program
  readonly plain: Program
  readonly width: number
  readonly columns: readonly number[]
  readonly rows: readonly number[]
}

/** Of a number, which all ranks draw alike. */
function drawnFrom(seed: number): Drawn {
  const draw = integers(seed)
  const width = 8 * (1 + draw(4))
  const steps = Array.from({ length: 3 + draw(6) }, (_, i) => ({
    kind: draw(10),
    // By the number of elements ranks notice that they do not do the same.
    columns: 2 * size * (i + 1),
    stream: streams[draw(3) < 2 ? 0 : draw(3)],
    scale: draw(3),
    read: draw(4),
    isLarge: draw(2) === 0,
    readsWeights: draw(4) > 0,
    /** The ranks on which this step is compiled by itself. */
    compiled: Array.from({ length: size }, () => draw(4) === 0),
  }))
  const order = steps.map((_, i) => i).sort(() => draw(3) - 1)
  const transform = TRANSFORMS[draw(TRANSFORMS.length)]
  const [inside, around] = [0, 1].map(() => Array.from({ length: size }, () => draw(2) === 0))
  const rows = Array.from({ length: size }, () => [0, 1, 3, 50, 1000, 20_000][draw(6)])
  if (seed % 16 === 0) rows[draw(size)] = 400_000
  const programOf = (isOwn: boolean): Program => {
    const parts = steps.map(({ kind, compiled }) => {
      const part = (x: mx.Array): mx.Array => exchanged(kind, x)
      return isOwn && compiled[rank] ? compile(part) : part
    })
    const program: Program = (weights, given) => {
      const results: mx.Array[] = []
      let local = given
      steps.forEach(({ columns, stream, scale, read, isLarge, readsWeights }, i) => {
        // Work of this rank's size, some of which reads what was exchanged before.
        const before = results.at(-read)
        if (isLarge) local = mx.tanh(local)
        const base = local.sum(0)
        const mixed = before && read > 0 ? base.add(before.sum().multiply(0)) : base
        const filled = mx
          .tile(mixed, Math.ceil(columns / width))
          .index(mx.s(0, columns))
          .multiply(0)
          .add(1)
        const part = readsWeights ? filled.multiply(weights[i]) : filled
        // The same operation on some ranks, and not on others.
        const x = part.multiply(scale === 0 ? rank + 1 : scale === 1 ? 1 : size)
        results.push(mx.stream(stream, () => parts[i](x)))
        if (read === 3) local = local.multiply(results[results.length - 1].sum().multiply(0).add(1))
      })
      return order.map((i) => results[i])
    }
    const inner = isOwn && inside[rank] ? compile(program) : program
    return isOwn && around[rank] ? compile(transform(inner)) : transform(inner)
  }
  return {
    own: programOf(true),
    plain: programOf(false),
    width,
    columns: steps.map(({ columns }) => columns),
    rows,
  }
}

function exchanged(kind: number, x: mx.Array): mx.Array {
  const options = { group }
  switch (kind) {
    case 0:
      return mx.distributed.allMax(x, options)
    case 1:
      return mx.distributed.allGather(x, options)
    case 2:
      return mx.distributed.broadcast(x, { group, root: size - 1 })
    case 3:
      // The same twice, which on some ranks reads the same.
      return mx.distributed.allSum(x, options).add(mx.distributed.allSum(x.multiply(rank), options))
    case 4:
      return mx.distributed.sumScatter(x, options)
    case 5:
      return mx.distributed.allToAll(x, options)
    case 6:
      // Only derivatives exchange something.
      return sumGradients(group)(x)
    case 7:
      // Several at once, of which some are not read.
      return group.gatherParameters([x.multiply(2), x, x.add(1)])[1]
    default:
      return mx.distributed.allSum(x, options)
  }
}

const failed: string[] = []
for (let seed = Number(first); seed < Number(first) + Number(count) && failed.length === 0; seed++) {
  const { own, plain, width, columns, rows } = drawnFrom(seed)
  try {
    for (let call = 0; call < 2; call++) {
      const given = mx.ones([rows[(rank + call) % size], width])
      const weights = columns.map((n) => mx.arange(n).divide(n).add(call))
      // Some ranks have what the program begins with, others not yet.
      if (rank % 2 === call) mx.eval(given)
      const results = own(weights, given)
      mx.eval(results)
      const expected = plain(weights, given)
      mx.eval(expected)
      results.forEach((x, i) => {
        if (!mx.allclose(x, expected[i], { rtol: 1e-4 }).item()) failed.push(`${seed}: result ${i} differs`)
      })
    }
  } catch (error) {
    failed.push(`${seed}: ${(error as Error).message}`)
  }
}
console.log(JSON.stringify(failed))
