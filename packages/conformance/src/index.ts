/**
 * The conformance kit: what a backend and a primitive must do, as functions that return data.
 */

export { backendNamed, onBackendNamed } from "./backend-choice"
export { type BackendSuiteOptions, backendSuite, EDGES } from "./backend-suite"
export { type Application, applicationsOf, functionOf, type PublicCall } from "./check/applications"
export { vmapColumn } from "./check/batches"
export type { Column } from "./check/column"
export { jvpColumn, secondOrderColumn, vjpColumn } from "./check/derivatives"
export { dtypesColumn } from "./check/dtypes"
export { compiledColumn, memoryColumn } from "./check/engines"
export { inferColumn } from "./check/inference"
export type { Invariant, InvariantContext } from "./check/invariants"
export { type KernelOptions, kernelColumn } from "./check/kernels"
export {
  type CheckResult,
  checkApplications,
  type DirectSample,
  formatChecks,
  type OpCheckOptions,
  type OpReport,
  type OpSample,
  opCheck,
  type Subject,
  standardColumns,
} from "./check/op-check"
export { exportColumn, shapelessColumn } from "./check/programs"
export { CheckFailure, numbers, values } from "./check/values"
export type { Spaces } from "./golden/calls"
export { type EncodedArray, type GoldenCase, Missing, type TransformSpec } from "./golden/format"
export {
  type Deviations,
  type FamilyResult,
  formatReplay,
  goldenCases,
  goldenFamilies,
  knownDeviations,
  type ReplayOptions,
  replayCase,
  replayGolden,
} from "./golden/replay"
export type { Through } from "./golden/through"
export { discreteSamples, type Sample, samples } from "./samples"
export { sizedSamples } from "./sized-samples"
