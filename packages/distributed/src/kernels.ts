/**
 * The kernels of the collectives are in the addon: backends that run native code call them on a stream's thread. Groups that other packages
 * connect have none.
 */
import { provideKernels } from "@lazuli/core/plugin"
import { library } from "./native"

if (library !== null)
  provideKernels({
    form: "native",
    package: "@lazuli/distributed",
    library,
    supports: ({ params }) => (params.group as number) >= 0,
  })
