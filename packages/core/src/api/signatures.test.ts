/**
 * The parameters of public functions, in order and by name: MLX's, in camelCase. A function without an entry here takes no options.
 */
import { expect, it } from "vitest"
import * as mx from "../index"

/** Parameters, and the functions that take them. */
const signatures: readonly (readonly [parameters: string, functions: string])[] = [
  [
    "a",
    "abs acos acosh arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh bitwiseInvert ceil conj conjugate cos cosh erf erfinv exp expm1 floor imag isinf isnan isneginf isposinf linalg.det linalg.eig linalg.eigvals linalg.inv linalg.lu linalg.luFactor linalg.pinv linalg.qr linalg.slogdet log log10 log1p log2 logicalNot negative positive real reciprocal rsqrt sigmoid sign sin sinh sqrt square stopGradient tan tanh trunc",
  ],
  ["a axis keepdims", "all any argmax argmin countNonzero logsumexp max mean median min prod sum"],
  ["a s axes norm", "fft.fft2 fft.fftn fft.ifft2 fft.ifftn fft.irfft2 fft.irfftn fft.rfft2 fft.rfftn"],
  ["a b", "divmod inner kron linalg.solve logicalXor matmul outer"],
  ["a axes", "fft.fftshift fft.ifftshift matrixTranspose permuteDims transpose"],
  ["a axis", "argsort expandDims flip sort squeeze"],
  ["a dtype", "astype emptyLike onesLike view zerosLike"],
  ["M", "bartlett blackman hamming hanning"],
  ["a axis reverse inclusive dtype", "cumprod cumsum cumulativeProd cumulativeSum"],
  ["a n axis norm", "fft.fft fft.ifft fft.irfft fft.rfft"],
  ["a axis reverse inclusive", "cummax cummin logcumsumexp"],
  ["a upper", "linalg.cholesky linalg.choleskyInv linalg.triInv"],
  ["arrays axis", "concat concatenate stack"],
  ["input weight stride padding dilation groups", "conv1d conv2d conv3d"],
  [
    "input weight stride padding dilation outputPadding groups",
    "convTranspose1d convTranspose2d convTranspose3d",
  ],
  ["shape dtype", "empty ones zeros"],
  ["a UPLO", "linalg.eigh linalg.eigvalsh"],
  ["a axis keepdims ddof", "std var"],
  ["a b axis", "linalg.cross vecdot"],
  ["a b rtol atol equalNan", "allclose isclose"],
  ["a indices axis", "take takeAlongAxis"],
  ["a kth axis", "argpartition partition"],
  ["a ord axis keepdims", "linalg.norm matrixNorm"],
  ["a shape", "broadcastTo reshape"],
  ["low high shape dtype key", "random.randint random.uniform"],
  ["n d", "fft.fftfreq fft.rfftfreq"],
  ["n m k dtype", "eye tri"],
  ["precision", "printoptions setPrintoptions"],
  ["shape dtype loc scale key", "random.laplace random.normal"],
  ["x k", "tril triu"],
  ["a aMin aMax", "clip"],
  ["a allowColMajor", "contiguous"],
  ["a axis precise", "softmax"],
  ["a axis shape", "unflatten"],
  ["a axis1 axis2", "swapaxes"],
  ["a b axes", "tensordot"],
  ["a b blockSize maskOut maskLhs maskRhs", "blockMaskedMm"],
  ["a b equalNan", "arrayEqual"],
  ["a b lhsIndices rhsIndices sortedIndices", "gatherMm"],
  ["a b segments", "segmentedMm"],
  ["a b upper", "linalg.solveTriangular"],
  ["a computeUv", "linalg.svd"],
  ["a decimals", "round"],
  ["a dims traditional base scale offset freqs", "fast.rope"],
  ["a dtype copy", "asarray"],
  ["a indices values axis", "putAlongAxis"],
  ["a indicesOrSections axis", "split"],
  ["a k", "diag"],
  ["a k axis returnIndices", "topk"],
  ["a n axis", "diff"],
  ["a nan posinf neginf", "nanToNum"],
  ["a offset axis1 axis2", "diagonal"],
  ["a offset axis1 axis2 dtype", "trace"],
  ["a padWidth mode constantValues", "pad"],
  ["a reps", "tile"],
  ["a scale", "hadamardTransform"],
  ["a shape strides offset", "asStrided"],
  ["a shift axis", "roll"],
  ["a source destination", "moveaxis"],
  ["a startAxis endAxis", "flatten"],
  ["a startIndices axes sliceSize", "slice"],
  ["a update startIndices axes", "sliceUpdate"],
  ["a v mode", "convolve"],
  ["a vals dtype", "fullLike"],
  ["array repeats axis totalLength", "repeat"],
  ["c a b alpha beta", "addmm"],
  ["condition x y", "where"],
  ["key num", "random.split"],
  ["logits axis shape numSamples key", "random.categorical"],
  ["lower upper shape dtype key", "random.truncatedNormal"],
  ["mean cov shape dtype key", "random.multivariateNormal"],
  ["n dtype", "identity"],
  ["name inputNames outputNames source header ensureRowContiguous sharedMemory reference", "fast.cudaKernel"],
  [
    "name inputNames outputNames source header ensureRowContiguous atomicOutputs compileOptions reference",
    "fast.metalKernel",
  ],
  ["p shape key", "random.bernoulli"],
  ["q k v scale mask sinks forceFused", "fast.scaledDotProductAttention"],
  ["shape dtype key", "random.gumbel"],
  ["shape vals dtype", "full"],
  ["sortedSequence values side", "searchsorted"],
  ["start stop num endpoint dtype", "linspace"],
  ["w groupSize bits mode globalScale", "quantize"],
  ["w scales biases groupSize bits mode globalScale dtype", "dequantize"],
  ["x", "toFp8"],
  ["x axis", "unstack"],
  ["x axis key", "random.permutation"],
  ["x dtype", "fromFp8"],
  [
    "x w scales biases lhsIndices rhsIndices transpose groupSize bits mode sortedIndices activations",
    "gatherQmm",
  ],
  ["x w scales biases transpose groupSize bits mode activations", "quantizedMatmul"],
  ["x w scales groupSize bits mode globalScaleX globalScaleW", "qqmm"],
  [
    "x w scales lhsIndices rhsIndices groupSize bits mode globalScaleX globalScaleW sortedIndices",
    "gatherQqmm",
  ],
  ["x weight bias eps", "fast.layerNorm"],
  ["x weight eps", "fast.rmsNorm"],
]

/** The parameters that the function names when it is given wrong ones. */
function parametersOf(path: string): string {
  const f = path.split(".").reduce<unknown>((from, key) => (from as Record<string, unknown>)[key], mx)
  try {
    ;(f as (options: object) => unknown)({ noParameterOfThis: 1 })
  } catch (error) {
    const takes = /it takes ([\w, ]+)/.exec((error as Error).message)?.[1].split(", ") ?? []
    return takes.filter((name) => name !== "stream").join(" ")
  }
  return "anything"
}

it.each(signatures)("(%s)", (parameters, functions) => {
  const found = functions.split(" ").map((path) => [path, parametersOf(path)])
  expect(found).toEqual(functions.split(" ").map((path) => [path, parameters]))
})
