/**
 * `@lazuli/core/plugin`: what packages that bring primitives build on, besides the functions of `@lazuli/core` itself. It changes with
 * {@link PLUGIN_API} alone.
 */
// For the bundler: with the same modules behind both entries, they share one file of them, which opens faster than two.
import "./backend-api"
import { operation as operationOf } from "./graph/args"
import { describe, RegistryError } from "./graph/errors"
import { parametersOf, type Signature } from "./graph/kinds"
import type { ParamSchema, ParamsOf } from "./graph/params"
import {
  type Apply,
  definePrimitive as define,
  PLUGIN_API,
  type PrimitiveDefinition,
} from "./graph/primitive"

export { type Dtype, promote } from "./graph/dtype"
export * from "./graph/errors"
export type {
  HostArray,
  HostData,
  JvpContext,
  Layout,
  Meta,
  Partial,
  PrimitiveFacts,
  PrimitiveRules,
  VjpContext,
  VmapContext,
  VmapResult,
} from "./graph/graph"
export {
  type ApplicationMeta,
  type CudaArgument,
  type CudaDispatch,
  type CudaFileKernel,
  type CudaKernels,
  type CudaSteps,
  type JsKernel,
  type JsKernels,
  type KernelOffer,
  type MetalArgument,
  type MetalDispatch,
  type MetalFileKernel,
  type MetalKernelSource,
  type MetalKernels,
  type MetalLaunch,
  type MetalSteps,
  type NativeKernels,
  provideKernels,
  type WasmKernel,
  type WasmKernels,
  type WasmLaunch,
} from "./graph/kernel-offers"
export type { AnyParams, ParamSchema, ParamsOf } from "./graph/params"
export { type Apply, PLUGIN_API, type PrimitiveDefinition } from "./graph/primitive"
export type { ScalarOps, ScalarValue } from "./graph/scalar-program"
export { broadcastShapes, contiguousStrides, format, isContiguous, sameShape, sizeOf } from "./graph/shape"
export { promoteOperands } from "./ops/constant"
export { sumTo } from "./ops/reduce"

/** A definition in a package: it says for which plugin API it was written. */
export type PluginDefinition<S extends ParamSchema> = PrimitiveDefinition<S> & {
  /** The plugin API that the definition was written for: a number in your source, not {@link PLUGIN_API}, which is the installed one. */
  readonly api: number
}

/**
 * Registers a primitive under `<npm package>/<name>` and returns the function that applies it to arrays.
 *
 * @throws RegistryError when the name is taken or malformed, when it was written for another plugin API, and when the definition has no
 * semantics or more than one kind. Errors that concern two packages name both.
 */
export function definePrimitive<const S extends ParamSchema = Record<never, never>>(
  definition: PluginDefinition<S>,
): Apply<ParamsOf<S>> {
  const { name, api } = definition
  if (typeof name !== "string" || !name.includes("/"))
    throw new RegistryError("definePrimitive", `the name ${JSON.stringify(name)} does not name its package`, {
      hint: 'Use "<npm package>/<name>", such as "@me/my-ops/axpby"; bare names are those of @lazuli/core',
    })
  if (typeof api !== "number")
    throw new RegistryError(
      name,
      `does not say for which plugin API it was written: expected api, a number, received ${describe(api)}`,
      { hint: `The installed @lazuli/core has plugin API ${PLUGIN_API}: write api: ${PLUGIN_API}` },
    )
  return define(definition)
}

/** Options of an {@link operation}, besides its arguments. */
export interface OperationOptions {
  /** The version of its package, for programs in files that call it. */
  readonly version?: string
  /** Allow programs in files to call it; not where it takes or makes code. True by default. */
  readonly inFiles?: boolean
}

/**
 * Makes the body of a public function, named `<npm package>/<name>`. `signature` has the parameters in order; `body` receives them in that
 * order, undefined where none was given. A trailing plain object fills in the rest, and `stream` is taken out of it. Errors name the
 * function without its package, programs in files with it.
 *
 * @throws RegistryError when the name does not name its package, or is taken
 */
export function operation<A extends unknown[], R>(
  name: string,
  signature: Signature | readonly string[],
  body: (...args: A) => R,
  { version, inFiles = true }: OperationOptions = {},
): (args: readonly unknown[]) => R {
  if (typeof name !== "string" || !/^(@[\w.-]+\/)?[\w.-]+\/[A-Za-z_][\w.]*$/.test(name))
    throw new RegistryError("operation", `the name ${JSON.stringify(name)} does not name its package`, {
      hint: 'Use "<npm package>/<name>", such as "@me/my-ops/axpby"; bare names are those of @lazuli/core',
    })
  const op = name.slice(name.lastIndexOf("/") + 1)
  // Core's are looked at when they are first called: a kind that there is not is to be seen here.
  parametersOf(signature)
  return operationOf(op, signature, body, inFiles ? name : null, version ?? null)
}
