/**
 * Every public function gives handles of its own: never the caller's, which `set` and `dispose` would reach. All functions of mx, nn and
 * optim are called with arguments under which they have nothing to do; one that none of these suits needs a line below.
 */
import * as nn from "@lazuli/nn"
import * as optim from "@lazuli/nn/optimizers"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import * as mx from "./mx"
import "@lazuli/backend-cpu"

type Fn = (...args: unknown[]) => unknown

const square = () => mx.array([1, 0, 0, 1]).reshape([2, 2])
const ints = () =>
  mx.array(
    [
      [1, 2],
      [3, 4],
    ],
    mx.int32,
  )
const complexes = () => mx.array([mx.complex(1, 2), mx.complex(3, 4)])
/** Arrays to call functions on: where they change dtype, shape or values for one of these they may give back another. */
const subjects: (() => mx.Array)[] = [
  square,
  ints,
  complexes,
  () => mx.array([1, 2, 3, 4]),
  () => mx.array(0.5),
  () => mx.array([true, false]),
  () => mx.ones([1, 1, 1]),
  () => mx.zeros([0, 2]),
  () => mx.array([1, 2], mx.uint32),
  () => mx.ones([1, 3, 3, 1]),
]
const layerInputs = [
  () => mx.ones([1, 1]),
  () => mx.ones([1, 2, 2]),
  () => mx.ones([1, 4, 4, 2]),
  () => mx.ones([1, 2, 2, 2, 1]),
  () => mx.ones([2, 32]),
  () => mx.ones([2, 64]),
  () => mx.array([[0, 0]], mx.int32),
]
/** Arguments after which most functions have nothing to do. */
const patterns: ((x: mx.Array) => unknown[])[] = [
  (x) => [x],
  (x) => [x, x],
  (x) => [x, x, x],
  (x) => [[x]],
  (x) => [[x, x]],
  (x) => [[x], 0],
  (x) => [x, x.dtype],
  (x) => [x, x.shape],
  (x) => [x, []],
  (x) => [x, 0],
  (x) => [x, 1],
  (x) => [x, 0, 0],
  (x) => [x, 1, 0],
  (x) => [x, x, []],
  (x) => [x, [x]],
  (x) => [x, null, []],
  (x) => [x, x.shape.map((_, i) => i)],
  (x) => [x, mx.zeros([x.shape[0] ?? 1], mx.int32), 0],
  (x) => [x, mx.zeros(x.shape, mx.int32), 0],
  (x) => [x, x, x, x],
]

