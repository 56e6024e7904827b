import * as mx from "@lazuli/core"
import { describe, expect, test } from "vitest"
import * as nn from "./index"
import * as optim from "./optimizers/index"

type Loose = (...args: unknown[]) => unknown
type LooseClass = new (...args: unknown[]) => Record<string, Loose>

/** Values that a caller without types may give at any position. */
const wrong: unknown[] = [
  undefined,
  null,
  Number.NaN,
  -1,
  3,
  1.5,
  "text",
  true,
  10n,
  Symbol("s"),
  () => undefined,
  {},
  { nothing: 1 },
  [],
  [1],
  mx.zeros([2, 3]),
  mx.array(["a"].length, mx.int32),
  new Date(0),
  new Map(),
]
const vectors = [mx.ones([2]), mx.ones([2, 3]), mx.ones([1, 4, 4, 2])]

const isClass = (value: unknown): value is LooseClass =>
  typeof value === "function" && /^class\b/.test(Function.prototype.toString.call(value))

/** Errors that are not Lazuli's own, and those that name another function than one of `names`. */
function faults(names: readonly string[], call: () => unknown): string[] {
  try {
    const value = call()
    if (value instanceof mx.Array && value.size < 1000) mx.eval(value)
    return []
  } catch (error) {
    if (!(error instanceof mx.LazuliError)) return [`${names[0]}: ${String(error)}`]
    return names.includes(error.op) ? [] : [`${names[0]} says ${error.message.slice(0, 120)}`]
  }
}

/** Calls with wrong arguments: each at each position, beside others. */
function* combinations(count: number): Generator<unknown[]> {
  yield []
  for (const first of [...wrong, ...vectors]) {
    yield [first]
    for (const rest of [...wrong, ...vectors]) {
      yield [first, rest]
      if (count > 2) yield [vectors[1], first, rest]
      if (count > 3) yield [vectors[1], vectors[1], first, rest]
    }
  }
}

const functionsOf = (space: object, prefix: string): [string, Loose][] =>
  Object.entries(space)
    .filter(([, value]) => typeof value === "function" && !isClass(value))
    .map(([name, value]) => [`${prefix}${name}`, value as Loose])

describe("wrong arguments are refused by the function that was called", () => {
  const functions = [
    ...functionsOf(nn, ""),
    ...functionsOf(nn.losses, ""),
    ...functionsOf(nn.init, "init."),
    ...functionsOf(nn.utils, ""),
    ...functionsOf(optim, ""),
  ]
  test.each(functions)("%s", (name, f) => {
    const found = new Set<string>()
    for (const args of combinations(4)) for (const fault of faults([name], () => f(...args))) found.add(fault)
    expect([...found].slice(0, 5)).toEqual([])
  })

  test.each(functionsOf(nn.init, "init."))("what %s gives", (name, f) => {
    const make = (name === "init.constant" || name === "init.sparse" ? f(0.5) : f()) as Loose
    const found = new Set<string>()
    for (const args of combinations(2))
      for (const fault of faults([name], () => make(...args))) found.add(fault)
    expect([...found].slice(0, 5)).toEqual([])
  })

  const everything: [string, unknown][] = [...Object.entries(nn), ...Object.entries(optim)]
  const classes = everything.flatMap(([name, value]): [string, LooseClass][] =>
    isClass(value) ? [[name, value]] : [],
  )
  test.each(classes)("new %s", (name, Class) => {
    const found = new Set<string>()
    for (const args of combinations(3))
      for (const fault of faults([name], () => new Class(...args))) found.add(fault)
    expect([...found].slice(0, 5)).toEqual([])
  })
})

