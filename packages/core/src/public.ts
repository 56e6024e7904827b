/**
 * The public names of @lazuli/core: what users call as `mx.*`, and the contract for primitive and backend packages.
 */

export * as distributed from "./api/distributed"
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
} from "./api/dtypes"
export { setDebug } from "./engine/debug"
export type { Axes, Operand, Scalar, StreamOptions } from "./graph/args"
export {
  backendStats,
  type DeviceFacts,
  listBackends,
  registerBackend,
  resetBackendStats,
  setBackend,
} from "./graph/backend"
export { Complex, complex } from "./graph/complex-number"
export {
  cpu,
  Device,
  defaultDevice,
  defaultStream,
  gpu,
  newStream,
  Stream,
  type StreamLike,
  setDefaultDevice,
  setDefaultStream,
  ThreadLocalStream,
} from "./graph/device"
export { Dtype } from "./graph/dtype"
export {
  ArgumentError,
  DeviceError,
  DistributedError,
  DTypeError,
  type ErrorDetails,
  FormatError,
  IndexError,
  LazuliError,
  NumericError,
  RegistryError,
  ShapeError,
  TransformError,
} from "./graph/errors"

import type { Array as ArrayClass } from "./graph/graph"
import type { IndexSpec as IndexSpecOf } from "./graph/option-types"

