/**
 * The names of dtypes in file formats. A format cannot store a dtype that has no name in it.
 */
import {
  bfloat16,
  bool_,
  complex64,
  type Dtype,
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
} from "../graph/dtype"

/** NumPy's type code without byte order, the safetensors name, the ggml type number. */
const table: [Dtype, string, string, number | null][] = [
  [bool_, "b1", "BOOL", null],
  [uint8, "u1", "U8", null],
  [uint16, "u2", "U16", null],
  [uint32, "u4", "U32", null],
  [uint64, "u8", "U64", null],
  [int8, "i1", "I8", 24],
  [int16, "i2", "I16", 25],
  [int32, "i4", "I32", 26],
  [int64, "i8", "I64", 27],
  [float16, "f2", "F16", 1],
  [float32, "f4", "F32", 0],
  // NumPy has no bfloat16: its two bytes are stored as an opaque type.
  [bfloat16, "V2", "BF16", 30],
  [float64, "f8", "F64", 28],
  [complex64, "c8", "C64", null],
]

/** The mapping between dtypes and a format's names, in both directions. */
export interface Names<N> {
  readonly dtypeOf: ReadonlyMap<N, Dtype>
  readonly nameOf: ReadonlyMap<Dtype, N>
}

function names<N>(pairs: readonly (readonly [Dtype, N])[], also: readonly (readonly [N, Dtype])[]): Names<N> {
  return {
    dtypeOf: new Map([...pairs.map(([dtype, name]) => [name, dtype] as const), ...also]),
    nameOf: new Map(pairs),
  }
}

export const npyNames: Names<string> = names(
  table.map(([dtype, code]) => [dtype, code] as const),
  [],
)
export const safetensorsNames: Names<string> = names(
  table.map(([dtype, , name]) => [dtype, name] as const),
  // There is no 8-bit floating dtype: those elements load as bytes, as in MLX.
  [
    ["F8_E4M3", uint8],
    ["F8_E5M2", uint8],
  ],
)
export const ggufNames: Names<number> = names(
  table.flatMap(([dtype, , , type]) => (type === null ? [] : [[dtype, type] as const])),
  [],
)
