/**
 * Training and judging: a compiled step of loss, gradient and Adam, on clouds that are never seen twice.
 */
import type { PointCloudBatch } from "@lazuli/ext-pointcloud"
import { PointCNN, PointCNNSegmenter, PointNet } from "@lazuli/ext-pointcloud/nn"
import { mx, nn, optim } from "lazuli"
import { asBatch, type Drawn, drawObjects, drawShapes } from "./clouds"
import { PARTS } from "./objects"
import { SHAPES } from "./shapes"

/** A task: its classes, and where its clouds come from. */
export interface Task {
  readonly classes: readonly string[]
  draw(n: number, key: mx.Array): Drawn
}

/** The tasks, by name. */
export const TASKS = {
  shapes: { classes: SHAPES, draw: drawShapes },
  parts: { classes: PARTS, draw: drawObjects },
} as const satisfies Record<string, Task>
export type TaskName = keyof typeof TASKS

export type ModelName = "pointcnn" | "pointnet"
export type PointModel = nn.Module & { forward(batch: PointCloudBatch): mx.Array }

/** The network of a task. Clouds come in any orientation, so neighbours are seen by distances. */
export function makeModel(task: TaskName, model: ModelName): PointModel {
  const classes = TASKS[task].classes.length
  if (task === "parts")
    return new PointCNNSegmenter(
      [
        { features: 24, neighbours: 8, dilation: 2 },
        { features: 48, points: 64, neighbours: 8, dilation: 2 },
        { features: 64, points: 16, neighbours: 8 },
      ],
      { classes, frame: "distances" },
    )
  if (model === "pointnet") return new PointNet({ classes })
  return new PointCNN(
    [
      { features: 32, points: 96, neighbours: 12 },
      { features: 64, points: 32, neighbours: 8, dilation: 2 },
      { features: 96, points: 12, neighbours: 8 },
    ],
    { classes, frame: "distances" },
  )
}

const LAST_RATE = 0.02
/** Keys of training clouds come before those of unseen ones. */
const UNSEEN = 2 ** 30

/** A model, its optimizer, and the compiled functions that change and judge it. */
export class Trainer {
  readonly model: PointModel
  readonly #task: Task
  readonly #step: (clouds: mx.Array, labels: mx.Array) => mx.Array
  readonly #answers: (clouds: mx.Array) => mx.Array
  readonly #state: unknown[]

  constructor(
    task: TaskName,
    model: ModelName,
    readonly options: { steps: number; batch: number; learningRate: number; seed: number },
  ) {
    mx.random.seed(options.seed)
    this.#task = TASKS[task]
    this.model = makeModel(task, model)
    const { learningRate, steps } = options
    const optimizer = new optim.Adam({
      learningRate: optim.cosineDecay(learningRate, steps, learningRate * LAST_RATE),
    })
    optimizer.init(this.model.trainableParameters())
    const logits = (clouds: mx.Array): mx.Array => this.model.forward(asBatch(clouds))
    const lossAndGradient = nn.valueAndGrad(this.model, (clouds: mx.Array, labels: mx.Array) =>
      nn.losses.crossEntropy(logits(clouds), labels.flatten(), { reduction: "mean" }),
    )
    this.#state = [this.model.state, optimizer.state]
    this.#step = mx.compile(
      (clouds: mx.Array, labels: mx.Array) => {
        const [loss, gradient] = lossAndGradient(clouds, labels)
        optimizer.update(this.model, gradient)
        return loss
      },
      { inputs: this.#state, outputs: this.#state },
    )
    this.#answers = mx.compile((clouds: mx.Array) => logits(clouds).argmax(-1), { inputs: this.model.state })
  }

  /** One step, on the i-th batch of clouds, and its loss before the step. */
  step(i: number): number {
    const { batch, seed } = this.options
    const { clouds, labels } = this.#task.draw(batch, mx.random.key(seed * 100_003 + i))
    const loss = this.#step(clouds, labels)
    mx.eval(loss, this.#state)
    return loss.item() as number
  }

  /** Counts of `count` unseen clouds, or of their points: what each is by row, what it is taken for by column. */
  confusion(count: number): number[][] {
    const { batch } = this.options
    const n = this.#task.classes.length
    const table = Array.from({ length: n }, () => new Array<number>(n).fill(0))
    this.model.eval()
    for (let i = 0; i * batch < count; i++) {
      const { clouds, labels } = this.unseen(i)
      const answers = this.#answers(clouds).toTypedArray()
      labels
        .flatten()
        .toTypedArray()
        .forEach((label, k) => table[Number(label)][Number(answers[k])]++)
    }
    this.model.train()
    return table
  }

  /** The i-th batch of clouds that training does not see. */
  unseen(i: number): Drawn {
    return this.#task.draw(this.options.batch, mx.random.key(UNSEEN + i))
  }

  /** The class that the model gives to each of these clouds, or to each of their points. */
  answers(clouds: mx.Array): number[] {
    this.model.eval()
    const found = globalThis.Array.from(this.#answers(clouds).toTypedArray(), Number)
    this.model.train()
    return found
  }
}

/** The part of all that is on the diagonal. */
export function accuracy(table: readonly (readonly number[])[]): number {
  const right = table.reduce((sum, row, i) => sum + row[i], 0)
  return right / table.flat().reduce((a, b) => a + b, 0)
}

/** Intersection over union, the mean of all classes. */
export function meanIoU(table: readonly (readonly number[])[]): number {
  const each = table.map((row, i) => {
    const union = row.reduce((a, b) => a + b, 0) + table.reduce((sum, other) => sum + other[i], 0) - row[i]
    return union === 0 ? 1 : row[i] / union
  })
  return each.reduce((a, b) => a + b, 0) / each.length
}
