/**
 * Rotary position embeddings (RoPE) with the scaling types of config.json files: default, linear, dynamic, llama3, yarn, longrope. This
 * file computes the frequencies; the rotation is `mx.fast.rope`.
 */
import * as mx from "@lazuli/core"
import { FormatError } from "@lazuli/core/engine"
import { COUNT, checkKind, FLAG, POSITIVE, STRING } from "../argument-kinds"
import { optionsNamed } from "../arguments"
import { SETTINGS, type Settings } from "./settings"

/** Frequencies, and a scale of the rotated features. */
interface Frequencies {
  /** θ^(2i/d), scaled. */
  readonly freqs: Float64Array
  readonly factor: number
}

/** A scaling type: frequencies by sequence length. They are the same for all lengths up to `bound`. */
type Variant = (length: number) => Frequencies & { readonly bound: number }

const plainFrequencies = (base: number, dims: number): Float64Array =>
  Float64Array.from({ length: dims / 2 }, (_, i) => base ** ((2 * i) / dims))

const always = (frequencies: Frequencies): Variant => {
  const answer = { ...frequencies, bound: Infinity }
  return () => answer
}

/** Su et al. 2021, with positions divided by a factor. */
function linear(base: number, dims: number, factor: number): Variant {
  return always({ freqs: plainFrequencies(base, dims).map((f) => f * factor), factor: 1 })
}

/** The base grows once sequences are longer than in training ("NTK-aware"). */
function dynamic(base: number, dims: number, factor: number, trained: number): Variant {
  return (length) => {
    if (length <= trained) return { freqs: plainFrequencies(base, dims), factor: 1, bound: trained }
    const grown = base * ((factor * length) / trained - (factor - 1)) ** (dims / (dims - 2))
    return { freqs: plainFrequencies(grown, dims), factor: 1, bound: length }
  }
}

/** Llama 3.1: low frequencies are scaled, high ones kept, and those between interpolated. */
function llama3(base: number, dims: number, rope: Settings): Variant {
  const factor = rope.positive("factor")
  const low = rope.positive("low_freq_factor")
  const high = rope.positive("high_freq_factor")
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
function yarn(base: number, dims: number, rope: Settings, maxPositions: number): Variant {
  const trained = rope.count("original_max_position_embeddings", maxPositions)
  const factor = rope.positive("factor", maxPositions / trained)
  const mscaleOf = (mscale: number): number => (factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1)
  const [mscale, all] = [rope.optionalNumber("mscale"), rope.optionalNumber("mscale_all_dim")]
  const attention =
    rope.optionalNumber("attention_factor") ??
    (mscale && all ? mscaleOf(mscale) / mscaleOf(all) : mscaleOf(1))
  const dimensionOf = (rotations: number): number =>
    (dims * Math.log(trained / (rotations * 2 * Math.PI))) / (2 * Math.log(base))
  let low = dimensionOf(rope.positive("beta_fast", 32))
  let high = dimensionOf(rope.positive("beta_slow", 1))
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

/** Phi 3: a factor per frequency, with other factors for long sequences. */
function longrope(
  base: number,
  dims: number,
  rope: Settings,
  config: Settings,
  maxPositions: number,
): Variant {
  const trained =
    rope.optionalCount("original_max_position_embeddings") ??
    config.count("original_max_position_embeddings", maxPositions)
  const factor = rope.has("factor") ? rope.positive("factor") : maxPositions / trained
  const attention =
    rope.optionalNumber("attention_factor") ??
    (factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(trained)))
  const by = (key: string): Frequencies => {
    const factors = rope.numbers(key)
    if (factors.length !== dims / 2)
      throw new FormatError(
        "load",
        `${rope.source}: "${key}" must have ${dims / 2} numbers, but has ${factors.length}`,
      )
    return { freqs: plainFrequencies(base, dims).map((f, i) => f * factors[i]), factor: attention }
  }
  const [short, long] = [by("short_factor"), by("long_factor")]
  return (length) => (length <= trained ? { ...short, bound: trained } : { ...long, bound: Infinity })
}

/** Options of {@link ropeOf}. */
export interface RopeChoice {
  readonly headDim: number
  /** The base if the config has none. */
  readonly base?: number
  /** Rotate adjacent features instead of halves. */
  readonly traditional?: boolean
  /** The layer type, if the config has separate parameters for each (Gemma 3). */
  readonly layerType?: string
}

const checkOptions = optionsNamed<RopeChoice>({
  headDim: COUNT,
  base: POSITIVE,
  traditional: FLAG,
  layerType: STRING,
})

/** RoPE parameters of a config.json. */
interface RopeSettings {
  readonly kind: string
  readonly theta: number
  /** Number of rotated features of a head. */
  readonly dims: number
  readonly rope: Settings | null
}

/**
 * RoPE parameters, as `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (earlier versions).
 */
export function ropeSettings(
  config: Settings,
  { headDim, base = 10000, layerType }: RopeChoice,
): RopeSettings {
  const given = config.part("rope_parameters") ?? config.part("rope_scaling")
  const rope = (layerType && given?.part(layerType)) || given
  const theta = rope?.optionalPositive("rope_theta") ?? config.positive("rope_theta", base)
  const partial =
    rope?.optionalPositive("partial_rotary_factor") ?? config.positive("partial_rotary_factor", 1)
  const kind = rope?.string("rope_type", rope.string("type", "default")) ?? "default"
  // The part may be a quotient, such as 30/44, whose product with the divisor is less than the dividend.
  const dims = 2 * Math.floor((headDim * partial) / 2 + 1e-6)
  if (dims === 0 || partial > 1)
    throw new FormatError("load", `${config.source}: RoPE cannot rotate ${dims} of ${headDim} features`)
  return { kind, theta, dims, rope }
}

/** The scaling type of a config.json. */
function chosenVariant(
  config: Settings,
  choice: RopeChoice,
): { variant: Variant; dims: number; theta: number } {
  const { kind, theta, dims, rope } = ropeSettings(config, choice)
  const maxPositions = config.count("max_position_embeddings", 2048)
  return { variant: variantOf(kind, rope, config, theta, dims, maxPositions), dims, theta }
}

/**
 * The RoPE of a config.json.
 * @throws FormatError if its type is not supported
 * @example
 * const { config } = await load('my-model')
 * const rope = ropeOf(config, { headDim: 16 })
 * rope.forward(mx.ones([1, 1, 2, 16]), 0).shape // => [1, 1, 2, 16]
 */
export function ropeOf(config: Settings, choice: RopeChoice): Rope {
  checkKind("ropeOf", "the config", config, SETTINGS)
  checkOptions("ropeOf", choice)
  const { variant, dims } = chosenVariant(config, choice)
  return new Rope(variant, dims, choice.traditional ?? false)
}

/** The factors of the frequencies for the shortest and the longest sequences, and the attention factor. */
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
  maxPositions: number,
): Variant {
  if (kind === "default" || rope === null) return linear(theta, dims, 1)
  if (kind === "linear") return linear(theta, dims, rope.positive("factor"))
  if (kind === "dynamic") return dynamic(theta, dims, rope.positive("factor"), maxPositions)
  if (kind === "llama3") return llama3(theta, dims, rope)
  if (kind === "yarn") return yarn(theta, dims, rope, maxPositions)
  if (kind === "longrope" || kind === "su") return longrope(theta, dims, rope, config, maxPositions)
  throw new FormatError("load", `${rope.source}: the rope_type "${kind}" is not supported`, {
    hint: "Supported: default, linear, dynamic, llama3, yarn and longrope",
  })
}

