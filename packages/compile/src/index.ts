/**
 * Compilation of functions on arrays.
 */

export type { CompileStats } from "./cached-programs"
export { type Compiled, compile, disableCompile, enableCompile } from "./compile"
export type { ExplainedStep, Explanation } from "./explain"
export { type ExportOptions, exporter, exportFunction, FunctionExporter } from "./export"
export type { ExportCallback, ExportedArray, ExportedPart } from "./exported-graph"
export { drawGraph, exportToDot } from "./graph-picture"
export { importFunction } from "./import"
export type { CompileOptions } from "./options"
