/**
 * A module that holds other parameters for a while, as transforms of a model need it.
 */
import * as mx from "@lazuli/core"
import { isContainer, type Members, type Module, memberOf, unknownName } from "./module"

/** A field that holds another parameter for a while, the one that it held, and that other one. */
interface Exchanged {
  readonly holder: Record<string, unknown>
  readonly key: string
  readonly before: unknown
  readonly during: unknown
}

/**
 * Puts parameters into a module, from a tree of its own structure. All is read before anything is written: a module may be there twice.
 * @throws ArgumentError for what the module does not have
 */
function exchangeParameters(module: Module, parameters: object): Exchanged[] {
  const exchanged: Exchanged[] = []
  const walk = (target: Members, source: Members): void => {
    for (const key of Object.keys(source)) {
      const [before, during] = [memberOf(target, key), source[key]]
      if (before instanceof mx.Array) exchanged.push({ holder: target, key, before, during })
      else if (isContainer(before) && isContainer(during)) walk(before as Members, during as Members)
      else if (during instanceof mx.Array) throw unknownName("update", "parameter", key, module.parameters())
    }
  }
  walk(module as unknown as Members, parameters as Members)
  for (const { holder, key, during } of exchanged) holder[key] = during
  return exchanged
}

/**
 * Runs `body` while the model holds these parameters, in a tree like its own, then gives it back those it had, but for what `body` replaced
 * itself.
 */
export function withParameters<R>(model: Module, parameters: object, body: () => R): R {
  const exchanged = exchangeParameters(model, parameters)
  try {
    return body()
  } finally {
    for (const { holder, key, before, during } of exchanged) if (holder[key] === during) holder[key] = before
  }
}
