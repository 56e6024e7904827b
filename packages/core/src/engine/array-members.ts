/**
 * The members of Array other than operations: reading values, printing, iteration and disposal.
 */
import { isPlainObject, type Operand } from "../graph/args"
import { calls } from "../graph/calls"
import { Complex } from "../graph/complex-number"
import { DTypeError, ShapeError } from "../graph/errors"
import { Array } from "../graph/graph"
import { INSPECT } from "../graph/inspect"
import type { IndexSpec } from "../graph/option-types"
import { format } from "../graph/shape"
import { getIndex, IndexedArray, setIndex } from "../ops/indexing"
import { sliceRange } from "../ops/slice"
import { imag, real } from "../ops/unary"
import { transpose } from "../ops/view"
import { lifetimes } from "./memory"
import { formatArray } from "./printing"
import { copyOutLater, item, tolist, toTypedArray } from "./readback"

/** Converts an array to a number, for JavaScript's operators. @throws ShapeError, DTypeError */
function numberOf(a: Array): number | bigint | boolean {
  const hint = "operators are methods, such as x.greater(0) and x.negative(); item() and tolist() give values"
  if (a.size !== 1)
    throw new ShapeError("number", `needs an array of one element, received shape ${format(a.shape)}`, {
      hint,
    })
  const value = item(a)
  if (value instanceof Complex)
    throw new DTypeError("number", "a complex64 array has no single number", { hint })
  return value
}

const members: PropertyDescriptorMap = {
  index: {
    value(this: Array, ...specs: IndexSpec<Array>[]) {
      return getIndex(this, specs)
    },
  },
  set: {
    value(this: Array, specs: readonly IndexSpec<Array>[], value: Operand) {
      setIndex(this, specs, value)
    },
  },
  at: {
    value(this: Array, ...specs: IndexSpec<Array>[]) {
      return new IndexedArray(this, specs)
    },
  },
  item: {
    value(this: Array) {
      return item(this)
    },
  },
  tolist: {
    value(this: Array) {
      return tolist(this)
    },
  },
  toTypedArray: {
    value(this: Array, options?: { copy?: boolean }) {
      return toTypedArray(this, isPlainObject(options) ? options : {})
    },
  },
  data: {
    value(this: Array) {
      return copyOutLater(this)
    },
  },
  dispose: {
    value(this: Array) {
      lifetimes.disposeHandle(this)
    },
  },
  toString: {
    value(this: Array) {
      return formatArray(this)
    },
  },
  // `x > 0` and `+x` request a number; the other hints give text.
  [Symbol.toPrimitive]: {
    value(this: Array, hint: "default" | "number" | "string") {
      return hint === "number" ? numberOf(this) : formatArray(this)
    },
  },
  toJSON: {
    value(this: Array) {
      return tolist(this)
    },
  },
  T: {
    get(this: Array) {
      return transpose(this)
    },
  },
  real: {
    get(this: Array) {
      return real(this)
    },
  },
  imag: {
    get(this: Array) {
      return imag(this)
    },
  },
  [INSPECT]: {
    value(this: Array) {
      return formatArray(this)
    },
  },
  [Symbol.iterator]: {
    *value(this: Array) {
      if (this.ndim === 0) throw new ShapeError("iterate", "a 0-d array cannot be iterated")
      if (calls.recorder !== null) calls.recorder.readSizes(true)
      for (let i = 0; i < this.shape[0]; i++) {
        const start = this.shape.map((_, axis) => (axis === 0 ? i : 0))
        const stop = this.shape.map((n, axis) => (axis === 0 ? i + 1 : n))
        yield sliceRange(this, start, stop).squeeze(0)
      }
    },
  },
}
if (Symbol.dispose)
  members[Symbol.dispose as unknown as string] = {
    value(this: Array) {
      lifetimes.disposeHandle(this)
    },
  }
for (const key of Reflect.ownKeys(members))
  Object.defineProperty(Array.prototype, key, {
    configurable: true,
    ...members[key as string],
    ...("value" in members[key as string] ? { writable: true } : {}),
  })
