/**
 * Compilation of functions on arrays.
 */
export {
  type Compiled,
  type CompileOptions,
  type CompileStats,
  compile,
  disableCompile,
  enableCompile,
} from "./compile"
export type { ExplainedStep, Explanation } from "./explain"
export { type ExportOptions, exporter, exportFunction, FunctionExporter, importFunction } from "./export"
export { drawGraph, exportToDot } from "./graph-picture"
