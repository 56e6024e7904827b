/**
 * Mixtures of experts. The experts' weights are stacked in one array per projection, from which a product gathers the selected ones.
 */
import * as mx from "@lazuli/core"
import { FormatError, resolveFormat } from "@lazuli/core/engine"
import * as nn from "@lazuli/nn"
import { checkKind, OBJECT, STRINGS } from "../argument-kinds"
import { type Activation, GatedFeedForward } from "./layers"
import type { Weights } from "./network"
import { replaced } from "./replaced"

/** Linear layers without biases, one per expert. */
export class SwitchLinear extends nn.Module {
  /** [experts, out, in] */
  weight: mx.Array
  constructor(experts: number, inner: number, outer: number) {
    super()
    this.weight = mx.random.uniform(-(inner ** -0.5), inner ** -0.5, [experts, outer, inner])
  }
  /** Applies the experts `chosen` [...] to x [..., 1, in]. */
  forward(x: mx.Array, chosen: mx.Array): mx.Array {
    return mx.gatherMm(x, this.weight.swapaxes(-1, -2), { rhsIndices: chosen })
  }
  /** This layer with quantized weights. */
  toQuantized({ activations = "exact", ...format }: nn.ToQuantizedOptions): QuantizedSwitchLinear {
    const made = new QuantizedSwitchLinear(this.weight, format)
    made.activations = activations
    return made
  }
}

/** {@link SwitchLinear} with quantized weights. */
export class QuantizedSwitchLinear extends nn.Module {
  weight: mx.Array
  scales: mx.Array
  biases?: mx.Array
  readonly groupSize: number
  readonly bits: number
  readonly mode: mx.QuantizationMode
  /** See {@link nn.QuantizedLinear}. */
  activations: mx.ProductActivations = "exact"

  constructor(weight: mx.Array, given: nn.QuantizationOptions) {
    super()
    const format = resolveFormat("SwitchLinear", given.groupSize, given.bits, given.mode ?? "affine")
    this.groupSize = format.groupSize
    this.bits = format.bits
    this.mode = format.mode
    const [packed, scales, biases] = mx.quantize(weight, format)
    this.weight = packed
    this.scales = scales
    if (biases) this.biases = biases
    this.freeze()
  }
  forward(x: mx.Array, chosen: mx.Array): mx.Array {
    const { weight, scales, biases, groupSize, bits, mode, activations } = this
    return mx.gatherQmm(x, weight, scales, biases, { rhsIndices: chosen, groupSize, bits, mode, activations })
  }
}

/** A layer whose inputs are vectors and their experts. */
type Switch = nn.Model<[x: mx.Array, chosen: mx.Array]>

/** {@link GatedFeedForward} of experts. */
class SwitchFeedForward extends nn.Module {
  gateProj: Switch
  upProj: Switch
  downProj: Switch
  /** @internal */
  readonly _activation: Activation
  constructor({ experts, hidden, inner, activation }: ExpertSizes) {
    super()
    this.gateProj = new SwitchLinear(experts, hidden, inner)
    this.upProj = new SwitchLinear(experts, hidden, inner)
    this.downProj = new SwitchLinear(experts, inner, hidden)
    this._activation = activation
  }
  forward(x: mx.Array, chosen: mx.Array): mx.Array {
    const rows = x.expandDims(-2).expandDims(-2)
    const gate = this._activation(this.gateProj.forward(rows, chosen))
    return this.downProj.forward(gate.multiply(this.upProj.forward(rows, chosen)), chosen).squeeze(-2)
  }
}

/** Sizes and options of experts. */
export interface ExpertSizes {
  readonly hidden: number
  readonly inner: number
  readonly experts: number
  /** Experts per token. */
  readonly chosen: number
  /** Normalize the weights of the selected experts to sum to 1. */
  readonly normalized: boolean
  readonly activation: Activation
}

/**
 * Σ weight · expert(x) over the top-k experts of a gate.
 * @example
 * const sizes = { hidden: 4, inner: 8, experts: 3, chosen: 2, normalized: true, activation: activationOf('silu') }
 * new SparseFeedForward(sizes).forward(mx.ones([1, 5, 4])).shape // => [1, 5, 4]
 */
export class SparseFeedForward extends nn.Module {
  gate: nn.Model
  switchMlp: SwitchFeedForward
  private readonly sizes: Omit<ExpertSizes, "activation">

