/**
 * Every collective on every dtype, strided, empty and large arrays, against what each rank knows that it must give. Prints what is wrong.
 */
import { readFileSync } from "node:fs"
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"
import * as nn from "@lazuli/nn"
import { grad, jvp, vmap } from "@lazuli/transforms"

const { distributed } = mx
const group = distributed.init(true)
const [rank, n] = [group.rank(), group.size()]
const ranks = [...Array(n).keys()]
const wrong: string[] = []

/** GPUs add up arrays of other sizes in another order. */
const isOnGpu = process.env.LAZULI_BACKEND === "nccl"
function same(name: string, got: mx.Array, want: mx.Array): void {
  const fits =
    got.dtype === want.dtype &&
    String(got.shape) === String(want.shape) &&
    (isOnGpu && got.dtype === mx.float64
      ? mx.allclose(got, want, 1e-14, 1e-14).item()
      : mx.arrayEqual(got, want, { equalNan: mx.issubdtype(got.dtype, mx.inexact) }).item())
  if (!fits)
    wrong.push(`${name}: ${String(got.flatten().index(":4"))} is not ${String(want.flatten().index(":4"))}`)
}

/** A rank's array: small numbers, which every dtype adds up exactly. */
const own = (r: number, shape: number[], dtype: mx.Dtype): mx.Array => {
  const size = shape.reduce((a, b) => a * b, 1)
  return mx
    .remainder(mx.arange(size, { dtype: mx.int32 }).add(3 * r), 5)
    .reshape(shape)
    .astype(dtype)
}
const total = (xs: mx.Array[]): mx.Array => {
  const sum = xs.map((x) => x.astype(x.dtype === mx.bool_ ? mx.int32 : x.dtype)).reduce((a, b) => a.add(b))
  return sum.astype(xs[0].dtype)
}

const dtypes = [
  ...[mx.bool_, mx.uint8, mx.uint16, mx.uint32, mx.uint64, mx.int8, mx.int16, mx.int32, mx.int64],
  ...[mx.float16, mx.bfloat16, mx.float32, mx.float64, mx.complex64],
]
const shapes = [[], [0], [2 * n, 3], [0, 3]]
// Each by an algorithm of its own.
const larger = [[n * 5001], [n * 90_001]]
for (const dtype of dtypes)
  for (const shape of [...shapes, ...(dtype === mx.float32 || dtype === mx.bfloat16 ? larger : [])])
    for (const strided of [false, true]) {
      const all = ranks.map((r) => own(r, shape, dtype))
      const x = strided && shape.length === 2 ? own(rank, shape, dtype).T.add(0).astype(dtype).T : all[rank]
      const name = `${dtype.name} [${shape}]${strided ? " strided" : ""}`
      same(`allSum ${name}`, distributed.allSum(x), total(all))
      same(
        `allMax ${name}`,
        distributed.allMax(x),
        all.reduce((a, b) => mx.maximum(a, b)),
      )
      same(
        `allMin ${name}`,
        distributed.allMin(x),
        all.reduce((a, b) => mx.minimum(a, b)),
      )
      const rows = all.map((a) => (shape.length === 0 ? a.reshape([1]) : a))
      same(`allGather ${name}`, distributed.allGather(x), mx.concatenate(rows, 0))
      same(`broadcast ${name}`, distributed.broadcast(x, { root: n - 1 }), all[n - 1])
      same(`barrier ${name}`, distributed.barrier(x), all[rank])
      if (shape.length > 0) {
        const part = (a: mx.Array, r: number): mx.Array => a.split(n, 0)[r]
        same(`sumScatter ${name}`, distributed.sumScatter(x), part(total(all), rank))
        const parts = all.map((a) => part(a, rank))
        same(`allToAll ${name}`, distributed.allToAll(x), mx.concatenate(parts, 0))
      }
      const [next, before] = [(rank + 1) % n, (rank + n - 1) % n]
      const messages =
        rank % 2 === 0
          ? [distributed.send(x, next), distributed.recvLike(x, before)]
          : [distributed.recv(x.shape, dtype, before), distributed.send(x, next)]
      // A ring of an odd number has two even neighbours: small messages wait in the connection.
      for (const message of messages) mx.eval(message)
      same(`recv ${name}`, messages[rank % 2 === 0 ? 1 : 0], all[before])
    }

// Large ones at once behind another, of which some members are done before others.
const large = mx.ones([300_000])
for (let i = 0; i < 40; i++) same(`sum ${i} of many`, distributed.allSum(large), mx.full([300_000], n))

