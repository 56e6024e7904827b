// A synchronous loop over arrays of 1 MB: its greatest memory, and the time of an operation in a chain of eight.
import { readFileSync } from "node:fs"
import { mx } from "lazuli"

const peak = () => Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync("/proc/self/status", "utf8"))[1]) / 1024
const turns = Number(process.argv[2])
const x = mx.ones([262144])
let y = x
for (let i = 0; i < turns; i++) {
  y = x.add(i)
  mx.eval(y)
}
if (y.sum().item() !== 262144 * turns) throw new Error("the last result is wrong")

const a = mx.ones([16])
const chain = (rounds) => {
  const start = performance.now()
  for (let i = 0; i < rounds; i++) mx.eval(a.add(a).add(a).add(a).add(a).add(a).add(a).add(a).add(a))
  return ((performance.now() - start) * 1000) / rounds / 8
}
chain(5000)
const operation = Math.min(...[1, 2, 3].map(() => chain(5000)))
console.log(JSON.stringify({ peak: Math.round(peak()), operation: Number(operation.toFixed(2)) }))
