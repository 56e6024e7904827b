/**
 * The common case of elementwise work, without a detour: operands that lie in row-major order, single elements, and scalars. The kernel of
 * a program is found by a number that says which operand is which, so that a dispatch costs a few words.
 */
import type { Node, ScalarProgram, ScalarValue, Storage } from "@lazuli/core/engine"
import type { FlatDispatches, Kernel } from "./dispatch"
import { type Body, FEW, FLAT_GROUP, flatKernel, VECTOR } from "./map"
import type { Letter } from "./map-source"
import { bytesOf } from "./scalar-source"

/** A program with operands of some kinds: elements of a thread, and pipelines by warps of a group. */
interface Form<P> {
  readonly kernel: Kernel
  readonly count: number
  readonly pipelines: (P | undefined)[]
}

const WARP = 32
/** Operands whose kinds fit a number. */
const MAX_OPERANDS = 16

const forms = new WeakMap<object, WeakMap<ScalarProgram, Map<number, Form<unknown>>>>()

function formsOf<P>(queue: FlatDispatches<P>, program: ScalarProgram): Map<number, Form<P>> {
  let ofQueue = forms.get(queue)
  if (!ofQueue) forms.set(queue, (ofQueue = new WeakMap()))
  let known = ofQueue.get(program)
  if (!known) ofQueue.set(program, (known = new Map()))
  return known as Map<number, Form<P>>
}

const LETTERS: readonly Letter[] = ["c", "s", "i"]

function kernelOf(
  body: Body,
  code: number,
  inputs: readonly Node[],
  outputs: readonly Node[],
  onVectors: boolean,
  n: number,
): { kernel: Kernel; count: number } {
  const letters = inputs.map((_, i) => LETTERS[Math.floor(code / 3 ** (inputs.length - 1 - i)) % 3])
  const flat = inputs.filter((_, i) => letters[i] === "c")
  const sizes = [...flat, ...outputs].map(({ dtype }) => dtype.size)
  return flatKernel(body, letters.join(""), sizes, onVectors, n)
}

/** True for the strides of one element that is repeated, as `ones` and its like are. */
function isOneElement(strides: readonly number[]): boolean {
  for (let i = 0; i < strides.length; i++) if (strides[i] !== 0) return false
  return true
}

/** Adds a program's work; false, having done nothing, for operands that lie otherwise. */
export function encodeFlat<P>(
  queue: FlatDispatches<P>,
  program: ScalarProgram,
  body: Body,
  node: Node,
): boolean {
  const { inputs, dtype } = node
  const n = node.nbytes / dtype.size
  if (n === 0 || inputs.length > MAX_OPERANDS) return false
  const outputs = node.outputs ?? [node]
  let code = 0
  let bits = 0
  for (let i = 0; i < inputs.length; i++) {
    const { storage, strides, nbytes, dtype: type, offset } = inputs[i]
    if (storage === null) {
      code = code * 3 + 2
      continue
    }
    const elements = nbytes / type.size
    if ((elements === 1 && n > 1) || (strides !== null && isOneElement(strides))) {
      code = code * 3 + 1
      continue
    }
    if (strides !== null || elements !== n) return false
    code *= 3
    bits |= offset * type.size
  }
  for (let i = 0; i < outputs.length; i++) bits |= outputs[i].offset * outputs[i].dtype.size
  const onVectors = bits % VECTOR === 0
  const key = code * 4 + (onVectors ? 2 : 0) + (n <= FEW ? 1 : 0)
  const known = formsOf(queue, program)
  let form = known.get(key)
  if (form === undefined) {
    form = { ...kernelOf(body, code, inputs, outputs, onVectors, n), pipelines: [] }
    known.set(key, form)
  }
  const threads = Math.ceil(n / form.count)
  const group = threads >= FLAT_GROUP ? FLAT_GROUP : Math.ceil(threads / WARP) * WARP
  let pipeline = form.pipelines[group / WARP]
  if (pipeline === undefined) {
    const immediates = inputs.map(({ storage, dtype: type }) => (storage === null ? type.size : undefined))
    pipeline = queue.pipelineFor(form.kernel, {
      inline: [...immediates, ...outputs.map(() => undefined), 4],
      threads: group,
      whole: true,
    })
    form.pipelines[group / WARP] = pipeline
  }
  const reads: Storage[] = []
  queue.begin(pipeline)
  let index = 0
  for (let i = 0; i < inputs.length; i++) {
    const { storage, offset, dtype: type, params } = inputs[i]
    if (storage === null) queue.bytes(index++, bytesOf(params.value as ScalarValue, type))
    else {
      reads.push(storage)
      queue.location(index++, storage, offset * type.size)
    }
  }
  const writes: Storage[] = []
  for (let i = 0; i < outputs.length; i++) {
    const { storage, offset, dtype: type } = outputs[i]
    writes.push(storage as Storage)
    queue.location(index++, storage as Storage, offset * type.size)
  }
  queue.integer(index, n)
  queue.end(
    node.primitive?.name as string,
    pipeline,
    Math.ceil(threads / group) * group,
    group,
    reads,
    writes,
  )
  return true
}
