/**
 * `import '@lazuli/backend-cpu/optional'` registers the CPU backend where its native addon loads. Elsewhere it says once why not, and the
 * reference backend serves `mx.cpu`.
 */
import "./backend"
import { loadFailure } from "./native"

if (loadFailure !== null)
  process.emitWarning(
    `${loadFailure.message}\nEverything runs on the reference backend until then, which is slow.`,
    "LazuliWarning",
  )
