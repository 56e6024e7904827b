import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import { expect, test } from "vitest"
import * as nn from "../index"
import * as optim from "../optimizers"

const group = mx.distributed.init()
const names = (m: nn.Module) => mx.treeFlatten(m.parameters()).map(([name]) => name)

test("linear layers of a group of one are those they are made of", () => {
  const x = mx.random.normal([3, 4])
  for (const bias of [true, false]) {
    const linear = new nn.Linear(4, 2, { bias })
    for (const Layer of [nn.AllToShardedLinear, nn.ShardedToAllLinear]) {
      const layer = Layer.fromLinear(linear, { segments: 2, group })
      expect(names(layer)).toEqual(names(linear))
      expect(mx.allclose(layer.forward(x), linear.forward(x)).item()).toBe(true)
      const [, grads] = nn.valueAndGrad(layer, (a: mx.Array) => layer.forward(a).square().sum())(x)
      const [, want] = nn.valueAndGrad(linear, (a: mx.Array) => linear.forward(a).square().sum())(x)
      expect(mx.allclose(grads.weight, want.weight, 1e-4, 1e-5).item()).toBe(true)
      expect(new Layer(4, 2, bias, group).weight.shape).toEqual([2, 4])
    }
  }
  expect(`${new nn.AllToShardedLinear(4, 2, { bias: false })}`).toBe(
    "AllToShardedLinear(inputDims=4, outputDims=2, bias=false)",
  )
})

test("quantized layers keep the weights and stay frozen", () => {
  const x = mx.random.normal([3, 64])
  for (const mode of ["affine", "mxfp4"] as const) {
    const quantized = nn.QuantizedLinear.fromLinear(new nn.Linear(64, 4), { mode })
    for (const Layer of [nn.QuantizedAllToShardedLinear, nn.QuantizedShardedToAllLinear]) {
      const layer = Layer.fromQuantizedLinear(quantized)
      expect(names(layer)).toEqual(names(quantized))
      expect(mx.allclose(layer.forward(x), quantized.forward(x)).item()).toBe(true)
      expect(Object.keys(layer.unfreeze().trainableParameters())).toEqual([])
      expect(new Layer(64, 4, { bits: 4, mode, group }).forward(x).shape).toEqual([3, 4])
    }
  }
})

test("a fully sharded module calls its module, in the dtype asked for, and gradients keep their own", () => {
  const mlp = new nn.Sequential(new nn.Linear(4, 8), new nn.ReLU(), new nn.Linear(8, 2))
  const x = mx.random.normal([3, 4])
  expect(nn.fullyShard(mlp, { group })).toBe(mlp)
  const plain = new nn.FullyShardedModule(mlp)
  expect(mx.arrayEqual(plain.forward(x), mlp.forward(x)).item()).toBe(true)
  const half = new nn.FullyShardedModule(mlp, { computeDtype: mx.float16 })
  expect(half.forward(x.astype(mx.float16)).dtype).toBe(mx.float16)
  expect((mlp.layers[0] as nn.Linear).weight.dtype).toBe(mx.float32)
  const [, grads] = nn.valueAndGrad(half, (a: mx.Array) => half.forward(a).astype(mx.float32).sum())(
    x.astype(mx.float16),
  )
  for (const [, g] of mx.treeFlatten(grads)) expect((g as mx.Array).dtype).toBe(mx.float32)
  const table = new nn.FullyShardedModule(new nn.Embedding(5, 4))
  expect(table.asLinear(x).shape).toEqual([3, 5])
  expect(`${plain}`).toMatch(/numShardedParams=4/)
})

test("a member's part of a parameter does not keep the rest in memory", () => {
  class Second extends mx.distributed.Group {
    override size = (): number => 2
    override rank = (): number => 1
  }
  const pair = new Second()
  const [linear, narrow] = [new nn.Linear(4, 8), new nn.Linear(4, 7)]
  mx.eval(linear.parameters(), narrow.parameters())
  const rows = mx.contiguous(linear.weight.index(mx.s(4, 8)))
  const layers = {
    shard: nn.shardLinear(linear, "all-to-sharded", { group: pair }),
    full: new nn.FullyShardedModule(linear, { group: pair }),
    padded: new nn.FullyShardedModule(narrow, { group: pair }),
  }
  for (const [name, layer] of Object.entries(layers)) {
    const parts = mx.treeFlatten(layer.parameters()) as [string, mx.Array][]
    mx.eval(parts.map(([, part]) => part))
    for (const [path, part] of parts) expect(part.node.storage?.nbytes, `${name}, ${path}`).toBe(part.nbytes)
  }
  const { weight } = layers.full.module as nn.Linear
  expect(mx.arrayEqual(weight, rows).item()).toBe(true)
})

