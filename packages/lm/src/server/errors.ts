/**
 * The errors that clients see.
 */
import { ArgumentError, LazuliError, NumericError } from "@lazuli/core/engine"
import { factOf } from "../arguments"
import { BusyError } from "../generate/batch"
import { RequestError, tooMany } from "./requests"

/** True for errors whose messages clients see. */
export const isExpected = (error: unknown): boolean =>
  error instanceof RequestError || error instanceof BusyError || error instanceof LazuliError

/** Maps an error to one for the client, which does not see the messages of unexpected ones. */
export function asRequestError(error: unknown, isClosing = false): RequestError {
  if (error instanceof RequestError) return error
  if (error instanceof BusyError && isClosing)
    return new RequestError(503, "the server is shutting down", { type: "server_error" })
  if (error instanceof BusyError) return tooMany(error.message)
  if (error instanceof ArgumentError) return new RequestError(400, factOf(error))
  // Damaged weights stay so: a retry does not help, as it may when memory is short.
  if (error instanceof LazuliError)
    return new RequestError(error instanceof NumericError ? 500 : 503, factOf(error), {
      type: "server_error",
    })
  return new RequestError(500, "internal server error", { type: "server_error" })
}

/** Runs a function whose errors of arguments concern a parameter of the request. */
export async function about<T>(param: string, body: () => T | Promise<T>): Promise<T> {
  try {
    return await body()
  } catch (error) {
    if (!(error instanceof ArgumentError)) throw error
    throw new RequestError(400, factOf(error), { param })
  }
}