/** Arguments for those whose arguments are of another kind. */
const a = mx.array([
  [1, 2],
  [3, 4],
])
const [packed, scales, biases] = mx.quantize(mx.ones([32, 32]), { groupSize: 32 })
const queries = mx.ones([1, 1, 2, 4])
const special: Record<string, (() => unknown[])[]> = {
  einsum: [() => ["ij->ij", a], () => ["ij->ji", a], () => ["i->i", mx.array([1])]],
  where: [() => [mx.array(true), a, a]],
  nanToNum: [() => [ints()], () => [a]],
  clip: [() => [a, null, null], () => [a, 0, 9]],
  segmentedMm: [() => [a, a, mx.array([[0, 2]], mx.uint32)]],
  csrMatmul: [() => [mx.array([1]), mx.array([0], mx.int32), mx.array([0, 1], mx.int32), mx.array([1])]],
  cooMatmul: [
    () => [mx.array([1]), mx.array([0], mx.int32), mx.array([0], mx.int32), mx.array([1]), { numRows: 1 }],
  ],
  sampledMatmul: [() => [a, a, [0], [1]]],
  gatherMm: [() => [a.reshape([1, 2, 2]), a.reshape([1, 2, 2]), null, mx.array([0], mx.uint32)]],
  blockMaskedMm: [() => [mx.ones([32, 32]), mx.ones([32, 32]), 32]],
  dequantize: [() => [packed, scales, biases, { groupSize: 32 }]],
  quantize: [() => [mx.ones([32, 32]), { groupSize: 32 }]],
  quantizedMatmul: [() => [mx.ones([1, 32]), packed, scales, biases, { groupSize: 32 }]],
  qqmm: [() => [mx.ones([32, 32]), mx.ones([32, 32]), { groupSize: 16, bits: 4, mode: "nvfp4" }]],
  gatherQqmm: [
    () => {
      const w = mx.ones([1, 32, 32])
      const [wq, s] = mx.quantize(w, { groupSize: 16, bits: 4, mode: "nvfp4" })
      return [w, wq, s, { rhsIndices: mx.array([0], mx.uint32), mode: "nvfp4" }]
    },
  ],
  gatherQmm: [
    () => [
      mx.ones([1, 1, 32]),
      ...[packed, scales, biases].map((x) => x.expandDims(0)),
      { rhsIndices: mx.array([0], mx.uint32), groupSize: 32 },
    ],
  ],
  fromFp8: [() => [mx.array([1], mx.uint8)]],
  tri: [() => [2]],
  eye: [() => [2]],
  identity: [() => [2]],
  arange: [() => [3]],
  linspace: [() => [0, 1]],
  bartlett: [() => [3]],
  blackman: [() => [3]],
  hamming: [() => [3]],
  hanning: [() => [3]],
  full: [() => [[2, 2], a], () => [[], mx.array(1)]],
  zeros: [() => [[2]]],
  ones: [() => [[2]]],
  empty: [() => [[2]]],
  unflatten: [() => [a, 0, [2]]],
  convolve: [() => [mx.array([1, 2]), mx.array([1])]],
  slice: [
    () => [a, [0, 0], [0, 1], [2, 2]],
    () => [a, mx.array([0], mx.int32), [0], [2]],
    () => [a, [], [], []],
  ],
  sliceUpdate: [() => [a, a, [0, 0], [0, 1]], () => [a, a, [], []]],
  putAlongAxis: [() => [a, mx.zeros([0, 2], mx.int32), mx.zeros([0, 2]), 0]],
  "fft.fftn": [() => [a, null, []]],
  "fft.fftfreq": [() => [4]],
  "fft.rfftfreq": [() => [4]],
  "fft.irfft2": [() => [mx.ones([2, 2]).astype(mx.complex64)]],
  "fft.irfftn": [() => [mx.ones([2, 2]).astype(mx.complex64)]],
  "fft.irfft": [() => [mx.ones([2, 2]).astype(mx.complex64)]],
  "linalg.cross": [() => [mx.ones([3]), mx.ones([3])]],
  "linalg.solveTriangular": [() => [a, a]],
  conv3d: [() => [mx.ones([1, 1, 1, 1, 1]), mx.ones([1, 1, 1, 1, 1])]],
  convTranspose3d: [() => [mx.ones([1, 1, 1, 1, 1]), mx.ones([1, 1, 1, 1, 1])]],
  "fast.layerNorm": [() => [a, null, null, 1e-5]],
  "fast.rope": [() => [mx.ones([1, 2, 4]), 4, { traditional: false, base: 1e4, scale: 1, offset: 0 }]],
  "fast.scaledDotProductAttention": [() => [queries, queries, queries, { scale: 1 }]],
  "random.key": [() => [1]],
  "random.split": [() => [mx.random.key(1)]],
  "random.bits": [() => [[2]]],
  "random.normal": [() => [[2]]],
  "random.randint": [() => [0, 5, [2]]],
  "random.truncatedNormal": [() => [0, 1, [2]]],
  "random.multivariateNormal": [() => [mx.zeros([2]), mx.eye(2)]],
  "random.laplace": [() => [[2]]],
  "random.gumbel": [() => [[2]]],
  "random.permutation": [() => [a], () => [1], () => [mx.ones([1])]],
  "nn.partOf": [() => [a, { axis: 0, segments: [2] }]],
  vjp: [() => [(x: mx.Array) => x, [a], [a]], () => [(x: mx.Array) => [x, a], [a], [a, a]]],
  jvp: [() => [(x: mx.Array) => x, [a], [a]], () => [() => a, [a], [a]]],
}
/** Functions that give functions: what those give for an array. */
const makers: Record<string, Fn> = {
  vmap: (x) => mx.vmap((y: mx.Array) => y)(x as mx.Array),
  "vmap of constants": (x) =>
    mx.vmap((y: mx.Array, z: mx.Array) => [z, y, y], { inAxes: [0, null], outAxes: [null, 0, 0] })(
      mx.ones([2]),
      x as mx.Array,
    ),
  customFunction: (x) => mx.customFunction((y: mx.Array) => ({ y }))(x as mx.Array),
  "customFunction with a rule": (x) => mx.customFunction((y: mx.Array) => y).vjp((_, g) => g)(x as mx.Array),
  "customFunction under grad": (x) =>
    mx.vjp(
      mx.customFunction((y: mx.Array) => y).vjp((_, g) => g),
      [x as mx.Array],
      [x as mx.Array],
    ),
  checkpoint: (x) => mx.checkpoint((y: mx.Array) => [y])(x as mx.Array),
  "checkpoint under vjp": (x) =>
    mx.vjp(
      mx.checkpoint((y: mx.Array) => y),
      [x as mx.Array],
      [x as mx.Array],
    ),
  grad: (x) =>
    mx.grad((y: mx.Array, z: mx.Array) => [y.sum(), z], { hasAux: true })(mx.array(1), x as mx.Array),
  valueAndGrad: (x) => mx.valueAndGrad((y: mx.Array) => [y.sum(), y, x])(mx.array(1)),
  linearize: (x) => [
    mx.linearize((y: mx.Array) => y, [x as mx.Array])[0],
    mx.linearize((y: mx.Array) => y, [mx.ones([2])])[1](x as mx.Array),
  ],
  jacrev: (x) => mx.jacrev((y: mx.Array) => y)(x as mx.Array),
  jacfwd: (x) => mx.jacfwd((y: mx.Array) => y)(x as mx.Array),
  hessian: (x) => mx.hessian((y: mx.Array) => y.sum())(x as mx.Array),
  "nn.valueAndGrad": (x) =>
    nn.valueAndGrad(new nn.Linear(1, 1), (y: mx.Array) => [y.sum(), y])(x as mx.Array),
  "nn.utils.checkpoint": (x) => nn.utils.checkpoint(new nn.Identity())(x as mx.Array),
  compile: (x) => mx.compile((y: mx.Array) => [y, y])(x as mx.Array),
  "compile, shapeless": (x) => mx.compile((y: mx.Array) => y, { shapeless: true })(x as mx.Array),
  "compile, disabled": (x) => {
    mx.disableCompile()
    try {
      return mx.compile((y: mx.Array) => y)(x as mx.Array)
    } finally {
      mx.enableCompile()
    }
  },
}
/** They give no arrays, give those of files and other threads, or hand on what the caller's own trees and functions hold. */
const excepted = new Set(
  (
    "disableCompile enableCompile exporter exportFunction drawGraph exportToDot importFunction " +
    "backendStats listBackends registerBackend resetBackendStats setBackend complex setDebug defaultDevice defaultStream newStream " +
    "setDefaultDevice setDefaultStream Dtype deviceCount deviceInfo isAvailable canCast finfo iinfo isdtype issubdtype resultType " +
    "saveGguf load save savez savezCompressed saveSafetensors einsumPath s broadcastShapes definePrimitive listPrimitives plugins getPrintoptions " +
    "printoptions setPrintoptions eval receive share asyncEval clearStreams newThreadLocalStream newThreadUnsafeStream stream synchronize tidy " +
    "registerTreeNode treeFlatten treeMap treeMapWithPath treeMerge treeReduce treeUnflatten clearCache getActiveMemory getCacheMemory " +
    "getPeakMemory memoryReport resetPeakMemory setCacheLimit setMemoryLimit setWiredLimit describe nearest vmapLoops fast.metalKernel fast.cudaKernel random.seed " +
    "distributed.isAvailable distributed.init distributed.send distributed.recv distributed.recvLike nn.quantize nn.fullyShard nn.shardLinear nn.sumGradients nn.lengthOfPart nn.groupsOverlap nn.shardedModules " +
    "optim.cosineDecay optim.exponentialDecay optim.joinSchedules optim.linearSchedule optim.stepDecay"
  ).split(" "),
)

