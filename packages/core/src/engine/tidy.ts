/**
 * `mx.tidy`: gives back what a function made and did not return, at once and without the collector.
 */
import type { AsyncLocalStorage } from "node:async_hooks"
import { ofTrees } from "../graph/boundary"
import { ArgumentError, describe } from "../graph/errors"
import { type Array, handles } from "../graph/graph"
import { arraysOf } from "../graph/tree"
import { lifetimes } from "./memory"

/** The handles made by the function that runs; the async ones have one each, although they take turns. */
let scopes: AsyncLocalStorage<Array[]> | undefined
/** The number of functions that run. */
let open = 0

const note = (handle: Array): void => {
  scopes?.getStore()?.push(handle)
}

function close(made: readonly Array[], result: unknown): void {
  if (--open === 0) handles.scope = null
  const outer = scopes?.getStore()
  const kept = new Set(ofTrees("tidy", () => arraysOf([result], "pass")))
  for (const handle of made) {
    if (!kept.has(handle)) lifetimes.disposeHandle(handle)
    else outer?.push(handle)
  }
}

/**
 * Runs a function, and gives back the memory of every array that it made and that is not in the tree it returns. Of an async function
 * that happens when its promise settles. What is to live on, such as a model's new parameters, must be part of what is returned.
 * @example
 * mx.tidy(() => {
 *   const x = mx.ones([2])
 *   return x.add(1)
 * }).tolist() // => [2, 2]
 */
export function tidy<T>(fn: () => T): T {
  if (typeof fn !== "function")
    throw new ArgumentError("tidy", `expected a function, received ${describe(fn)}`)
  scopes ??= new (process.getBuiltinModule("node:async_hooks").AsyncLocalStorage)()
  const made: Array[] = []
  open++
  handles.scope = note
  let result: T
  try {
    result = scopes.run(made, fn)
  } catch (error) {
    close(made, null)
    throw error
  }
  if (!(result instanceof Promise)) {
    close(made, result)
    return result
  }
  return result.then(
    (value) => {
      close(made, value)
      return value
    },
    (error) => {
      close(made, null)
      throw error
    },
  ) as T
}
