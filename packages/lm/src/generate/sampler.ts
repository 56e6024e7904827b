/**
 * Sampling of the next token from logits: penalties and biases, then greedy, or temperature, top-k, top-p and min-p.
 */
import * as mx from "@lazuli/core"
import { ArgumentError, describe, NumericError } from "@lazuli/core/engine"
import { INTEGER, OBJECT } from "../argument-kinds"

/** Sampling options. Without a temperature, decoding is greedy. */
export interface SamplingOptions {
  /** 0, the default, always takes the most likely token. */
  readonly temperature?: number
  /** Sample from the k most likely tokens. */
  readonly topK?: number
  /** Sample from the smallest set of most likely tokens whose probabilities add up to at least p. */
  readonly topP?: number
  /** Sample from tokens at least p times as likely as the most likely one. */
  readonly minP?: number
  /** Divides positive logits, and multiplies negative ones, of tokens in the prompt and the output. */
  readonly repetitionPenalty?: number
  /** Number of last tokens that the repetition penalty applies to; all by default. */
  readonly repetitionWindow?: number
  /** Subtracted from the logits of generated tokens. */
  readonly presencePenalty?: number
  /** Subtracted from the logit of a token once for each time it was generated. */
  readonly frequencyPenalty?: number
  /** Added to the logits, by token id. */
  readonly logitBias?: Readonly<Record<number, number>>
  /** The same seed samples the same tokens. */
  readonly seed?: number
}

/** The names of all {@link SamplingOptions}. */
export const SAMPLING = {
  temperature: true,
  topK: true,
  topP: true,
  minP: true,
  repetitionPenalty: true,
  repetitionWindow: true,
  presencePenalty: true,
  frequencyPenalty: true,
  logitBias: OBJECT,
  seed: INTEGER,
} as const

const RANGES: Readonly<Record<string, readonly [number, number]>> = {
  temperature: [0, 100],
  topK: [0, Infinity],
  topP: [0, 1],
  minP: [0, 1],
  repetitionPenalty: [1e-6, 1e6],
  repetitionWindow: [1, Infinity],
  presencePenalty: [-100, 100],
  frequencyPenalty: [-100, 100],
}

/** @throws ArgumentError for options out of range */
export function checkSampling(op: string, options: SamplingOptions): void {
  for (const [name, [min, max]] of Object.entries(RANGES)) {
    const value = options[name as keyof SamplingOptions]
    if (value === undefined) continue
    if (typeof value !== "number" || !(value >= min && value <= max))
      throw new ArgumentError(
        op,
        `${name} must be a number from ${min} to ${max}, received ${describe(value)}`,
      )
  }
  for (const name of ["topK", "repetitionWindow"] as const)
    if (options[name] !== undefined && !Number.isSafeInteger(options[name]))
      throw new ArgumentError(op, `${name} must be an integer, received ${describe(options[name])}`)
  for (const [token, bias] of Object.entries(options.logitBias ?? {}))
    if (!/^\d+$/.test(token) || typeof bias !== "number" || Number.isNaN(bias))
      throw new ArgumentError(
        op,
        `logitBias must map token ids to numbers, received ${token}: ${describe(bias)}`,
      )
}

/** A sampled token, with log-probabilities if requested. */
export interface Choice {
  readonly token: number
  readonly logprob: number | null
  readonly top: readonly { readonly token: number; readonly logprob: number }[]
}

/** A choice under computation: the arrays to evaluate, and `read`, called once after that. */
export interface Proposal {
  readonly token: mx.Array
  readonly arrays: readonly mx.Array[]
  read(): Choice
}

/** The error of a model's results that are NaN. */
export const notNumbers = (
  op = "stream",
  results = "logits",
  hint = "The weights are damaged, or too large for their dtype: try float32",
): NumericError => new NumericError(op, `the ${results} are not numbers`, { hint })

