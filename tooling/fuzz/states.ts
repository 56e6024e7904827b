/**
 * Random sequences of what has a state: handles that are set, disposed and tidied, captured state of compiled functions, modules and
 * optimizers, the random generator, streams, limits of memory, evaluation beside the program, errors in the middle. A model
 * of lists of numbers says what each handle holds, before and after.
 */
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import * as mx from "@lazuli/core"
import * as nn from "@lazuli/nn"
import * as optim from "@lazuli/nn/optimizers"
import fc from "fast-check"
import { Finding, type Fuzzer } from "./fuzzer"

type Numbers = readonly number[]
/** The contents of a handle, or why it cannot be read. */
type Model = Numbers | "disposed" | "failed"
interface Slot {
  readonly handle: mx.Array
  model: Model
  /** The contents of a disposed handle: where others still need its memory, it can be read. */
  before?: Numbers
}
/** An action, the slots it is on, and a number for whatever else it must choose. */
type Action = readonly [kind: number, i: number, j: number, k: number]

/** Bytes that a tight limit leaves for new arrays. */
const MARGIN = 2 ** 25
const SEEDS = 4
const DRAWS = 40
/** The numbers that each seed gives, one draw after the other. */
const drawn = Array.from({ length: SEEDS }, (_, seed) => {
  mx.random.seed(seed)
  return Array.from({ length: DRAWS }, () => [
    ...(mx.random.uniform({ shape: [3] }).toTypedArray() as Float32Array),
  ])
})
const drawCompiled = compile(() => mx.random.uniform({ shape: [3] }), {
  inputs: mx.random.state,
  outputs: mx.random.state,
})
const streams = [mx.newStream(mx.cpu), mx.newStream(mx.cpu)]
const usualMemory = mx.setMemoryLimit(2 ** 33)
mx.setMemoryLimit(usualMemory)
const usualCache = mx.setCacheLimit(2 ** 28)
mx.setCacheLimit(usualCache)

const pairs: readonly [(a: mx.Array, b: mx.Array) => mx.Array, (a: number, b: number) => number][] = [
  [(a, b) => a.add(b), (a, b) => a + b],
  [(a, b) => a.subtract(b), (a, b) => a - b],
  [(a, b) => a.multiply(b).multiply(0.5), (a, b) => a * b * 0.5],
  [(a, b) => mx.maximum(a, b), (a, b) => Math.max(a, b)],
]
const thirds = (list: Numbers, change: (x: number) => number): number[] =>
  list.map((x, at) => (at % 3 === 0 ? change(x) : x))

/** Everything that a sequence works on. */
class World {
  readonly slots: Slot[] = []
  /** Captured by the compiled functions. */
  readonly state: { x: mx.Array }
  captured: Numbers
  readonly step: (d: mx.Array) => mx.Array
  readonly failing: (d: mx.Array) => mx.Array
  readonly model: Weights
  weights: Numbers
  frozen = false
  readonly optimizer = new optim.SGD(0.5)
  seed = 0
  draws = 0

  constructor(readonly size: number) {
    this.captured = this.numbers(1)
    this.state = { x: this.arrayOf(this.captured) }
    this.weights = this.numbers(2)
    this.model = new Weights(this.arrayOf(this.weights))
    const { state } = this
    const step = (d: mx.Array): mx.Array => {
      state.x = state.x.add(d)
      return state.x.multiply(2)
    }
    this.step = compile(step, { inputs: state, outputs: state })
    this.failing = compile(
      (d: mx.Array) => {
        state.x = state.x.multiply(d)
        throw new Error("in the middle")
      },
      { inputs: state, outputs: state },
    )
    mx.random.seed(0)
    for (let i = 0; i < 3; i++) this.put(this.arrayOf(this.numbers(i)), this.numbers(i))
  }