/** The arrays in a result, iterators aside. */
const arraysIn = (value: unknown): mx.Array[] => {
  if (value instanceof mx.Array) return [value]
  if (Array.isArray(value)) return value.flatMap(arraysIn)
  if (value && typeof value === "object" && Object.getPrototypeOf(value) === Object.prototype)
    return Object.values(value).flatMap(arraysIn)
  return []
}

/** True if a call gives arrays; fails where one of them is an argument's handle, or comes twice. */
function givesOwn(name: string, f: Fn, args: unknown[]): boolean {
  let result: unknown
  try {
    result = f(...args)
  } catch {
    return false
  }
  const given = new Set(arraysIn(args))
  const got = arraysIn(result)
  expect(got.filter((y) => given.has(y)).length, `${name} gives a handle of its caller's`).toBe(0)
  expect(new Set(got).size, `${name} gives one handle twice`).toBe(got.length)
  return got.length > 0
}

const isFunction = (value: unknown): value is Fn =>
  typeof value === "function" && !/^class /.test(Function.prototype.toString.call(value))

function checkAll(prefix: string, table: Record<string, unknown>): string[] {
  const missed: string[] = []
  for (const [key, f] of Object.entries(table)) {
    if (!isFunction(f)) continue
    const name = prefix + key
    if (excepted.has(name) || name in makers || name === "nn.utils.valueAndGrad") continue
    let works = false
    const lists = [
      ...(special[name] ?? []),
      ...subjects.flatMap((subject) => patterns.map((pattern) => () => pattern(subject()))),
    ]
    for (const list of lists) {
      let args: unknown[]
      try {
        args = list()
      } catch {
        continue
      }
      if (givesOwn(name, f, args)) works = true
    }
    if (!works) missed.push(name)
  }
  return missed
}
const table = (space: object): Record<string, unknown> => space as Record<string, unknown>

