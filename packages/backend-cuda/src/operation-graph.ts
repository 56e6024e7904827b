/**
 * Graphs of operations as cuDNN runs them in one go: tensors of four axes, operations among them, and their words for the addon.
 */

/** `cudnnDataType_t`. */
export enum Type {
  Float32 = 0,
  Float16 = 2,
  Int32 = 4,
  BFloat16 = 9,
  Bool = 11,
}
/** `cudnnPointwiseMode_t`. */
export enum Mode {
  Add = 0,
  Multiply = 1,
  Divide = 6,
  Subtract = 9,
  Exp = 13,
  Log = 15,
  Identity = 21,
  GreaterEqual = 303,
  Index = 501,
  Select = 601,
}
/** `cudnnReduceTensorOp_t`. */
export enum Fold {
  Sum = 0,
  Max = 3,
}

/** The kinds of tensors and operations; native/cuda/operation_graphs.cc has the same. */
enum Kind {
  Array = 0,
  Virtual = 1,
  Scalar = 2,
}
enum Work {
  Elementwise = 0,
  Product = 1,
  Fold = 2,
  Reshape = 3,
}

/** A tensor of a graph. */
export interface Tensor {
  readonly index: number
  readonly sizes: readonly number[]
  readonly strides: readonly number[]
}

/** Strides of a row-major tensor. */
export const rowMajor = (sizes: readonly number[]): number[] => {
  const strides = [1, 1, 1, 1]
  for (let i = 2; i >= 0; i--) strides[i] = strides[i + 1] * sizes[i + 1]
  return strides
}

/** A graph that is being written. */
export class OperationGraph {
  private readonly tensors: bigint[][] = []
  private readonly operations: bigint[][] = []

  private tensor(
    kind: Kind,
    type: Type,
    value: number,
    sizes: readonly number[],
    strides: readonly number[],
  ): Tensor {
    const bits = new BigInt64Array(Float64Array.of(value).buffer)[0]
    this.tensors.push([BigInt(kind), BigInt(type), bits, ...sizes.map(BigInt), ...strides.map(BigInt)])
    return { index: this.tensors.length - 1, sizes, strides }
  }
  /** An array that a run binds, in the order of these calls. */
  array(type: Type, sizes: readonly number[], strides: readonly number[] = rowMajor(sizes)): Tensor {
    return this.tensor(Kind.Array, type, 0, sizes, strides)
  }
  /** A value of the host's. */
  scalar(value: number, type: Type = Type.Float32): Tensor {
    return this.tensor(Kind.Scalar, type, value, [1, 1, 1, 1], [1, 1, 1, 1])
  }
  private between(
    type: Type,
    sizes: readonly number[],
    strides: readonly number[] = rowMajor(sizes),
  ): Tensor {
    return this.tensor(Kind.Virtual, type, 0, sizes, strides)
  }

  private add(
    work: Work,
    mode: number,
    compute: Type,
    axis: number,
    x: Tensor,
    b: Tensor | null,
    t: Tensor | null,
    y: Tensor,
  ): Tensor {
    this.operations.push(
      [work, mode, compute, axis, x.index, b?.index ?? -1, t?.index ?? -1, y.index].map(BigInt),
    )
    return y
  }
  /** Elementwise work; `type` is that of the result where it stays in between. */
  map(
    mode: Mode,
    x: Tensor,
    b: Tensor | null = null,
    {
      type = Type.Float32,
      compute = Type.Float32,
      into,
    }: { type?: Type; compute?: Type; into?: Tensor } = {},
  ): Tensor {
    return this.add(Work.Elementwise, mode, compute, 0, x, b, null, into ?? this.between(type, x.sizes))
  }
  /** `x` where `condition` holds, otherwise `b`. */
  select(condition: Tensor, x: Tensor, b: Tensor): Tensor {
    const y = this.between(Type.Float32, x.sizes)
    return this.add(Work.Elementwise, Mode.Select, Type.Float32, 0, x, b, condition, y)
  }
  /** The positions along an axis of a tensor like `x`. */
  positions(x: Tensor, axis: number): Tensor {
    const y = this.between(Type.Int32, x.sizes)
    return this.add(Work.Elementwise, Mode.Index, Type.Float32, axis, x, null, null, y)
  }
  /** A product of matrices in the last two axes. */
  matmul(x: Tensor, b: Tensor, into?: Tensor, type: Type = Type.Float32): Tensor {
    const sizes = [x.sizes[0], x.sizes[1], x.sizes[2], b.sizes[3]]
    return this.add(Work.Product, 0, Type.Float32, 0, x, b, null, into ?? this.between(type, sizes))
  }
  /** A fold over the axes that have size 1 in the result. */
  fold(fold: Fold, x: Tensor, into: Tensor | readonly number[]): Tensor {
    const y = "index" in into ? into : this.between(Type.Float32, into)
    return this.add(Work.Fold, fold, Type.Float32, 0, x, null, null, y)
  }
  /** The same elements by other sizes and strides. */
  reshape(x: Tensor, sizes: readonly number[], strides: readonly number[], type: Type): Tensor {
    return this.add(Work.Reshape, 0, 0, 0, x, null, null, this.between(type, sizes, strides))
  }

  words(): BigInt64Array {
    const { tensors, operations } = this
    return BigInt64Array.from([
      BigInt(tensors.length),
      BigInt(operations.length),
      ...tensors.flat(),
      ...operations.flat(),
    ])
  }
}
