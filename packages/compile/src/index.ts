/**
 * Compilation of functions on arrays.
 */
export { type Compiled, type CompileOptions, compile, disableCompile, enableCompile } from "./compile"