  numbers(k: number): number[] {
    return Array.from({ length: this.size }, (_, i) => ((i * 7 + k * 3) % 11) - 5)
  }
  arrayOf(list: Numbers): mx.Array {
    return mx.array(Float64Array.from(list))
  }
  put(handle: mx.Array, model: Model): void {
    this.slots.push({ handle, model })
  }
  /** A slot that can be read, nearest to number i. */
  readable(i: number): { handle: mx.Array; model: Numbers; slot: Slot } {
    for (let n = 0; n < this.slots.length; n++) {
      const slot = this.slots[(i + n) % this.slots.length]
      if (typeof slot.model !== "string") return { handle: slot.handle, model: slot.model, slot }
    }
    this.put(this.arrayOf(this.numbers(9)), this.numbers(9))
    return this.readable(this.slots.length - 1)
  }

  check(slot: Slot, when: string): void {
    const { handle, model } = slot
    if (model === "disposed" || model === "failed") {
      let read: number[]
      try {
        read = handle.tolist() as number[]
      } catch (error) {
        if (error instanceof mx.LazuliError) return
        throw new Finding(`${when}: raw error`, String(error), error)
      }
      if (slot.before === undefined)
        throw new Finding(`${when}: ${model} but read`, JSON.stringify(read).slice(0, 200))
      expectNumbers(`${when}, disposed`, read, slot.before)
      return
    }
    expectList(when, handle, model)
  }
}

class Weights extends nn.Module {
  constructor(public w: mx.Array) {
    super()
  }
}

function expectList(when: string, handle: mx.Array, want: Numbers): void {
  let got: Iterable<number>
  try {
    got = handle.toTypedArray() as Float64Array
  } catch (error) {
    throw new Finding(`${when}: cannot be read`, String(error), error)
  }
  expectNumbers(when, [...got], want)
}

function expectNumbers(when: string, list: Numbers, want: Numbers): void {
  const at = want.findIndex((x, i) => !Object.is(x + 0, list[i] + 0))
  if (list.length !== want.length || at >= 0)
    throw new Finding(`${when}: wrong`, `element ${at} is ${list[at]}, expected ${want[at]}`)
}

function expectThrow(when: string, run: () => unknown): void {
  try {
    run()
  } catch (error) {
    if (error instanceof mx.LazuliError || (error as Error).message === "in the middle") return
    throw new Finding(`${when}: raw error`, String(error), error)
  }
  throw new Finding(`${when}: did not throw`, "")
}

type Act = (world: World, i: number, j: number, k: number) => void | Promise<void>