describe("every public function gives handles of its own", () => {
  // Most calls are refused, and nobody looks where.
  const { stackTraceLimit } = Error
  beforeAll(() => {
    Error.stackTraceLimit = 0
  })
  afterAll(() => {
    Error.stackTraceLimit = stackTraceLimit
  })
  it.each([
    ["", mx],
    ["linalg.", mx.linalg],
    ["fft.", mx.fft],
    ["fast.", mx.fast],
    ["random.", mx.random],
    ["distributed.", mx.distributed],
    ["nn.", nn],
    ["nn.losses.", nn.losses],
    ["nn.utils.", nn.utils],
    ["optim.", optim],
  ] as [string, object][])("%s*", (prefix, space) => {
    expect(checkAll(prefix, table(space))).toEqual([])
  })
  it("members of arrays", () => {
    const members: Record<string, Fn> = {
      "index()": (x) => (x as mx.Array).index(),
      "index('...')": (x) => (x as mx.Array).index("..."),
      "at(': 0').add": (x) => (x as mx.Array).at("0:0").add(1),
      T: (x) => (x as mx.Array).T,
      real: (x) => (x as mx.Array).real,
      imag: (x) => (x as mx.Array).imag,
      iterator: (x) => [...(x as mx.Array)],
    }
    for (const [name, f] of Object.entries(members)) expect(givesOwn(name, f, [mx.ones([1])])).toBe(true)
  })
  it("layers", () => {
    const constructorArgs: unknown[][] = [
      [],
      [1],
      [2],
      [2, 2],
      [2, 1],
      [1, 1, 1],
      [2, 1, 1, 1, 1],
      [1, 1, 1, { groupSize: 32 }],
      [64, 64],
      [32, 64],
      [new nn.Identity()],
    ]
    const missed = Object.entries(table(nn)).flatMap(([name, Layer]) => {
      if (typeof Layer !== "function" || isFunction(Layer) || !(Layer.prototype instanceof nn.Module))
        return []
      if (!("forward" in Layer.prototype)) return []
      let works = false
      for (const args of constructorArgs) {
        let layer: nn.Module & { forward: Fn }
        try {
          layer = new (Layer as new (...args: unknown[]) => typeof layer)(...args).eval()
        } catch {
          continue
        }
        for (const subject of [...subjects, ...layerInputs])
          for (const count of [1, 2, 3, 4]) {
            const given = Array.from({ length: count }, subject)
            if (givesOwn(`nn.${name}`, (...xs) => layer.forward(...xs), given)) works = true
          }
      }
      return works ? [] : [name]
    })
    expect(missed).toEqual([])
  })
  it("optimizers", () => {
    const missed = Object.entries(table(optim)).flatMap(([name, Optimizer]) => {
      if (typeof Optimizer !== "function" || isFunction(Optimizer)) return []
      const optimizer = new (Optimizer as new (...args: unknown[]) => optim.Optimizer)(
        name === "MultiOptimizer" ? [new optim.SGD(0)] : name === "Optimizer" ? null : 0,
      )
      const works = givesOwn(`optim.${name}`, (g, p) => optimizer.applyGradients(g as object, p as object), [
        { w: square() },
        { w: square() },
      ])
      return works ? [] : [name]
    })
    expect(missed).toEqual(["Optimizer"])
  })
  it("what is done with one handle leaves the other alone", () => {
    const x = mx.array([1, 2])
    x.astype(x.dtype).set([0], 9)
    expect(x.tolist()).toEqual([1, 2])
    x.astype(x.dtype).dispose()
    x.reshape([1, 2]).squeeze(0).dispose()
    mx.broadcastArrays(x, x).forEach((y) => {
      y.dispose()
    })
    expect(x.tolist()).toEqual([1, 2])
    const large = mx.ones([70_000])
    large.astype(mx.float32).dispose()
    expect(large.sum().item()).toBe(70_000)
  })
  it.each(Object.entries(makers))("%s", (name, f) => {
    expect(givesOwn(name, f, [mx.array([1, 2])])).toBe(true)
  })
})
