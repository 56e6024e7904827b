/**
 * Saves that fail: of a part on rank 1, then of the manifest on rank 0, then of nothing. Prints what each rank throws, and how long it
 * took; then what all hold after a save that succeeds.
 */
import "./renames"
import "@lazuli/backend-cpu"
import * as mx from "@lazuli/core"
import "@lazuli/distributed"
import { hasSharded, loadSharded, saveSharded } from "@lazuli/distributed/nn"
import * as nn from "@lazuli/nn"
import { renames } from "./renames"

const [, , folder] = process.argv
const rank = mx.distributed.init(true).rank()
const model = new nn.Linear(2, 3)
const fill = (value: number): void => {
  model.weight = mx.full([3, 2], value)
  model.bias = mx.full([3], value)
}
const told: object[] = []
function attempt(value: number, isRefused: (to: string) => boolean): void {
  renames.before = (to) => {
    if (isRefused(to))
      throw Object.assign(new Error(`ENOSPC: no space left for ${value}`), { code: "ENOSPC" })
  }
  fill(value)
  const begin = performance.now()
  try {
    saveSharded(folder, model)
    told.push({})
  } catch (error) {
    const { name, message, rank: named, op } = error as mx.DistributedError
    told.push({ name, message, rank: named, op, took: performance.now() - begin })
  }
}
attempt(1, () => false)
attempt(2, () => rank === 1)
attempt(3, (to) => to.endsWith("checkpoint.json"))
const after: number[] = []
function load(): void {
  fill(0)
  if (hasSharded(folder)) loadSharded(folder, model)
  after.push((model.bias as mx.Array).index(0).item() as number)
}
load()
attempt(4, () => false)
load()
console.log(JSON.stringify({ told, after }))
