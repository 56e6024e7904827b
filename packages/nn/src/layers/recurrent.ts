/**
 * Recurrent layers. Each iterates over the second-to-last axis, time, and returns the hidden state of every step.
 */
import * as mx from "@lazuli/core"
import { asCall, format, ofUser, parametersOf, ShapeError, timesTransposed } from "@lazuli/core/engine"
import { called, named } from "../arguments"
import { Module } from "../module"

const SETTINGS = { inputSize: "count", hiddenSize: "count", bias: "bool?" } as const
const hiddenCall = parametersOf({ hidden: "array?" })
const stateCall = parametersOf({ hidden: "array?", cell: "array?" })
type Arguments = [number, number, boolean?]

/** @throws ShapeError for an array without an axis of at least one step */
function checkTime(layer: object, x: mx.Array): void {
  const { shape } = x.node
  if (shape.length < 2 || shape[shape.length - 2] === 0)
    throw new ShapeError(
      layer.constructor.name,
      `x must be [batch, time, features] or [time, features] with at least one step, received shape ${format(shape)}`,
    )
}

/** Uniform on ±1/√hiddenSize. */
function drawn(hiddenSize: number, shape: readonly number[]): mx.Array {
  const scale = 1 / Math.sqrt(hiddenSize)
  return mx.random.uniform(-scale, scale, shape)
}

/** The features from part `from` to part `to`, of parts of `size`. */
const part = (x: mx.Array, size: number, from: number, to: number): mx.Array =>
  x.index("...", `${from * size}:${to * size}`)

const at = (x: mx.Array, time: number): mx.Array => x.index("...", time, ":")

const tanh = (x: mx.Array): mx.Array => mx.tanh(x)

function walkRnn(
  inputs: mx.Array,
  weight: mx.Array,
  hidden: mx.Array | null,
  nonlinearity: (x: mx.Array) => mx.Array,
): mx.Array {
  const states: mx.Array[] = []
  let h = hidden
  // One array per step: shape-polymorphic programs detect a change of their number.
  for (const input of mx.unstack(inputs, { axis: -2 })) {
    h = nonlinearity(h ? mx.addmm(input, h, weight.T) : input)
    states.push(h)
  }
  return mx.stack(states, -2)
}
// Recorded as calls, since the number of steps depends on the sizes.
const walkTanh = asCall(
  "@lazuli/nn/rnn",
  (inputs: mx.Array, weight: mx.Array, hidden: mx.Array | null): mx.Array =>
    walkRnn(inputs, weight, hidden, tanh),
)
const walkGru = asCall(
  "@lazuli/nn/gru",
  (
    inputs: mx.Array,
    weight: mx.Array,
    bias: mx.Array | null,
    hidden: mx.Array | null,
    size: number,
  ): mx.Array => {
    const [gateInputs, newInputs] = [part(inputs, size, 0, 2), part(inputs, size, 2, 3)]
    const states: mx.Array[] = []
    let h = hidden
    for (let time = 0; time < inputs.shape[inputs.ndim - 2]; time++) {
      let gates = at(gateInputs, time)
      let fresh = at(newInputs, time)
      const memory = h && mx.matmul(h, weight.T)
      if (memory) gates = gates.add(part(memory, size, 0, 2))
      gates = gates.sigmoid()
      const [reset, keep] = [part(gates, size, 0, 1), part(gates, size, 1, 2)]
      const old = memory && part(memory, size, 2, 3)
      const remembered = old && bias ? old.add(bias) : (old ?? bias)
      if (remembered) fresh = fresh.add(reset.multiply(remembered))
      fresh = mx.subtract(1, keep).multiply(fresh.tanh())
      h = h ? fresh.add(keep.multiply(h)) : fresh
      states.push(h)
    }
    return mx.stack(states, -2)
  },
)
const walkLstm = asCall(
  "@lazuli/nn/lstm",
  (
    inputs: mx.Array,
    weight: mx.Array,
    hidden: mx.Array | null,
    cell: mx.Array | null,
    size: number,
  ): [mx.Array, mx.Array] => {
    const [hiddens, cells]: mx.Array[][] = [[], []]
    let [h, c] = [hidden, cell]
    for (let time = 0; time < inputs.shape[inputs.ndim - 2]; time++) {
      const input = at(inputs, time)
      const all = h ? mx.addmm(input, h, weight.T) : input
      const gate = (k: number): mx.Array => part(all, size, k, k + 1)
      const added = gate(0).sigmoid().multiply(gate(2).tanh())
      c = c ? gate(1).sigmoid().multiply(c).add(added) : added
      h = gate(3).sigmoid().multiply(c.tanh())
      cells.push(c)
      hiddens.push(h)
    }
    return [mx.stack(hiddens, -2), mx.stack(cells, -2)]
  },
)

