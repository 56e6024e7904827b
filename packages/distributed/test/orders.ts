/**
 * Random programs whose exchanges come in one order on all ranks, whatever differs between these: the sizes of their own arrays, down to
 * none, constants, whether the program is compiled, and what was computed before. Arguments: the first seed and the number of programs.
 * Prints one line of JSON: the programs that failed, and how.
 */
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import { integers } from "@lazuli/conformance/generator"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"

const [, , first, count] = process.argv
const group = mx.distributed.init(true)
const [rank, size] = [group.rank(), group.size()]
const streams = [mx.defaultStream(mx.cpu), mx.newStream(mx.cpu), mx.newStream(mx.cpu)]

/** Results that are equal on all ranks, of a program with this rank's rows. */
type Program = (rows: mx.Array) => mx.Array[]

/** A program, and for which ranks it is compiled. All ranks make the same draws. */
function programOf(seed: number): { program: Program; isCompiled: boolean[]; width: number; own: number[] } {
  const draw = integers(seed)
  const width = 8 * (1 + draw(4))
  const steps = Array.from({ length: 3 + draw(6) }, (_, i) => ({
    kind: draw(6),
    // By the number of elements ranks notice that they do not do the same.
    columns: 2 * size * (i + 1),
    stream: streams[draw(3) < 2 ? 0 : draw(3)],
    scale: draw(3),
    read: draw(4),
    isLarge: draw(2) === 0,
  }))
  const order = steps.map((_, i) => i).sort(() => draw(3) - 1)
  const isCompiled = Array.from({ length: size }, () => draw(3) > 0)
  const own = Array.from({ length: size }, () => [0, 1, 3, 50, 1000, 20_000][draw(6)])
  if (seed % 16 === 0) own[draw(size)] = 400_000
  const program = (rows: mx.Array): mx.Array[] => {
    const results: mx.Array[] = []
    let local = rows
    for (const { kind, columns, stream, scale, read, isLarge } of steps) {
      // Work of this rank's size, some of which reads what was exchanged before.
      const before = results.at(-read)
      if (isLarge) local = mx.tanh(local)
      const base = local.sum(0)
      const mixed = before && read > 0 ? base.add(before.sum().multiply(0)) : base
      const part = mx
        .tile(mixed, Math.ceil(columns / width))
        .index(mx.s(0, columns))
        .multiply(0)
      // The same operation on some ranks, and not on others.
      const x = part.add(1).multiply(scale === 0 ? rank : scale === 1 ? 1 : size)
      results.push(mx.stream(stream, () => exchanged(kind, x)))
      if (read === 3) local = local.multiply(results[results.length - 1].sum().multiply(0).add(1))
    }
    return order.map((i) => results[i])
  }
  return { program, isCompiled, width, own }
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
    default:
      return mx.distributed.allSum(x, options)
  }
}

const failed: string[] = []
for (let seed = Number(first); seed < Number(first) + Number(count) && failed.length === 0; seed++) {
  const { program, isCompiled, width, own } = programOf(seed)
  const run = isCompiled[rank] ? compile(program) : program
  try {
    for (let call = 0; call < 2; call++) {
      const rows = mx.ones([own[(rank + call) % size], width])
      // Some ranks have what the program begins with, others not yet.
      if (rank % 2 === call) mx.eval(rows)
      const results = run(rows)
      mx.eval(results)
      const sums = mx.stack(results.map((x) => x.sum()))
      const [least, most] = [mx.distributed.allMin(sums), mx.distributed.allMax(sums)]
      mx.eval(least, most)
      if (!mx.arrayEqual(least, most).item()) failed.push(`${seed}: results differ`)
    }
  } catch (error) {
    failed.push(`${seed}: ${(error as Error).message}`)
  }
}
console.log(JSON.stringify(failed))
