/**
 * The key under which Node's console asks a value for its text. It is a registered symbol, for which `node:util` need not be loaded.
 */
import type { inspect } from "node:util"

export const INSPECT = Symbol.for("nodejs.util.inspect.custom") as typeof inspect.custom
