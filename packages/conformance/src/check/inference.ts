/**
 * The column `infer`: what it promises from shapes and dtypes alone is what the reference makes.
 */
import * as mx from "@lazuli/core"
import {
  broadcastShapes,
  decompose,
  type HostArray,
  type Meta,
  newStore,
  programOf,
  storeWidth,
} from "@lazuli/core/engine"
import { type Application, functionOf } from "./applications"
import type { Column } from "./column"
import { onReference } from "./derivatives"
import { CheckFailure } from "./values"
import { variants } from "./variants"

const text = (metas: readonly Meta[]): string =>
  metas.map(({ dtype, shape }) => `${dtype.name}[${shape}]`).join(", ")

function expectSame(got: readonly Meta[], promised: readonly Meta[], who: string): void {
  if (text(got) !== text(promised))
    throw new CheckFailure(`${who} ${text(got)} where infer promises ${text(promised)}`)
}

/** An output whose loop is stopped where it writes beyond what infer promised. */
function guarded({ shape, dtype }: Meta, op: string): HostArray {
  const half = dtype.size === 2 && dtype.kind === "floating"
  const count = shape.reduce((a, b) => a * b, 1)
  const store = half ? new Float32Array(count) : newStore(dtype, count)
  const length = count * storeWidth(dtype)
  const data = new Proxy(store, {
    get(target, key) {
      const value = Reflect.get(target, key) as unknown
      return typeof value === "function" ? value.bind(target) : value
    },
    set(target, key, value) {
      if (typeof key === "string" && Number(key) >= length)
        throw new CheckFailure(
          `${op} writes element ${key} of ${length} that infer promises: ${text([{ shape, dtype }])}`,
        )
      return Reflect.set(target, key, value)
    },
  })
  return { shape, dtype, data: data as unknown as HostArray["data"] }
}

/** Elements as a reference loop reads them: half types as float32. */
function hostArray(x: mx.Array): HostArray {
  const half = x.dtype.size === 2 && x.dtype.kind === "floating"
  const data = (half ? x.astype(mx.float32) : x).toTypedArray() as unknown
  return { shape: x.shape, dtype: x.dtype, data: data as HostArray["data"] }
}

function checkInference(application: Application): void {
  const { primitive, params, inputs } = application
  const { rules, name } = primitive
  const outputs = functionOf(application)(...inputs)
  const promised: Meta[] = outputs.map(({ shape, dtype }) => ({ shape, dtype }))
  const bare = rules.infer(
    inputs.map(({ shape, dtype }) => ({ shape, dtype })),
    params,
  )
  expectSame(
    (globalThis.Array.isArray(bare) ? bare : [bare]) as Meta[],
    promised,
    "from plain metas it gives",
  )
  if (rules.decompose) expectSame(decompose(primitive, inputs, params), promised, "the decomposition gives")
  else if (rules.scalar) {
    const program = programOf(outputs[0].node)
    const dtypes = program.outputs.map((r) =>
      r < program.inputs.length ? program.inputs[r] : program.code[r - program.inputs.length].dtype,
    )
    const shape = inputs.reduce<readonly number[]>((s, x) => broadcastShapes(name, s, x.shape), [])
    if (!primitive.facts.immediate)
      expectSame(
        dtypes.map((dtype) => ({ shape, dtype })),
        promised,
        "the scalar program gives",
      )
  } else if (rules.reference) {
    rules.reference(
      inputs.map(hostArray),
      promised.map((meta) => guarded(meta, name)),
      params,
    )
  }
}

/** The promises of `infer`, held to what the reference makes, in every dtype that it takes. */
export const inferColumn: Column = {
  name: "infer",
  check: onReference((application) => {
    checkInference(application)
    for (const { inputs, what } of variants(application, { fillings: ["as given"] })) {
      try {
        checkInference({ ...application, inputs })
      } catch (error) {
        // A call that it refuses it need not infer.
        if (error instanceof mx.LazuliError) continue
        if (!(error instanceof CheckFailure)) throw error
        throw new CheckFailure(`${what}: ${error.message}`)
      }
    }
    return null
  }),
}
