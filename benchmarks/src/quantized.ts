/**
 * `npm run bench:quantized [-- --rows 1,512 --bits 4 --rounds 9 --activations int8]`: products with packed weights beside the dense product
 * of the same shape and beside the time in which memory gives the packed bytes, in turn. Weights rotate over 256 MB, which no cache holds.
 * Rates are by wall time and, for a machine that others use too, by processor time.
 */
import { parseArgs } from "node:util"
import { mx } from "lazuli"

const { values } = parseArgs({
  options: {
    rows: { type: "string", default: "1,2,4,8,16,64,512" },
    widths: { type: "string", default: "1024,2048,8192,32000" },
    bits: { type: "string", default: "4" },
    dtypes: { type: "string", default: "bfloat16,float32" },
    rounds: { type: "string", default: "9" },
    group: { type: "string", default: "64" },
    activations: { type: "string", default: "exact" },
  },
})
const list = (text: string): number[] => text.split(",").map(Number)
const rounds = Number(values.rounds)
const groupSize = Number(values.group)
const activations = values.activations as mx.ProductActivations
const ROTATED = 256e6
/** About the bytes of one dense bfloat16 matrix. */
const MATRIX = 32e6

interface Rate {
  readonly wall: number
  readonly processor: number
}
const median = (numbers: readonly number[]): number => numbers.toSorted((a, b) => a - b)[numbers.length >> 1]

/** Seconds of one call, by both clocks. */
function take(body: () => mx.Array): Rate {
  const before = process.cpuUsage()
  const start = performance.now()
  mx.eval(body())
  const wall = (performance.now() - start) / 1e3
  const { user, system } = process.cpuUsage(before)
  return { wall, processor: (user + system) / 1e6 }
}

/** Medians of calls taken in turn; `repeat` calls make one measurement. */
function inTurn(bodies: readonly (() => mx.Array)[]): Rate[] {
  const taken: Rate[][] = bodies.map(() => [])
  for (let round = -1; round < rounds; round++)
    for (const [i, body] of bodies.entries()) {
      const rate = take(body)
      if (round >= 0) taken[i].push(rate)
    }
  return taken.map((rates) => ({
    wall: median(rates.map(({ wall }) => wall)),
    processor: median(rates.map(({ processor }) => processor)),
  }))
}

// As many floats as are read at a time by the measure of bandwidth, not one element for all.
const stream = mx.contiguous(mx.ones([ROTATED / 4]))
mx.eval(stream)

for (const name of values.dtypes.split(","))
  for (const width of list(values.widths)) {
    const dtype = mx[name as "bfloat16" | "float32"]
    const columns = Math.round(MATRIX / 2 / width / 128) * 128
    for (const bits of list(values.bits)) {
      const bytes = (columns * width * bits) / 8 + (columns * width * 2 * dtype.size) / groupSize
      const count = Math.ceil(ROTATED / bytes)
      const one = mx.quantize(mx.random.normal({ shape: [columns, width], dtype }), { bits, groupSize })
      const packed = Array.from({ length: count }, () =>
        one.map((a) => mx.contiguous(a.add(mx.array(0, a.dtype)))),
      )
      mx.eval(packed)
      const dense = mx.random.normal({ shape: [columns, width], dtype })
      for (const rows of list(values.rows)) {
        const x = mx.random.normal({ shape: [rows, width], dtype })
        mx.eval(x, dense)
        let next = 0
        const product = (): mx.Array => {
          const [w, scales, biases] = packed[next++ % count]
          return mx.quantizedMatmul(x, w, scales, biases, { bits, groupSize, activations })
        }
        const many = rows > 8
        const [ours, other] = inTurn([product, many ? () => x.matmul(dense.T) : () => stream.max()])
        const flops = 2 * rows * columns * width
        const share = (clock: "wall" | "processor"): string => {
          const of = many ? other[clock] / ours[clock] : bytes / ours[clock] / (ROTATED / other[clock])
          return `${(100 * of).toFixed(0)} %`
        }
        const rate = ({ wall, processor }: Rate): string =>
          many
            ? `${(flops / wall / 1e9).toFixed(0)} GFLOP/s (${(flops / processor / 1e9).toFixed(0)} a processor)`
            : `${(bytes / wall / 1e9).toFixed(1)} GB/s (${(bytes / processor / 1e9).toFixed(1)} a processor)`
        console.log(
          `${name} ${rows} × ${width} × ${columns}, ${bits} bits: ${rate(ours)}; of ${many ? "the dense product" : "reading"} ${share("wall")} by wall time, ${share("processor")} by processor time`,
        )
      }
    }
  }
