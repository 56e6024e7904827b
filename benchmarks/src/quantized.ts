/**
 * `npm run bench:quantized [-- --rows 1,512 --formats 4,mxfp4 --columns 1024 --rounds 9 --activations int8 --gathered]`: products with
 * packed weights as decoding makes them, one after another, each with other weights of 256 MB in all, which no cache holds. Up to eight
 * rows: a round is one call of a compiled function with all of these products, beside one of reading as many bytes at once, which has no
 * cost of starting. Between the rounds the rate of products of bfloat16 pairs from registers is measured: what so many rows' arithmetic
 * may take. More rows: single products beside the dense product of the same shape, of which the weights rotate too. The share is the median
 * of the rounds' own. Rates are by wall time and, for a machine that others use too, by processor time.
 */
import { fileURLToPath } from "node:url"
import { parseArgs } from "node:util"
import { mx } from "lazuli"
import { Contestant } from "./contestant"
import { median } from "./median"
import { buildProgram } from "./program"

const { values } = parseArgs({
  options: {
    rows: { type: "string", default: "1,2,4,8,16,64,512" },
    widths: { type: "string", default: "1024,2048,8192,32000" },
    // Of all weights; without it as many as make a dense bfloat16 matrix of 32 MB.
    columns: { type: "string" },
    // Bits of affine codes, or another mode.
    formats: { type: "string", default: "4" },
    dtypes: { type: "string", default: "bfloat16,float32" },
    rounds: { type: "string", default: "9" },
    group: { type: "string", default: "64" },
    activations: { type: "string", default: "exact" },
    // Each product gathers two weights of a stack, as a mixture of experts does.
    gathered: { type: "boolean", default: false },
  },
})
const list = (text: string): number[] => text.split(",").map(Number)
const rounds = Number(values.rounds)
const ROTATED = 256e6
const MATRIX = 32e6
const FEW_ROWS = 8

interface Seconds {
  readonly wall: number
  readonly processor: number
}

/** Seconds of one evaluation, by both clocks. The results' memory serves the next one, as in a decoding step. */
function take(arrays: readonly mx.Array[]): Seconds {
  const before = process.cpuUsage()
  const start = performance.now()
  mx.eval(arrays)
  const wall = (performance.now() - start) / 1e3
  const { user, system } = process.cpuUsage(before)
  for (const array of arrays) array.dispose()
  return { wall, processor: (user + system) / 1e6 }
}

interface Side {
  readonly arrays: () => readonly mx.Array[]
  /** Bytes or floating-point operations of these arrays. */
  readonly work: number
}

/** Both sides' rates, and the first's share of the second's, from rounds in which both had their turn. */
async function inTurn(ours: Side, other: Side) {
  if (pairs) pairs.taken = []
  const taken: { ours: Seconds; other: Seconds }[] = []
  for (let round = -1; round < rounds; round++) {
    const turn = { ours: take(ours.arrays()), other: take(other.arrays()) }
    if (round >= 0) taken.push(turn)
    await pairs?.measure()
  }
  const of = (clock: keyof Seconds) => ({
    rate: median(taken.map((turn) => ours.work / turn.ours[clock])) / 1e9,
    share: median(taken.map((turn) => ((ours.work / other.work) * turn.other[clock]) / turn.ours[clock])),
    other: median(taken.map((turn) => other.work / turn.other[clock])) / 1e9,
  })
  return { wall: of("wall"), processor: of("processor") }
}

interface Format {
  readonly bits: number
  readonly groupSize: number
  readonly mode: mx.QuantizationMode
}
const MODES: Readonly<Record<string, Format>> = {
  mxfp4: { bits: 4, groupSize: 32, mode: "mxfp4" },
  mxfp8: { bits: 8, groupSize: 32, mode: "mxfp8" },
  nvfp4: { bits: 4, groupSize: 16, mode: "nvfp4" },
}
const formatOf = (name: string): Format =>
  MODES[name] ?? { bits: Number(name), groupSize: Number(values.group), mode: "affine" }

/** Measures the rate of products of bfloat16 pairs from registers, between the same rounds; null without a compiler. */
const program = buildProgram(fileURLToPath(new URL("../ceilings/ceilings.cc", import.meta.url)))
const pairs = program === null ? null : new Contestant("pairs", [program, "pairs"])

