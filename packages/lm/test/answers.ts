/** Answers of a server, without a network. */
import type { LanguageServer } from "@lazuli/lm"

interface Answer {
  readonly error: { readonly message: string }
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number }
}

/** The answer to a request without a network. */
export async function answerOf(
  app: LanguageServer["app"],
  path: string,
  body: object,
): Promise<{ status: number; body: Answer }> {
  const response = await app.request(`/v1/${path}`, { method: "POST", body: JSON.stringify(body) })
  return { status: response.status, body: (await response.json()) as Answer }
}
