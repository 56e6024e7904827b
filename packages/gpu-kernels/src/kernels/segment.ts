/**
 * Runs of rows, given by offsets: reducing each, and the run of each row. A run of wide rows is reduced by a thread a column, one of narrow
 * rows by a simdgroup a column. Offsets that do not fit are cut to the rows, since a kernel cannot refuse them.
 */
import { sizeOf } from "@lazuli/core/engine"
import { type Families, type Family, isCountable } from "../family"
import { extremeFold, type Fold, foldSource, isFoldable, sumFold } from "../fold"
import { viewOf } from "../layout"
import { METAL_HEADER, metalType } from "../metal-types"
import { withRowMajor } from "./copy"
import { dispatchEach } from "./moves"
import { targetOf } from "./reduce"

/** From how many columns on neighbouring threads read neighbours. */
const WIDE = 16
/** Rows that are added up before they meet the sum of those before them, so that errors do not grow with the length. */
const BLOCK = 64

const reduceSource = (
  fold: Fold,
  offset: string,
  lanes: 1 | 32,
): string => `${METAL_HEADER}${foldSource(fold, false, true)}
kernel void segment_reduce(device const ${fold.from}* x [[buffer(0)]], device const ${offset}* offsets [[buffer(1)]],
    device ${fold.to}* y [[buffer(2)]], constant uint* sizes [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  uint n = sizes[1], width = sizes[2], runs = sizes[3], cell = i / ${lanes}u, lane = i % ${lanes}u;
  bool real = cell < sizes[0];
  uint column = cell % width, s = cell / width % runs, b = cell / width / runs, at = b * sizes[4] + s;
  ulong first = 0, last = 0;
  if (real) {
    first = min(ulong(offsets[at]), ulong(n));
    last = max(first, min(ulong(offsets[at + 1]), ulong(n)));
  }
  ${fold.acc} total = lz_start();
  for (ulong from = first; from < last; from += ${BLOCK * lanes}u) {
    ${fold.acc} part = lz_start();
    ulong to = min(last, from + ${BLOCK * lanes}u);
    for (ulong k = from + lane; k < to; k += ${lanes}u) part = lz_fold(part, lz_first(x[(b * ulong(n) + k) * width + column], 0));
    total = lz_fold(total, part);
  }
${lanes === 1 ? "" : "  for (ushort d = 16; d > 0; d /= 2) total = lz_fold(total, lz_exchange(total, d));\n"}  if (real && lane == 0) y[cell] = lz_last(total, 1.0f);
}
`

const segmentReduce: Family = {
  supports: (node) => isFoldable(node.inputs[0].dtype) && isFoldable(node.dtype) && isCountable(node),
  encode: (node, queue) => {
    const [x, offsets] = node.inputs
    const reduction = node.params.reduction as "sum" | "max" | "min"
    const cells = sizeOf(node.shape)
    if (cells === 0) return
    const [, n, width] = x.shape
    const runs = node.shape[1]
    const fold = reduction === "sum" ? sumFold(x.dtype, node.dtype) : extremeFold(reduction, x.dtype)
    const offset = metalType(offsets.dtype) as string
    const lanes = width >= WIDE || n < 8 * runs ? 1 : 32
    const target = targetOf(node)
    withRowMajor(queue, viewOf(x), (rows) =>
      withRowMajor(queue, viewOf(offsets), (bounds) =>
        dispatchEach(
          queue,
          "segmentReduce",
          {
            key: `segment ${lanes} ${offset} ${fold.key}`,
            name: "segment_reduce",
            source: () => reduceSource(fold, offset, lanes),
          },
          [
            rows,
            bounds,
            target,
            Uint32Array.of(cells, n, width, runs, offsets.shape[0] === 1 ? 0 : runs + 1),
          ],
          [target.storage],
          cells * lanes,
        ),
      ),
    )
  },
}

const idsSource = (offset: string): string => `${METAL_HEADER}
kernel void segment_ids(device const ${offset}* offsets [[buffer(0)]], device int* y [[buffer(1)]], constant uint* sizes [[buffer(2)]],
    uint i [[thread_position_in_grid]]) {
  if (i >= sizes[0]) return;
  uint n = sizes[1], runs = sizes[2], k = i % n, base = i / n * (runs + 1);
  // The last run that begins at row k or before it.
  uint low = 0, high = runs;
  while (low + 1 < high) {
    uint middle = (low + high) / 2;
    if (ulong(offsets[base + middle]) <= k) low = middle;
    else high = middle;
  }
  y[i] = int(low);
}
`

const segmentIds: Family = {
  supports: (node) => metalType(node.inputs[0].dtype) !== undefined && isCountable(node),
  encode: (node, queue) => {
    const [offsets] = node.inputs
    const rows = sizeOf(node.shape)
    if (rows === 0) return
    const offset = metalType(offsets.dtype) as string
    const target = targetOf(node)
    withRowMajor(queue, viewOf(offsets), (bounds) =>
      dispatchEach(
        queue,
        "segmentIds",
        { key: `segment ids ${offset}`, name: "segment_ids", source: () => idsSource(offset) },
        [bounds, target, Uint32Array.of(rows, node.shape[1], offsets.shape[1] - 1)],
        [target.storage],
        rows,
      ),
    )
  },
}

/** Runs of rows, by primitive. */
export const segments: Families = { segmentReduce, segmentIds }
