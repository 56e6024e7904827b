/**
 * The options of a batch, and the checks of these and of its requests'.
 */
import { ArgumentError } from "@lazuli/core/engine"
import { COUNT, FLAG, SIZE } from "../argument-kinds"
import { optionsNamed } from "../arguments"
import { CACHING, type CacheOptions, checkCaching } from "./caches"
import type { GenerateOptions } from "./options"
import type { StepOptions } from "./steps"

/** Options of a `Batcher`. */
export interface BatchOptions extends CacheOptions, StepOptions {
  /** Maximum number of requests in the batch; 16 by default. */
  readonly maxRows?: number
  /** Maximum number of requests in the queue; more throw `BusyError`. 256 by default. */
  readonly maxWaiting?: number
  /** Prompt tokens processed between two decoding steps of other requests; 256 by default, and with `exact` 512 as in `stream`. */
  readonly prefillStep?: number
  /** Bytes for caches of earlier prompts, for later prompts with the same prefix; 0 by default. */
  readonly prefixBytes?: number
  /**
   * Computes each row's logits separately, so that they equal those of `stream` with the same options bit for bit. This gives up the speed
   * of batching, and earlier prompts are reused in whole steps of `prefillStep` only. By default, products of several rows may differ in
   * the last bits.
   */
  readonly exact?: boolean
}

/** The names of all {@link BatchOptions}. */
export const BATCHING = {
  ...CACHING,
  compile: FLAG,
  maxRows: COUNT,
  maxWaiting: COUNT,
  prefillStep: COUNT,
  prefixBytes: SIZE,
  exact: FLAG,
} as const
const checkNames = optionsNamed<BatchOptions>(BATCHING)

/** Options of a generation that are the batch's. */
const ONE_FOR_ALL = [...(Object.keys(CACHING) as (keyof CacheOptions)[]), "compile", "prefillStep"] as const

/** @throws ArgumentError for unknown options, and those out of range */
export function checkBatch(options: BatchOptions): void {
  checkNames("batch", options)
  checkCaching(options)
}

/** Options of a batch, with defaults. */
export type Batching = ReturnType<typeof withDefaults>

/** Adds the defaults of options that were not passed. */
export const withDefaults = ({
  maxRows = 16,
  maxWaiting = 256,
  exact = false,
  prefillStep = exact ? 512 : 256,
  maxCacheBytes = Infinity,
  compile = true,
  ...rest
}: BatchOptions) => ({ ...rest, maxRows, maxWaiting, exact, prefillStep, maxCacheBytes, compile })

/** @throws ArgumentError for options that a request in a batch cannot have */
export function checkRequest(given: GenerateOptions, batch: Batching): void {
  for (const name of ["draft", "cache", "onPrefill"] as const)
    if (given[name]) throw new ArgumentError("batch", `${name} is not supported in a batch`)
  for (const name of ONE_FOR_ALL)
    if (given[name] !== undefined && given[name] !== batch[name])
      throw new ArgumentError("batch", `all requests share one ${name}`, { hint: "Pass it to the Batcher" })
}