/**
 * h ← nonlinearity(Wxh x + Whh h + bias).
 * @example
 * new nn.RNN(2, 4).forward(mx.ones([1, 5, 2])).shape // => [1, 5, 4]
 */
export class RNN extends Module {
  Wxh: mx.Array
  Whh: mx.Array
  bias?: mx.Array
  hiddenSize: number
  nonlinearity: (x: mx.Array) => mx.Array

  constructor(
    inputSize: number,
    hiddenSize: number,
    bias?: boolean,
    nonlinearity?: ((x: mx.Array) => mx.Array) | null,
  )
  constructor(
    inputSize: number,
    hiddenSize: number,
    options: { bias?: boolean; nonlinearity?: ((x: mx.Array) => mx.Array) | null },
  )
  constructor(options: {
    inputSize: number
    hiddenSize: number
    bias?: boolean
    nonlinearity?: ((x: mx.Array) => mx.Array) | null
  })
  constructor(...args: unknown[]) {
    super()
    const [inputSize, hiddenSize, bias = true, nonlinearity = tanh] = named<
      [...Arguments, (((x: mx.Array) => mx.Array) | null)?]
    >("RNN", { ...SETTINGS, nonlinearity: "function?" }, args)
    this.hiddenSize = hiddenSize
    this.nonlinearity = nonlinearity
    this.Wxh = drawn(hiddenSize, [hiddenSize, inputSize])
    this.Whh = drawn(hiddenSize, [hiddenSize, hiddenSize])
    if (bias) this.bias = drawn(hiddenSize, [hiddenSize])
  }

  /**
   * @param x - [batch, time, inputSize] or [time, inputSize]
   * @param hidden - the initial state; zeros by default
   */
  forward(x: mx.Array, hidden?: mx.Array | null | { hidden?: mx.Array | null }): mx.Array
  forward(x: mx.Array, ...args: unknown[]): mx.Array {
    const [hidden = null] = named<[mx.Array?]>(this.constructor.name, hiddenCall, args)
    return called(
      this,
      { x },
      () => {
        checkTime(this, x)
        const inputs = timesTransposed(x, this.Wxh, this.bias)
        return this.nonlinearity === tanh
          ? walkTanh(inputs, this.Whh, hidden)
          : walkRnn(inputs, this.Whh, hidden, (y) => ofUser(() => this.nonlinearity(y)))
      },
      () => ({ x: this.Wxh.node.shape[1] }),
    )
  }

  protected override extraRepr(): string {
    return `inputDims=${this.Wxh.shape[1]}, hiddenSize=${this.hiddenSize}, bias=${this.bias !== undefined}`
  }
}

/**
 * The gated recurrent unit: h ← (1 − z) n + z h with gates r and z from x and h, and n = tanh(W x + b + r (U h + bₙ)).
 * https://arxiv.org/abs/1406.1078
 * @example
 * new nn.GRU(2, 4).forward(mx.ones([1, 5, 2])).shape // => [1, 5, 4]
 */
export class GRU extends Module {
  Wx: mx.Array
  Wh: mx.Array
  b?: mx.Array
  bhn?: mx.Array
  hiddenSize: number

