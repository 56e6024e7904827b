/**
 * The options of a server, and their checks.
 */
import { CALLBACK, COUNT, checkKind, type Kind, SIZE, TEXT } from "../argument-kinds"
import { optionsNamed } from "../arguments"
import { BATCHING, type BatchOptions } from "../generate/batch-options"
import { checkCaching } from "../generate/caches"
import { LONGEST_MS } from "./connections"
import { hostNamed, originOf } from "./origins"

/** Options of `createServer`. */
export interface ServerOptions extends BatchOptions {
  /** The model's name in the API; by default `LoadedModel.name`. */
  readonly name?: string
  /** Required from clients as a bearer token. */
  readonly apiKey?: string
  /** Origins of web pages that may use the server, beside its own; `*` is all. None by default. */
  readonly allowedOrigins?: readonly string[]
  /**
   * Names, with a port or without, by which this machine is reached beside localhost, such as `host.docker.internal`. A server without a
   * key that listens on a local address refuses others.
   */
  readonly allowedHosts?: readonly string[]
  /** Maximum size of a request body in bytes; 1 MiB by default. */
  readonly maxBodyBytes?: number
  /** Maximum number of generated tokens per request; 1024 by default. */
  readonly maxTokens?: number
  /** Maximum number of prompt tokens per request; 32,768 by default. */
  readonly maxPromptTokens?: number
  /**
   * Maximum number of tokens of a prompt and its answer together, or of an embedded text: by default as many as the model's config says
   * (`max_position_embeddings`), and with a `maxContext` of less any number.
   */
  readonly contextLength?: number
  /** Maximum number of bytes for keys and values, and as many for embeddings; half of the device's free memory by default. */
  readonly maxCacheBytes?: number
  /** Milliseconds after which an answer that its client does not read is ended; 60,000 by default. */
  readonly maxStallMs?: number
  /** Maximum number of open connections; 1024 by default. Further ones are closed at once, and idle ones too. */
  readonly maxConnections?: number
  /** Called with unexpected errors, whose messages clients do not see. */
  readonly onError?: (error: unknown) => void
}

const isOrigin = (text: unknown): boolean =>
  typeof text === "string" && (text === "*" || text === "null" || originOf(text) !== null)

const ORIGINS: Kind = {
  expected: "a list of origins such as https://example.com, or *",
  accepts: (value) => Array.isArray(value) && value.every(isOrigin),
}

const isHost = (text: unknown): boolean => typeof text === "string" && hostNamed(text) !== null

const HOSTS: Kind = {
  expected: "a list of names such as host.docker.internal",
  accepts: (value) => Array.isArray(value) && value.every(isHost),
}

const checkNames = optionsNamed<ServerOptions>({
  ...BATCHING,
  name: TEXT,
  apiKey: TEXT,
  allowedOrigins: ORIGINS,
  allowedHosts: HOSTS,
  maxBodyBytes: COUNT,
  maxTokens: COUNT,
  maxPromptTokens: COUNT,
  contextLength: COUNT,
  maxStallMs: COUNT,
  maxConnections: COUNT,
  onError: CALLBACK,
})

/** @throws ArgumentError for unknown options, and those out of range */
export function checkServer(options: ServerOptions): void {
  checkNames("createServer", options)
  checkCaching(options)
}

/** @throws ArgumentError unless it is a time that requests may have to end */
export const checkGrace = (graceMs: number): void => checkKind("close", "graceMs", graceMs, SIZE)

/** Milliseconds after which an answer that is not read is ended. */
export const stallOf = ({ maxStallMs = 60_000 }: ServerOptions): number => Math.min(maxStallMs, LONGEST_MS)

/** The options of the server's batch. */
export function batchOptionsOf(options: ServerOptions): BatchOptions {
  const {
    name,
    apiKey,
    allowedOrigins,
    allowedHosts,
    maxBodyBytes,
    maxTokens,
    maxPromptTokens,
    contextLength,
    maxStallMs,
    maxConnections,
    onError,
    ...batch
  } = options
  return batch
}
