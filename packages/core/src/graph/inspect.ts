/**
 * The method key of Node's `util.inspect`. A registered symbol, so that `node:util` need not be loaded.
 */
import type { inspect } from "node:util"

export const INSPECT = Symbol.for("nodejs.util.inspect.custom") as typeof inspect.custom