export * as cuda from "./api/cuda"
export type { CudaKernel, CudaKernelCall, CudaKernelOptions } from "./api/cuda-kernel"
export { deviceCount, deviceInfo, isAvailable } from "./api/device-info"
export {
  canCast,
  complexfloating,
  type DtypeCategory,
  type DtypeKind,
  e,
  eulerGamma,
  type FloatInfo,
  finfo,
  floating,
  generic,
  type IntegerInfo,
  iinfo,
  inexact,
  inf,
  integer,
  isdtype,
  issubdtype,
  nan,
  newaxis,
  number,
  pi,
  resultType,
  signedinteger,
  unsignedinteger,
} from "./api/dtype-info"
export * as fast from "./api/fast"
export * as fft from "./api/fft"
export * as linalg from "./api/linalg"
export * as metal from "./api/metal"
// Not in fast.ts: declarations of a namespace cannot pass on types that another entry shares.
export type {
  MetalCompileOptions,
  MetalKernel,
  MetalKernelCall,
  MetalKernelOptions,
  TemplateValue,
} from "./api/metal-kernel"
export * as random from "./api/random"
export {
  type FlattenOptions,
  type IsLeaf,
  treeFlatten,
  treeMap,
  treeMapWithPath,
  treeMerge,
  treeReduce,
  treeUnflatten,
} from "./api/tree-functions"
export { getPrintoptions, PrintOptions, printoptions, setPrintoptions } from "./engine/printing"
export { evalTrees as eval } from "./engine/readback"
export { type ReceivedTree, receive, type SharedArray, type SharedTree, share } from "./engine/shared"
export {
  asyncEval,
  clearStreams,
  newThreadLocalStream,
  newThreadUnsafeStream,
  StreamContext,
  stream,
  synchronize,
} from "./engine/streams"
export { tidy } from "./engine/tidy"
export { Array, type ArrayOf } from "./graph/graph"
export type {
  ArrayAt,
  IntegerList,
  MaskList,
  RowRuns,
  ScatterReduction,
  SegmentIdOptions,
  Slice,
  Value,
} from "./graph/option-types"
export { definePrimitive, listPrimitives, PLUGIN_API } from "./graph/primitive"
export { registerTreeNode } from "./graph/tree"
export type { FilePath } from "./io/files"
export { type GgufValue, saveGguf } from "./io/gguf"
export { type LoadOptions, load } from "./io/load"
export { save } from "./io/npy"
export { savez, savezCompressed } from "./io/npz"
export { saveSafetensors } from "./io/safetensors"
export { arange } from "./ops/arange"
export { argmax, argmin } from "./ops/arg-reduce"
export * from "./ops/binary"
export {
  arctan2 as atan2,
  leftShift as bitwiseLeftShift,
  power as pow,
  rightShift as bitwiseRightShift,
} from "./ops/binary"
export { astype } from "./ops/constant"
export {
  conv1d,
  conv2d,
  conv3d,
  convGeneral,
  convolve,
  convTranspose1d,
  convTranspose2d,
  convTranspose3d,
} from "./ops/convolutions"
export {
  array,
  asarray,
  eye,
  full,
  ones,
  onesLike,
  tri,
  zeros,
  zeros as empty,
  zerosLike,
  zerosLike as emptyLike,
} from "./ops/creation"
export { diag, diagonal, trace, tril, triu } from "./ops/diagonal"
export { cdist } from "./ops/distances"
export { einsum, einsumPath } from "./ops/einsum"
export { fromFp8, toFp8 } from "./ops/fp8"
export { type BlockMasks, blockMaskedMm, gatherMm, segmentedMm } from "./ops/gather-matmul"
export { hadamardTransform } from "./ops/hadamard"
export { s } from "./ops/indexing"
export { concat, concatenate, stack } from "./ops/join"
export { norm as matrixNorm } from "./ops/linalg/norm"
export { nonzero } from "./ops/masks"
export { addmm, matmul } from "./ops/matmul"
export { asStrided, depends, view } from "./ops/memory-view"
export { pad } from "./ops/pad"
export {
  allclose,
  arrayEqual,
  clip,
  countNonzero,
  isclose,
  isfinite,
  isinf,
  isnan,
  isneginf,
  isposinf,
  logicalXor,
  nanToNum,
} from "./ops/predicates"
export { inner, kron, outer, tensordot, vecdot } from "./ops/products"
export { gatherQqmm, type QqmmOptions, qqmm } from "./ops/qqmm"
export {
  type DequantizeOptions,
  dequantize,
  type QuantizationMode,
  type QuantizeOptions,
  quantize,
} from "./ops/quantize"
export {
  type GatherOptions,
  gatherQmm,
  type PackedOptions,
  type ProductActivations,
  quantizedMatmul,
} from "./ops/quantized-matmul"
export { padSegments, unpadSegments } from "./ops/ragged"
export {
  atleast1d,
  atleast2d,
  atleast3d,
  broadcastArrays,
  broadcastShapes,
  diff,
  flip,
  meshgrid,
  repeat,
  roll,
  split,
  tile,
  unstack,
} from "./ops/rearrange"
export { all, any, broadcastTo, max, mean, min, prod, std, sum, variance as var } from "./ops/reduce"
export { divmod, positive, round, trunc } from "./ops/rounding"
export {
  cummax,
  cummin,
  cumprod,
  cumprod as cumulativeProd,
  cumsum,
  cumsum as cumulativeSum,
  logcumsumexp,
} from "./ops/scan"
export { scatter } from "./ops/scatter"
export {
  segmentMax,
  segmentMean,
  segmentMin,
  segmentSoftmax,
  segmentSum,
} from "./ops/segment-reductions"
export { bartlett, blackman, fullLike, hamming, hanning, identity, linspace } from "./ops/sequences"
export { logsumexp, softmax } from "./ops/softmax"
export { argpartition, argsort, median, partition, searchsorted, sort, topk } from "./ops/sort"
export { cooMatmul, csrMatmul, sampledMatmul } from "./ops/sparse"
export { putAlongAxis, slice, sliceUpdate, take, takeAlongAxis } from "./ops/take"
export * from "./ops/unary"
export {
  arccos as acos,
  arccosh as acosh,
  arcsin as asin,
  arcsinh as asinh,
  arctan as atan,
  arctanh as atanh,
  conjugate as conj,
} from "./ops/unary"
export {
  contiguous,
  expandDims,
  flatten,
  matrixTranspose,
  moveaxis,
  permuteDims,
  reshape,
  squeeze,
  stopGradient,
  swapaxes,
  transpose,
  unflatten,
} from "./ops/view"

/** One item of an index expression; see {@link Array.index}. */
export type IndexSpec = IndexSpecOf<ArrayClass>
export {
  clearCache,
  getActiveMemory,
  getCacheMemory,
  getPeakMemory,
  type MemoryReport,
  memoryReport,
  resetPeakMemory,
  setCacheLimit,
  setMemoryLimit,
  setWiredLimit,
} from "./api/memory-stats"
