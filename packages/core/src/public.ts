/**
 * The public names of @lazuli/core: what users call as `mx.*`, and the contract for primitive and backend packages.
 */
export type { Axes, Operand, Scalar, StreamOptions } from './args'
export { backendStats, listBackends, registerBackend, resetBackendStats, setBackend } from './backend'
export { Complex, complex } from './complex-number'
export {
  cpu,
  Device,
  defaultDevice,
  defaultStream,
  gpu,
  newStream,
  Stream,
  setDefaultDevice,
  setDefaultStream,
} from './device'
export type { Dtype } from './dtype'
export {
  bfloat16,
  bool_,
  bool_ as bool,
  complex64,
  float16,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
} from './dtypes'
export * from './errors'

import type { Array as ArrayClass } from './graph'
import type { IndexSpec as IndexSpecOf } from './option-types'

export * as fast from './fast'
export { Array } from './graph'
export { load } from './io/load'
export { save, savez, savezCompressed } from './io/npy'
export { saveSafetensors } from './io/safetensors'
export { argmax, argmin } from './ops/arg-reduce'
export * from './ops/binary'
export { astype } from './ops/constant'
export { arange, array, eye, full, ones, onesLike, tri, zeros, zerosLike } from './ops/creation'
export { putAlongAxis, slice, sliceUpdate, take, takeAlongAxis } from './ops/gather'
export { nonzero, s } from './ops/indexing'
export { concat, concatenate, stack } from './ops/join'
export { addmm, matmul } from './ops/matmul'
export { all, any, broadcastTo, max, mean, min, prod, std, sum, variance as var } from './ops/reduce'
export { cumprod, cumsum } from './ops/scan'
export { logsumexp, softmax } from './ops/softmax'
export { argpartition, argsort, median, partition, searchsorted, sort, topk } from './ops/sort'
export * from './ops/unary'
export {
  contiguous,
  expandDims,
  flatten,
  moveaxis,
  permuteDims,
  reshape,
  squeeze,
  stopGradient,
  swapaxes,
  transpose,
  unflatten,
} from './ops/view'
export type { ArrayAt, IntegerList, MaskList, Slice } from './option-types'
export { definePrimitive, listPrimitives, PLUGIN_API } from './primitive'
export * as random from './random'
export { evalTrees as eval } from './readback'
export { registerTreeNode } from './tree'
export {
  type FlattenOptions,
  type IsLeaf,
  treeFlatten,
  treeMap,
  treeMapWithPath,
  treeMerge,
  treeReduce,
  treeUnflatten,
} from './tree-functions'

/** One item of an index expression; see {@link Array.index}. */
export type IndexSpec = IndexSpecOf<ArrayClass>
