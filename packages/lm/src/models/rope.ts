/**
 * Rotary positions in all variants that config.json files name: default, linear, dynamic, llama3, yarn, longrope. The rotation itself is
 * `mx.fast.rope`; here are its frequencies.
 */
import * as mx from "@lazuli/core"
import { FormatError } from "@lazuli/core/engine"
import type { Settings } from "./settings"

/** The frequencies for sequences of a length, and the factor of what is rotated. */
interface Frequencies {
  /** θ^(2i/d), stretched. */
  readonly freqs: Float64Array
  readonly factor: number
}

/** A variant: frequencies that may depend on how long the sequence is. `bound` is the length up to which the answer holds. */
type Variant = (length: number) => Frequencies & { readonly bound: number }

const plainFrequencies = (base: number, dims: number): Float64Array =>
  Float64Array.from({ length: dims / 2 }, (_, i) => base ** ((2 * i) / dims))

const always = (frequencies: Frequencies): Variant => {
  const answer = { ...frequencies, bound: Infinity }
  return () => answer
}

/** Su et al. 2021, with a factor of the positions. */
function linear(base: number, dims: number, factor: number): Variant {
  return always({ freqs: plainFrequencies(base, dims).map((f) => f * factor), factor: 1 })
}

/** The base grows with sequences that are longer than those of training ("NTK-aware"). */
function dynamic(base: number, dims: number, factor: number, trained: number): Variant {
  return (length) => {
    if (length <= trained) return { freqs: plainFrequencies(base, dims), factor: 1, bound: trained }
    const grown = base * ((factor * length) / trained - (factor - 1)) ** (dims / (dims - 2))
    return { freqs: plainFrequencies(grown, dims), factor: 1, bound: length }
  }
}

/** Low frequencies are stretched, high ones kept, those between blended: Llama 3.1. */
function llama3(base: number, dims: number, rope: Settings): Variant {
  const factor = rope.number("factor")
  const low = rope.number("low_freq_factor")
  const high = rope.number("high_freq_factor")
  const trained = rope.count("original_max_position_embeddings")
  const freqs = plainFrequencies(base, dims).map((f) => {
    const wavelength = 2 * Math.PI * f
    if (wavelength > trained / low) return f * factor
    if (wavelength < trained / high) return f
    const smooth = (trained / wavelength - low) / (high - low)
    return 1 / ((1 - smooth) / (f * factor) + smooth / f)
  })
  return always({ freqs, factor: 1 })
}

/** Peng et al., "YaRN", 2023: https://arxiv.org/abs/2309.00071 */
function yarn(base: number, dims: number, rope: Settings, most: number): Variant {
  const trained = rope.count("original_max_position_embeddings", most)
  const factor = rope.number("factor", most / trained)
  const mscaleOf = (mscale: number): number => (factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1)
  const [mscale, all] = [rope.optionalNumber("mscale"), rope.optionalNumber("mscale_all_dim")]
  const attention =
    rope.optionalNumber("attention_factor") ??
    (mscale && all ? mscaleOf(mscale) / mscaleOf(all) : mscaleOf(1))
  const dimensionOf = (rotations: number): number =>
    (dims * Math.log(trained / (rotations * 2 * Math.PI))) / (2 * Math.log(base))
  let low = dimensionOf(rope.number("beta_fast", 32))
  let high = dimensionOf(rope.number("beta_slow", 1))
  if (rope.boolean("truncate", true)) [low, high] = [Math.floor(low), Math.ceil(high)]
  low = Math.max(low, 0)
  high = Math.min(high, dims - 1)
  if (low === high) high += 0.001
  const freqs = plainFrequencies(base, dims).map((f, i) => {
    const stretched = Math.min(1, Math.max(0, (i - low) / (high - low)))
    return 1 / (stretched / (f * factor) + (1 - stretched) / f)
  })
  return always({ freqs, factor: attention })
}

/** One factor a frequency, another for long sequences: Phi 3. */
function longrope(base: number, dims: number, rope: Settings, config: Settings, most: number): Variant {
  const trained =
    rope.optionalCount("original_max_position_embeddings") ??
    config.count("original_max_position_embeddings", most)
  const factor = rope.has("factor") ? rope.number("factor") : most / trained
  const attention =
    rope.optionalNumber("attention_factor") ??
    (factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(trained)))
  const by = (key: string): Frequencies => {
    const factors = rope.numbers(key)
    if (factors.length !== dims / 2)
      throw new FormatError(
        "load",
        `${rope.source}: "${key}" must have ${dims / 2} numbers, received ${factors.length}`,
      )
    return { freqs: plainFrequencies(base, dims).map((f, i) => f * factors[i]), factor: attention }
  }
  const [short, long] = [by("short_factor"), by("long_factor")]
  return (length) => (length <= trained ? { ...short, bound: trained } : { ...long, bound: Infinity })
}

/** Arguments of {@link ropeOf} beside the config. */
export interface RopeChoice {
  /** The features of a head. */
  readonly headDim: number
  /** The base where the config names none. */
  readonly base?: number
  /** Pairs are neighbours, not halves. */
  readonly traditional?: boolean
  /** The kind of layer whose parameters are meant, where the config has several (Gemma 3). */
  readonly layerType?: string
}

/** The rotation that a config.json asks for. */
interface RopeSettings {
  readonly kind: string
  readonly theta: number
  /** The features of a head that are rotated. */
  readonly dims: number
  readonly rope: Settings | null
}

