/**
 * `create-lazuli-plugin`: a new package with a primitive of its own. `npm create lazuli-plugin` is this from a shell.
 */
export { KERNELS, type Kernel } from "./files"
export { createPlugin, main } from "./main"
