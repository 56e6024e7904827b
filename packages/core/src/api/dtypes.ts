/**
 * The element types as users have them: callable, so that `mx.int32([1, 2])` makes an array.
 */
import * as plain from "../graph/dtype"
import type { Array } from "../graph/graph"
import type { ArrayData } from "../ops/creation"

/** An element type that makes arrays of itself when called. */
export type DtypeConstructor = plain.Dtype & ((data: ArrayData) => Array)
const callable = (dtype: plain.Dtype): DtypeConstructor => dtype as DtypeConstructor

export const bool_: DtypeConstructor = callable(plain.bool_)
export const uint8: DtypeConstructor = callable(plain.uint8)
export const uint16: DtypeConstructor = callable(plain.uint16)
export const uint32: DtypeConstructor = callable(plain.uint32)
export const uint64: DtypeConstructor = callable(plain.uint64)
export const int8: DtypeConstructor = callable(plain.int8)
export const int16: DtypeConstructor = callable(plain.int16)
export const int32: DtypeConstructor = callable(plain.int32)
export const int64: DtypeConstructor = callable(plain.int64)
export const float16: DtypeConstructor = callable(plain.float16)
export const float32: DtypeConstructor = callable(plain.float32)
export const bfloat16: DtypeConstructor = callable(plain.bfloat16)
export const float64: DtypeConstructor = callable(plain.float64)
export const complex64: DtypeConstructor = callable(plain.complex64)
