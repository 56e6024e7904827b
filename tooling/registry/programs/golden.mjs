// MLX's recorded answers on the CPU backend.
import "@lazuli/backend-cpu"
import { compile } from "@lazuli/compile"
import { goldenFamilies, replayGolden } from "@lazuli/conformance"
import * as core from "@lazuli/core"
import * as nn from "@lazuli/nn"
import * as optimizers from "@lazuli/nn/optimizers"

let [passed, failed] = [0, []]
const families = process.argv[2] ? process.argv[2].split(",") : goldenFamilies()
for (const result of replayGolden({ spaces: { core, nn, optimizers, compile }, backend: "cpu", families })) {
  passed += result.passed
  failed = failed.concat(result.failed)
}
console.log(JSON.stringify({ passed }))
if (failed.length > 0 || passed === 0) throw new Error(JSON.stringify(failed.slice(0, 5)))