const activations = values.activations as mx.ProductActivations
const copied = (a: mx.Array): mx.Array => mx.contiguous(a.add(mx.array(0, a.dtype)))

// As many floats as are read at a time by the measure of bandwidth, not one element for all.
const stream = mx.contiguous(mx.ones([ROTATED / 4]))
mx.eval(stream)
const reading: Side = { arrays: () => [stream.max()], work: ROTATED }

function* cases() {
  for (const dtype of values.dtypes.split(","))
    for (const width of list(values.widths))
      for (const format of values.formats.split(",")) yield { dtype, width, format }
}

for (const { dtype: dtypeName, width, format: formatName } of cases()) {
  const dtype = mx[dtypeName as "bfloat16" | "float16" | "float32"]
  const format = formatOf(formatName)
  const columns = Number(values.columns ?? Math.round(MATRIX / 2 / width / 128) * 128)
  const one = mx.quantize(mx.random.normal({ shape: [columns, width], dtype }), format)
  const bytes = one.reduce((sum, a) => sum + a.nbytes, 0)
  const count = Math.ceil(ROTATED / bytes / 2) * 2
  const packed = values.gathered ? [] : Array.from({ length: count }, () => one.map(copied))
  const stacked = values.gathered ? one.map((a) => copied(mx.repeat(a.expandDims(0), count, 0))) : []
  const couples = Array.from({ length: count / 2 }, (_, i) => mx.array([2 * i, 2 * i + 1], mx.int32))
  const lhsIndices = mx.zeros([2], mx.int32)
  mx.eval(packed, stacked, couples, lhsIndices)
  let dense: mx.Array[] = []
  for (const rows of list(values.rows)) {
    const few = rows <= FEW_ROWS
    if (!few && dense.length === 0) {
      const first = mx.random.normal({ shape: [columns, width], dtype })
      dense = Array.from({ length: Math.ceil(ROTATED / first.nbytes) }, () => copied(first))
      mx.eval(dense)
    }
    // Each has its own, as products of a model do: those of the same rows are made together.
    const xs = Array.from({ length: few ? count : 1 }, () =>
      mx.random.normal({ shape: [rows, width], dtype }),
    )
    mx.eval(xs)
    const product = (x: mx.Array, i: number): mx.Array => {
      if (!values.gathered) {
        const [w, scales, biases] = packed[i % count]
        return mx.quantizedMatmul(x, w, scales, biases, { ...format, activations })
      }
      const [w, scales, biases] = stacked
      const rhsIndices = couples[i % couples.length]
      return mx.gatherQmm(x.expandDims(0), w, scales, biases, {
        ...format,
        lhsIndices,
        rhsIndices,
        activations,
      })
    }
    const weights = values.gathered ? 2 : 1
    let next = 0
    let nextDense = 0
    const flops = 2 * rows * columns * width
    const step = mx.compile((...all: mx.Array[]) => all.map(product))
    const { wall, processor } = few
      ? await inTurn(
          {
            arrays: () => step(...xs.slice(0, count / weights)),
            work: count * bytes,
          },
          reading,
        )
      : await inTurn(
          { arrays: () => [product(xs[0], next++)], work: flops * weights },
          { arrays: () => [xs[0].matmul(dense[nextDense++ % dense.length].T)], work: flops },
        )
    const unit = few ? "GB/s" : "GFLOP/s"
    const figure = (rate: number): string => `${rate.toFixed(few ? 1 : 0)} ${unit}`
    const percent = (share: number): string => `${(100 * share).toFixed(0)} %`
    const computed = few && pairs ? flops / bytes / (median(pairs.taken) / 1e9) : 0
    const ofPairs =
      computed > 0 ? `, ${percent(wall.rate * computed)} of pair products (${figure(1 / computed)})` : ""
    console.log(
      `${dtypeName} ${rows} × ${width} × ${columns}, ${formatName}: ${figure(wall.rate)} (${figure(processor.rate)} a processor); ${percent(wall.share)} of ${few ? "reading" : "the dense product"} (${figure(wall.other)})${ofPairs} by wall time, ${percent(processor.share)} by processor time`,
    )
  }
}
pairs?.end()