/** Rotates queries and keys by their positions. */
export class Rope {
  // Private, because it is not part of the network's state, which compiled programs watch for changes.
  readonly #made = new Map<number, { freqs: mx.Array; factor: number }>()
  constructor(
    private readonly variant: Variant,
    /** Number of rotated features, the first ones of a head. */
    readonly dims: number,
    private readonly traditional: boolean,
  ) {
    // Created here, because a `tidy` around the first call would dispose of them.
    if (this.isFixed) this.frequencies(1)
  }

  /**
   * Rotates x [batch, heads, length, features].
   * @param at - the position of the first token, or one for each row; as an array only if {@link isFixed}
   * @param total - the length of the whole sequence, if more of it follows
   */
  forward(x: mx.Array, at: number | readonly number[] | mx.Array, total = 0): mx.Array {
    const length = x.shape[2]
    if (typeof at === "number") return this.rotate(x, at, Math.max(at + length, total))
    if (at instanceof mx.Array) return this.rotate(x, at, length)
    const longest = Math.max(...at)
    const sameForAll = at.every(
      (n) => this.variant(n + length).bound === this.variant(longest + length).bound,
    )
    if (sameForAll) return this.rotate(x, mx.array([...at], mx.int32), longest + length)
    const rows = mx.split(x, at.length, 0).map((row, i) => this.rotate(row, at[i], at[i] + length))
    return mx.concatenate(rows, 0)
  }

  /** True if the frequencies do not depend on the sequence length. */
  get isFixed(): boolean {
    return this.variant(1).bound === Infinity
  }

  /** The longest sequence with the same frequencies as one of this length. */
  sameUpTo(length: number): number {
    return this.variant(length).bound
  }

  /** True if this rotates as another does, within the precision of float32. */
  isLike(other: Rope): boolean {
    if (this.dims !== other.dims || this.traditional !== other.traditional) return false
    const near = (a: number, b: number): boolean => Math.abs(a - b) <= 1e-5 * Math.abs(b)
    const bounds = [this.sameUpTo(1), other.sameUpTo(1)]
    return [1, ...bounds, ...bounds.map((length) => length + 1)].every((length) => {
      const [a, b] = [this.variant(length), other.variant(length)]
      return near(a.factor, b.factor) && a.freqs.every((freq, i) => near(freq, b.freqs[i]))
    })
  }

  /** The cached arrays. */
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
    // A base that changes with every length would otherwise fill the memory.
    if (this.#made.size > 4) this.#made.clear()
    const made = { freqs: mx.array(Float32Array.from(freqs)), factor }
    this.#made.set(bound, made)
    return made
  }
}