  constructor(inputSize: number, hiddenSize: number, bias?: boolean)
  constructor(inputSize: number, hiddenSize: number, options: { bias?: boolean })
  constructor(options: { inputSize: number; hiddenSize: number; bias?: boolean })
  constructor(...args: unknown[]) {
    super()
    const [inputSize, hiddenSize, bias = true] = named<Arguments>("GRU", SETTINGS, args)
    this.hiddenSize = hiddenSize
    this.Wx = drawn(hiddenSize, [3 * hiddenSize, inputSize])
    this.Wh = drawn(hiddenSize, [3 * hiddenSize, hiddenSize])
    if (bias) {
      this.b = drawn(hiddenSize, [3 * hiddenSize])
      this.bhn = drawn(hiddenSize, [hiddenSize])
    }
  }

  /** As in {@link RNN}. */
  forward(x: mx.Array, hidden?: mx.Array | null | { hidden?: mx.Array | null }): mx.Array
  forward(x: mx.Array, ...args: unknown[]): mx.Array {
    const [hidden = null] = named<[mx.Array?]>(this.constructor.name, hiddenCall, args)
    return called(
      this,
      { x },
      () => {
        checkTime(this, x)
        const inputs = timesTransposed(x, this.Wx, this.b)
        return walkGru(inputs, this.Wh, this.bhn ?? null, hidden, this.hiddenSize)
      },
      () => ({ x: this.Wx.node.shape[1] }),
    )
  }

  protected override extraRepr(): string {
    return `inputDims=${this.Wx.shape[1]}, hiddenSize=${this.hiddenSize}, bias=${this.b !== undefined}`
  }
}

/**
 * Long short-term memory: c ← f c + i g and h = o tanh(c), with gates i, f, o and g = tanh(…) from x and h.
 * https://www.bioinf.jku.at/publications/older/2604.pdf
 * @example
 * const [hidden, cell] = new nn.LSTM(2, 4).forward(mx.ones([1, 5, 2]))
 * cell.shape // => [1, 5, 4]
 */
export class LSTM extends Module {
  Wx: mx.Array
  Wh: mx.Array
  bias?: mx.Array
  hiddenSize: number

  constructor(inputSize: number, hiddenSize: number, bias?: boolean)
  constructor(inputSize: number, hiddenSize: number, options: { bias?: boolean })
  constructor(options: { inputSize: number; hiddenSize: number; bias?: boolean })
  constructor(...args: unknown[]) {
    super()
    const [inputSize, hiddenSize, bias = true] = named<Arguments>("LSTM", SETTINGS, args)
    this.hiddenSize = hiddenSize
    this.Wx = drawn(hiddenSize, [4 * hiddenSize, inputSize])
    this.Wh = drawn(hiddenSize, [4 * hiddenSize, hiddenSize])
    if (bias) this.bias = drawn(hiddenSize, [4 * hiddenSize])
  }

  /**
   * @param x - [batch, time, inputSize] or [time, inputSize]
   * @param hidden - the initial hidden state; zeros by default
   * @param cell - the initial cell state; zeros by default
   * @returns the hidden states and the cell states
   */
  forward(
    x: mx.Array,
    hidden?: mx.Array | null | { hidden?: mx.Array | null; cell?: mx.Array | null },
    cell?: mx.Array | null,
  ): [mx.Array, mx.Array]
  forward(x: mx.Array, ...args: unknown[]): [mx.Array, mx.Array] {
    const [hidden = null, cell = null] = named<[mx.Array?, mx.Array?]>(this.constructor.name, stateCall, args)
    return called(
      this,
      { x },
      () => {
        checkTime(this, x)
        const inputs = timesTransposed(x, this.Wx, this.bias)
        return walkLstm(inputs, this.Wh, hidden, cell, this.hiddenSize)
      },
      () => ({ x: this.Wx.node.shape[1] }),
    )
  }

  protected override extraRepr(): string {
    return `inputDims=${this.Wx.shape[1]}, hiddenSize=${this.hiddenSize}, bias=${this.bias !== undefined}`
  }
}