/** Tokens chosen from logits [..., vocabulary], or −1 for those whose logit is NaN, as all are in a damaged state. */
function checked(chosen: mx.Array, logits: mx.Array): mx.Array {
  const tokens = chosen.astype(mx.int32)
  const own = mx.takeAlongAxis(logits, tokens, -1)
  return mx.where(mx.isnan(own), mx.array(-1, mx.int32), tokens)
}

/** The most likely tokens [rows, 1] by logits [rows, vocabulary], or −1 where they are NaN. */
export const likeliestOf = (logits: mx.Array): mx.Array => checked(mx.argmax(logits, -1, true), logits)

/** The n most likely tokens, in order. */
function likeliestTokens(logprobs: mx.Array, n: number): mx.Array {
  if (n === 0) return mx.zeros([0], mx.int32)
  const lowest = logprobs.negative()
  const unordered =
    n < logprobs.shape[0] ? mx.argpartition(lowest, n - 1).index(mx.s(0, n)) : mx.argsort(lowest)
  return mx.take(unordered, mx.argsort(mx.take(lowest, unordered))).astype(mx.int32)
}

/** Lower temperatures are greedy: their quotients would overflow. */
const MIN_TEMPERATURE = 1e-6

/** Samples the tokens of one sequence. */
export class Sampler {
  private key: mx.Array | null = null
  private readonly counts = new Map<number, number>()
  private readonly seen: number[]
  private readonly bias: readonly [number, number][]
  private readonly temperature: number

  /**
   * @param prompt - the prompt's tokens, for the repetition penalty
   * @param top - number of most likely tokens to return log-probabilities for; null for no log-probabilities
   * @param group - the processes of a model that is spread over them: rank 0's seed holds, since all must go on with the same token
   */
  constructor(
    private readonly options: SamplingOptions,
    prompt: readonly number[],
    private readonly top: number | null = null,
    group: mx.distributed.Group | null = null,
  ) {
    this.seen = [...prompt]
    this.bias = Object.entries(options.logitBias ?? {}).map(([token, value]) => [Number(token), value])
    const { temperature = 0 } = options
    this.temperature = temperature < MIN_TEMPERATURE ? 0 : temperature
    if (this.temperature === 0) return
    const key = mx.random.key(options.seed ?? Math.floor(Math.random() * 2 ** 31))
    this.key = group === null ? key : mx.distributed.broadcast(key, { group })
  }

  /** The next token, from logits [vocabulary], lazily. */
  propose(raw: mx.Array): Proposal {
    // One op, so that the device runs on without waiting for the host.
    if (this.isGreedy) return this.likeliest(likeliestOf(raw).reshape([]))
    const logits = this.adjust(raw.astype(mx.float32))
    const picked = checked(this.draw(logits).reshape([1]), logits).reshape([])
    const { top } = this
    if (top === null)
      return {
        token: picked,
        arrays: [picked],
        read: () => this.remember({ token: Number(picked.item()), logprob: null, top: [] }),
      }
    const logprobs = logits.subtract(mx.logsumexp(logits, -1, true))
    const tokens = mx.concatenate([picked.reshape([1]), likeliestTokens(logprobs, top)])
    const values = mx.take(logprobs, tokens)
    return {
      token: picked,
      arrays: [picked, tokens, values],
      read: () => {
        const [own, ...others] = values.toTypedArray() as Float32Array
        const [, ...likeliest] = tokens.toTypedArray() as Int32Array
        return this.remember({
          token: Number(picked.item()),
          logprob: own,
          top: likeliest.map((token, i) => ({ token, logprob: others[i] })),
        })
      },
    }
  }

  /** The choice of a token by {@link likeliestOf}. */
  likeliest(token: mx.Array): Proposal {
    return { token, arrays: [token], read: () => this.accept(Number(token.item())) }
  }

  /** True if the choice is the argmax of the unchanged logits, without log-probabilities. */
  get isGreedy(): boolean {
    return this.temperature === 0 && this.top === null && this.bias.length === 0 && !this.remembers
  }

  /** Records a token by {@link likeliestOf}. @throws NumericError if its logits are NaN */
  accept(token: number): Choice {
    return this.remember({ token, logprob: null, top: [] })
  }