// Derivatives, by differences: a loss that is the same on all ranks, or a sum of losses; only this rank's input moves.
const x = mx.array(Float64Array.from({ length: 2 * n }, (_, i) => Math.sin(i + 7 * rank)))
const weights = mx.array(Float64Array.from({ length: 2 * n * n }, (_, i) => Math.cos(i)))
type Op = (a: mx.Array) => mx.Array
const ops: Record<string, { f: Op; shared: boolean }> = {
  allSum: { f: (a) => distributed.allSum(a), shared: true },
  allMax: { f: (a) => distributed.allMax(a), shared: true },
  allMin: { f: (a) => distributed.allMin(a), shared: true },
  allGather: { f: (a) => distributed.allGather(a), shared: true },
  broadcast: { f: (a) => distributed.broadcast(a, { root: 1 }), shared: true },
  sumScatter: { f: (a) => distributed.sumScatter(a), shared: false },
  allToAll: { f: (a) => distributed.allToAll(a), shared: false },
  barrier: { f: (a) => distributed.barrier(a), shared: false },
}
for (const [name, { f, shared }] of Object.entries(ops)) {
  const loss = (a: mx.Array): mx.Array => {
    const y = f(a)
    return y
      .square()
      .multiply(weights.index(mx.s(0, y.size)).reshape(y.shape))
      .sum()
  }
  const g = grad(loss)(x)
  const whole = (a: mx.Array): number => {
    const value = loss(a)
    return (shared ? value : distributed.allSum(value)).item() as number
  }
  // Every rank in turn moves each of its elements; all take part.
  for (const mover of ranks)
    for (let i = 0; i < x.size; i++) {
      const step = mx
        .zeros([x.size], mx.float64)
        .at(i)
        .add(rank === mover ? 1e-5 : 0)
      const slope = (whole(x.add(step)) - whole(x.subtract(step))) / 2e-5
      const got = g.index(i).item() as number
      if (rank === mover && Math.abs(slope - got) > 1e-6)
        wrong.push(`grad of ${name} at ${i}: ${got}, not ${slope}`)
    }
  const t = mx.array(Float64Array.from({ length: x.size }, (_, i) => Math.cos(3 * i + rank)))
  const [, [derivative]] = jvp(f, [x], [t])
  const slopes = f(x.add(t.multiply(1e-6)))
    .subtract(f(x.subtract(t.multiply(1e-6))))
    .divide(2e-6)
  if ((mx.abs(slopes.subtract(derivative)).max().item() as number) > 1e-6) wrong.push(`jvp of ${name}`)
  // vmap: as the examples one by one.
  for (const axis of [0, 1]) {
    const batch = mx.stack([x, x.multiply(2), x.add(1)], axis)
    const each = [0, 1, 2].map((i) => f(mx.take(batch, i, axis)))
    same(`vmap of ${name} by axis ${axis}`, vmap(f, { inAxes: axis })(batch), mx.stack(each))
  }
  const compiled = compile((a: mx.Array) => f(a.multiply(2)).add(1))
  for (let i = 0; i < 2; i++) same(`compiled ${name}`, compiled(x), f(x.multiply(2)).add(1))
}

// Where each rank makes another loss of a result that all have, the derivative of their sum needs the cotangents of all.
for (const [name, { f, shared }] of Object.entries(ops)) {
  if (!shared) continue
  const own = (a: mx.Array): mx.Array => {
    const y = nn.sumGradients()(f(a.square()))
    const factors = weights.index(mx.s(0, y.size)).reshape(y.shape).add(rank)
    return y.multiply(factors).sum()
  }
  const g = grad(own)(x).tolist() as number[]
  const total = (a: mx.Array): number => distributed.allSum(own(a)).item() as number
  for (const mover of ranks)
    g.forEach((got, i) => {
      const step = mx
        .zeros([x.size], mx.float64)
        .at(i)
        .add(rank === mover ? 1e-5 : 0)
      const slope = (total(x.add(step)) - total(x.subtract(step))) / 2e-5
      if (rank === mover && Math.abs(slope - got) > 1e-6)
        wrong.push(`grad of other losses of ${name} at ${i}: ${got}, not ${slope}`)
    })
}