  constructor(sizes: ExpertSizes) {
    super()
    checkKind("SparseFeedForward", "the sizes", sizes, OBJECT)
    if (sizes.chosen > sizes.experts)
      throw new FormatError("load", `a token cannot have ${sizes.chosen} of ${sizes.experts} experts`)
    this.gate = new nn.Linear(sizes.hidden, sizes.experts, false)
    this.switchMlp = new SwitchFeedForward(sizes)
    const { activation: _, ...rest } = sizes
    this.sizes = rest
  }

  /** The layers whose outputs choose and weight experts: `quantize` gives them more bits. */
  get routers(): readonly nn.Module[] {
    return [this.gate]
  }

  forward(x: mx.Array): mx.Array {
    const { chosen: k, normalized } = this.sizes
    const likely = mx.softmax(this.gate.forward(x).astype(mx.float32), -1)
    const chosen = mx.stopGradient(mx.argpartition(likely.negative(), k - 1, -1).index("...", mx.s(0, k)))
    let weights = mx.takeAlongAxis(likely, chosen, -1)
    if (normalized) weights = weights.divide(weights.sum(-1, true))
    const y = this.switchMlp.forward(x, chosen)
    return y.multiply(weights.astype(y.dtype).expandDims(-1)).sum(-2)
  }
}

/** {@link SparseFeedForward} with a shared expert, weighted by its own gate; Qwen 2. */
export class SharedExperts extends SparseFeedForward {
  sharedExpert: GatedFeedForward
  sharedExpertGate: nn.Model
  constructor(sizes: ExpertSizes, inner: number) {
    super(sizes)
    this.sharedExpert = new GatedFeedForward(sizes.hidden, inner, { activation: sizes.activation })
    this.sharedExpertGate = new nn.Linear(sizes.hidden, 1, false)
  }
  override get routers(): readonly nn.Module[] {
    return [this.gate, this.sharedExpertGate]
  }
  override forward(x: mx.Array): mx.Array {
    const gate = mx.sigmoid(this.sharedExpertGate.forward(x))
    return super.forward(x).add(gate.multiply(this.sharedExpert.forward(x)))
  }
}

const PROJECTIONS = ["gate_proj", "up_proj", "down_proj"] as const

/**
 * Stacks the weights of experts (`mlp.experts.3.gate_proj.weight`) in one array per projection (`mlp.switch_mlp.gate_proj.weight`).
 * @param block - the name of feed-forward networks, such as `mlp`
 * @param names - the experts' names of the gate, up and down projections
 * @throws FormatError unless experts are numbered from 0
 * @example
 * const names = ['gate_proj', 'up_proj', 'down_proj']
 * const weights = Object.fromEntries([0, 1].map((i) => [`layers.0.mlp.experts.${i}.up_proj.weight`, mx.ones([8, 4])]))
 * stackExperts(weights, 'mlp', names)['layers.0.mlp.switch_mlp.up_proj.weight'].shape // => [2, 8, 4]
 */
export function stackExperts(weights: Weights, block: string, names: readonly string[]): Weights {
  checkKind("stackExperts", "the names", names, STRINGS)
  const pattern = new RegExp(`^(.*\\.${block})\\.experts\\.(\\d+)\\.(${names.join("|")})\\.(\\w+)$`)
  const out: Weights = {}
  const stacks = new Map<string, Map<number, mx.Array>>()
  for (const [name, array] of Object.entries(weights)) {
    const [, prefix, expert, projection, leaf] = pattern.exec(name) ?? []
    if (prefix === undefined) {
      out[name] = array
      continue
    }
    const target = `${prefix}.switch_mlp.${PROJECTIONS[names.indexOf(projection)]}.${leaf}`
    const stack = stacks.get(target) ?? new Map<number, mx.Array>()
    stack.set(Number(expert), array)
    stacks.set(target, stack)
  }
  for (const [target, stack] of stacks) {
    const experts = Array.from({ length: stack.size }, (_, i) => stack.get(i))
    if (!experts.every((array) => array !== undefined))
      throw new FormatError("load", `the experts of "${target}" are not numbered from 0 to ${stack.size - 1}`)
    out[target] = replaced(experts, () => mx.stack(experts))
  }
  return out
}
