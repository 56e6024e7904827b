/**
 * `@lazuli/core/engine`: what transforms, compilers and backends build on. Unlike the main entry it follows the needs of this
 * repository's packages and of backend authors, and may change with any minor version.
 */

export {
  type CudaKernel,
  type CudaKernelCall,
  type CudaKernelOptions,
  setCudaKernelMaker,
} from "./api/cuda-kernel"
export {
  type MetalCompileOptions,
  type MetalKernel,
  type MetalKernelCall,
  type MetalKernelOptions,
  setMetalKernelMaker,
  type TemplateValue,
} from "./api/metal-kernel"
export { type Connector, checkSplit, type Exchange, setConnector } from "./api/process-group"
export {
  donorFor,
  type Located,
  offsetIn,
  overlays,
  stridesIn,
  viewOf,
  viewOfCopy,
  type World,
} from "./engine/assignment"
export { collectorOf } from "./engine/collector"
export { determinism } from "./engine/determinism"
export { evaluate, rejected } from "./engine/evaluate"
export { setHostKernels } from "./engine/host-kernels"
export { lifetimes } from "./engine/memory"
export { releaseKept } from "./engine/past-graphs"
export { binaryCure, PLATFORM } from "./engine/platform"
export { copyOut, evalTrees } from "./engine/readback"
export type { Droppable } from "./engine/weak-references"
export {
  asArrayArgument,
  checkFunction,
  checkOptions,
  isList,
  isPlainObject,
  operation,
  publicFunction,
  withOwnHandles,
} from "./graph/args"
export {
  type Backend,
  type BackendStats,
  backendFor,
  backendOf,
  countFallback,
  type DeviceCollectives,
  type DeviceFacts,
  type DeviceInformation,
  type DeviceWatch,
  type Encoder,
  listBackends,
  onBackend,
  type Plans,
  registerBackend,
  setBackend,
  type WorkQueue,
} from "./graph/backend"
export { ofTrees, ofUser, renamed, under } from "./graph/boundary"
export {
  asCall,
  type CallRecorder,
  callNamed,
  calls,
  implicitState,
  packageOf,
  primitiveNameOf,
  versionOf,
} from "./graph/calls"
export { Complex } from "./graph/complex-number"
export { copiesHint, isForeign } from "./graph/copies"
export {
  cpu,
  currentStream,
  Device,
  type DeviceType,
  gpu,
  onStream,
  Stream,
  type StreamLike,
  setDefaultDevice,
  streamsNamed,
} from "./graph/device"
export {
  atLeastFloat,
  bfloat16,
  bool_,
  complex64,
  type Dtype,
  dtypes,
  encoder,
  float16,
  float32,
  float64,
  int32,
  int64,
  isDtype,
  isInexact,
  isInteger,
  newStore,
  promote,
  storeWidth,
  type TypedArray,
  uint32,
  viewStore,
} from "./graph/dtype"
export { choiceFrom, choicesFrom, flagFrom, integerFrom, secondsFrom } from "./graph/environment"
export * from "./graph/errors"
export {
  exchanges,
  exchangesOutOfOrder,
  gatheredLate,
  hasExchangingDerivatives,
  inPlaceOf,
  isExchange,
  noteExchange,
} from "./graph/exchanges"
export {
  type Alignment,
  type Application,
  Array,
  abstractly,
  addNode,
  addNodes,
  applicationOf,
  applyNode,
  applyNodes,
  boundPending,
  boundTrace,
  building,
  type Donation,
  forsake,
  type HostArray,
  handles,
  inTrace,
  type JvpContext,
  type Layout,
  Mark,
  type Meta,
  Node,
  outputsOf,
  type Partial,
  type Plan,
  Primitive,
  type PrimitiveRules,
  sourceNode,
  tracing,
  type VjpContext,
  type VmapContext,
  type VmapResult,
  withoutHandles,
} from "./graph/graph"
export { fromBfloat16Bits, fromFloat16Bits } from "./graph/half"
export { INSPECT } from "./graph/inspect"
export {
  type ApplicationMeta,
  type CudaArgument,
  type CudaDispatch,
  type CudaFileKernel,
  type CudaKernels,
  type CudaSteps,
  type GpuKernel,
  type JsKernel,
  type KernelOffer,
  type KernelSteps,
  kernelOffers,
  type MetalArgument,
  type MetalDispatch,
  type MetalFileKernel,
  type MetalKernelSource,
  type MetalKernels,
  type MetalLaunch,
  type MetalSteps,
  type NativeKernels,
  onKernels,
  provideKernels,
  type WasmKernel,
} from "./graph/kernel-offers"
export {
  checkArguments,
  isListOf,
  type Kind,
  type Parameter,
  type ParameterKind,
  parametersOf,
  type Signature,
} from "./graph/kinds"
export { Slice } from "./graph/option-types"
export {
  type AnyParams,
  NO_PARAMS,
  type ParamSchema,
  type ParamsOf,
  type ParamType,
  paramsKey,
} from "./graph/params"
export {
  type Apply,
  checkBringer,
  decompose,
  definePrimitive,
  listPrimitives,
  primitiveByName,
  programOf,
  registrantFile,
} from "./graph/primitive"
export {
  type Instruction,
  ProgramBuilder,
  type ScalarOp,
  type ScalarOps,
  type ScalarProgram,
  type ScalarValue,
} from "./graph/scalar-program"
export * from "./graph/shape"
export { lend, type Memory, type MemoryStats, Storage, type Tracker } from "./graph/storage"
export {
  arraysOf,
  checkLevel,
  childrenOf,
  currentTree,
  forEachLeaf,
  getOwn,
  mapArrays,
  mapLeaves,
  registerTreeNode,
  replaceTree,
  setOwn,
  type TreeNodeRule,
  withArrays,
  withFreshHandles,
  withOwnArrays,
} from "./graph/tree"
export { asPath, type FilePath, withFile, writeBeside } from "./io/files"
export {
  type GgufEntry,
  type GgufHeader,
  type GgufTensor,
  ggufParts,
  readGgufHeader,
  readGgufTensors,
} from "./io/gguf"
export { type BlockFormat, blockFormats } from "./io/gguf-blocks"
export {
  readSafetensors,
  readSafetensorsHeader,
  readTensor,
  type SafetensorsHeader,
  type StoredTensor,
  writeSafetensors,
} from "./io/safetensors"
export { cast, constant, scalarArray, scalarOf, toDtype } from "./ops/constant"
export { arrayFromStore } from "./ops/creation"
export { hadamardFactor, hadamardMatrix } from "./ops/hadamard"
export { timesTransposed } from "./ops/matmul"
export { resolveFormat } from "./ops/quantize"
export { broadcastTo, sumTo } from "./ops/reduce"
export { sliceRange } from "./ops/slice"
export { moveToFront, reshapeLike } from "./ops/view"
export { interpret } from "./reference/reference"