test("frozen parameters of a fully sharded module are gathered apart from trained ones", () => {
  const calls: number[] = []
  class Second extends mx.distributed.Group {
    override size = (): number => 2
    override rank = (): number => 1
    override gatherParameters(parts: readonly mx.Array[]): mx.Array[] {
      calls.push(parts.length)
      return parts.map((part) => mx.concatenate([part, part]))
    }
  }
  const mlp = new nn.Sequential(new nn.Linear(4, 8), new nn.Linear(8, 3))
  const second = mlp.layers[1] as nn.Linear
  second.freeze({ keys: "weight" })
  const layer = new nn.FullyShardedModule(mlp, { group: new Second() })
  expect(layer.wholeParameters()).toMatchObject({
    layers: [{ weight: { shape: [8, 4] } }, { weight: { shape: [3, 8] } }],
  })
  expect(calls).toEqual([3, 1])
})

test("gradients of a group of one", () => {
  const grads = { w: mx.array([3, 4]), b: [mx.array([0])] }
  for (const average of [
    nn.averageGradients(grads),
    nn.utils.averageGradients(grads, { group, allReduceSize: 0 }),
  ]) {
    expect([average.w.tolist(), average.b[0].tolist()]).toEqual([[3, 4], [0]])
    expect(average.w === grads.w).toBe(false)
  }
  const [clipped, norm] = nn.utils.clipGradNormSharded(grads, 1, group)
  expect(norm.item()).toBe(5)
  expect((clipped.w.tolist() as number[]).map((v) => Math.round(v * 1000))).toEqual([600, 800])
  expect(nn.utils.clipGradNormSharded(grads, 10)[0].w.tolist()).toEqual([3, 4])
})

test("what does not fit is refused", () => {
  const linear = new nn.Linear(2, 2)
  const bad = 3 as never
  class Scale extends nn.Module {
    scale = mx.array(1)
    forward(x: mx.Array) {
      return x.multiply(this.scale)
    }
  }
  expect(() => new nn.AllToShardedLinear(2, 2, true, bad)).toThrow(mx.ArgumentError)
  expect(() => nn.ShardedToAllLinear.fromLinear(linear, { segments: 0 })).toThrow(mx.ArgumentError)
  expect(() => nn.ShardedToAllLinear.fromLinear(linear, { grup: 1 } as object)).toThrow(mx.ArgumentError)
  expect(() => nn.averageGradients({}, { group: bad })).toThrow(mx.ArgumentError)
  expect(() => nn.averageGradients({}, { size: 1 } as object)).toThrow(mx.ArgumentError)
  expect(() => nn.fullyShard(bad)).toThrow(mx.ArgumentError)
  expect(() => new nn.FullyShardedModule(linear).asLinear(mx.ones([1, 2]))).toThrow(mx.ArgumentError)
  expect(() => new nn.FullyShardedModule(new Scale())).toThrowErrorMatchingInlineSnapshot(
    `[ShapeError: [FullyShardedModule] the parameter "scale" of shape () has no axis along which to shard it]`,
  )
})

test("compiled functions follow the state of sharded modules", () => {
  const x = mx.random.normal([3, 4])
  const modules = [
    new nn.FullyShardedModule(new nn.Linear(4, 2)),
    new nn.AllToShardedLinear(4, 2),
    new nn.ShardedToAllLinear(4, 2),
  ]
  for (const module of modules) {
    const forward = compile((y: mx.Array) => module.forward(y) as mx.Array, { inputs: [module] })
    for (let i = 0; i < 2; i++) {
      expect(mx.allclose(forward(x), module.forward(x) as mx.Array).item()).toBe(true)
      module.update(mx.treeMap((w) => (w as mx.Array).add(1), module.parameters()) as never)
    }
  }
})

/** The first of two members, of which the other one has the same arrays. */
class First extends mx.distributed.Group {
  override size = (): number => 2
  override rank = (): number => 0
  override gatherParameters(parts: readonly mx.Array[]): mx.Array[] {
    return parts.map((part) => mx.concatenate([part, part]))
  }
}