/**
 * The settings of a rotation, in the forms of before and since transformers 5 (`rope_theta` and `rope_scaling`, or `rope_parameters`).
 */
export function ropeSettings(
  config: Settings,
  { headDim, base = 10000, layerType }: RopeChoice,
): RopeSettings {
  const given = config.part("rope_parameters") ?? config.part("rope_scaling")
  const rope = (layerType && given?.part(layerType)) || given
  const theta = rope?.optionalNumber("rope_theta") ?? config.number("rope_theta", base)
  const partial = rope?.optionalNumber("partial_rotary_factor") ?? config.number("partial_rotary_factor", 1)
  const kind = rope?.string("rope_type", rope.string("type", "default")) ?? "default"
  return { kind, theta, dims: 2 * Math.floor((headDim * partial) / 2), rope }
}

/** The variant that a config.json asks for. */
function chosenVariant(
  config: Settings,
  choice: RopeChoice,
): { variant: Variant; dims: number; theta: number } {
  const { kind, theta, dims, rope } = ropeSettings(config, choice)
  const most = config.count("max_position_embeddings", 2048)
  return { variant: variantOf(kind, rope, config, theta, dims, most), dims, theta }
}

/**
 * The rotation that a config.json asks for.
 * @throws FormatError for a variant that is not known
 */
export function ropeOf(config: Settings, choice: RopeChoice): Rope {
  const { variant, dims } = chosenVariant(config, choice)
  return new Rope(variant, dims, choice.traditional ?? false)
}

/** The factors by which a variant stretches the plain frequencies, for the shortest and the longest sequences, and what it scales by. */
export function frequencyFactors(
  config: Settings,
  choice: RopeChoice,
): { short: Float32Array; long: Float32Array; attention: number } {
  const { variant, dims, theta } = chosenVariant(config, choice)
  const plain = plainFrequencies(theta, dims)
  const factors = (length: number): Float32Array =>
    Float32Array.from(variant(length).freqs, (f, i) => f / plain[i])
  return { short: factors(1), long: factors(Infinity), attention: variant(Infinity).factor }
}

function variantOf(
  kind: string,
  rope: Settings | null,
  config: Settings,
  theta: number,
  dims: number,
  most: number,
): Variant {
  if (kind === "default" || rope === null) return linear(theta, dims, 1)
  if (kind === "linear") return linear(theta, dims, rope.number("factor"))
  if (kind === "dynamic") return dynamic(theta, dims, rope.number("factor"), most)
  if (kind === "llama3") return llama3(theta, dims, rope)
  if (kind === "yarn") return yarn(theta, dims, rope, most)
  if (kind === "longrope" || kind === "su") return longrope(theta, dims, rope, config, most)
  throw new FormatError("load", `${rope.source}: the rope_type "${kind}" is not known`, {
    hint: "Known: default, linear, dynamic, llama3, yarn and longrope",
  })
}

/** A rotation of queries and keys by their positions. */
export class Rope {
  // No part of a network's state, where programs look for what may change.
  readonly #made = new Map<number, { freqs: mx.Array; factor: number }>()
  constructor(
    private readonly variant: Variant,
    /** The features that are rotated, the first ones of a head. */
    readonly dims: number,
    private readonly traditional: boolean,
  ) {
    // Made here, not in a first call, whose `tidy` would dispose of them.
    if (this.isFixed) this.frequencies(1)
  }

  /**
   * Rotates x [batch, heads, length, features].
   * @param at - the position of the first token: a number, or one for each example; an array of one where the rotation {@link isFixed}
   */
  forward(x: mx.Array, at: number | readonly number[] | mx.Array): mx.Array {
    const length = x.shape[2]
    if (typeof at === "number") return this.rotate(x, at, at + length)
    if (at instanceof mx.Array) return this.rotate(x, at, length)
    const longest = Math.max(...at)
    const sameForAll = at.every(
      (n) => this.variant(n + length).bound === this.variant(longest + length).bound,
    )
    if (sameForAll) return this.rotate(x, mx.array([...at], mx.int32), longest + length)
    const rows = mx.split(x, at.length, 0).map((row, i) => this.rotate(row, at[i], at[i] + length))
    return mx.concatenate(rows, 0)
  }

  /** True where frequencies do not depend on how long the sequence is. */
  get isFixed(): boolean {
    return this.variant(1).bound === Infinity
  }

  /** The arrays that it keeps for later calls. */
  held(): mx.Array[] {
    return [...this.#made.values()].map(({ freqs }) => freqs)
  }

  private rotate(x: mx.Array, offset: number | mx.Array, total: number): mx.Array {
    const { freqs, factor } = this.frequencies(total)
    const { dims, traditional } = this
    const scaled = factor === 1 ? x : this.scale(x, factor)
    return mx.fast.rope(scaled, dims, { traditional, base: null, freqs, offset })
  }

  private scale(x: mx.Array, factor: number): mx.Array {
    const features = x.shape[x.ndim - 1]
    if (features === this.dims) return x.multiply(factor)
    const [rotated, kept] = mx.split(x, [this.dims], -1)
    return mx.concatenate([rotated.multiply(factor), kept], -1)
  }

  private frequencies(total: number): { freqs: mx.Array; factor: number } {
    const { freqs, factor, bound } = this.variant(total)
    const known = this.#made.get(bound)
    if (known) return known
    // A variant whose base grows with every length would otherwise keep them all.
    if (this.#made.size > 4) this.#made.clear()
    const made = { freqs: mx.array(Float32Array.from(freqs)), factor }
    this.#made.set(bound, made)
    return made
  }
}
