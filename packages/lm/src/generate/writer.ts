/**
 * Pieces of text from generated tokens.
 */
import type { LoadedModel } from "../formats/load"
import { Detokenizer } from "../text/detokenizer"
import { StopFinder } from "../text/stops"
import type { GenerateOptions } from "./options"
import type { Choice } from "./sampler"

/** The reason a generation ended: an end-of-text token or a stop string, or the token limit. */
export type FinishReason = "stop" | "length"

/** The output of one generated token. */
export interface Piece {
  /** New text, never a part of a character; may be empty. */
  readonly text: string
  /** The generated token. */
  readonly token: number
  /** Its log-probability; null without `logprobs`. */
  readonly logprob: number | null
  /** The most likely tokens at its position, with `logprobs`. */
  readonly top: Choice["top"]
  /** Set in the last piece, null before. */
  readonly finish: FinishReason | null
}

/** Turns tokens into pieces: detokenizes, and finds stop strings and the end. */
export class Writer {
  private readonly text: Detokenizer | null
  private readonly stops: StopFinder
  private count = 0
  /** @param before - tokens that the text continues */
  constructor(
    private readonly model: LoadedModel,
    private readonly options: GenerateOptions,
    before: readonly number[],
  ) {
    const { stop = [] } = options
    const stops = typeof stop === "string" ? [stop] : stop
    this.text = model.tokenizer && new Detokenizer(model.tokenizer, before)
    this.stops = new StopFinder(stops.filter((text) => text !== ""))
  }

  /** The piece for the next token; `finish` is set if it is the last one. */
  write({ token, logprob, top }: Choice): Piece {
    const { ignoreEos = false, maxTokens = 256 } = this.options
    const { tokenizer, eosIds = tokenizer?.eosIds } = this.model
    const ends = !ignoreEos && (eosIds?.has(token) ?? false)
    this.count++
    let { text, stopped } = this.stops.push(ends ? "" : (this.text?.push(token) ?? ""))
    let finish: FinishReason | null = ends || stopped ? "stop" : this.count >= maxTokens ? "length" : null
    if (finish !== null && !stopped) {
      const rest = this.stops.push(this.text?.finish() ?? "")
      text += rest.text
      if (rest.stopped) finish = "stop"
      else text += this.stops.finish()
    }
    return { text, token, logprob, top, finish }
  }
}
