/**
 * The conformance kit: what a backend and a primitive must do, as functions that return data.
 */
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
