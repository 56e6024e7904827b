/**
 * How constructors take arguments: positional in MLX's order, or by name in one trailing plain object. Functions of arrays use
 * `operation` of @lazuli/core instead, which also takes a stream.
 */
import { ArgumentError, isPlainObject, nearest } from "@lazuli/core/engine"

/**
 * The arguments in the order of `names`, with null as undefined. The first `required` of them must be given.
 * @throws ArgumentError for an unknown name, an argument given twice, one too many or one too few
 */
export function named<A extends unknown[]>(
  op: string,
  names: readonly string[],
  args: readonly unknown[],
  required = 0,
): A {
  const last = args[args.length - 1]
  const byName = args.length > 0 && isPlainObject(last) ? last : {}
  const values = byName === last ? args.slice(0, -1) : args.slice()
  const positional = values.length
  if (positional > names.length) {
    throw new ArgumentError(
      op,
      `takes at most ${names.length} arguments (${names.join(", ")}), received ${positional}`,
    )
  }
  for (const key of Object.keys(byName)) {
    const position = names.indexOf(key)
    if (position < 0) {
      const near = nearest(key, names)
      throw new ArgumentError(
        op,
        `has no parameter "${key}"; it takes ${names.join(", ") || "none"}`,
        near ? { hint: `Did you mean "${near}"?` } : {},
      )
    }
    if (position < positional)
      throw new ArgumentError(op, `parameter "${key}" is given twice, by position and by name`)
    values[position] = byName[key]
  }
  for (let i = 0; i < required; i++)
    if (values[i] === undefined || values[i] === null)
      throw new ArgumentError(op, `needs the parameter "${names[i]}"`)
  for (let i = 0; i < values.length; i++) values[i] ??= undefined
  return values as A
}
