/**
 * Ranks with a GPU each exchange arrays by its collectives. Prints what is wrong; with an argument rank 1 fails so in the third step, or
 * leaves while the other has work of its own, also of steps that only promise their results, are compiled, need another kernel or come
 * before a large upload, or while the GPUs' library connects them, as another argument says; or in a second job of the same processes.
 */
import { once } from "node:events"
import { type AddressInfo, createServer } from "node:net"
import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { leave } from "@lazuli/distributed"
import { grad } from "@lazuli/transforms"

mx.setBackend("cuda", "gpu")
mx.setDefaultDevice(mx.gpu)
const { distributed } = mx
const [, , fault, when] = process.argv
let at = performance.now()
let steps = 0
try {
  if (when === "joining" && process.env.LAZULI_RANK === "1")
    process.env.LAZULI_CUDA_DOUBLE += `,joining-${fault}`
  const joined = (): mx.distributed.Group => distributed.init({ strict: true, backend: "nccl" })
  let group = joined()
  if (when === "again") {
    const server = createServer().listen(0, "127.0.0.1")
    await once(server, "listening")
    const { port } = server.address() as AddressInfo
    const [agreed] = distributed.broadcast(mx.array([port], mx.int32)).tolist() as number[]
    server.close()
    await once(server, "close")
    leave()
    delete process.env.LAZULI_LISTENER
    process.env.LAZULI_ADDRESS = `127.0.0.1:${agreed}`
    group = joined()
  }
  const [rank, n] = [group.rank(), group.size()]
  const ranks = [...Array(n).keys()]
  const wrong: string[] = []
  const same = (name: string, got: mx.Array, want: unknown): void => {
    if (JSON.stringify(got.tolist()) !== JSON.stringify(want))
      wrong.push(`${name}: ${JSON.stringify(got.tolist())} is not ${JSON.stringify(want)}`)
  }
  const of = (r: number): number[] => Array.from({ length: 2 * n }, (_, i) => i + 10 * r)
  const sums = of(0).map((_, i) => ranks.reduce((a, r) => a + of(r)[i], 0))
  if (fault === undefined) {
    for (const dtype of [mx.float32, mx.float64, mx.float16, mx.bfloat16, mx.int8, mx.int32, mx.uint64]) {
      const x = mx.array(of(rank), dtype)
      same(`allSum ${dtype.name}`, distributed.allSum(x).astype(mx.float32), sums)
      same(`allMax ${dtype.name}`, distributed.allMax(x).astype(mx.float32), of(n - 1))
      same(`allGather ${dtype.name}`, distributed.allGather(x).astype(mx.float32), ranks.flatMap(of))
      const mine = sums.slice(2 * rank, 2 * rank + 2)
      same(`sumScatter ${dtype.name}`, distributed.sumScatter(x).astype(mx.float32), mine)
      same(`broadcast ${dtype.name}`, distributed.broadcast(x, { root: n - 1 }).astype(mx.float32), of(n - 1))
      const parts = ranks.flatMap((r) => of(r).slice(2 * rank, 2 * rank + 2))
      same(`allToAll ${dtype.name}`, distributed.allToAll(x).astype(mx.float32), parts)
      const [next, before] = [(rank + 1) % n, (rank + n - 1) % n]
      const come = (): mx.Array => distributed.recvLike(x, before).astype(mx.float32)
      const go = (): void =>
        same(`send ${dtype.name}`, distributed.send(x, next).astype(mx.float32), of(rank))
      if (rank % 2 === 0) go()
      same(`recv ${dtype.name}`, come(), of(before))
      if (rank % 2 === 1) go()
    }
    const x = mx.array(of(rank))
    same("bool", distributed.allSum(mx.array([rank === 0, false])), [true, false])
    same(
      "strided",
      distributed.allSum(x.reshape([2, n]).T),
      Array.from({ length: n }, (_, i) => [sums[i], sums[n + i]]),
    )
    same("empty", distributed.allSum(mx.zeros([0])), [])
    same("barrier", distributed.barrier(x), of(rank))
    const several = [x.reshape([n, 2]).T, mx.zeros([0, 2]), x.astype(mx.bfloat16)]
    group.gatherParameters(several).forEach((whole, i) => {
      same(`together, ${i}`, whole, distributed.allGather(several[i]).tolist())
    })
    const many = Array.from({ length: 40 }, (_, i) => mx.array([i + 100 * rank]))
    same(
      "many together",
      mx.concatenate(group.gatherParameters(many)),
      many.flatMap((_, i) => ranks.map((r) => i + 100 * r)),
    )
    const [first, second] = grad((a: mx.Array[]) =>
      group
        .gatherParameters(a)
        .map((whole, i) => whole.multiply((i + 1) * (rank + 1)).sum())
        .reduce((a, b) => a.add(b)),
    )([x, x.index(mx.s(0, 2))])
    const mean = (n + 1) / 2
    same("gradients together", mx.concatenate([first, second]), [
      ...of(0).map(() => mean),
      2 * mean,
      2 * mean,
    ])
    const half = group.split(0, n - rank)
    same("turned", distributed.broadcast(x, { group: half }), of(n - 1))
    same(
      "on the CPU",
      mx.stream(mx.cpu, () => distributed.allSum(mx.array(of(rank)))),
      sums,
    )
    // Two sums are under way at a time.
    const promises: Promise<void>[] = []
    let promised = x
    for (let i = 0; i < 5; i++) {
      promised = distributed.allSum(promised).divide(n)
      promises.push(mx.asyncEval(promised))
    }
    await Promise.all(promises)
    same(
      "promised",
      promised,
      sums.map((v) => v / n),
    )
    const slope = grad((a: mx.Array) => distributed.allSum(a).multiply(2).sum())(x)
    same(
      "grad",
      slope,
      of(0).map(() => 2),
    )
    const step = compile((a: mx.Array) => {
      let b = a
      for (let i = 0; i < 3; i++) b = distributed.allSum(b.add(1)).multiply(0.5)
      return b
    })
    const expected = (a: number[][]): number[] => {
      let rows = a
      for (let i = 0; i < 3; i++)
        rows = rows.map(() => rows[0].map((_, j) => 0.5 * rows.reduce((s, row) => s + row[j] + 1, 0)))
      return rows[0]
    }
    for (let i = 0; i < 4; i++)
      same("compiled", step(x.add(i)), expected(ranks.map((r) => of(r).map((v) => v + i))))
  } else if (fault === "leave") {
    let sum = distributed.allSum(mx.array(of(rank)))
    // Of the sum's stream, and longer than the limit.
    if (rank === 0) process.env.LAZULI_CUDA_DOUBLE += ",slow"
    for (let i = 0; rank === 0 && i < 100; i++) sum = mx.cumsum(sum.multiply(0.5))
    if (when === "promised") await mx.asyncEval(sum)
    else mx.eval(sum)
  } else {
    const sum = compile((a: mx.Array) => distributed.allSum(a.add(1)).multiply(2))
    const gather = compile((a: mx.Array) => distributed.allGather(a.add(1)).multiply(2))
    // A message that the other rank has no part in.
    const message = compile((a: mx.Array) =>
      (rank === 0 ? distributed.send(a, 1) : distributed.recvLike(a, 0)).multiply(2),
    )
    const twin = fault === "groups" ? group.split(0) : group
    // Of two ranks each.
    const pairs =
      fault === "circle" ? [0, 1, 2].map((i) => group.split(Number([i, (i + 1) % 3].includes(rank)))) : []
    for (let i = 0; i < 1000; i++) {
      steps = i
      if (i === 3) at = performance.now()
      if (i === 3 && rank === 1) {
        if (fault === "stop") process.kill(process.pid, "SIGSTOP")
        if (fault === "kill") process.kill(process.pid, "SIGKILL")
        if (fault === "part" && when !== "compiled") mx.eval(distributed.barrier())
        if (fault === "part" && when === "compiled") mx.eval(message(mx.array(of(rank))))
        if (fault === "order") mx.eval(gather(mx.array(of(rank))))
      }
      const odd = i === 3 && rank === 1
      const mine = mx.array(of(rank))
      const x =
        odd && fault === "dtype"
          ? mine.astype(mx.int32)
          : odd && fault === "shape"
            ? mine.reshape([n, 2])
            : mine
      // Each has the one first that the other waits for.
      if (i === 3 && fault === "groups")
        mx.eval((odd ? [twin, group] : [group, twin]).map((each) => distributed.allSum(x, { group: each })))
      if (i === 3 && pairs.length > 0 && rank < 3)
        mx.eval([rank, (rank + 2) % 3].map((at) => distributed.allSum(x, { group: pairs[at] })))
      if (i === 3 && fault === "root") mx.eval(distributed.broadcast(x, { root: rank }))
      if ((when === "loading" || when === "again") && i === 3) mx.eval(mx.log1p(distributed.allSum(x)).cos())
      // More than the driver has memory for on its way to the device.
      if (when === "uploading" && i === 3) {
        mx.asyncEval(distributed.allSum(x)).catch(() => {})
        mx.eval(mx.array(new Float32Array(1 << 23)).add(1))
      }
      if (when === "promised") await mx.asyncEval(distributed.allSum(x))
      else if (when === "compiled")
        for (const step of i < 3 ? [sum, gather, message] : [sum]) mx.eval(step(x))
      else mx.eval(distributed.allSum(x))
    }
  }
  console.log(JSON.stringify({ wrong, borrowed: Object.keys(mx.backendStats().cuda ?? {}) }))
} catch (error) {
  const { name, message, rank, op } = error as mx.DistributedError
  const took = performance.now() - at
  let next: unknown
  try {
    mx.eval(distributed.allMax(mx.array([1, 2], mx.int32)))
  } catch (again) {
    next = [(again as mx.DistributedError).name, (again as mx.DistributedError).op]
  }
  console.log(JSON.stringify({ name, message, rank, op, took, steps, next }))
  process.exitCode = 3
}
