import "@lazuli/backend-cpu"
import "@lazuli/backend-cuda"
import "@lazuli/backend-metal"
import "@lazuli/conformance"
import "@lazuli/distributed"
import "@lazuli/ext-pointcloud"
import { definePrimitive, provideKernels } from "@lazuli/core/plugin"
import { axpby } from "@lazuli/ext-axpby"
import { mx } from "lazuli"

const scale = definePrimitive({
  name: "@me/ops/scale",
  api: 1,
  params: { by: "f64", mode: ["up", "down"] },
  infer: ([x]) => x,
  scalar: (s, [x], { by, mode }) => s.multiply(x, s.constant(mode === "up" ? by : 1 / by, s.dtypeOf(x))),
})
export const out: mx.Array = scale([axpby(mx.ones([2]), 1, 2, 3)], { by: 2, mode: "up" })
provideKernels({ form: "native", package: "@me/ops", library: "x.so" })
// @ts-expect-error the factor is a number
scale([out], { by: "2", mode: "up" })
// @ts-expect-error a definition says for which plugin API it was written
definePrimitive({ name: "@me/ops/other", infer: ([x]) => x, scalar: (_s, [x]) => x })