// vmap of messages: a batch for both sides, whatever the axis, and where one of them does not look at its examples.
{
  const of = (r: number): mx.Array => mx.array(Float64Array.from({ length: 3 }, (_, i) => 10 * r + i))
  const batchOf = (r: number, axis: number): mx.Array => mx.stack([of(r), of(r).multiply(2)], axis)
  const [next, before] = [(rank + 1) % n, (rank + n - 1) % n]
  const sends: Record<string, Op> = {
    send: (a) => distributed.send(a, next),
    "send of one": () => distributed.send(of(rank), next),
  }
  const receives: Record<string, Op> = {
    recv: () => distributed.recv([3], mx.float64, before),
    recvLike: (a) => distributed.recvLike(a, before),
    "recvLike of one": () => distributed.recvLike(of(rank), before),
  }
  for (const [sent, give] of Object.entries(sends))
    for (const [received, take] of Object.entries(receives))
      for (const axis of [0, 1]) {
        const sending = vmap(give, { inAxes: axis })(batchOf(rank, axis))
        const receiving = vmap(take, { inAxes: axis })(batchOf(rank, axis))
        for (const each of rank % 2 === 0 ? [sending, receiving] : [receiving, sending]) mx.eval(each)
        const want = sent === "send" ? batchOf(before, 0) : mx.stack([of(before), of(before)], 0)
        same(`vmap of ${sent} and ${received} by axis ${axis}`, receiving, want)
      }
  const inner = (a: mx.Array): mx.Array => vmap((b: mx.Array) => distributed.send(b, next))(a)
  const sending = vmap(inner)(mx.stack([batchOf(rank, 0), batchOf(rank, 0).add(1)]))
  const receiving = vmap((a: mx.Array) =>
    vmap((b: mx.Array) => distributed.recv([3], mx.float64, before).add(b))(a),
  )(mx.zeros([2, 2, 3], mx.float64))
  for (const each of rank % 2 === 0 ? [sending, receiving] : [receiving, sending]) mx.eval(each)
  same("vmap of vmap of messages", receiving, mx.stack([batchOf(before, 0), batchOf(before, 0).add(1)]))
}

// A message's tangent stays with the sender, so that later messages meet each other.
{
  const [one, tangent] = [mx.array([1, 2]), mx.array([5, 6])]
  const [next, before] = [(rank + 1) % n, (rank + n - 1) % n]
  const sending = jvp((a: mx.Array) => distributed.send(a, next), [one], [tangent])
  const receiving = jvp((a: mx.Array) => distributed.recvLike(a, before), [one], [tangent])
  const again = [distributed.send(one.multiply(10), next), distributed.recv([2], mx.float32, before)]
  for (const part of [0, 1])
    for (const each of rank % 2 === 0 ? [sending, receiving] : [receiving, sending]) mx.eval(each[part])
  for (const each of rank % 2 === 0 ? again : again.reverse()) mx.eval(each)
  same("tangent of send", sending[1][0], tangent)
  same("tangent of recvLike", receiving[1][0], mx.zeros([2]))
  same("message after tangents", again[rank % 2 === 0 ? 1 : 0], one.multiply(10))
}

// Groups of members.
const half = group.split(rank % 2)
same(
  "split",
  distributed.allSum(mx.array([rank]), { group: half }),
  mx.array([ranks.filter((r) => r % 2 === rank % 2).reduce((a, b) => a + b)]),
)
const turned = group.split(0, n - rank)
if (turned.rank() !== n - 1 - rank || turned.size() !== n) wrong.push("split by keys")
same("turned", distributed.broadcast(mx.array([rank]), { group: turned }), mx.array([n - 1]))
// Closed groups give back what they hold.
const residentMb = (): number => process.memoryUsage.rss() / 2 ** 20
const one = mx.ones([600_000])
let begun = 0
// GPUs keep theirs until the end.
for (let i = 0; i < (isOnGpu ? 5 : 60); i++) {
  if (i === 10) begun = residentMb()
  const all = group.split(0)
  mx.eval(distributed.allSum(one, { group: all }))
  all.close()
}
const kept = isOnGpu ? 0 : residentMb() - begun
if (kept > 100) wrong.push(`50 closed groups keep ${kept} MB`)
turned.close()
try {
  mx.eval(distributed.allSum(mx.array([1]), { group: turned }))
  wrong.push("a closed group goes on")
} catch (error) {
  if (!String(error).includes("the group was closed")) wrong.push(String(error))
}
// A message that nobody receives stays in its group; a ring's connections are the same for all groups.
for (const isLost of process.env.LAZULI_BACKEND === "mpi" ? [true, false] : []) {
  const all = group.split(0)
  const message = mx.array([isLost ? 1 : 2])
  if (rank === 0) mx.eval(distributed.send(message, 1, { group: all }))
  if (rank === 1 && !isLost)
    same("message behind a lost one", distributed.recv([1], mx.float32, 0, { group: all }), message)
  all.close()
}
// Memory that MPI shares among the ranks, by the names of its files: of a group, and of later ones of the same members.
const maps = process.platform === "linux" ? readFileSync("/proc/self/maps", "utf8") : ""
const windows = new Set(maps.match(/\/dev\/shm\/osc_sm\S*/g)).size
console.log(JSON.stringify({ wrong, fallbacks: Object.keys(mx.backendStats().cpu ?? {}), windows }))
