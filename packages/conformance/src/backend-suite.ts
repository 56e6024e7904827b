/**
 * `backendSuite`: what any backend must do. Every registered primitive that a sample reaches is run on it and on the reference backend,
 * over dtypes, numbers and layouts as they are, and over sizes around the edges of vectors and blocks.
 */
import * as mx from "@lazuli/core"
import {
  type Backend,
  listBackends,
  type Primitive,
  primitiveByName,
  registerBackend,
} from "@lazuli/core/engine"
import { type Application, applicationsOf } from "./check/applications"
import { type KernelOptions, kernelColumn } from "./check/kernels"
import { checkApplications, type OpReport } from "./check/op-check"
import { discreteSamples, type Sample, samples } from "./samples"
import { sizedSamples } from "./sized-samples"

/** Options of {@link backendSuite}. */
export interface BackendSuiteOptions extends KernelOptions {
  /** Names of primitives; all registered ones by default. */
  readonly primitives?: readonly string[]
  /** Sizes of the axes that {@link sizedSamples} leave open; by default those around powers of two, where kernels have their edges. */
  readonly sizes?: readonly number[]
  /** More functions to reach primitives by, for those of other packages. */
  readonly samples?: readonly Sample[]
  /** Called with each primitive's report as soon as it is there. */
  readonly onReport?: (report: OpReport) => void
}

/** Sizes below, at and above the widths of vectors and the sizes of blocks. */
export const EDGES: readonly number[] = [
  1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 129, 257, 1025,
]

/** The dtypes in which sizes are tried: one of each width and kind. */
const SIZED: KernelOptions = {
  dtypes: [mx.float32, mx.bfloat16, mx.int32, mx.uint8, mx.float64, mx.complex64],
  fillings: ["as given"],
  layouts: ["row-major", "strided", "offset"],
  drawnSizes: [],
}

/**
 * Runs the suite. What a backend has no kernel for it says by `lower`: such cells are not applicable, with the reason, but what runs
 * instead is compared as well.
 *
 * @param backend the name of a registered backend, or a function that makes one, which is then registered
 * @example
 * const reports = backendSuite('reference', { primitives: ['add'], sizes: [7] })
 * reports.every(({ ok }) => ok) // => true
 */
export function backendSuite(
  backend: string | (() => Backend),
  options: BackendSuiteOptions = {},
): OpReport[] {
  const name = typeof backend === "string" ? backend : registered(backend())
  const wanted = options.primitives ?? mx.listPrimitives().map((p) => p.name)
  const all = group(applicationsOf([...samples, ...discreteSamples, ...(options.samples ?? [])]))
  const sized = (options.sizes ?? EDGES).map((n) => group(applicationsOf(sizedSamples(n))))
  const asGiven = { ...kernelColumn(name, options), name }
  const { dtypes = SIZED.dtypes, compiled, only } = options
  const inSizes = kernelColumn(name, { ...SIZED, dtypes, compiled, only })
  const reportsOf = (primitive: string): OpReport[] => {
    const found = primitiveByName(primitive)
    const applications = all.get(found) ?? []
    const edges = sized.flatMap((groups) => (groups.get(found) ?? []).slice(0, 2))
    // A primitive that was asked for by name must be reached; of all there are, those of other packages need their own samples.
    if (applications.length === 0 && edges.length === 0)
      return options.primitives ? [checkApplications(found, [], [asGiven])] : []
    const parts = [
      ...(applications.length > 0 ? [checkApplications(found, applications, [asGiven])] : []),
      ...(edges.length > 0 ? [checkApplications(found, edges, [{ ...inSizes, name: "sizes" }])] : []),
    ]
    return [{ primitive, ok: parts.every(({ ok }) => ok), results: parts.flatMap(({ results }) => results) }]
  }
  return wanted.flatMap((primitive) => {
    const reports = reportsOf(primitive)
    for (const report of reports) options.onReport?.(report)
    return reports
  })
}

function registered(backend: Backend): string {
  if (!listBackends().includes(backend)) registerBackend(backend)
  return backend.name
}

function group(applications: readonly Application[]): Map<Primitive, Application[]> {
  const groups = new Map<Primitive, Application[]>()
  for (const application of applications)
    groups.set(application.primitive, [...(groups.get(application.primitive) ?? []), application])
  return groups
}
