/**
 * The public dtypes: callable, so that `mx.int32([1, 2])` creates an array.
 */
import type { Complex } from "../graph/complex-number"
import * as plain from "../graph/dtype"
import type { ArrayOf } from "../graph/graph"
import type { Value } from "../graph/option-types"
import type { ArrayData } from "../ops/creation"

/** A dtype that creates an array when called. */
export type DtypeConstructor<V extends Value = Value> = plain.Dtype<V> & ((data: ArrayData) => ArrayOf<V>)
const callable = <V extends Value>(dtype: plain.Dtype): DtypeConstructor<V> => dtype as DtypeConstructor<V>

export const bool_: DtypeConstructor<boolean> = callable(plain.bool_)
export const uint8: DtypeConstructor<number> = callable(plain.uint8)
export const uint16: DtypeConstructor<number> = callable(plain.uint16)
export const uint32: DtypeConstructor<number> = callable(plain.uint32)
export const uint64: DtypeConstructor<bigint> = callable(plain.uint64)
export const int8: DtypeConstructor<number> = callable(plain.int8)
export const int16: DtypeConstructor<number> = callable(plain.int16)
export const int32: DtypeConstructor<number> = callable(plain.int32)
export const int64: DtypeConstructor<bigint> = callable(plain.int64)
export const float16: DtypeConstructor<number> = callable(plain.float16)
export const float32: DtypeConstructor<number> = callable(plain.float32)
export const bfloat16: DtypeConstructor<number> = callable(plain.bfloat16)
export const float64: DtypeConstructor<number> = callable(plain.float64)
export const complex64: DtypeConstructor<Complex> = callable(plain.complex64)
