/**
 * The options of `compile`, and the refusal of others.
 */
import {
  ArgumentError,
  Array,
  checkOptions,
  describe,
  isPlainObject,
  TransformError,
} from "@lazuli/core/engine"
import { checkDonation, type Donated } from "./donation"
import { isContainer } from "./state"

/** Options of {@link compile}. */
export interface CompileOptions {
  /** Mutable trees that the function reads: a Module, an optimizer's state, `mx.random.state`. */
  inputs?: unknown
  /** Mutable trees that the function changes; their arrays are replaced after each call. */
  outputs?: unknown
  /** One trace serves all sizes of arguments of the same rank and dtype; false by default. */
  shapeless?: boolean
  /** Called with the reason whenever the function is traced. */
  onRecompile?: (reason: string) => void
  /**
   * The arrays that a call may overwrite: `true` stands for the captured state that the function replaces, numbers for arguments by
   * position,
   * `"state"` in a list for that state. Results then take the memory of these arrays, which have no value afterwards: reading one throws.
   */
  donate?: boolean | Donated
}

const OPTIONS = ["inputs", "outputs", "shapeless", "onRecompile", "donate"] as const

/** @throws ArgumentError, or TransformError where there is no object of options */
export function checkCompileOptions(options: CompileOptions): void {
  if (!isPlainObject(options as unknown))
    throw new TransformError(
      "compile",
      "options must be a plain object with inputs, outputs, shapeless, onRecompile or donate",
    )
  checkOptions("compile", options, OPTIONS)
  checkKinds(options)
}

function checkKinds({ inputs, outputs, shapeless, onRecompile, donate }: CompileOptions): void {
  for (const [name, tree] of Object.entries({ inputs, outputs })) {
    if (tree === undefined || tree === null || isContainer(tree)) continue
    const what = tree instanceof Array ? "an array itself" : describe(tree)
    throw new ArgumentError(
      "compile",
      `${name} must be a tree whose arrays can be replaced: a module, an optimizer's state, a list or an object; received ${what}`,
      tree instanceof Array
        ? { hint: "Keep it in a list or an object, and let the function read it there" }
        : {},
    )
  }
  if (shapeless !== undefined && typeof shapeless !== "boolean")
    throw new ArgumentError("compile", `shapeless must be a boolean, received ${describe(shapeless)}`)
  if (onRecompile !== undefined && typeof onRecompile !== "function")
    throw new ArgumentError("compile", `onRecompile must be a function, received ${describe(onRecompile)}`)
  checkDonation(donate)
}
