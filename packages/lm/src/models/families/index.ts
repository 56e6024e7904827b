/**
 * The families that come with the package.
 */
import { registerFamily } from "../network"
import { llama, qwen } from "./llama"

for (const family of [llama, qwen]) registerFamily(family)
