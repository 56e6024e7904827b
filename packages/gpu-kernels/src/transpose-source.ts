/**
 * The source of kernel `transposed`: a copy between two layouts of which one runs along another axis than the other. Tiles pass through
 * threadgroup memory, so that both sides are walked along their neighbours, with several loads of a thread in flight.
 */
import { METAL_HEADER } from "./metal-types"

/** Threads of a group. */
export const TRANSPOSE_THREADS = 256

/** The sides of a tile of elements of so many bytes: as large as threadgroup memory has space for. */
export const tileSide = (size: number): number => (size <= 4 ? 64 : 32)

/**
 * Buffers: x, y, the layout: tiles along y's neighbours and x's; sizes of both axes; the stride of x along y's neighbours, and of y along
 * x's; the offset in x; sizes of the outer axes, their strides in x, and in y.
 */
export function transposeSource(type: string, size: number, outer: number): string {
  const side = tileSide(size)
  const step = TRANSPOSE_THREADS / side
  const each = side / step
  const walk = Array.from({ length: outer }, (_, k) => outer - 1 - k)
    .map(
      (axis) =>
        `  { int c = int(rest % uint(layout[${7 + axis}])); rest /= uint(layout[${7 + axis}]); p += c * layout[${7 + outer + axis}]; q += c * layout[${7 + 2 * outer + axis}]; }\n`,
    )
    .join("")
  return `${METAL_HEADER}kernel void transposed(device const ${type}* x [[buffer(0)]], device ${type}* y [[buffer(1)]],
    constant int* layout [[buffer(2)]], uint lane [[thread_position_in_threadgroup]],
    uint group [[threadgroup_position_in_grid]]) {
  threadgroup ${type} tile[${side}][${side + 1}];
  uint across = uint(layout[0]), tiles = across * uint(layout[1]), columns = uint(layout[2]), rows = uint(layout[3]);
  uint number = group % tiles, rest = group / tiles;
  int p = layout[6], q = 0;
${walk}  uint left = number % across * ${side}, top = number / across * ${side}, i = lane % ${side}, j = lane / ${side};
  ${type} several[${each}];
  for (uint e = 0; e < ${each}; e++) {
    uint c = left + j + e * ${step}, r = top + i;
    if (c < columns && r < rows) several[e] = x[p + int(c) * layout[4] + int(r)];
  }
  for (uint e = 0; e < ${each}; e++) {
    uint c = left + j + e * ${step}, r = top + i;
    if (c < columns && r < rows) tile[j + e * ${step}][i] = several[e];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint e = 0; e < ${each}; e++) {
    uint c = left + i, r = top + j + e * ${step};
    if (c < columns && r < rows) y[q + int(r) * layout[5] + int(c)] = tile[i][j + e * ${step}];
  }
}
`
}
