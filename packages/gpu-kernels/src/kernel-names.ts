/**
 * The names by which the body of a kernel knows its parameters: which there may be.
 */
import { ArgumentError, describe, isList } from "@lazuli/core/engine"
import { attributes } from "./custom-source"

/** Words that Metal keeps for itself, and kernels in CUDA C++ too. */
const WORDS: ReadonlySet<string> = new Set(
  `alignas alignof asm auto bfloat bool break case catch char class const constant constexpr continue decltype default delete device do
  double else enum explicit export extern false float for fragment friend goto half if inline int int64_t kernel long metal mutable
  namespace new operator private protected public register return short signed size_t sizeof static static_assert struct switch template
  this thread threadgroup throw true try typedef typeid typename uchar uint ulong union unsigned ushort using vertex virtual void
  volatile while elem_to_loc`.split(/\s+/),
)

/** The language of a kernel's source, for messages. */
export type Language = "Metal" | "CUDA"

/** @throws ArgumentError for what cannot be a name in a kernel's source, and for what is one already */
export function checkName(
  op: string,
  language: Language,
  what: string,
  name: unknown,
  taken: Set<string>,
): void {
  const cause =
    typeof name !== "string" || !/^[A-Za-z_]\w*$/.test(name)
      ? `must be a name that ${language} accepts, received ${describe(name)}`
      : WORDS.has(name) || Object.hasOwn(attributes, name)
        ? `cannot be "${name}", which is a reserved word of ${language}`
        : taken.has(name)
          ? `cannot be "${name}", because another parameter is called that`
          : null
  if (cause !== null) throw new ArgumentError(op, `${what} ${cause}`)
  taken.add(name as string)
}

/** @throws ArgumentError unless these can be the parameters of one kernel */
export function checkNames(op: string, language: Language, inputNames: unknown, outputNames: unknown): void {
  for (const [what, list] of Object.entries({ inputNames, outputNames }))
    if (!isList(list))
      throw new ArgumentError(
        op,
        `${what} must be a list of names that ${language} accepts, received ${describe(list)}`,
      )
  const [inputs, outputs] = [inputNames as readonly string[], outputNames as readonly string[]]
  const taken = new Set<string>()
  for (const input of inputs) checkName(op, language, "an input's name", input, taken)
  // Names that inputs bring with them.
  for (const input of inputs)
    for (const part of ["shape", "strides", "ndim"])
      checkName(op, language, `what "${input}" brings`, `${input}_${part}`, taken)
  for (const output of outputs) checkName(op, language, "an output's name", output, taken)
  if (outputs.length === 0) throw new ArgumentError(op, "needs at least one output")
}
