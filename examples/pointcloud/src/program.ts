/**
 * The program, in the order in which things happen: command line, training, judgement, pictures.
 */
import { mkdirSync } from "node:fs"
import { join, relative } from "node:path"
import cliProgress from "cli-progress"
import { mx } from "lazuli"
import { requireNativeBackend } from "./native-backend"
import { type Options, parseOptions } from "./options"
import { cloudChart, confusionChart, type PicturedCloud, writePicture } from "./pictures"
import { accuracy, meanIoU, TASKS, Trainer } from "./train"

/** Clouds in the picture. */
const PICTURED = 8
/** Seconds between lines where there is no terminal. */
const LINE_EVERY = 5
const SMOOTHING = 0.95

const say = (line = ""): boolean => process.stdout.write(`${line}\n`)
const percent = (part: number): string => `${(100 * part).toFixed(2)} %`

/** Trains to the end, with a bar on a terminal and lines elsewhere; false when the user stopped it. */
async function run(trainer: Trainer, steps: number): Promise<boolean> {
  const { stdout } = process
  const view = stdout.isTTY
    ? new cliProgress.SingleBar(
        {
          format: "training [{bar}] {value}/{total}  loss {loss}  {eta_formatted} left",
          barsize: 24,
          fps: 8,
        },
        cliProgress.Presets.rect,
      )
    : null
  let asked = false
  const stop = (): void => {
    asked = true
  }
  process.once("SIGINT", stop)
  view?.start(steps, 0, { loss: "–" })
  let [sum, weight, printed] = [0, 0, performance.now()]
  try {
    for (let i = 0; i < steps && !asked; i++) {
      sum = sum * SMOOTHING + trainer.step(i)
      weight = weight * SMOOTHING + 1
      const loss = (sum / weight).toFixed(3)
      view?.update(i + 1, { loss })
      if (!view && (performance.now() - printed > 1000 * LINE_EVERY || i + 1 === steps)) {
        printed = performance.now()
        say(`step ${i + 1}/${steps}  loss ${loss}`)
      }
      await new Promise(setImmediate)
    }
  } finally {
    view?.stop()
    process.removeListener("SIGINT", stop)
  }
  return !asked
}

/** Unseen clouds of every kind, with what the model says of them. */
function pictured(trainer: Trainer, { task }: Options): PicturedCloud[] {
  const { classes } = TASKS[task]
  const { clouds, labels } = trainer.unseen(0)
  const answers = trainer.answers(clouds)
  const every = clouds.shape[0] / PICTURED
  const points = clouds.shape[1]
  return globalThis.Array.from({ length: PICTURED }, (_, i) => {
    const at = i * every
    const coordinates = clouds.index(at).tolist() as number[][]
    if (task === "shapes") {
      const [is, taken] = [classes[Number(labels.index(at).item())], classes[answers[at]]]
      const title = is === taken ? is : `${is}, taken for ${taken}`
      return { title, points: coordinates, classes: coordinates.map(() => "") }
    }
    const own = answers.slice(at * points, (at + 1) * points)
    const right = mx.array(own, mx.int32).equal(labels.index(at)).astype(mx.float32).mean().item() as number
    return { title: `${percent(right)} right`, points: coordinates, classes: own.map((k) => classes[k]) }
  })
}

export async function main(args: readonly string[]): Promise<number> {
  const options = parseOptions(args)
  if (options === null) return 0
  requireNativeBackend()
  const { task, model, steps, batch, out } = options
  const { classes } = TASKS[task]
  mkdirSync(out, { recursive: true })
  const trainer = new Trainer(task, model, options)
  const name = task === "parts" || model === "pointcnn" ? "PointCNN" : "PointNet"
  const size = mx
    .treeFlatten(trainer.model.parameters())
    .reduce((sum, [, parameter]) => sum + parameter.size, 0)
  say(
    `${name}: ${size.toLocaleString("en-US")} parameters, ${classes.length} classes; ${steps} steps of ${batch} clouds`,
  )
  const start = performance.now()
  const finished = await run(trainer, steps)
  say(`Trained in ${((performance.now() - start) / 1000).toFixed(0)} s.`)

  const unseen = Math.ceil(options.unseen / batch) * batch
  const table = trainer.confusion(unseen)
  const verdict =
    task === "shapes"
      ? `${percent(accuracy(table))} of ${unseen} unseen clouds are right`
      : `${percent(accuracy(table))} of the points of ${unseen} unseen clouds are right, mean IoU ${percent(meanIoU(table))}`
  const files = { clouds: join(out, `${task}-clouds.png`), confusion: join(out, `${task}-confusion.png`) }
  const legend = task === "shapes" ? [""] : classes
  await writePicture(
    files.clouds,
    cloudChart(pictured(trainer, options), `${name} on clouds it has not seen`, legend),
  )
  await writePicture(files.confusion, confusionChart(table, classes, `${name}: ${verdict}`))
  const { length } = classes.reduce((a, b) => (a.length > b.length ? a : b))
  for (const [i, row] of table.entries()) {
    const all = row.reduce((a, b) => a + b, 0)
    say(`  ${classes[i].padEnd(length)}  ${percent(all === 0 ? 0 : row[i] / all)}`)
  }
  say(
    `Pictures: ${Object.values(files)
      .map((file) => relative(process.cwd(), file))
      .join(", ")}`,
  )
  say(`Verdict: ${verdict}.`)
  return finished ? 0 : 130
}
