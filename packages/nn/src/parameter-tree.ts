/**
 * The types of parameter trees, and the names that parameters have in files. What a module does with them is in module.ts.
 */
import type { Array } from "@lazuli/core"

/** Arrays nested in objects and lists: what `parameters()` gives and `update()` takes. */
export interface ParameterTree {
  [name: string]: Array | ParameterTree | readonly (Array | ParameterTree)[] | undefined
}

type Falsy<T> = T extends null | undefined ? undefined : never
type IsNever<T> = [T] extends [never] ? true : false
type AnyFunction = (...args: never[]) => unknown

/** The type that a field of type T has in the tree of parameters; never where it has none. */
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
 * The tree of a module's parameters as a type: its public fields that hold arrays, modules, or lists and objects of them. It is the
 * type of `model.parameters()` and of the gradients of `nn.valueAndGrad`; fields that are frozen or unset are missing at run time.
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

/** `inProj` → `in_proj`: what a field is called in a checkpoint. Leading capitals (`Wx`) stay. */
export function fileName(field: string): string {
  return field.replace(
    /([a-z0-9])([A-Z])/g,
    (_, before: string, letter: string) => `${before}_${letter.toLowerCase()}`,
  )
}