/** The kinds of actions by name. */
const actions: Readonly<Record<string, Act>> = {
  combine(world, i, j, k) {
    const [a, b] = [world.readable(i), world.readable(j)]
    const [op, model] = pairs[k % pairs.length]
    // Numbers stay small.
    const halved = a.model.map((x) => x % 8)
    const by = mx.remainder(a.handle, 8).subtract(mx.where(a.handle.less(0), 8, 0))
    const exact = mx.where(by.equal(-8), 0, by)
    world.put(
      op(exact, b.handle),
      halved.map((x, at) => model(x, b.model[at])),
    )
  },
  view(world, i) {
    const { handle, model } = world.readable(i)
    world.put(handle.index("::-1"), [...model].reverse())
  },
  alias(world, i, _j, k) {
    const { handle, model } = world.readable(i)
    const made = [
      () => handle.index("..."),
      () => handle.astype(mx.float64),
      () => mx.stopGradient(handle),
      () => handle.reshape([-1]),
    ]
    world.put(made[k % made.length](), model)
  },
  set(world, i, j, k) {
    const { handle, model, slot } = world.readable(i)
    const other = world.readable(j)
    if (k % 2) {
      handle.set(["::3"], k)
      slot.model = thirds(model, () => k)
    } else {
      handle.set(["::3"], other.handle.index("::3"))
      slot.model = model.map((x, at) => (at % 3 === 0 ? other.model[at] : x))
    }
  },
  "set that fails"(world, i) {
    const { handle } = world.readable(i)
    expectThrow("set of a wrong shape", () => handle.set(["::3"], mx.ones([world.size + 2, 3, 5])))
  },
  dispose(world, i) {
    const { slot } = world.readable(i)
    slot.handle.dispose()
    slot.before = slot.model as Numbers
    slot.model = "disposed"
  },
  eval(world, i, j) {
    mx.eval(world.readable(i).handle, [world.readable(j).handle])
  },
  "eval of all"(world) {
    mx.eval(world.slots.filter(({ model }) => typeof model !== "string").map(({ handle }) => handle))
  },
  async "asyncEval, awaited"(world, i) {
    await mx.asyncEval(world.readable(i).handle)
  },
  "asyncEval, not awaited"(world, i) {
    void mx.asyncEval(world.readable(i).handle)
  },
  "asyncEval that fails"(world, i) {
    const bad = mx.linalg
      .inv(mx.zeros([3, 3], mx.float32))
      .sum()
      .astype(mx.float64)
    void mx.asyncEval(bad).catch(() => {})
    world.put(bad.add(world.readable(i).handle), "failed")
  },
  "data, beside"(world, i) {
    const { handle } = world.readable(i)
    void handle.data()
  },
  tidy(world, i, j, k) {
    const [a, b] = [world.readable(i), world.readable(j)]
    const made = mx.tidy(() => {
      const t = a.handle.add(b.handle)
      if (k % 2) mx.eval(t)
      return { kept: t.add(1) }
    })
    world.put(
      made.kept,
      a.model.map((x, at) => x + b.model[at] + 1),
    )
  },
  async "async tidy"(world, i, j) {
    const [a, b] = [world.readable(i), world.readable(j)]
    const made = await mx.tidy(async () => {
      const t = a.handle.subtract(b.handle)
      await mx.asyncEval(t)
      return [t.negative(), t]
    })
    const difference = a.model.map((x, at) => x - b.model[at])
    world.put(
      made[0],
      difference.map((x) => -x),
    )
    world.put(made[1], difference)
  },
  "tidy that fails"(world, i) {
    const a = world.readable(i)
    expectThrow("tidy", () =>
      mx.tidy(() => {
        mx.eval(a.handle.add(1))
        throw new Error("in the middle")
      }),
    )
  },
  "set within tidy"(world, i, _j, k) {
    const { handle, model, slot } = world.readable(i)
    mx.tidy(() => {
      handle.set(["::3"], mx.full([Math.ceil(world.size / 3)], k, mx.float64))
    })
    slot.model = thirds(model, () => k)
  },
  "compiled step"(world, i) {
    const { handle, model } = world.readable(i)
    world.put(world.state.x, world.captured)
    world.captured = world.captured.map((x, at) => x + model[at])
    world.put(
      world.step(handle),
      world.captured.map((x) => 2 * x),
    )
  },
  "compiled step that fails"(world, i) {
    expectThrow("compiled", () => world.failing(world.readable(i).handle))
    expectList("captured after a failure", world.state.x, world.captured)
  },
  "captured set from outside"(world, i) {
    const { handle, model } = world.readable(i)
    // A handle of its own: the slot's may be disposed.
    world.state.x = handle.index("...")
    world.captured = model
  },
  "captured changed in place"(world, _i, _j, k) {
    // A handle of the state's own: the slots keep theirs.
    world.state.x = world.state.x.index("...")
    world.state.x.set(["::3"], k)
    world.captured = thirds(world.captured, () => k)
  },
  "optimizer step"(world, i) {
    const { handle, model } = world.readable(i)
    world.put(world.model.w, world.weights)
    world.optimizer.update(world.model, { w: handle })
    world.weights = world.weights.map((w, at) => w - 0.5 * model[at])
  },
  "module update"(world, i) {
    const { handle, model } = world.readable(i)
    world.put(world.model.w, world.weights)
    world.model.update({ w: handle.index("...") })
    world.weights = model
  },
  freeze(world) {
    world.frozen = !world.frozen
    if (world.frozen) world.model.freeze()
    else world.model.unfreeze()
    const count = Object.keys(world.model.trainableParameters()).length
    if (count !== (world.frozen ? 0 : 1)) throw new Finding("trainable parameters", String(count))
  },
  "gradient of a module"(world) {
    const loss = (): mx.Array => world.model.w.square().multiply(0.5).sum()
    const [, gradients] = nn.valueAndGrad(world.model, loss)()
    const { w } = gradients as { w?: mx.Array }
    if (world.frozen !== (w === undefined)) throw new Finding("gradient of what is frozen", String(w))
    if (w) world.put(w, world.weights)
  },
  seed(world, _i, _j, k) {
    world.seed = k % SEEDS
    world.draws = 0
    mx.random.seed(world.seed)
  },
  draw(world, _i, _j, k) {
    if (world.draws === DRAWS) return
    const made = k % 2 ? drawCompiled() : mx.random.uniform({ shape: [3] })
    const want = drawn[world.seed][world.draws++]
    if (k % 3 === 0) expectList(k % 2 ? "draw, compiled" : "draw", made, want)
  },
  "on another stream"(world, i, j, k) {
    const [a, b] = [world.readable(i), world.readable(j)]
    const made = mx.stream(streams[k % 2], () => a.handle.add(b.handle))
    world.put(
      made,
      a.model.map((x, at) => x + b.model[at]),
    )
    if (k % 3 === 0) void mx.asyncEval(made)
  },
  synchronize() {
    mx.synchronize()
  },
  "limits of memory"(_world, i, _j, k) {
    mx.setMemoryLimit(k % 2 ? mx.getActiveMemory() + MARGIN : usualMemory)
    mx.setCacheLimit(i % 2 ? 0 : usualCache)
    if (k % 5 === 0) mx.clearCache()
  },
  "long chain"(world, i, _j, k) {
    const { handle, model } = world.readable(i)
    let x = handle.index("...")
    for (let n = 0; n < 20 * k; n++) x = x.add(1)
    world.put(
      x,
      model.map((y) => y + 20 * k),
    )
  },
  read(world, i) {
    world.check(world.slots[i % world.slots.length], "on the way")
  },
}
const named = Object.entries(actions)

