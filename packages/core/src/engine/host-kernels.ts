/**
 * Kernels of other packages that run on the host, where a backend has none: whoever runs their forms says which takes an application.
 */
import type { Application } from "../graph/graph"
import type { JsKernel } from "../graph/kernel-offers"

/** The kernel that takes an application; null where there is none. */
export let hostKernel: (application: Application) => JsKernel | null = () => null

/** For the backend that runs the forms js and wasm. */
export function setHostKernels(find: typeof hostKernel): void {
  hostKernel = find
}
