/** Prompts and generations of tokens, for tests that compare these. */
import * as lm from "@lazuli/lm"

/** A prompt of its own for each seed. */
export const prompt = (seed: number, length = 21): number[] =>
  Array.from({ length }, (_, i) => (i * i * 7 + i * seed + 3) % 250)

/** The generated tokens. */
export async function tokensOf(pieces: AsyncIterable<lm.Piece>): Promise<number[]> {
  const tokens: number[] = []
  for await (const { token } of pieces) tokens.push(token)
  return tokens
}
/** The tokens after a prompt; 40 by default, greedy. */
export const write = (
  model: lm.LoadedModel,
  tokens: number[],
  options: lm.GenerateOptions = {},
): Promise<number[]> => tokensOf(lm.stream(model, tokens, { maxTokens: 40, ignoreEos: true, ...options }))
