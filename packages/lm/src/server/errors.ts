/**
 * The errors that clients see.
 */
import { ArgumentError, LazuliError } from "@lazuli/core/engine"
import { factOf } from "../arguments"
import { BusyError } from "../generate/batch"
import { RequestError } from "./requests"

/** True for errors whose messages clients see. */
export const isExpected = (error: unknown): boolean =>
  error instanceof RequestError || error instanceof BusyError || error instanceof LazuliError

/** Maps an error to one for the client, which does not see the messages of unexpected ones. */
export function asRequestError(error: unknown): RequestError {
  if (error instanceof RequestError) return error
  if (error instanceof BusyError) return new RequestError(429, error.message, "rate_limit_error")
  if (error instanceof ArgumentError) return new RequestError(400, factOf(error))
  if (error instanceof LazuliError) return new RequestError(503, factOf(error), "server_error")
  return new RequestError(500, "internal server error", "server_error")
}