test("a layer that has a part of its parameters is not sharded again", () => {
  const group = new First()
  const layer = nn.shardLinear(new nn.Linear(4, 8), "all-to-sharded", { group })
  expect(() => nn.shardLinear(layer, "all-to-sharded", { group })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [shardLinear] the AllToShardedLinear has only a part of its parameters already]`,
  )
  expect(() => nn.shardedModules({} as never)).toThrow("[shardedModules] model must be")
  expect(nn.shardedModules(new nn.Sequential(layer)).map(([path]) => path)).toEqual(["layers.0"])
})

test("fullyShard refuses parts of parameters, but not layers that it leaves alone", () => {
  const group = new First()
  const full = (module: nn.Module): nn.FullyShardedModule =>
    new nn.FullyShardedModule(module as never, { group })
  const inner = full(new nn.Linear(4, 8))
  expect(() => nn.fullyShard(inner, { group })).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [FullyShardedModule] the members have only a part of the FullyShardedModule's parameters already]`,
  )
  expect(() => full(nn.shardLinear(new nn.Linear(4, 8), "all-to-sharded", { group }))).toThrow(
    'only a part of the parameter "weight" already',
  )
  const layers = new nn.Sequential(
    new nn.ReLU(),
    nn.shardLinear(new nn.Linear(4, 8), "sharded-to-all", { group }),
  )
  expect(() => full(layers)).toThrow('only a part of the parameter "layers.1.weight" already')
  expect(layers.parameters()).toMatchObject({ layers: [{}, { bias: { shape: [8] } }] })
  expect(() => full(new nn.Sequential(inner.module as never))).toThrow('the parameter "layers.0.')
  expect(() => nn.shardLinear(inner.module as nn.Linear, "all-to-sharded", { group })).toThrow(
    "the Linear has only a part of its parameters already",
  )
  const outer = full(new nn.Sequential(inner as never, new nn.Linear(8, 2)))
  expect(outer.wholeParameters().layers).toMatchObject([{}, { weight: { shape: [2, 8] } }])
})

test("running statistics of a fully sharded module stay whole", () => {
  const layer = new nn.FullyShardedModule(new nn.BatchNorm(4), { group: new First() })
  const alone = new nn.BatchNorm(4)
  const x = mx.random.normal([8, 4])
  for (const each of [layer, alone]) each.forward(x)
  const { weight, runningMean } = layer.module as nn.BatchNorm
  expect([weight?.shape, runningMean?.shape]).toEqual([[2], [4]])
  const whole = layer.wholeParameters()
  expect(Object.keys(whole).sort()).toEqual(["bias", "runningMean", "runningVar", "weight"])
  expect(mx.allclose(whole.runningVar, alone.runningVar as mx.Array).item()).toBe(true)
})

test("packed weights of a fully sharded module keep their dtype, whatever the call's", () => {
  const linear = nn.QuantizedLinear.fromLinear(new nn.Linear(64, 4))
  const half = new nn.FullyShardedModule(linear, { computeDtype: mx.float16 })
  const x = mx.random.normal([2, 64], mx.float16)
  expect(mx.allclose(half.forward(x), linear.forward(x), 1e-2, 1e-2).item()).toBe(true)
})

test("optimizers that need all of a parameter refuse a part", () => {
  const layer = new nn.FullyShardedModule(new nn.Linear(4, 8), { group: new First() })
  const grads = mx.treeMap((x) => mx.onesLike(x as mx.Array), layer.parameters()) as object
  const muon = new optim.Muon({ learningRate: 0.1 })
  expect(() => muon.update(layer, grads)).toThrowErrorMatchingInlineSnapshot(
    `[ArgumentError: [update] Muon needs all of "module.weight", of which each process has a part. Use an optimizer that works on every element alike, such as AdamW, or a MultiOptimizer]`,
  )
  expect(() => new optim.Adafactor().update(layer, grads)).toThrow("Adafactor needs all of")
  const adam = new optim.AdamW(0.1)
  const both = new optim.MultiOptimizer([adam, muon], [(path) => path.endsWith("bias")])
  const nested = new optim.MultiOptimizer([adam, both], [(path) => path.endsWith("bias")])
  for (const each of [both, nested]) expect(() => each.update(layer, grads)).toThrow("Muon needs all of")
  // Neither has taken a step.
  expect([adam.step.item(), muon.step.item()]).toEqual([0n, 0n])
  // Elementwise for a bias.
  const split = new optim.MultiOptimizer([new optim.AdamW(0.1), muon], [(path) => path.endsWith("weight")])
  split.update(layer, grads)
})
