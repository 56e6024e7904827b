/**
 * Point clouds: gathered products, distances, neighbours and sampling. Importing it registers its primitives and brings their kernels.
 */
import "./kernels"

export { PointCloudBatch } from "./batch"
export { indexedDistance, type Metric, pairwiseDistance } from "./distances"
export { type MeshSource, type PlyMesh, readOff, readPly } from "./mesh-files"
export { faceAreas, type Mesh, sampleMesh } from "./meshes"
export { ballQuery, type CloudOptions, farthestPointSampling, knn } from "./neighbours"
export type { Integers } from "./positions"
export { mvmr, vvor } from "./products"
export { type SegmentReduction, segmentReduce } from "./segments"
