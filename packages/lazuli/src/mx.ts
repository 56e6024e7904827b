// `mx`: the arrays of core together with the transforms and the compiler, as MLX has them in one namespace.

export * from "@lazuli/compile"
// Core and the transforms both have a type of this name; the axes of reductions are what `mx.Axes` means.
export type { Axes } from "@lazuli/core"
export * from "@lazuli/core"
export * from "@lazuli/transforms"
export { type PluginInfo, plugins } from "./plugins"
