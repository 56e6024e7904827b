/**
 * Types of parameter trees, and the names of parameters in files.
 */
import type { Array } from "@lazuli/core"

/** Arrays nested in objects and lists: the result of `parameters()` and argument of `update()`. */
export interface ParameterTree {
  [name: string]: Array | ParameterTree | readonly (Array | ParameterTree)[] | undefined
}

type Falsy<T> = T extends null | undefined ? undefined : never
type IsNever<T> = [T] extends [never] ? true : false
type AnyFunction = (...args: never[]) => unknown

/** The type of a field of type T in the parameter tree; never if it contains no parameters. */
type Held<T> = T extends Array
  ? Array
  : T extends AnyFunction | string | number | bigint | boolean | symbol | null | undefined
    ? never
    : T extends readonly (infer E)[]
      ? IsNever<Held<E>> extends true
        ? never
        : Held<E>[]
      : T extends object
        ? T extends { forward: AnyFunction }
          ? // A field for any model says nothing of its parameters.
            keyof ParametersOf<T> extends never
            ? ParameterTree
            : ParametersOf<T>
          : keyof ParametersOf<T> extends never
            ? never
            : ParametersOf<T>
        : never

/**
 * The type of a module's parameter tree: its public fields that contain arrays, modules, or lists and objects of them. It is the type of
 * `model.parameters()` and of the gradients of `nn.valueAndGrad`; frozen and unset fields are missing at run time.
 */
export type ParametersOf<M> = {
  [K in keyof M as K extends `_${string}` | "training" | "state"
    ? never
    : K extends string | number
      ? IsNever<Held<M[K]>> extends true
        ? never
        : K
      : never]: Held<M[K]> | Falsy<M[K]>
}

/** The name of a field in checkpoints: `inProj` → `in_proj`. Leading capitals (`Wx`) are unchanged. */
export function fileName(field: string): string {
  return field.replace(
    /([a-z0-9])([A-Z])/g,
    (_, before: string, letter: string) => `${before}_${letter.toLowerCase()}`,
  )
}