describe("methods", () => {
  const layers: [string, () => object][] = [
    ["Linear", () => new nn.Linear(3, 2)],
    ["Bilinear", () => new nn.Bilinear(3, 3, 2)],
    ["Identity", () => new nn.Identity()],
    ["Embedding", () => new nn.Embedding(4, 3)],
    ["Conv1d", () => new nn.Conv1d(3, 2, 2)],
    ["Conv2d", () => new nn.Conv2d(2, 2, 2)],
    ["ConvTranspose2d", () => new nn.ConvTranspose2d(2, 2, 2)],
    ["MaxPool2d", () => new nn.MaxPool2d(2)],
    ["AvgPool1d", () => new nn.AvgPool1d(2)],
    ["Dropout", () => new nn.Dropout(0.5)],
    ["Dropout2d", () => new nn.Dropout2d(0.5)],
    ["LayerNorm", () => new nn.LayerNorm(3)],
    ["RMSNorm", () => new nn.RMSNorm(3)],
    ["GroupNorm", () => new nn.GroupNorm(1, 3)],
    ["InstanceNorm", () => new nn.InstanceNorm(2)],
    ["BatchNorm", () => new nn.BatchNorm(3)],
    ["RoPE", () => new nn.RoPE(2)],
    ["SinusoidalPositionalEncoding", () => new nn.SinusoidalPositionalEncoding(2)],
    ["ALiBi", () => new nn.ALiBi()],
    ["RNN", () => new nn.RNN(3, 2)],
    ["GRU", () => new nn.GRU(3, 2)],
    ["LSTM", () => new nn.LSTM(3, 2)],
    ["MultiHeadAttention", () => new nn.MultiHeadAttention(4, 2)],
    ["Upsample", () => new nn.Upsample(2)],
    ["QuantizedLinear", () => new nn.QuantizedLinear(32, 2, { groupSize: 32 })],
    ["QuantizedEmbedding", () => new nn.QuantizedEmbedding(4, 32, { groupSize: 32 })],
    ["QQLinear", () => new nn.QQLinear(32, 2)],
    ["Softmax", () => new nn.Softmax()],
    ["GELU", () => new nn.GELU()],
    ["GLU", () => new nn.GLU()],
    ["PReLU", () => new nn.PReLU(3)],
    ["AllToShardedLinear", () => new nn.AllToShardedLinear(3, 2)],
    ["ShardedToAllLinear", () => new nn.ShardedToAllLinear(3, 2)],
    ["QuantizedShardedToAllLinear", () => new nn.QuantizedShardedToAllLinear(64, 2)],
  ]
  test.each(layers)("%s.forward names the layer", (name, make) => {
    const layer = make() as { forward: Loose }
    const found = new Set<string>()
    for (const args of combinations(3))
      for (const fault of faults([name], () => layer.forward(...args))) found.add(fault)
    expect([...found].slice(0, 5)).toEqual([])
  })

  const models: [string, () => object, string[]][] = [
    ["TransformerEncoder", () => new nn.TransformerEncoder(1, 4, 2), ["MultiHeadAttention", "LayerNorm"]],
    [
      "TransformerDecoder",
      () => new nn.TransformerDecoder(1, 4, 2),
      ["MultiHeadAttention", "LayerNorm", "TransformerDecoderLayer"],
    ],
    ["Sequential", () => new nn.Sequential(new nn.Linear(3, 2)), ["Linear"]],
  ]
  test.each(models)("%s.forward names itself or the layer within", (name, make, inner) => {
    const layer = make() as { forward: Loose }
    const found = new Set<string>()
    for (const args of combinations(3))
      for (const fault of faults([name, ...inner], () => layer.forward(...args))) found.add(fault)
    expect([...found].slice(0, 5)).toEqual([])
  })

  const methods = [
    "filterAndMap",
    "update",
    "updateModules",
    "apply",
    "applyToModules",
    "freeze",
    "unfreeze",
    "train",
    "setDtype",
    "saveWeights",
    "loadWeights",
    "validParameterFilter",
    "trainableParameterFilter",
    "validChildFilter",
    "isModule",
    "toQuantized",
  ]
  test.each(methods)("Module.%s", (name) => {
    const found = new Set<string>()
    for (const args of combinations(2)) {
      if (name === "saveWeights" && typeof args[0] === "string") continue
      const layer = new nn.Linear(3, 2) as unknown as Record<string, Loose>
      for (const fault of faults([name], () => layer[name](...args))) found.add(fault)
    }
    expect([...found].slice(0, 5)).toEqual([])
  })

  test.each(["init", "applyGradients", "update"])("Optimizer.%s", (name) => {
    const found = new Set<string>()
    const model = new nn.Linear(3, 2)
    for (const args of [...combinations(2), ...wrong.map((bad) => [model, bad])])
      for (const optimizer of [new optim.Adam(1e-3), new optim.MultiOptimizer([new optim.SGD(1e-3)])])
        for (const fault of faults([name], () =>
          (optimizer as unknown as Record<string, Loose>)[name](...args),
        ))
          found.add(fault)
    expect([...found].slice(0, 5)).toEqual([])
  })

  test.each(["learningRate", "state"])("Optimizer.%s, set", (name) => {
    const found = new Set<string>()
    for (const value of wrong)
      for (const optimizer of [new optim.Adam(1e-3), new optim.MultiOptimizer([new optim.SGD(1e-3)])]) {
        const names = name === "state" ? [optimizer.constructor.name, "SGD"] : [name]
        const set = () => {
          ;(optimizer as unknown as Record<string, unknown>)[name] = value
        }
        for (const fault of faults(names, set)) found.add(fault)
      }
    expect([...found].slice(0, 5)).toEqual([])
  })
})
