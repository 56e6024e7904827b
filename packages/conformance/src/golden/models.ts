/**
 * Cases of layers and optimizers: made, loaded with recorded parameters, called, differentiated, stepped.
 */
import * as mx from "@lazuli/core"
import { arraysOf, forEachLeaf, withArrays } from "@lazuli/core/engine"
import { grad } from "@lazuli/transforms"
import { type AnyFunction, invoke, lookup, namedValue, optionsOf, type Spaces } from "./calls"
import { compareValue } from "./compare"
import { camelCase, type GoldenCase, type Json, type JsonObject, Mismatch, Missing, snakeCase, type Tolerance } from "./format"
import { runThrough } from "./through"
import { type Decoding, decode } from "./values"

/** A layer as the cases use it; the class is nn's. */
interface Layer {
  parameters(): object
  trainableParameters(): object
  update(parameters: object): unknown
  loadWeights(weights: (readonly [string, mx.Array])[]): unknown
  train(mode: boolean): unknown
}
/** An optimizer as the cases use it. */
interface Optimizer {
  init(parameters: object): void
  applyGradients(gradients: object, parameters: object): object
  readonly state: object
  readonly learningRate: unknown
}

const decoding = (spaces: Spaces): Decoding => ({ beside: "not an operand", named: namedValue(spaces) })

/** The arrays of a tree by their dotted paths. */
function namedArrays(tree: unknown, rename: (segment: string) => string): Record<string, mx.Array> {
  const out: Record<string, mx.Array> = {}
  forEachLeaf(tree, (leaf, path) => {
    if (leaf instanceof mx.Array) out[path.split(".").map(rename).join(".")] = leaf
  })
  return out
}

function compareNamed(got: Record<string, mx.Array>, want: JsonObject, tolerance: Tolerance, what: string): void {
  const keys = Object.keys(got).sort()
  if (keys.join() !== Object.keys(want).sort().join())
    throw new Mismatch(`${what}: has ${keys}, expected ${Object.keys(want).sort()}`)
  for (const key of keys) compareValue(got[key], want[key], tolerance, `${what} ${key}`)
}

function methodOf(object: unknown, name: string, of: string): AnyFunction {
  const found = (object as Record<string, AnyFunction | undefined>)[camelCase(name)]
  if (!found) throw new Missing(`${of}.${name}`)
  return (...args) => found.apply(object, args)
}

/** Runs a layer's case and compares its parameters and gradients. Gives the outputs of its call. @throws Missing, Mismatch */
export function runLayer(c: GoldenCase, spaces: Spaces): unknown[] {
  const how = decoding(spaces)
  mx.random.seed(c.seed ?? 0)
  const made = invoke(c, spaces) as Layer
  if (c.parameters) {
    compareNamed(namedArrays(made.parameters(), snakeCase), c.parameters, c, "parameters")
    return []
  }
  if (c.params)
    made.loadWeights(
      Object.entries(c.params).map(([key, value]) => [key, decode(value, how) as mx.Array] as const),
    )
  const { call } = c
  if (!call) return []
  let model = made
  if (c.train !== undefined) model.train(c.train)
  if (c.apply) {
    const options = optionsOf(c.apply.kwargs, how)
    if (c.apply.fn.includes(".")) lookup(c.apply.fn, spaces)(model, ...options)
    else model = methodOf(model, c.apply.fn, c.fn)(...options) as Layer
  }
  const before = model.parameters()
  const state = {
    trees: [model, mx.random.state],
    prepare: (): void => {
      model.update(before)
      if (c.seed !== undefined) mx.random.seed(c.seed)
    },
  }
  const forward = (args: unknown[]): mx.Array[] =>
    arraysOf(methodOf(model, c.method ?? "forward", c.fn)(...args, ...optionsOf(call.kwargs, how)))
  const args = (call.args ?? []).map((v) => decode(v, how))
  const run = (...xs: mx.Array[]): mx.Array[] => forward(withArrays(args, xs) as unknown[])
  const outputs = runThrough(spaces.through, run, arraysOf(args), state)
  mx.eval(outputs)
  if (c.params_after)
    compareNamed(namedArrays(made.parameters(), snakeCase), c.params_after, c, "parameters after")
  if (c.grad) {
    const gradients = (...xs: mx.Array[]): Gradients =>
      gradientsOf(c, model, withArrays(args, xs) as unknown[], forward, how)
    compareGradients(c, runThrough(spaces.through, gradients, arraysOf(args), state))
  }
  return outputs
}

type Gradients = [byParameters: object, byInputs: mx.Array[]]

function gradientsOf(
  c: GoldenCase,
  model: Layer,
  args: readonly unknown[],
  forward: (args: unknown[]) => mx.Array[],
  how: Decoding,
): Gradients {
  const want = c.grad as NonNullable<GoldenCase["grad"]>
  const cotangents = want.cotangents.map((v) => decode(v, how)) as mx.Array[]
  const loss = ([parameters, inputs]: [object, mx.Array[]]): mx.Array => {
    model.update(parameters)
    const all = args.slice()
    want.input_argnums.forEach((position, i) => {
      all[position] = inputs[i]
    })
    return forward(all)
      .map((y, i) => y.multiply(cotangents[i]).sum())
      .reduce((a, b) => a.add(b))
  }
  const inputs = want.input_argnums.map((i) => args[i] as mx.Array)
  const parameters = model.parameters()
  const gradients = grad(loss)([model.trainableParameters(), inputs]) as Gradients
  model.update(parameters)
  return gradients
}

function compareGradients(c: GoldenCase, [byParameters, byInputs]: Gradients): void {
  const want = c.grad as NonNullable<GoldenCase["grad"]>
  compareNamed(namedArrays(byParameters, snakeCase), want.params, want, "gradient of")
  want.inputs.forEach((v, i) => compareValue(byInputs[i], v, want, `gradient of input ${i}`))
}

/** Runs an optimizer's case and compares parameters, learning rate and state. @throws Missing, Mismatch */
export function runOptimizer(c: GoldenCase, spaces: Spaces): unknown[] {
  const how = decoding(spaces)
  const optimizer = invoke(c, spaces) as Optimizer
  let parameters = decode(c.params as Json, how) as object
  optimizer.init(parameters)
  const state = { trees: [optimizer.state], fixedSizes: true }
  ;(c.grads as Json[]).forEach((gradients, i) => {
    const trees = [decode(gradients, how), parameters]
    const run = (...xs: mx.Array[]): object => {
      const [by, at] = withArrays(trees, xs) as [object, object]
      return optimizer.applyGradients(by, at)
    }
    parameters = runThrough(spaces.through, run, arraysOf(trees), state)
    mx.eval(parameters, optimizer.state)
    const want = c.params_after?.[i + 1]
    if (want !== undefined) compareValue(parameters, want, c, `parameters after ${i + 1}`)
  })
  if (c.learning_rate) compareValue(optimizer.learningRate, c.learning_rate, c, "learning rate")
  const kept = namedArrays(optimizer.state, (segment) => segment)
  for (const [key, want] of Object.entries(c.state ?? {})) compareValue(kept[key], want, c, `state ${key}`)
  return []
}
