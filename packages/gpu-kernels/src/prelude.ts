/**
 * Metal's scalars, vectors and functions as C++ headers, for runtimes whose compiler does not know Metal.
 */
import { fileURLToPath } from "node:url"

/** Where `scalar.h`, `vector.h` and `math.h` are. */
export const preludeFolder = fileURLToPath(new URL("../prelude/", import.meta.url))