interface Sequence {
  readonly size: number
  readonly actions: readonly Action[]
}

export const states: Fuzzer<Sequence> = {
  seconds: 20,
  cases: fc
    .record({
      size: fc.constantFrom(6, 6, 6, 300, 9000),
      actions: fc.array(fc.tuple(fc.nat(named.length - 1), fc.nat(200), fc.nat(200), fc.nat(12)), {
        minLength: 1,
        maxLength: 40,
        size: "max",
      }),
    })
    .map((sequence) =>
      Object.assign(sequence, {
        [fc.toStringMethod]: () =>
          [
            `size ${sequence.size}`,
            ...sequence.actions.map(([kind, ...rest]) => `${named[kind][0]}(${rest})`),
          ].join("\n"),
      }),
    ),
  async attempt({ size, actions: list }) {
    const world = new World(size)
    try {
      for (const [kind, i, j, k] of list) await named[kind][1](world, i, j, k)
      for (const slot of world.slots) world.check(slot, "at the end")
      expectList("captured state", world.state.x, world.captured)
      expectList("module", world.model.w, world.weights)
    } finally {
      mx.setMemoryLimit(usualMemory)
      mx.setCacheLimit(usualCache)
      mx.synchronize()
      // A handle that two slots have is disposed twice, which is allowed.
      for (const { handle } of world.slots) handle.dispose()
    }
    return "held"
  },
}
process.on("unhandledRejection", (error) => {
  console.error("unhandled rejection", error)
  process.exit(70)
})
