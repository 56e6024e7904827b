/**
 * Temporary replacement of a module's parameters, for transforms of models.
 */
import * as mx from "@lazuli/core"
import { isContainer, type Members, type Module, memberOf, unknownName } from "./module"

/** A field with its original and its temporary parameter. */
interface Exchanged {
  readonly holder: Record<string, unknown>
  readonly key: string
  readonly before: unknown
  readonly during: unknown
}

/**
 * Replaces parameters of a module by those of a tree of its structure. Reads everything before writing, since a module may occur twice.
 * @throws ArgumentError for parameters that the module does not have
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
 * Runs `body` with the model's parameters replaced, then restores those that `body` did not itself replace.
 */
export function withParameters<R>(model: Module, parameters: object, body: () => R): R {
  const exchanged = exchangeParameters(model, parameters)
  try {
    return body()
  } finally {
    for (const { holder, key, before, during } of exchanged) if (holder[key] === during) holder[key] = before
  }
}
