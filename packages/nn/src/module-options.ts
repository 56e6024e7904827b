/**
 * Validation of the options of a module's methods.
 */
import { isListOf, isPlainObject, type Kind, parametersOf } from "@lazuli/core/engine"
import { check, named } from "./arguments"

/** Options of `freeze` and `unfreeze`. */
export interface FreezeOptions {
  /** Also in submodules; true by default. */
  recurse?: boolean
  /** The members to freeze; all parameters by default. */
  keys?: string | readonly string[] | null
  /** Reject keys that the module does not have. */
  strict?: boolean
}

const strictness = parametersOf({ strict: "bool?" })

/** @throws ArgumentError unless it is a boolean or options with one */
export function strictOf(op: string, options: unknown): boolean {
  if (options === undefined) return true
  const [strict = true] = named<[boolean?]>(op, strictness, [options])
  return strict
}

const isName = (value: unknown): boolean => typeof value === "string"
const freezeOptions = parametersOf({
  recurse: "bool?",
  keys: {
    expected: "the name of a member or a list of names",
    accepts: (value: unknown) => isName(value) || isListOf(value, isName),
    element: isName,
    optional: true,
  },
  strict: "bool?",
})
const byName: Kind = { expected: "options by name", accepts: isPlainObject }

/** @throws ArgumentError for other options than those of freeze and unfreeze */
export function freezing(op: string, options: FreezeOptions): Required<FreezeOptions> {
  check(op, { options: byName }, options)
  type Given = [boolean?, FreezeOptions["keys"]?, boolean?]
  const [recurse = true, keys = null, strict = false] = named<Given>(op, freezeOptions, [options])
  return { recurse, keys, strict }
}
