/**
 * The options of a server, and their checks.
 */
import { CALLBACK, COUNT, type Kind, TEXT } from "../argument-kinds"
import { optionsNamed } from "../arguments"
import { BATCHING, type BatchOptions } from "../generate/batch-options"

/** Options of `createServer`. */
export interface ServerOptions extends BatchOptions {
  /** The model's name in the API; by default `LoadedModel.name`. */
  readonly name?: string
  /** Required from clients as a bearer token. */
  readonly apiKey?: string
  /** Origins of web pages that may use the server, beside its own; `*` is all. None by default. */
  readonly allowedOrigins?: readonly string[]
  /** Maximum size of a request body in bytes; 1 MiB by default. */
  readonly maxBodyBytes?: number
  /** Maximum number of generated tokens per request; 1024 by default. */
  readonly maxTokens?: number
  /** Maximum number of prompt tokens per request; 32,768 by default. */
  readonly maxPromptTokens?: number
  /** Maximum number of bytes for keys and values; half of the device's free memory by default. */
  readonly maxCacheBytes?: number
  /** Milliseconds after which a stream that its client does not read is ended; 60,000 by default. */
  readonly maxStallMs?: number
  /** Called with unexpected errors, whose messages clients do not see. */
  readonly onError?: (error: unknown) => void
}

const isOrigin = (text: unknown): boolean =>
  typeof text === "string" && (text === "*" || text === "null" || /^[\w.+-]+:\/\/[^/\s]+$/.test(text))

const ORIGINS: Kind = {
  expected: "a list of origins such as https://example.com, or *",
  accepts: (value) => Array.isArray(value) && value.every(isOrigin),
}

const checkNames = optionsNamed<ServerOptions>({
  ...BATCHING,
  name: TEXT,
  apiKey: TEXT,
  allowedOrigins: ORIGINS,
  maxBodyBytes: COUNT,
  maxTokens: COUNT,
  maxPromptTokens: COUNT,
  maxStallMs: COUNT,
  onError: CALLBACK,
})

/** @throws ArgumentError for unknown options, and those out of range */
export const checkServer = (options: ServerOptions): void => checkNames("createServer", options)

/** The options of the server's batch. */
export function batchOptionsOf(options: ServerOptions): BatchOptions {
  const {
    name,
    apiKey,
    allowedOrigins,
    maxBodyBytes,
    maxTokens,
    maxPromptTokens,
    maxStallMs,
    onError,
    ...batch
  } = options
  return batch
}
