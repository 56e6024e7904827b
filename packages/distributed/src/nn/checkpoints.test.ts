import fs, { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import * as optim from "@lazuli/nn/optimizers"
import { afterAll, expect, test, vi } from "vitest"
import { CheckpointParts } from "./checkpoint-parts"
import { hasSharded, loadSharded, saveSharded } from "./index"

const scratch = mkdtempSync(join(tmpdir(), "lazuli-checkpoints-"))
afterAll(() => rmSync(scratch, { recursive: true }))

const ID = "0123456789abcdef"
const model = new nn.Linear(2, 3)
/** A folder with a checkpoint, and the name of its only part. */
function saved(name: string): [folder: string, part: string] {
  const folder = join(scratch, name)
  saveSharded(folder, model)
  return [folder, readdirSync(folder).find((file) => file.startsWith("part-")) as string]
}

test("a save removes the parts of other checkpoints, begun ones too, and nothing else", () => {
  const [folder, before] = saved("others")
  const own = [`part-3-of-4-${ID}.safetensors`, `part-0-of-2-${ID}.safetensors.123.9f3a01.tmp`]
  const users = [
    "part-00000.parquet",
    "part-0.safetensors",
    `part-0-of-2-${ID}.safetensors.bak`,
    `my-part-0-of-2-${ID}.safetensors`,
    `part-0-of-2-${ID}0.safetensors`,
  ]
  for (const name of [...own, ...users]) writeFileSync(join(folder, name), "")
  const folders = ["part-notes", `part-1-of-2-${ID}.safetensors`]
  for (const name of folders) mkdirSync(join(folder, name))
  saveSharded(folder, model)
  const left = readdirSync(folder)
  for (const name of [before, ...own]) expect(left).not.toContain(name)
  expect(left).toEqual(expect.arrayContaining([...users, ...folders]))
  expect(left.length).toBe(users.length + folders.length + 2)
})

/** Runs something where one of the file system's functions is another. */
function replacing(
  call: "rmSync" | "readdirSync" | "existsSync",
  by: (path: unknown) => never | boolean,
  run: () => void,
): void {
  const replaced = vi.spyOn(fs, call).mockImplementation(by as never)
  syncBuiltinESMExports()
  try {
    run()
    expect(replaced).toHaveBeenCalled()
  } finally {
    replaced.mockRestore()
    syncBuiltinESMExports()
  }
}

test.each(["rmSync", "readdirSync"] as const)("a save succeeds where %s fails to clear up", (call) => {
  const [folder, before] = saved(call)
  const fail = (): never => {
    throw new Error("EACCES")
  }
  replacing(call, fail, () => saveSharded(folder, model))
  expect(hasSharded(folder)).toBe(true)
  expect(readdirSync(folder)).toContain(before)
  saveSharded(folder, model)
  expect(readdirSync(folder).length).toBe(2)
})

test("no checkpoint is one without a manifest; a damaged one is an error that says where", () => {
  expect(hasSharded(join(scratch, "nowhere"))).toBe(false)
  const [folder, part] = saved("damaged")
  const manifest = join(folder, "checkpoint.json")
  const { id } = JSON.parse(readFileSync(manifest, "utf8")) as { id: string }
  const refuse = (message: string): mx.FormatError => {
    const thrown = [() => hasSharded(folder), () => loadSharded(folder, new nn.Linear(2, 3))].map((read) => {
      try {
        read()
      } catch (error) {
        return error
      }
    }) as mx.FormatError[]
    expect(thrown.map(({ op }) => op)).toEqual(["hasSharded", "loadSharded"])
    for (const error of thrown) {
      expect(error).toBeInstanceOf(mx.FormatError)
      expect(error.message).toContain(message)
    }
    return thrown[0]
  }
  writeFileSync(manifest, JSON.stringify({ ranks: Number.MAX_SAFE_INTEGER, id }))
  refuse(`part-0-of-${Number.MAX_SAFE_INTEGER}-${id}.safetensors is missing`)
  writeFileSync(manifest, JSON.stringify({ ranks: 2, id }))
  writeFileSync(join(folder, `part-0-of-2-${id}.safetensors`), "")
  refuse(`part-1-of-2-${id}.safetensors is missing`)
  writeFileSync(manifest, JSON.stringify({ ranks: 1, id }))
  rmSync(join(folder, part))
  refuse(`${part} is missing`)
  for (const text of ["null", "{}", `{"ranks":0,"id":"${id}"}`, '{"ranks":1,"id":"../x"}']) {
    writeFileSync(manifest, text)
    refuse("does not name the parts")
  }
  writeFileSync(manifest, '{"ranks"')
  expect(refuse("is not JSON").cause).toBeInstanceOf(SyntaxError)
  rmSync(manifest)
  expect(hasSharded(folder)).toBe(false)
  mkdirSync(manifest)
  expect(refuse("cannot be read").cause).toMatchObject({ code: "EISDIR" })
})

test("all parts of many are looked for", () => {
  const [folder] = saved("many")
  writeFileSync(join(folder, "checkpoint.json"), JSON.stringify({ ranks: 70_000, id: ID }))
  const isThere = (path: unknown): boolean => !String(path).includes("part-69999-of-70000-")
  replacing("existsSync", isThere, () => {
    expect(() => hasSharded(folder)).toThrow(`part-69999-of-70000-${ID}.safetensors is missing`)
  })
})

test("a checkpoint that does not fit is refused, and changes nothing", () => {
  const [folder] = saved("other-model")
  const refuse = (other: nn.Module, message: string, optimizer: { state: object } | null = null): void => {
    const before = mx.treeFlatten(other.parameters()).map(([, x]) => (x as mx.Array).tolist())
    expect(() => loadSharded(folder, other, optimizer)).toThrow(mx.FormatError)
    expect(() => loadSharded(folder, other, optimizer)).toThrow(message)
    expect(mx.treeFlatten(other.parameters()).map(([, x]) => (x as mx.Array).tolist())).toEqual(before)
  }
  refuse(new nn.Linear(5, 7), '"weight" has shape [3,2] there, and [7,5] in the model')
  refuse(new nn.Linear(2, 3, false), 'it has "bias", which the model does not have')
  refuse(new nn.Bilinear(2, 2, 3), "in the model")
  refuse(new nn.Sequential(new nn.Linear(2, 3)), ", which the model does not have")
  refuse(new nn.Linear(2, 3), "it has no state of an optimizer", { state: { step: mx.array(0) } })
  const half = new nn.Linear(2, 3)
  half.update(mx.treeMap((x) => (x as mx.Array).astype(mx.bfloat16), half.parameters()) as never)
  refuse(half, '"weight" is float32 there, and bfloat16 in the model')
  saveSharded(folder, new nn.Linear(2, 3, false))
  refuse(new nn.Linear(2, 3), 'it lacks "bias"')
})

test("the state of another kind of optimizer is refused, initialized or not", () => {
  const folder = join(scratch, "optimizers")
  const layer = new nn.Linear(2, 3)
  const adam = new optim.Adam(0.1)
  adam.init(layer.trainableParameters())
  saveSharded(folder, layer, adam)
  const sgd = new optim.SGD({ learningRate: 0.1, momentum: 0.9 })
  const load = (): void => loadSharded(folder, layer, sgd)
  expect(load).toThrow("does not fit: it has the state of the optimizer Adam, and this is SGD")
  sgd.init(layer.trainableParameters())
  expect(load).toThrow(mx.FormatError)
  saveSharded(folder, layer, { state: adam.state })
  expect(load).toThrow(`the optimizer's state of "weight" is ….m [3,2], ….v [3,2] there, and ….v [3,2] here`)
  expect(Object.keys(sgd.state.weight)).toEqual(["v"])
  const other = new optim.Adam(0.1)
  other.init(layer.trainableParameters())
  loadSharded(folder, layer, other)
  saveSharded(folder, layer, adam)
  loadSharded(folder, layer, other)
  const holder = { state: {} }
  loadSharded(folder, layer, holder)
  expect(Object.keys(holder.state)).toContain("learning_rate")
})

/** The second of two members, of which the other does the same. */
class Second extends mx.distributed.Group {
  override size = (): number => 2
  override rank = (): number => 1
  override exchange(x: mx.Array | null, { op }: { op: string }): mx.Array {
    if (x === null) throw new Error(`there is nobody for ${op}`)
    return op === "allGather" ? mx.concatenate([x, x]) : x
  }
}

test("a checkpoint of other sizes is refused by members that have parts", () => {
  const group = new Second()
  const [folder] = saved("other-sizes")
  const layer = nn.fullyShard(new nn.Linear(2, 8), { group })
  const load = (): void => loadSharded(folder, layer, null, group)
  expect(load).toThrow(mx.FormatError)
  expect(load).toThrow(`the checkpoint of "${folder}" does not fit: "module.`)
  expect(load).toThrow("there, and 8 along axis 0 in the model")
  expect(mx.treeFlatten(layer.parameters()).map(([, x]) => (x as mx.Array).shape)).toEqual([[4, 2], [4]])
})

test("a loaded part does not keep the whole array in memory", () => {
  const group = new Second()
  const whole = new nn.Linear(4, 8)
  const folder = join(scratch, "parts")
  saveSharded(folder, whole)
  const layers = [
    nn.fullyShard(new nn.Linear(4, 8), { group }),
    nn.shardLinear(new nn.Linear(4, 8), "all-to-sharded", { group }),
    nn.shardLinear(new nn.Linear(4, 8), "sharded-to-all", { group }),
  ]
  for (const layer of layers) {
    loadSharded(folder, layer, null, group)
    for (const [path, x] of mx.treeFlatten(layer.parameters()) as [string, mx.Array][])
      expect(x.node.storage?.nbytes, path).toBe(x.nbytes)
  }
  expect(layers[2].parameters().weight.tolist()).toEqual(whole.weight.index(":", "2:").tolist())
})

test("arrays that would have one name are refused", () => {
  const spread = new nn.FullyShardedModule(new nn.Linear(2, 3))
  const state = { ema: { weight: mx.ones([1]), module: { weight: mx.zeros([1]) } } }
  expect(() => saveSharded(join(scratch, "names"), spread, { state })).toThrow(
    '"ema.weight" and "ema.module.weight" have the same name in checkpoints',
  )
  expect(hasSharded(join(scratch, "names"))).toBe(false)
})

test("a part that is not like the first member's is refused", () => {
  const [folder, part] = saved("unlike")
  const { id } = JSON.parse(readFileSync(join(folder, "checkpoint.json"), "utf8")) as { id: string }
  const shards = { shards: JSON.stringify({ "model.weight": { axis: 0, segments: [3] } }) }
  rmSync(join(folder, part))
  const write = (rank: number, weight: mx.Array): void =>
    mx.saveSafetensors(join(folder, `part-${rank}-of-2-${id}`), { "model.weight": weight }, shards)
  writeFileSync(join(folder, "checkpoint.json"), JSON.stringify({ ranks: 2, id }))
  write(0, mx.zeros([2, 2]))
  const load = (): void => loadSharded(folder, new nn.Linear(2, 3, false))
  for (const other of [mx.zeros([3, 2]), mx.zeros([2, 2], mx.int32)]) {
    write(1, other)
    expect(load).toThrow('has no part of "model.weight" like that of the first member')
  }
  write(1, mx.zeros([2, 2]))
  load()
})

test("parts by any axis are put together for parts by any axis", () => {
  const { arange } = mx
  const shards = [
    undefined,
    ...[0, 1].flatMap((axis) => [[5], [3, 4], [7, 1, 2]].map((segments) => ({ axis, segments }))),
  ]
  /** A member of any group. */
  class Member extends mx.distributed.Group {
    constructor(
      private readonly its: number,
      private readonly members: number,
    ) {
      super()
    }
    override size = (): number => this.members
    override rank = (): number => this.its
  }
  const lengthOf = (shard: nn.Shard | undefined): number =>
    shard?.segments.reduce((sum, n) => sum + n, 0) ?? 7
  for (const saved of shards)
    for (const wanted of shards) {
      if (saved && wanted && saved.axis === wanted.axis && lengthOf(saved) !== lengthOf(wanted)) continue
      const shape = [6, 6]
      for (const shard of [saved, wanted]) if (shard) shape[shard.axis] = lengthOf(shard)
      const whole = arange(shape[0] * shape[1]).reshape(shape)
      for (const [before, after] of [
        [1, 3],
        [3, 2],
        [2, 5],
      ]) {
        const paths = Array.from({ length: saved ? before : 1 }, (_, rank) => {
          const path = join(scratch, `part-${rank}.safetensors`)
          const part = saved ? nn.partOf(whole, saved, new Member(rank, before)) : whole
          mx.saveSafetensors(path, { x: part }, { shards: JSON.stringify(saved ? { x: saved } : {}) })
          return path
        })
        const parts = new CheckpointParts("loadSharded", paths)
        expect(parts.arrays[0].shape).toEqual(shape)
        for (let rank = 0; rank < after; rank++) {
          const member = new Member(rank, after)
          const expected = wanted ? nn.partOf(whole, wanted, member) : whole
          const got = parts.read(parts.arrays[0], wanted, member)
          expect(got.tolist()).toEqual(expected.tolist())
          expect(got.node.storage?.nbytes).toBe(got.nbytes)
        }
      }
    }
})