  /** True if penalties make a choice depend on earlier tokens, which must be read first. */
  get remembers(): boolean {
    const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0 } = this.options
    return repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0
  }

  /** Samples and records the next token. */
  async choose(raw: mx.Array): Promise<Choice> {
    const { arrays, read } = this.propose(raw)
    await mx.asyncEval(arrays)
    return read()
  }

  private remember(choice: Choice): Choice {
    if (choice.token < 0) throw notNumbers()
    this.seen.push(choice.token)
    this.counts.set(choice.token, (this.counts.get(choice.token) ?? 0) + 1)
    return choice
  }

  private adjust(logits: mx.Array): mx.Array {
    const {
      repetitionPenalty = 1,
      repetitionWindow,
      presencePenalty = 0,
      frequencyPenalty = 0,
    } = this.options
    let y = logits
    if (repetitionPenalty !== 1) {
      const recent = [...new Set(repetitionWindow ? this.seen.slice(-repetitionWindow) : this.seen)]
      if (recent.length > 0) {
        const at = mx.array(recent, mx.int32)
        const values = mx.take(y, at)
        const changed = mx.where(
          values.less(0),
          values.multiply(repetitionPenalty),
          values.divide(repetitionPenalty),
        )
        y = mx.putAlongAxis(y, at, changed, 0)
      }
    }
    const added = new Map<number, number>(this.bias)
    if (presencePenalty !== 0 || frequencyPenalty !== 0)
      for (const [token, count] of this.counts)
        added.set(token, (added.get(token) ?? 0) - presencePenalty - frequencyPenalty * count)
    if (added.size === 0) return y
    const known = [...added].filter(([token]) => token >= 0 && token < y.shape[0])
    if (known.length === 0) return y
    const at = mx.array(
      known.map(([token]) => token),
      mx.int32,
    )
    const values = mx.array(Float32Array.from(known, ([, value]) => value))
    return y.at(at).add(values)
  }

  private draw(logits: mx.Array): mx.Array {
    const { temperature } = this
    const { topK = 0, topP = 1, minP = 0 } = this.options
    // The most likely token alone, also where another one is as likely.
    if (temperature === 0 || topK === 1 || topP === 0 || !this.key) return mx.argmax(logits, -1)
    const [next, key] = mx.split(mx.random.split(this.key), 2, 0)
    this.key = next.reshape([-1])
    return mx.random.categorical(filtered(logits.divide(temperature), topK, topP, minP), {
      key: key.reshape([-1]),
    })
  }
}

/** Logits with −∞ for tokens that top-k, top-p or min-p excludes, in transformers' order: top-p adds up what min-p may exclude. */
function filtered(logits: mx.Array, topK: number, topP: number, minP: number): mx.Array {
  const y = mostLikely(logits, topK, topP)
  return minP > 0 ? mx.where(logits.less(logits.max().add(Math.log(minP))), -Infinity, y) : y
}

/** Logits with −∞ for tokens that top-k and top-p exclude; never the most likely one, nor one as likely as the last that is kept. */
function mostLikely(logits: mx.Array, topK: number, topP: number): mx.Array {
  const cuts = topK > 0 && topK < logits.shape[0]
  if (!cuts && topP >= 1) return logits
  // Only the k most likely tokens need an order.
  const visible = cuts ? mx.topk(logits, topK) : logits
  const least = topP < 1 ? leastOf(visible, topP) : visible.min()
  return mx.where(logits.less(least), -Infinity, logits)
}

/** The smallest of the largest logits whose probabilities among these logits add up to p. */
function leastOf(logits: mx.Array, p: number): mx.Array {
  const sorted = mx.sort(logits.negative()).negative()
  const probabilities = mx.softmax(sorted, -1)
  // A token is kept while the sum before it is less than p.
  const before = probabilities.cumsum(0).subtract(probabilities)
  const kept = before.less(p).logicalOr(mx.arange(sorted.shape[0]).equal(0))
  return mx.where(kept, sorted, Infinity).min()
}
